"""The pages of the endpoint's protocol agree with the code: in generated tables, and in the numbers of the text."""

from __future__ import annotations

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
from tools.protocol_page import MEANINGS, PARTS, fill_pages, read_pages, write_pages

PAGE = Path(__file__).parents[3] / "docs" / "endpoint-protocol.md"


def test_the_generated_parts_agree_with_the_code() -> None:
    assert fill_pages(read_pages()) == read_pages(), "run: make docs"


def test_the_command_fills_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, page in read_pages().items():
        (tmp_path / name).write_text(page.replace("| NEW | START |", "| NEW | NEVER |"))
    expected = read_pages()
    monkeypatch.setattr(protocol_page, "DOCS", tmp_path)
    assert read_pages() != expected
    write_pages()
    assert read_pages() == expected


def test_every_row_state_and_event_is_on_the_page() -> None:
    page = PAGE.read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]
    for machine in (client_handshake, server_handshake):
        for state, event in machine.TRANSITIONS:
            assert any(row[1] == state.name and event.name in row[2].split(", ") for row in rows), (state, event)
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


def test_pages_without_a_part_or_with_an_unknown_one_are_refused() -> None:
    pages = read_pages()
    for name in PARTS:
        lacking = {page: text.replace(f"<!-- generated: {name} -->", "") for page, text in pages.items()}
        with pytest.raises(DataFormatError, match="generated parts"):
            fill_pages(lacking)
    with pytest.raises(DataFormatError, match="generated parts"):
        fill_pages(pages | {"more.md": "<!-- generated: nonsense -->\n<!-- end -->\n"})
