"""The vectors of SBE messages, and what the columns of a message have to be by them.

The vectors lie beside the project, not in it: ``../shared/vectors/sbe``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from aeron_spark.sbe.columns import Column, Op
from aeron_spark.sbe.model import Schema
from aeron_spark.sbe.schema import load_schema
from aeron_spark.sbe.settings import SbeSettings
from aeron_spark.sbe.table import MessageColumns

FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "vectors" / "sbe"
MISSING: Final = f"no vectors of SBE messages in {FOLDER}"
EXACT: Final = Context(prec=60)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Their messages are in frames, and are decoded with the schema of another set.
OTHER_SCHEMAS: Final = {"frames": "market", "cluster-log": "aeron-cluster"}


def set_names() -> list[str]:
    """Return the names of the sets; none if the vectors are missing."""
    return sorted(path.parent.name for path in FOLDER.glob("*/messages.jsonl"))


@dataclass(frozen=True)
class Vector:
    """An encoded message, and what the reference makes of it."""

    id: str
    case: str
    data: bytes
    expected: dict[str, Any]


def read_set(name: str) -> list[Vector]:
    folder = FOLDER / name
    lines = zip(_lines(folder / "messages.jsonl"), _lines(folder / "expected.jsonl"), strict=True)
    return [Vector(one["id"], one.get("case", ""), bytes.fromhex(one["hex"]), expected) for one, expected in lines]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def schema_of(name: str) -> Schema:
    """Return the compiled schema of a set."""
    return load_schema(str(FOLDER / OTHER_SCHEMAS.get(name, name) / "schema.xml"))


def columns_of(schema: Schema, message: str, settings: SbeSettings | None = None) -> MessageColumns:
    return MessageColumns(schema, replace(settings or SbeSettings(), messages=(message,)))


def as_row(columns: tuple[Column, ...], body: dict[str, Any] | None) -> dict[str, Any]:
    """Return a message's row as pyarrow prints it, from its ``body`` in the vectors."""
    return {} if body is None else {one.name: as_value(one, body[one.name]) for one in columns}


def as_value(column: Column, value: Any) -> Any:
    """Return a column's value from the value in the vectors."""
    if value is None:
        return None
    match column.op:
        case Op.STRUCT if "bits" in value:  # a set as flags
            return {one.name: bool(value["bits"] >> one.numbers[-1] & 1) for one in column.children}
        case Op.STRUCT:
            return as_row(column.children, value)
        case Op.GROUP:
            return [as_row(column.children[0].children, entry) for entry in value]
        case Op.ARRAY:
            return [as_value(column.children[0], one) for one in value]
        case Op.BYTES:
            return bytes(value) if isinstance(value, list) else value
        case Op.DATA_BYTES:
            return bytes.fromhex(value["hex"])
        case Op.SET:
            named = dict(zip(column.numbers[6:], column.texts, strict=True))
            others = [str(bit) for bit in range(64) if value["bits"] >> bit & 1 and bit not in named]
            return [*value["choices"], *others]
        case Op.ENUM:
            return _unknown(column, value["unknown"]) if isinstance(value, dict) else value
    return _number(column, value)


def _unknown(column: Column, raw: Any) -> str:
    return chr(raw) if column.numbers[3] == 0 and isinstance(raw, int) else str(raw)


def _number(column: Column, value: Any) -> Any:
    kind = column.type
    if column.op is Op.TIMESTAMP:
        return _time(value["time"] if isinstance(value, dict) else value, column.numbers[6])
    if pa.types.is_date32(kind):
        return date(1970, 1, 1) + timedelta(days=value)
    if isinstance(value, dict):  # of mantissa and exponent
        if value["mantissa"] is None or value["exponent"] is None:
            return None
        return Decimal(value["mantissa"]).scaleb(value["exponent"], EXACT)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_float32(kind):
        return struct.unpack("<f", struct.pack("<f", float(value)))[0]
    return float(value) if pa.types.is_float64(kind) else value


def _time(time: int | None, unit: int) -> datetime | None:
    return None if time is None else EPOCH + timedelta(microseconds=time * 10**6 // 10**unit)


def same(left: Any, right: Any) -> bool:
    """Whether two rows or values are equal; NaN is equal to NaN."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and left != left:
        return right != right
    return type(left) is type(right) and bool(left == right)
