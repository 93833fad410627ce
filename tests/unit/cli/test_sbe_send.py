"""``send --payload sbe`` turns blocks of JSON lines into messages, with the types of the message's fields."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.cli import inputs
from aeron_spark.cli.sbe_rows import SbeReader
from aeron_spark.errors import DataFormatError
from aeron_spark.options import SbeFormatOptions
from aeron_spark.options.declaration import Where
from tests.sbe_orders import SCHEMA, encode_order, order_rows
from tests.sbe_reference import Reference
from tests.unit.sbe.schemas import schema_text

TYPES = """<type name="uuid" primitiveType="uint8" length="4"/>
<type name="venue" primitiveType="char" length="4" presence="constant">XEUR</type>
<type name="optional" primitiveType="int32" presence="optional"/>
<type name="day" primitiveType="uint16" semanticType="UTCDateOnly"/>
<set name="Flags" encodingType="uint8"><choice name="dark">0</choice><choice name="lit">7</choice></set>
<composite name="price"><type name="mantissa" primitiveType="int64"/>
<type name="exponent" primitiveType="int8" presence="constant">-4</type></composite>"""
FIELDS = """<field name="huge" id="1" type="uint64"/>
<field name="key" id="2" type="uuid"/>
<field name="venue" id="3" type="venue"/>
<field name="count" id="4" type="optional"/>
<field name="day" id="5" type="day"/>
<field name="at" id="6" type="int64" timeUnit="microsecond"/>
<field name="flags" id="7" type="Flags"/>
<field name="price" id="8" type="price"/>
<field name="ratio" id="9" type="double"/>"""
ROW: dict[str, Any] = {
    "huge": 2**64 - 1, "key": "AAH/AQ==", "venue": "XEUR", "count": None, "day": "1970-01-11",
    "at": "1970-01-01T00:00:01.000007Z", "flags": ["lit"], "price": 1.5, "ratio": 0.25,
}  # fmt: skip


def reader(schema: str, message: str | None = None) -> SbeReader:
    return SbeReader(SbeFormatOptions.parse_alone({"sbeSchema": schema, "sbeMessage": message}, Where.WRITE_BATCH))


def messages(one: SbeReader, file: Path) -> list[bytes]:
    return [message for part in one.read(str(file), None, lambda: False) for message in part.rows["value"].to_pylist()]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, default=str) + "\n" for row in rows)


def test_texts_become_the_types_of_the_fields(tmp_path: Path) -> None:
    schema, file = schema_text(TYPES, FIELDS), tmp_path / "rows.jsonl"
    file.write_text(lines([ROW, {**ROW, "huge": "7", "count": 3, "price": "2"}, {**ROW, "flags": []}]))
    first, second, third = [Reference(schema).decode(message)["body"] for message in messages(reader(schema), file)]
    assert (first["huge"], first["count"], first["day"], first["at"]) == (2**64 - 1, None, 10, 1_000_007)
    assert (first["key"], first["price"]["mantissa"], first["ratio"]) == ([0, 1, 255, 1], 15_000, 0.25)
    assert first["flags"]["choices"] == ["lit"]
    assert (second["huge"], second["count"], second["price"]["mantissa"]) == (7, 3, 20_000)
    assert third["flags"]["choices"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"venue": "XETR"}, "column 'venue': 'XETR': the field is the constant 'XEUR'"),
        ({"key": "AAH"}, "column 'key': "),
        ({"key": "AAH/"}, "column 'key': .* the field holds exactly 4 bytes"),
        ({"at": "yesterday"}, "column 'at': 'yesterday' is a str"),
        ({"at": "1970-01-01T00:00:01"}, "column 'at': .* zone"),
        ({"at": "1970-01-01T00:00:01.0000001Z"}, "column 'at': "),
        ({"huge": 2**64}, "column 'huge': .*18446744073709551616.*: the field holds 0 to"),
        ({"ratio": True}, "column 'ratio': True is a bool"),
        ({"flags": ["unlit"]}, "column 'flags': .*'lit'"),
    ],
)
def test_an_error_has_the_line_and_the_field(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines([ROW]) + "\n" + lines([{**ROW, **change}]))
    with pytest.raises(DataFormatError, match=f"^line 3 of {file}, {reason}"):
        messages(reader(schema_text(TYPES, FIELDS)), file)


def test_lines_are_counted_over_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 100)
    file = tmp_path / "rows.jsonl"
    rows = order_rows(9)
    file.write_text("\n\n" + lines(rows[:5]) + "\n" + lines(rows[5:]))
    orders = reader(SCHEMA, "Order")
    parts = list(orders.read(str(file), None, lambda: False))
    assert len(parts) > 2
    assert sum(part.size for part in parts) >= file.stat().st_size - 2
    assert [one for part in parts for one in part.rows["value"].to_pylist()] == [encode_order(n) for n in range(9)]
    rows[7]["fills"] = [{"quantity": -1}]  # refused by the encoder
    file.write_text("\n\n" + lines(rows[:5]) + "\n" + lines(rows[5:]))
    with pytest.raises(DataFormatError, match=r"^line 11 of .*, column 'fills\.quantity': -1"):
        messages(orders, file)
    file.write_text("\n\n" + lines(rows[:5]) + "\n{\n")
    with pytest.raises(DataFormatError, match=f"^{file}: line 9 is not JSON"):
        messages(orders, file)


def test_a_signal_ends_the_input_and_closes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(order_rows(3)))
    before = os.listdir("/proc/self/fd")
    assert list(reader(SCHEMA, "Order").read(str(file), None, lambda: True)) == []
    assert os.listdir("/proc/self/fd") == before
