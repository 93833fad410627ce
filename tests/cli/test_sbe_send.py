"""``send --payload sbe`` encodes rows as SBE messages, on both routes; errors name the line and the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.cli.conftest import BytesResult, pipe
from tests.cli.test_send_receive import receive, to
from tests.cli.test_streams_server import Route, ServerCommands, on_server, route
from tests.sbe_orders import SCHEMA, encode_order, order_rows

__all__ = ["on_server", "route"]  # fixtures


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """The flags that name the schema and its message."""
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return ["--payload", "sbe", "--sbe-schema", str(path), "--sbe-message", "Order"]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, default=str) + "\n" for row in rows).encode()


ORDERS = [encode_order(number) for number in range(3)]


def test_json_lines_become_messages_that_an_encoder_by_hand_makes(route: Route, shared: Path, flags: list[str]) -> None:
    first, *others = as_lines(order_rows(3)).splitlines(keepends=True)
    sent = route.send(first + b"\n" + b"".join(others), *flags, "--json")
    assert [one["rows"] for one in sent.lines] == [3]
    assert route.receive("--format", "text").out == b"".join(order + b"\n" for order in ORDERS)
    received = route.receive(*flags, "--json")
    assert [row["id"] for row in received.lines] == [0, 1, 2]
    route.send(received.out, *flags)  # received rows can be sent again
    assert route.receive(*flags, "--json").lines == received.lines * 2


def test_rows_of_parquet_become_the_same_messages(shared: Path, flags: list[str], tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    rows = pa.Table.from_pylist(order_rows(3))
    pyarrow.parquet.write_table(rows, file)
    assert pipe(b"", "send", str(file), *to(1103, shared, "--record"), *flags).code == 0
    assert receive(1103, shared, "--payload", "raw").out == b"".join(order + b"\n" for order in ORDERS)

    pyarrow.parquet.write_table(rows.rename_columns(["number", *rows.column_names[1:]]), file)
    renamed = failed(b"", 1103, shared, str(file), *flags)
    assert (renamed.code, "the rows have the column 'number', which the message 'Order'" in renamed.err) == (1, True)
    pyarrow.parquet.write_table(pa.Table.from_pylist([order_rows(1)[0] | {"symbol": "ABCDEFG"}]), file)
    assert f"row 0 of {file}, column 'symbol': 'ABCDEFG'" in failed(b"", 1103, shared, str(file), *flags).err


def failed(given: bytes, stream_id: int, shared: Path, *more: str) -> BytesResult:
    done = pipe(given, "send", *to(stream_id, shared, "--record", "--ack", "archive"), *more)
    assert done.code != 0
    return done


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"symbol": "ABCDEFG"}, "line 4 of standard input, column 'symbol': 'ABCDEFG': the field holds 6 bytes"),
        ({"side": "BYU"}, "line 4 of standard input, column 'side': 'BYU': the schema has no such value"),
        ({"fills": [{"quantity": -1}]}, "line 4 of standard input, column 'fills.quantity': -1: the field holds 0 to"),
        ({"price": "1.23456"}, "line 4 of standard input, column 'price': "),
        ({"id": "seven"}, "line 4 of standard input, column 'id': 'seven' is a str"),
        ({"id": None}, "line 4 of standard input, column 'id': it is NULL or missing, and the field is required"),
        ({"fills": [{"count": 1}]}, "line 4 of standard input, column 'fills[0]': "),
        ({"prize": 1}, "line 4 of standard input has the column 'prize', which the message 'Order' of orders"),
    ],
)
def test_an_error_names_the_line_and_the_field(
    change: dict[str, Any], reason: str, shared: Path, flags: list[str]
) -> None:
    first, second = order_rows(2)
    given = b"\n" + as_lines([first]) + b"\n" + as_lines([{**second, **change}])
    done = failed(given, 1104, shared, *flags)
    assert (done.code, reason in done.err) == (1, True), done.err


def test_a_wrong_line_and_a_wrong_command_are_refused(shared: Path, flags: list[str], tmp_path: Path) -> None:
    broken = failed(as_lines(order_rows(2)) + b'{"id": \n', 1105, shared, *flags)
    assert "standard input: line 3 is not JSON of rows" in broken.err
    text = failed(b"x\n", 1105, shared, *flags, "--format", "text")
    assert (text.code, "standard input is text, and --payload sbe needs rows of JSON" in text.err) == (2, True)
    table = tmp_path / "orders.csv"
    table.write_text("id\n1\n")
    assert "orders.csv is csv, and --payload sbe needs rows" in failed(b"", 1105, shared, str(table), *flags).err
    missing = failed(b"", 1105, shared, "--payload", "sbe")
    assert "'sbeSchema' is missing" in missing.err
    assert "on the command line --sbe-schema FILE" in missing.err
    unused = failed(b"", 1105, shared, *flags[2:])
    assert "only for payload=sbe" in unused.err
    assert "on the command line --payload sbe" in unused.err
    empty = failed(b"{}\n", 1105, shared, *flags[:-1], "Heartbeat")
    assert "the message 'Heartbeat' of orders.xml, version 2, has no fields" in empty.err
    several = failed(b"", 1105, shared, *flags, "--sbe-message", "*")
    assert (several.code, "rows of one message type are written" in several.err) == (1, True)


def test_a_transaction_of_a_server_has_the_messages_or_none(on_server: ServerCommands, flags: list[str]) -> None:
    on_server.done("streams", "create", "orders")
    rows = as_lines(order_rows(3))
    wrong = on_server.piped(rows + b'{"id": 1}\n', "send", "--stream", "orders", *flags)
    assert (wrong.code, "line 4 of standard input, column 'price'" in wrong.err) == (1, True), wrong.err
    assert on_server.done("receive", "--stream", "orders") == []
    reading = on_server.piped(rows, "send", "--stream", "orders", *flags, "--option", "sbeMode=PERMISSIVE")
    assert reading.code == 2
    relayed = on_server.piped(rows, "send", *flags)
    assert (relayed.code, "--payload is for a named stream of a server" in relayed.err) == (2, True), relayed.err
