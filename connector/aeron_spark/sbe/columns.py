"""Maps a compiled schema to columns: their Arrow types, and how the decoder fills each of them.

A column is an operation with numbers and texts. ``docs/sbe.md`` has the mapping of types for users.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.sbe.model import (
    Block,
    CompositeType,
    Constant,
    Data,
    EncodedType,
    EnumType,
    Field,
    Primitive,
    RepeatingGroup,
    SetType,
    TimeAttributes,
    Type,
)
from aeron_spark.sbe.settings import SbeSettings


class Op(IntEnum):
    """The operation of the decoder for a column; the numbers are part of the decode table."""

    STRUCT = 0  # level, since
    GROUP = 1  # level of the group
    ARRAY = 2  # level, offset, since, count, bytes of an element
    INTEGER = 3  # value, bytes of the column
    FLOATING = 4  # value
    DECIMAL = 5  # value, digits to append
    SCALED = 6  # mantissa's value, exponent's value or constant, precision (0: double), scale
    TIMESTAMP = 7  # value, unit
    CHARACTER = 8  # value
    TEXT = 9  # level, offset, since, length
    BYTES = 10  # level, offset, since, length
    ENUM = 11  # value, the numbers of the names
    SET = 12  # value, the bits of the names
    FLAG = 13  # value, bit
    CONSTANT_TEXT = 14  # level, since
    CONSTANT_NUMBER = 15  # level, since, bytes, number
    DATA_TEXT = 16  # level, number of the data
    DATA_BYTES = 17  # level, number of the data
    MESSAGE_NAME = 18
    TEMPLATE_ID = 19
    VERSION = 20
    ROW = 21  # of several messages in one Aeron message
    CORRUPT = 22
    CLUSTER = 23  # number of the field in the cluster's header
    SOURCE = 24  # index of the Aeron message


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct."""

    name: str
    type: pa.DataType
    op: Op
    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    children: tuple[Column, ...] = ()

    @property
    def field(self) -> pa.Field[Any]:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type, nullable=True)


ITEM: Final = "element"  # the name that Spark gives to the elements of an array
TIMESTAMP: Final = pa.timestamp("us", "UTC")
ELEMENTS: Final = -1  # the level of an array's elements

_INTEGERS: Final[dict[Primitive, tuple[pa.DataType, int]]] = {
    Primitive.INT8: (pa.int8(), 1),
    Primitive.INT16: (pa.int16(), 2),
    Primitive.INT32: (pa.int32(), 4),
    Primitive.INT64: (pa.int64(), 8),
    Primitive.UINT8: (pa.int16(), 2),
    Primitive.UINT16: (pa.int32(), 4),
    Primitive.UINT32: (pa.int64(), 8),
    Primitive.UINT64: (pa.decimal128(20, 0), 16),
}
_DIGITS: Final = {1: 3, 2: 5, 4: 10, 8: 19}  # decimal digits of an integer by its bytes
_DATES: Final = ("UTCDateOnly", "LocalMktDate")
_MAX_PRECISION: Final = 38
_MAX_EXPONENT_BYTES: Final = 4

# The encodings that the decoder has, by their usual names; bytes in another encoding become BINARY.
ENCODINGS: Final = {
    "": "US-ASCII",
    "ascii": "US-ASCII",
    "us-ascii": "US-ASCII",
    "utf-8": "UTF-8",
    "utf8": "UTF-8",
    "iso-8859-1": "ISO-8859-1",
    "iso8859-1": "ISO-8859-1",
    "iso8859_1": "ISO-8859-1",
    "latin1": "ISO-8859-1",
    "latin-1": "ISO-8859-1",
    "windows-1252": "windows-1252",
    "gb18030": "GB18030",
    "gbk": "GBK",
    "shift_jis": "Shift_JIS",
    "euc-jp": "EUC-JP",
    "euc-kr": "EUC-KR",
    "big5": "Big5",
}


