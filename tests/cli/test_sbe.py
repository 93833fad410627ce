"""``receive --payload sbe`` writes the columns of SBE messages, on both routes."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.cli.conftest import pipe, run
from tests.cli.test_send_receive import send, to
from tests.cli.test_streams_server import Route, on_server, route
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order, encode_order_of_version_1

__all__ = ["on_server", "route"]  # fixtures


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return str(path)


def as_json_lines(messages: Sequence[bytes]) -> bytes:
    lines = [json.dumps({"valueBase64": base64.b64encode(one).decode()}) for one in messages]
    return "\n".join(lines).encode()


MESSAGES = [encode_order(1), encode_heartbeat(), encode_order_of_version_1(2)]


def test_messages_become_json_lines_and_parquet(route: Route, schema: str, tmp_path: Path) -> None:
    route.send(as_json_lines(MESSAGES), "--format", "json", *(["--payload", "raw"] if route.writer else []))
    sbe = ["--payload", "sbe", "--sbe-schema", schema]
    flags = [*sbe, "--sbe-message", "Order"]
    first, second = route.receive(*flags, "--json", "--metadata").lines
    assert (first["id"], first["price"], first["side"], first["symbol"], first["desk"]) == (
        1,
        "1.2345",
        "SELL",
        "ÄBC",
        "EU",
    )
    assert first["fills"] == [{"quantity": 1}, {"quantity": 2}]
    assert (second["id"], second["desk"], second["fills"]) == (2, None, [])
    assert (first["_aeron_position"], first["_aeron_templateId"], second["_aeron_version"]) == (0, 1, 1)
    file = tmp_path / "orders.parquet"
    assert route.receive(*flags, "--output", str(file), "--count", "1").code == 0
    (row,) = pyarrow.parquet.read_table(file).to_pylist()
    assert (row["id"], row["price"]) == (1, Decimal("1.2345"))
    assert list(row) == ["id", "price", "side", "symbol", "desk", "fills", "note"]
    everything = route.receive(*sbe, "--sbe-message", "*", "--metadata", "--json").lines
    assert [row["message"] for row in everything] == ["Order", "Heartbeat", "Order"]
    assert len({row["_aeron_position"] for row in everything}) == 3
    assert route.receive("--sbe-schema", schema).code == 2


def test_other_options_are_given_with_option_and_a_fault_has_its_place(shared: Path, schema: str) -> None:
    send(as_json_lines([MESSAGES[0][:-1], MESSAGES[0]]), 1092, shared, "--format", "json", "--payload", "raw")
    flags = [*to(1092, shared), "--payload", "sbe", "--sbe-schema", schema, "--sbe-message", "Order", "--json"]
    failed = run("receive", *flags)
    assert failed.code == 1
    assert "the Aeron message at position 0: the message is malformed at byte" in failed.err
    kept = pipe(b"", "receive", *flags, "--option", "sbeMode=PERMISSIVE")
    assert [row["_corrupt_record"] for row in kept.lines] == [base64.b64encode(MESSAGES[0][:-1]).decode(), None]
    missing = run("receive", *to(1092, shared), "--payload", "sbe")
    assert missing.code == 2
    assert "'sbeSchema' is missing" in missing.err
