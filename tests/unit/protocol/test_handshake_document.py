"""docs/endpoint-protocol.md agrees with the code: in its generated tables, and in the numbers of its text."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path

import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol import client_handshake, server_handshake
from aeron_spark.protocol.handshake_packets import COOKIE_BYTES, DONE_PAYLOAD_BYTES, PACKET_BYTES, PERIOD_S
from aeron_spark.protocol.handshake_payloads import (
    CODES,
    MAX_TAG,
    MAX_TEXT,
    MAX_TYPES,
    MAX_WANTS,
    ClientDone,
    DoneAck,
    ServerHello,
)
from tools import protocol_page
from tools.protocol_page import MEANINGS, PARTS, fill_page

PAGE = Path(__file__).parents[3] / "docs" / "endpoint-protocol.md"


def test_the_generated_parts_agree_with_the_code() -> None:
    assert fill_page(PAGE.read_text()) == PAGE.read_text(), "run: make docs"


def test_the_command_fills_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text()
    broken = page.replace("| NEW | START |", "| NEW | NEVER |")
    assert broken != page
    monkeypatch.setattr(sys, "stdin", io.StringIO(broken))
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    runpy.run_path(protocol_page.__file__, run_name="__main__")
    assert written.getvalue() == page


def test_every_row_state_and_event_is_on_the_page() -> None:
    page = PAGE.read_text()
    for machine in (client_handshake, server_handshake):
        for state, event in machine.TRANSITIONS:
            assert f"| {state.name} | {event.name} | " in page
        for word in (*machine.State, *machine.Event):
            assert f"| {word.name} | {word.value} |" in page
        # names with equal values would be aliases
        assert len({word.value for word in machine.State}) == len(machine.State.__members__)
        assert len({word.value for word in machine.Event}) == len(machine.Event.__members__)


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == CODES


def test_the_numbers_in_the_text_agree_with_the_code() -> None:
    page = " ".join(PAGE.read_text().split())
    for expected in (
        f"No packet is larger than {PACKET_BYTES} bytes",
        f"Noise message 3 with {DONE_PAYLOAD_BYTES} bytes",
        f"length (1 byte: 0 or {COOKIE_BYTES}) and cookie",
        f"A period has {PERIOD_S:g} s",
        f"`tag` (at most {MAX_TAG} printable characters",
        f"`types` (at most {MAX_TYPES}:",
        f"`wants` (at most {MAX_WANTS} names",
        f"`text` (at most {MAX_TEXT} printable",
    ):
        assert expected in page


@pytest.mark.parametrize("payload", [ServerHello, ClientDone, DoneAck])
def test_every_field_is_on_the_page_in_order(payload: type[ServerHello]) -> None:
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {payload.__name__} |")]
    places = [row.index(f"`{name}`") for name in payload.__struct_fields__]
    assert places == sorted(places)


def test_a_page_without_a_part_or_with_an_unknown_one_is_refused() -> None:
    page = PAGE.read_text()
    for name in PARTS:
        with pytest.raises(DataFormatError, match="generated parts"):
            fill_page(page.replace(f"<!-- generated: {name} -->", ""))
    with pytest.raises(DataFormatError, match="generated parts"):
        fill_page(page + "<!-- generated: nonsense -->\n<!-- end -->\n")
