"""Describes the columns of a schema's messages for people: their Spark types, and remarks on surprising ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from aeron_spark.sbe.columns import ITEM, Column, Op, charset_of
from aeron_spark.sbe.model import (
    Block,
    CompositeType,
    Data,
    EncodedType,
    EnumType,
    Field,
    Primitive,
    RepeatingGroup,
    Type,
)
from aeron_spark.sbe.table import MessageColumns

_SIMPLE = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
}


def spark_type(kind: pa.DataType) -> str:
    """Return the name of a column's type in Spark's SQL, as ``.schema(...)`` takes it."""
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return "STRUCT<" + ", ".join(f"{field.name}: {spark_type(field.type)}" for field in fields) + ">"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else _SIMPLE[kind]


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column or a field of a struct: its name, Spark type, the version it came with, and a remark or ""."""

    name: str
    type: str
    since: int
    remark: str


@dataclass(frozen=True, slots=True)
class DescribedMessage:
    """A message type with its columns."""

    name: str
    id: int
    columns: tuple[DescribedColumn, ...]


def describe(messages: MessageColumns) -> list[DescribedMessage]:
    """Return the chosen messages with their columns, nested ones with their path."""
    described = []
    for message in messages.messages:
        columns = messages.columns_of(message.name)
        remarks = dict(_remarks(message.block, ""))
        versions = dict(_versions(message.block, ""))
        described.append(DescribedMessage(message.name, message.id, tuple(_flat(columns, "", remarks, versions))))
    return described


def _flat(
    columns: tuple[Column, ...], path: str, remarks: dict[str, str], versions: dict[str, int]
) -> Iterator[DescribedColumn]:
    for column in columns:
        name = path if column.name == ITEM else f"{path}.{column.name}" if path else column.name
        is_nested = column.op in (Op.STRUCT, Op.GROUP)
        if column.name != ITEM:
            kind = "STRUCT" if column.op is Op.STRUCT else "ARRAY<STRUCT>" if is_nested else spark_type(column.type)
            yield DescribedColumn(name, kind, versions.get(name, 0), _chosen_remark(column, remarks.get(name, "")))
        if is_nested:
            yield from _flat(column.children, name, remarks, versions)


def _chosen_remark(column: Column, of_schema: str) -> str:
    """Return the remark on a column: that on the schema, unless the settings have resolved it."""
    if column.op is Op.TIMESTAMP:
        return "nanoseconds are cut to microseconds" if column.numbers[6] == 9 else ""
    return "" if column.op is Op.SCALED else of_schema


def _versions(block: Block, path: str) -> Iterator[tuple[str, int]]:
    parts: list[Field | RepeatingGroup | Data] = [*block.fields, *block.groups, *block.data]
    for part in parts:
        yield path + part.name, part.since
    for group in block.groups:
        yield from _versions(group.block, f"{path}{group.name}.")


def _remarks(block: Block, path: str) -> Iterator[tuple[str, str]]:
    for field in block.fields:
        yield path + field.name, _remark(field, path + field.name)
        if isinstance(field.type, CompositeType):
            for member in field.type.members:
                yield f"{path}{field.name}.{member.name}", _remark_of(member.type)
    for group in block.groups:
        yield from _remarks(group.block, f"{path}{group.name}.")
    for data in block.data:
        if data.encoding is None:
            yield path + data.name, "no characterEncoding: bytes"


def _remark(field: Field, path: str) -> str:
    kind = field.type
    if isinstance(kind, EncodedType) and "Time" in field.time.semantic_type and field.time.unit is None:
        is_long = kind.primitive in (Primitive.INT64, Primitive.UINT64) and kind.length == 1
        if not is_long or not field.time.may_be_a_point:
            return ""
        return f"{field.time.semantic_type} without a unit: set the sender's, such as sbeTimes={path}:ns"
    if isinstance(kind, CompositeType):
        exponent, unit = kind.member("exponent"), kind.member("unit")
        if exponent is not None and kind.member("mantissa") is not None and exponent.type.size:
            return "the exponent is in each message: set sbeDecimals=decimal(p,s) or double for a number"
        if unit is not None and kind.member("time") is not None and unit.type.size:
            return "the unit is in each message"
    return _remark_of(kind)


def _remark_of(kind: Type) -> str:
    if isinstance(kind, EnumType):
        hidden = [value.name for value in kind.values if value.value == kind.null]
        # The enum's null value is reserved; no decoder could tell such a value from an absent one.
        return f"{kind.null} means NULL: {hidden[0]!r} is read as NULL, and cannot be written" if hidden else ""
    if isinstance(kind, EncodedType) and kind.encoding and charset_of(kind.encoding) is None:
        return f"the encoding {kind.encoding!r} is not known: bytes"
    return ""