def charset_of(encoding: str) -> str | None:
    """Return Java's name of a character encoding, or None if its texts are left as bytes."""
    return ENCODINGS.get(encoding.strip().lower())


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """A group with the numbers of its block."""

    group: RepeatingGroup
    block: PlacedBlock


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block with its level, which numbers all blocks of a schema, and the numbers of its data."""

    block: Block
    level: int
    groups: tuple[NumberedGroup, ...]
    data: tuple[tuple[Data, int], ...]


class Numbering:
    """Numbers the blocks and the data of a schema, in the order of the schema."""

    def __init__(self) -> None:
        self._levels = 0
        self._data = 0

    def place(self, block: Block) -> PlacedBlock:
        """Number a block and the blocks within."""
        level = self._levels
        self._levels += 1
        groups = tuple(NumberedGroup(group, self.place(group.block)) for group in block.groups)
        data = []
        for one in block.data:
            data.append((one, self._data))
            self._data += 1
        return PlacedBlock(block, level, groups, tuple(data))


def _bits(value: float, primitive: Primitive) -> int:
    """Return a value as the decoder reads it: 64 bits with a sign, of a float its bits."""
    if primitive is Primitive.FLOAT:
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    if primitive is Primitive.DOUBLE:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    whole = int(value)
    return whole - (1 << 64) if whole >= 1 << 63 else whole


@dataclass(frozen=True, slots=True)
class _ColumnPlace:
    """The place of a value: its level, its offset in the block, the version it came with, and its path of names."""

    level: int
    offset: int
    since: int
    path: str

    def value(self, primitive: Primitive, null: float | None) -> tuple[int, ...]:
        """Return the numbers of a value: place, primitive type, and the value that means null if there is one."""
        kind = 0 if null is None else 2 if math.isnan(null) else 1
        number = _bits(null, primitive) if null is not None and kind == 1 else 0
        return (self.level, self.offset, self.since, int(primitive), kind, number)


class ColumnMapper:
    """Maps the parts of messages to columns, as the settings say. ``used_units`` has the fields of ``times`` found."""

    def __init__(self, settings: SbeSettings) -> None:
        self._settings = settings
        self._units = dict(settings.times.units)
        self.used_units: set[str] = set()

    def columns(self, placed: PlacedBlock, path: str = "") -> tuple[Column, ...]:
        found = [self._field(field, placed.level, path) for field in placed.block.fields]
        for group in placed.groups:
            inner = self.columns(group.block, f"{path}{group.group.name}.")
            entry = _struct(ITEM, inner, group.block.level, 0)
            found.append(Column(group.group.name, _list(entry.type), Op.GROUP, (group.block.level,), (), (entry,)))
        found += [_data(one, placed.level, number) for one, number in placed.data]
        return tuple(found)

    def _field(self, field: Field, level: int, path: str) -> Column:
        place = _ColumnPlace(level, field.offset, field.since, path + field.name)
        if field.constant is not None:
            return self._constant(field.name, field.constant, field.type, place)
        return self._typed(field.name, field.type, place, field.optional, field.time)

    def _typed(self, name: str, kind: Type, place: _ColumnPlace, optional: bool, time: TimeAttributes) -> Column:
        match kind:
            case EncodedType():
                return self._encoded(name, kind, place, optional, time)
            case EnumType():
                return self._enum(name, kind, place)
            case SetType():
                return self._set(name, kind, place)
        return self._composite(name, kind, place, time)

    def _encoded(
        self, name: str, kind: EncodedType, place: _ColumnPlace, optional: bool, time: TimeAttributes
    ) -> Column:
        if kind.constant is not None:
            return self._constant(name, Constant(kind.constant, kind.primitive), kind, place)
        if kind.length != 1:
            return self._array(name, kind, place, optional)
        value = place.value(kind.primitive, kind.null_value if optional else None)
        unit = self._unit(kind, place, time)
        if unit is not None:
            return Column(name, TIMESTAMP, Op.TIMESTAMP, (*value, unit), (place.path,))
        is_date = self._settings.times.explicit and time.semantic_type in _DATES
        if is_date and kind.primitive in (Primitive.UINT16, Primitive.INT32):
            return Column(name, pa.date32(), Op.INTEGER, (*value, 4))
        return _single(name, kind, value)

    def _array(self, name: str, kind: EncodedType, place: _ColumnPlace, optional: bool) -> Column:
        numbers = (place.level, place.offset, place.since, kind.length)
        charset = charset_of(kind.encoding) if kind.primitive is Primitive.CHAR else None
        if charset is not None:
            return Column(name, pa.string(), Op.TEXT, numbers, (charset,))
        if kind.primitive in (Primitive.CHAR, Primitive.UINT8):
            return Column(name, pa.binary(), Op.BYTES, numbers)
        inner = _ColumnPlace(ELEMENTS, 0, 0, place.path).value(kind.primitive, kind.null_value if optional else None)
        element = _single(ITEM, replace(kind, length=1), inner)
        return Column(name, _list(element.type), Op.ARRAY, (*numbers, kind.primitive.size), (), (element,))

    def _unit(self, kind: EncodedType, place: _ColumnPlace, time: TimeAttributes) -> int | None:
        """Return the unit of a time: as the settings name it, or as the schema says it."""
        if kind.primitive not in (Primitive.INT64, Primitive.UINT64):
            return None
        if place.path in self._units:
            self.used_units.add(place.path)
            return self._units[place.path]
        return time.unit if self._settings.times.explicit and time.may_be_a_point else None

    def _enum(self, name: str, kind: EnumType, place: _ColumnPlace) -> Column:
        value = place.value(kind.primitive, kind.null)
        if self._settings.enums == "values":
            return _single(name, EncodedType("", kind.primitive), value)
        numbers = tuple(_bits(one.value, kind.primitive) for one in kind.values)
        return Column(name, pa.string(), Op.ENUM, (*value, *numbers), tuple(one.name for one in kind.values))

    def _set(self, name: str, kind: SetType, place: _ColumnPlace) -> Column:
        value = place.value(kind.primitive, None)
        if self._settings.sets == "bits":
            return _single(name, EncodedType("", kind.primitive), value)
        if self._settings.sets == "flags":
            flags = tuple(Column(one.name, pa.bool_(), Op.FLAG, (*value, one.value)) for one in kind.choices)
            return _struct(name, flags, place.level, place.since)
        bits = tuple(one.value for one in kind.choices)
        return Column(name, _list(pa.string()), Op.SET, (*value, *bits), tuple(one.name for one in kind.choices))

    def _composite(self, name: str, kind: CompositeType, place: _ColumnPlace, time: TimeAttributes) -> Column:
        special = self._decimal(name, kind, place) or self._time(name, kind, place, time)
        if special is not None:
            return special
        children = []
        for member in kind.members:
            inner = _ColumnPlace(
                place.level, place.offset + member.offset, max(place.since, member.since), f"{place.path}.{member.name}"
            )
            optional = isinstance(member.type, EncodedType) and member.type.optional
            of_member = member.type.time if isinstance(member.type, EncodedType | CompositeType) else TimeAttributes()
            children.append(self._typed(member.name, member.type, inner, optional, of_member))
        return _struct(name, tuple(children), place.level, place.since)

    def _decimal(self, name: str, kind: CompositeType, place: _ColumnPlace) -> Column | None:
        """Return the column of a composite of ``mantissa`` and ``exponent``; None if it stays a struct."""
        parts = _two_integers(kind, place, "mantissa", "exponent")
        if parts is None:
            return None
        (mantissa, value), (exponent, exponent_value) = parts
        if exponent.primitive.size > _MAX_EXPONENT_BYTES:
            return None
        decimals = self._settings.decimals
        constant = exponent.constant if isinstance(exponent.constant, int) else None
        if decimals.kind == "exact":
            return None if constant is None else _fixed_point(name, mantissa, value, constant)
        is_constant = int(constant is not None)
        numbers = (*value, *exponent_value, is_constant, constant or 0, decimals.precision, decimals.scale)
        is_double = decimals.kind == "double"
        arrow = pa.float64() if is_double else pa.decimal128(decimals.precision, decimals.scale)
        return Column(name, arrow, Op.SCALED, numbers, (place.path,))

    def _time(self, name: str, kind: CompositeType, place: _ColumnPlace, attributes: TimeAttributes) -> Column | None:
        """Return the column of a composite of ``time`` and a constant ``unit``; None if it stays a struct.

        A time that is no point in time, such as an interval, is a number of its unit.
        """
        parts = _two_integers(kind, place, "time", "unit") if self._settings.times.explicit else None
        if parts is None:
            return None
        (time, value), (unit, _) = parts
        if time.primitive not in (Primitive.INT64, Primitive.UINT64) or unit.constant not in (0, 3, 6, 9):
            return None
        if not (attributes.may_be_a_point and time.time.may_be_a_point):
            return _single(name, time, value)
        return Column(name, TIMESTAMP, Op.TIMESTAMP, (*value, int(unit.constant)), (place.path,))

    def _constant(self, name: str, constant: Constant, kind: Type, place: _ColumnPlace) -> Column:
        value, primitive = constant.value, constant.primitive
        if isinstance(kind, EnumType) and self._settings.enums == "values":
            primitive = kind.primitive
            value = next(one.value for one in kind.values if one.name == value)
            value = chr(value) if primitive is Primitive.CHAR else value
        if isinstance(value, str):
            return Column(name, pa.string(), Op.CONSTANT_TEXT, (place.level, place.since), (value,))
        column = _single(name, EncodedType("", primitive), ())
        width = primitive.size if primitive.is_float else column.numbers[-1]
        numbers = (place.level, place.since, width, _bits(value, primitive), int(primitive is Primitive.UINT64))
        return Column(name, column.type, Op.CONSTANT_NUMBER, numbers)


def _two_integers(
    kind: CompositeType, place: _ColumnPlace, first: str, second: str
) -> tuple[tuple[EncodedType, tuple[int, ...]], tuple[EncodedType, tuple[int, ...]]] | None:
    """Return the types and values of a composite's two integers, or None if it is another composite."""
    if tuple(member.name for member in kind.members) != (first, second):
        return None
    found = []
    for member in kind.members:
        part = member.type
        if not isinstance(part, EncodedType) or part.length != 1:
            return None
        if not (part.primitive.is_signed or part.primitive.is_unsigned):
            return None
        inner = replace(place, offset=place.offset + member.offset, since=max(place.since, member.since))
        found.append((part, inner.value(part.primitive, part.null_value if part.optional else None)))
    if found[0][0].constant is not None:
        return None
    return found[0], found[1]


