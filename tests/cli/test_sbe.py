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
from tests.cli.test_send_receive import receive, send, to
from tests.cli.test_streams_server import ServerCommands, on_server
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order, encode_order_of_version_1

__all__ = ["on_server"]  # the fixture of the server


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return str(path)


def as_json_lines(messages: Sequence[bytes]) -> bytes:
    lines = [json.dumps({"valueBase64": base64.b64encode(one).decode()}) for one in messages]
    return "\n".join(lines).encode()


MESSAGES = [encode_order(1), encode_heartbeat(), encode_order_of_version_1(2)]


def test_recorded_messages_become_json_lines_and_parquet(shared: Path, schema: str, tmp_path: Path) -> None:
    send(as_json_lines(MESSAGES), 1091, shared, "--format", "json", "--payload", "raw")
    flags = ["--payload", "sbe", "--sbe-schema", schema, "--sbe-message", "Order"]
    first, second = receive(1091, shared, *flags, "--json", "--metadata").lines
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
    assert receive(1091, shared, *flags, "--output", str(file), "--count", "1").code == 0
    (row,) = pyarrow.parquet.read_table(file).to_pylist()
    assert (row["id"], row["price"]) == (1, Decimal("1.2345"))
    assert list(row) == ["id", "price", "side", "symbol", "desk", "fills", "note"]


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


def test_rows_of_a_server_are_decoded_as_those_of_an_archive(on_server: ServerCommands, schema: str) -> None:
    on_server.done("streams", "create", "orders")
    sent = on_server.piped(as_json_lines(MESSAGES), "send", "--stream", "orders", "--format", "json")
    assert sent.code == 0, sent.err
    flags = ["--stream", "orders", "--payload", "sbe", "--sbe-schema", schema]
    assert [row["id"] for row in on_server.done("receive", *flags, "--sbe-message", "Order")] == [1, 2]
    everything = on_server.done("receive", *flags, "--sbe-message", "*", "--metadata")
    assert [row["message"] for row in everything] == ["Order", "Heartbeat", "Order"]
    assert len({row["_aeron_position"] for row in everything}) == 3
    refused = on_server("receive", "--stream", "orders", "--sbe-schema", schema)
    assert refused.code == 2