def _fixed_point(name: str, mantissa: EncodedType, value: tuple[int, ...], exponent: int) -> Column | None:
    """Return the column of a decimal with a constant exponent; None if Spark's decimals are too short for it."""
    primitive = mantissa.primitive
    digits = 20 if primitive is Primitive.UINT64 else _DIGITS[primitive.size]
    scale = max(0, -exponent)
    precision = max(digits + max(0, exponent), scale)
    if precision > _MAX_PRECISION:
        return None
    return Column(name, pa.decimal128(precision, scale), Op.DECIMAL, (*value, max(0, exponent)))


def _single(name: str, kind: EncodedType, value: tuple[int, ...]) -> Column:
    """Return the column of one primitive value."""
    primitive = kind.primitive
    if primitive is Primitive.CHAR:
        charset = charset_of(kind.encoding) or "ISO-8859-1"
        return Column(name, pa.string(), Op.CHARACTER, value, (charset,))
    if primitive.is_float:
        return Column(name, pa.float32() if primitive is Primitive.FLOAT else pa.float64(), Op.FLOATING, value)
    arrow, width = _INTEGERS[primitive]
    return Column(name, arrow, Op.INTEGER, (*value, width))


def _data(data: Data, level: int, number: int) -> Column:
    charset = None if data.encoding is None else charset_of(data.encoding)
    if charset is None:
        return Column(data.name, pa.binary(), Op.DATA_BYTES, (level, number))
    return Column(data.name, pa.string(), Op.DATA_TEXT, (level, number), (charset,))


def _struct(name: str, children: tuple[Column, ...], level: int, since: int) -> Column:
    return Column(name, pa.struct([one.field for one in children]), Op.STRUCT, (level, since), (), children)


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field(ITEM, element, nullable=True))


def struct_of_message(name: str, columns: tuple[Column, ...], level: int) -> Column:
    """Return the struct of a message among several."""
    return _struct(name, columns, level, 0)


def check_names(columns: tuple[Column, ...], path: str = "") -> None:
    """Raise OptionError for two names that Spark takes as one, because they differ only by case."""
    seen: dict[str, Column] = {}
    for column in columns:
        other = seen.setdefault(column.name.lower(), column)
        if other is not column:
            raise OptionError(
                f"the schema has {path + other.name!r} and {path + column.name!r}, which are one name for Spark",
                remedy="Rename one of them in a copy of the schema: names are not in the messages.",
            )
        check_names(column.children, path if column.name == ITEM else f"{path}{column.name}.")
