"""Encodes rows as SBE messages: plans what each column writes, and where, then writes column by column with numpy.

A batch is encoded in two passes over the blocks of its messages, level by level. The first one measures: how many
entries each group has, and how long each block is with its groups and data. The second one writes.
"""

from __future__ import annotations

import difflib
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.sbe.columns import Column, Op
from aeron_spark.sbe.field_values import (
    Arrays,
    Characters,
    Constants,
    Decimals,
    EnumNames,
    FieldValues,
    FixedBytes,
    FloatingDecimals,
    Floats,
    Integers,
    Misfit,
    Number,
    Part,
    SetFlags,
    SetNames,
    Structs,
    Texts,
    Timestamps,
    VariableBytes,
    children_of,
    encoded,
    list_lengths,
    nulls,
)
from aeron_spark.sbe.model import (
    Block,
    CompositeType,
    Counts,
    Data,
    EncodedType,
    Field,
    Integer,
    Message,
    Primitive,
    RepeatingGroup,
    Schema,
    Type,
)
from aeron_spark.sbe.table import MessageColumns

NUMPY_TYPES: Final = {
    Primitive.CHAR: "u1", Primitive.INT8: "i1", Primitive.INT16: "i2", Primitive.INT32: "i4", Primitive.INT64: "i8",
    Primitive.UINT8: "u1", Primitive.UINT16: "u2", Primitive.UINT32: "u4", Primitive.UINT64: "u8",
    Primitive.FLOAT: "f4", Primitive.DOUBLE: "f8",
}  # fmt: skip
USE_TYPE: Final = "Cast it to the type that 'aeron-spark sbe describe' shows."


@dataclass(frozen=True, slots=True)
class PlannedField:
    """A field of a block: the name and type of its column, and what it writes."""

    name: str
    type: pa.DataType
    values: FieldValues


@dataclass(frozen=True, slots=True)
class CountField:
    """A length or a number of entries, at an offset in a header. ``type`` is numpy's name of it with its byte order."""

    offset: int
    type: str
    high: int


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group: the header in front of its entries, and their block."""

    name: str
    type: pa.DataType
    header: bytes
    count: CountField
    block: PlannedBlock


@dataclass(frozen=True, slots=True)
class PlannedData:
    """A datum of variable length. ``charset`` is that of a text, "" for bytes."""

    name: str
    type: pa.DataType
    header_length: int
    length: CountField
    charset: str


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """The fields of a message or entry, and what comes behind them."""

    length: int
    fields: tuple[PlannedField, ...]
    groups: tuple[PlannedGroup, ...]
    data: tuple[PlannedData, ...]


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """How the rows of one message type are encoded, picklable."""

    header: bytes
    block: PlannedBlock
    label: str  # of the message and its schema, in errors


def encode_plan(columns: MessageColumns, given: pa.Schema) -> EncodePlan:
    """Return the plan for rows of the columns ``given``. Raises OptionError for columns that the message cannot have.

    A field that may be NULL may be missing, and so may constants, groups and data.
    """
    if not columns.is_flat:
        raise OptionError(
            "rows of one message type are written, and option 'sbeMessage' has several",
            remedy="Name one message type, and write each type with a separate query.",
        )
    (message,) = columns.messages
    known = columns.columns_of(message.name)
    label = f"message {message.name!r} of {columns.schema.name}, version {columns.schema.version}"
    _check_given(pa.struct(list(given)), known, "", f"the {label}")
    planner = _Planner(columns.schema)
    block = planner.block(message.block, known)
    _check_missing(block, pa.struct(list(given)), "", f"the {label}")
    return EncodePlan(planner.message_header(message), block, label)


class _Planner:
    """Plans the parts of a schema's messages, in its byte order."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._order = ">" if schema.big_endian else "<"

    def message_header(self, message: Message) -> bytes:
        """Return the header of each message."""
        schema = self._schema
        header = bytearray(schema.header.length)
        for name, place, value in (
            ("blockLength", schema.header.block_length, message.block.length),
            ("templateId", schema.header.template_id, message.id),
            ("schemaId", schema.header.schema_id, schema.id),
            ("version", schema.header.version, schema.version),
        ):
            if place.constant is None:
                self._put(header, place, value, f"{name} of the message header")
            elif place.constant != value:
                raise OptionError(
                    f"the message header has the constant {name} {place.constant}, and the message needs {value}",
                    remedy="Choose a message that the header can name.",
                )
        self._put_counts(header, schema.header.counts, message.block, "the message header")
        return bytes(header)

    def block(self, block: Block, columns: tuple[Column, ...]) -> PlannedBlock:
        """Plan a block whose parts have these columns, in their order."""
        fields = zip(block.fields, columns, strict=False)
        groups = zip(block.groups, columns[len(block.fields) :], strict=False)
        data = zip(block.data, columns[len(block.fields) + len(block.groups) :], strict=True)
        return PlannedBlock(
            block.length,
            tuple(PlannedField(field.name, column.type, self._field(field, column)) for field, column in fields),
            tuple(self._group(group, column) for group, column in groups),
            tuple(self._data(one, column) for one, column in data),
        )

    def _group(self, group: RepeatingGroup, column: Column) -> PlannedGroup:
        (entry,) = column.children
        dimensions = group.dimensions
        header = bytearray(dimensions.length)
        self._put(header, dimensions.block_length, group.block.length, f"blockLength of the group {group.name!r}")
        self._put_counts(header, dimensions.counts, group.block, f"the group {group.name!r}")
        block = self.block(group.block, entry.children)
        return PlannedGroup(group.name, column.type, bytes(header), self._counter(dimensions.count), block)

    def _data(self, data: Data, column: Column) -> PlannedData:
        charset = column.texts[0] if column.op is Op.DATA_TEXT else ""
        return PlannedData(data.name, column.type, data.header.size, self._counter(data.header.length), charset)

    def _counter(self, place: Integer) -> CountField:
        # The largest number of the type means null, which is no count; sbe-tool's encoders refuse it, too.
        return CountField(place.offset, self._order + NUMPY_TYPES[place.primitive], place.primitive.limits[1] - 1)

    def _put_counts(self, header: bytearray, counts: Counts, block: Block, noun: str) -> None:
        for name, place, parts in (
            ("numGroups", counts.groups, block.groups),
            ("numVarDataFields", counts.data, block.data),
        ):
            if place is not None:
                self._put(header, place, len(parts), f"{name} of {noun}")

    def _put(self, header: bytearray, place: Integer, value: int, noun: str) -> None:
        size, limits = place.primitive.size, place.primitive.limits
        if not limits[0] <= value <= limits[1]:
            raise OptionError(
                f"the {noun} has {size} bytes, which cannot hold {value}", remedy="Use a wider type in the schema."
            )
        number = value.to_bytes(size, "big" if self._schema.big_endian else "little", signed=place.primitive.is_signed)
        header[place.offset : place.offset + size] = number

    # fields

    def _field(self, field: Field, column: Column) -> FieldValues:
        return self._values(column, field.type, field.optional)

    def _values(self, column: Column, kind: Type, optional: bool) -> FieldValues:
        """Return what a column writes; ``kind`` and ``optional`` are those of its field or member."""
        numbers = column.numbers
        match column.op:
            case Op.INTEGER:
                return Integers(numbers[1], self._number(numbers))
            case Op.FLOATING:
                return Floats(numbers[1], self._number(numbers))
            case Op.DECIMAL:
                return Decimals(numbers[1], self._number(numbers), column.type, numbers[6])
            case Op.SCALED:
                return self._scaled(column)
            case Op.TIMESTAMP:
                return Timestamps(numbers[1], self._number(numbers), numbers[6])
            case Op.CHARACTER:
                return Characters(numbers[1], column.texts[0], self._number(numbers))
            case Op.TEXT:
                return Texts(numbers[1], column.texts[0], numbers[3], optional)
            case Op.BYTES:
                return FixedBytes(numbers[1], numbers[3], optional)
            case Op.ARRAY:
                (element,) = column.children
                return Arrays(numbers[1], numbers[3], self._values(element, kind, optional), element.type)
            case Op.ENUM:
                return EnumNames(numbers[1], self._number(numbers), column.texts, numbers[6:])
            case Op.SET:
                return SetNames(numbers[1], self._type(numbers), column.texts, numbers[6:], optional)
            case Op.CONSTANT_TEXT | Op.CONSTANT_NUMBER:
                return Constants(column.type, _constant(column))
        return self._struct(column, kind, optional)

    def _struct(self, column: Column, kind: Type, optional: bool) -> FieldValues:
        if not isinstance(kind, CompositeType):
            flags = column.children
            bits = tuple(one.numbers[6] for one in flags)
            numbers = flags[0].numbers if flags else ()
            return SetFlags(numbers[1], self._type(numbers), bits, optional) if flags else Structs((), (), ())
        members = tuple(
            self._values(child, member.type, isinstance(member.type, EncodedType) and member.type.optional)
            for child, member in zip(column.children, kind.members, strict=True)
        )
        names, types = tuple(one.name for one in column.children), tuple(one.type for one in column.children)
        return Structs(names, members, types)

    def _scaled(self, column: Column) -> FieldValues:
        numbers = column.numbers
        mantissa, exponent, (is_constant, constant, precision, scale) = numbers[:6], numbers[6:12], numbers[12:]
        if not precision:
            raise OptionError(
                f"sbeDecimals=double cannot be written: a DOUBLE has no exact exponent for {column.name!r}",
                remedy="Set sbeDecimals to the type of the column, such as 'decimal(18,4)'.",
            )
        if is_constant:
            kind = pa.decimal128(38, max(0, -constant))
            return Decimals(mantissa[1], self._number(mantissa), kind, max(0, constant))
        place = self._number(exponent)
        if not place.low <= -scale <= place.high:
            raise OptionError(
                f"the exponent of {column.name!r} cannot be {-scale}", remedy="Set sbeDecimals to a shorter scale."
            )
        return FloatingDecimals(mantissa[1], self._number(mantissa), column.type, exponent[1], place)

    def _number(self, value: tuple[int, ...]) -> Number:
        """Return the number of a value: level, offset, since, primitive, kind of null, bits of null."""
        primitive = Primitive(value[3])
        low, high = (0, 0) if primitive.is_float else primitive.limits
        return Number(self._type(value), low, high, _null(primitive, value[4], value[5]))

    def _type(self, value: tuple[int, ...]) -> str:
        return self._order + NUMPY_TYPES[Primitive(value[3])]


def _null(primitive: Primitive, kind: int, bits: int) -> float | None:
    """Return the number that means null, from the numbers of a column."""
    if kind == 0:
        return None
    if kind == 2:
        return math.nan
    if primitive is Primitive.FLOAT:
        return float(struct.unpack("<f", struct.pack("<i", bits))[0])
    if primitive is Primitive.DOUBLE:
        return float(struct.unpack("<d", struct.pack("<q", bits))[0])
    return bits + (1 << 64) if primitive is Primitive.UINT64 and bits < 0 else bits


def _constant(column: Column) -> Any:
    if column.op is Op.CONSTANT_TEXT:
        return column.texts[0]
    bits, is_unsigned = column.numbers[3], column.numbers[4]
    kind: Any = column.type
    if pa.types.is_floating(kind):
        return _null(Primitive.FLOAT if pa.types.is_float32(kind) else Primitive.DOUBLE, 1, bits)
    return bits + (1 << 64) if is_unsigned and bits < 0 else bits


# The rows' columns


def _check_given(given: Any, known: tuple[Column, ...], path: str, label: str) -> None:
    """Raise OptionError for a column that is not in the message, is there twice, or has another kind of type."""
    by_name = {column.name: column for column in known}
    names = [field.name for field in given]
    for field in given:
        if names.count(field.name) > 1:
            raise OptionError(f"the rows have two columns {path + field.name!r}", remedy="Rename one of them.")
        column = by_name.get(field.name)
        if column is None:
            close = difflib.get_close_matches(field.name, by_name, n=1)
            raise OptionError(
                f"the rows have the column {path + field.name!r}, which {label} does not have",
                remedy=f"Did you mean {path + close[0]!r}?" if close else "Rename it, or drop it.",
            )
        _check_type(field.type, column, path + field.name, label)


def _check_type(given: Any, column: Column, path: str, label: str) -> None:
    kind: Any = column.type
    if pa.types.is_struct(kind) and pa.types.is_struct(given):
        _check_given(given, column.children, f"{path}.", label)
    elif pa.types.is_list(kind) and (pa.types.is_list(given) or pa.types.is_large_list(given)):
        if column.children:
            _check_type(given.value_type, column.children[0], path, label)
        elif not _is_text(given.value_type):
            raise _wrong_type(given, column, path, label)
    elif not (pa.types.is_null(given) or any(test(kind) and test(given) for test in _KINDS)) or (
        pa.types.is_float32(kind) and pa.types.is_float64(given)  # it would be rounded
    ):
        raise _wrong_type(given, column, path, label)


def _wrong_type(given: Any, column: Column, path: str, label: str) -> OptionError:
    return OptionError(f"the column {path!r} is {given}, and {label} has it as {column.type}", remedy=USE_TYPE)


def _is_whole(kind: Any) -> bool:
    return pa.types.is_integer(kind) or (pa.types.is_decimal128(kind) and kind.scale == 0)


def _is_decimal(kind: Any) -> bool:
    return bool(pa.types.is_decimal128(kind))


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_time(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


# The rows' type and the column's must be of one kind; whether a value fits is checked for each.
_KINDS: Final = (
    _is_whole, _is_decimal, _is_text, _is_binary, _is_time, pa.types.is_date32, pa.types.is_boolean,
    pa.types.is_floating,
)  # fmt: skip


def _check_missing(block: PlannedBlock, given: Any, path: str, label: str) -> None:
    """Raise OptionError for fields that the rows lack and that cannot be NULL."""
    names = {field.name for field in given}
    for field in block.fields:
        if field.name in names:
            _check_members(field, given.field(field.name).type, path, label)
        elif not may_be_null(field.values, field.type):
            raise _missing(path + field.name, label)
    for group in block.groups:
        if group.name in names:
            kind = given.field(group.name).type
            if not pa.types.is_null(kind):
                _check_missing(group.block, kind.value_type, f"{path}{group.name}.", label)


def _check_members(field: PlannedField, given: Any, path: str, label: str) -> None:
    if isinstance(field.values, Structs) and pa.types.is_struct(given):
        names = {one.name for one in given}
        for name, values, kind in zip(field.values.names, field.values.members, field.values.types, strict=True):
            if name in names:
                member = PlannedField(name, kind, values)
                _check_members(member, given.field(name).type, f"{path}{field.name}.", label)
            elif not may_be_null(values, kind):
                raise _missing(f"{path}{field.name}.{name}", label)


def _missing(path: str, label: str) -> OptionError:
    return OptionError(
        f"the rows have no column {path!r}, which {label} requires",
        remedy="Add it. 'aeron-spark sbe describe' lists the columns.",
    )


def may_be_null(values: FieldValues, kind: pa.DataType) -> bool:
    """Whether a message can have NULL in this field."""
    try:
        for _ in values.parts(nulls(1, kind)):
            pass
    except Misfit:
        return False
    return True


MAX_BYTES: Final = 1 << 28  # of an array of messages

Int64s = NDArray[np.int64]
Memory = NDArray[np.uint8]


def row_of(source: str) -> Callable[[int], str]:
    """Return a function that names rows of ``source`` by their numbers."""
    return lambda number: f"row {number} of {source}"


class SbeEncoder:
    """Encodes rows; ``rows`` counts them over all calls. ``name_row`` names one in an error, by its number from 0.

    For one thread.
    """

    def __init__(self, plan: EncodePlan, name_row: Callable[[int], str]) -> None:
        self._plan = plan
        self._name_row = name_row
        self.rows = 0

    def encode(self, batch: pa.RecordBatch) -> Iterator[pa.Array[Any]]:
        """Yield the messages of the rows (binary), in arrays of at most :data:`MAX_BYTES`, or of one message.

        Raises DataFormatError, with row and column, for a value that its field cannot hold.
        """
        if not batch.num_rows:
            return
        rows = np.arange(self.rows, self.rows + batch.num_rows, dtype=np.int64)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        measured = _measure(self._plan.block, columns, _Place(rows, self._name_row))
        sizes = measured.sizes + len(self._plan.header)
        if int(sizes.sum()) > MAX_BYTES and batch.num_rows > 1:
            middle = batch.num_rows // 2
            yield from self.encode(batch.slice(0, middle))
            yield from self.encode(batch.slice(middle))
            return
        yield self._write(measured, sizes)
        self.rows += batch.num_rows

    def _write(self, measured: _Blocks, sizes: Int64s) -> pa.Array[Any]:
        header = self._plan.header
        ends = np.cumsum(sizes)
        starts = ends - sizes
        memory: Memory = np.zeros(int(ends[-1]), np.uint8)
        _scatter(memory, starts, np.full(len(starts), np.frombuffer(header, f"V{len(header)}")))
        measured.write(memory, starts + len(header))
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        buffers: list[Any] = [None, pa.py_buffer(offsets.data), pa.py_buffer(memory.data)]
        return pa.Array.from_buffers(pa.binary(), len(starts), buffers, null_count=0)


@dataclass(frozen=True, slots=True)
class _Place:
    """The rows of some blocks, a function that names a row, and the path of names to the blocks, for errors."""

    rows: Int64s
    name_row: Callable[[int], str]
    path: str = ""

    def error(self, name: str, problem: Misfit) -> DataFormatError:
        path = f"{self.path}{name}" + (f".{problem.path}" if problem.path else "")
        return DataFormatError(
            f"{self.name_row(int(self.rows[problem.index]))}, column {path!r}: {problem.problem}",
            remedy=problem.remedy,
        )


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks of one level of a batch, measured: ``sizes`` are in bytes, with the groups and data behind each."""

    length: int
    parts: list[Part]
    groups: list[_Entries]
    data: list[_Data]
    sizes: Int64s

    def write(self, memory: Memory, starts: Int64s) -> None:
        """Write the blocks, which begin at ``starts``."""
        if self.length and len(starts):
            blocks: Memory = np.zeros((len(starts), self.length), np.uint8)
            for offset, values in self.parts:
                target: Any = np.ndarray(
                    (len(starts),), values.dtype, buffer=blocks, offset=offset, strides=(self.length,)
                )
                target[:] = values
            _scatter(memory, starts, blocks.view(f"V{self.length}").reshape(-1))
        places = starts + self.length
        for group in self.groups:
            places = group.write(memory, places)
        for data in self.data:
            places = data.write(memory, places)


@dataclass(frozen=True, slots=True)
class _Entries:
    """A group in all blocks of a level: the number of its entries in each, and the entries."""

    group: PlannedGroup
    counts: Int64s
    entries: _Blocks

    def sizes(self) -> Int64s:
        """Return the bytes of the group in each block."""
        ends, firsts = self._ends()
        lengths: Int64s = ends[firsts + self.counts] - ends[firsts] + len(self.group.header)
        return lengths

    def write(self, memory: Memory, places: Int64s) -> Int64s:
        """Write the group at ``places``; return where each ends."""
        header = self.group.header
        if header:
            _scatter(memory, places, np.full(len(places), np.frombuffer(header, f"V{len(header)}")))
        _put_counts(memory, places, self.group.count, self.counts)
        ends, firsts = self._ends()
        self.entries.write(memory, np.repeat(places + len(header) - ends[firsts], self.counts) + ends[:-1])
        return places + self.sizes()

    def _ends(self) -> tuple[Int64s, Int64s]:
        """Return the ends of all entries if they lie back to back, behind a 0; and each block's first entry."""
        ends: Int64s = np.concatenate(([0], np.cumsum(self.entries.sizes)))
        return ends, np.cumsum(self.counts) - self.counts


@dataclass(frozen=True, slots=True)
class _Data:
    """Data in all blocks of a level."""

    data: PlannedData
    values: VariableBytes

    def write(self, memory: Memory, places: Int64s) -> Int64s:
        """Write the data at ``places``; return where each ends."""
        _put_counts(memory, places, self.data.length, self.values.lengths)
        self.values.copy_to(memory, places + self.data.header_length)
        return places + self.data.header_length + self.values.lengths


def _measure(planned: PlannedBlock, columns: dict[str, pa.Array[Any]], place: _Place) -> _Blocks:
    """Return the blocks of rows or entries. A missing column is NULL. Raises DataFormatError."""
    count = len(place.rows)

    def column(one: PlannedField | PlannedGroup | PlannedData) -> pa.Array[Any]:
        given = columns.get(one.name)
        return nulls(count, one.type) if given is None or pa.types.is_null(given.type) else given

    parts = [part for field in planned.fields for part in _parts(field, column(field), place)]
    groups = [_entries(group, column(group), place) for group in planned.groups]
    data = [_data(one, column(one), place) for one in planned.data]
    sizes: Int64s = np.full(count, planned.length, np.int64)
    for group in groups:
        sizes += group.sizes()
    for one in data:
        sizes += one.data.header_length + one.values.lengths
    return _Blocks(planned.length, parts, groups, data, sizes)


def _parts(field: PlannedField, array: pa.Array[Any], place: _Place) -> list[Part]:
    try:
        return list(field.values.parts(array))
    except Misfit as problem:
        raise place.error(field.name, problem) from None


def _entries(group: PlannedGroup, array: Any, place: _Place) -> _Entries:
    counts = list_lengths(array)
    _refuse_long(counts, group.count, "entries", group.name, place)
    inner = array.flatten()
    inside = _Place(np.repeat(place.rows, counts), place.name_row, f"{place.path}{group.name}.")
    if inner.null_count:
        index = int(np.argmin(inner.is_valid().to_numpy(zero_copy_only=False)))
        row = _Place(inside.rows, place.name_row, place.path)
        raise row.error(group.name, Misfit(index, "an entry is NULL", "Remove it from the array."))
    return _Entries(group, counts, _measure(group.block, children_of(inner), inside))


def _data(data: PlannedData, array: pa.Array[Any], place: _Place) -> _Data:
    try:
        values = encoded(array, data.charset) if data.charset else VariableBytes.of(array)
    except Misfit as problem:
        raise place.error(data.name, problem) from None
    _refuse_long(values.lengths, data.length, "bytes", data.name, place)
    return _Data(data, values)


def _refuse_long(lengths: Int64s, counter: CountField, noun: str, name: str, place: _Place) -> None:
    if len(lengths) and int(lengths.max()) > counter.high:
        index = int(np.argmax(lengths > counter.high))
        problem = f"it has {lengths[index]} {noun}, and the message holds at most {counter.high}"
        raise place.error(name, Misfit(index, problem, "Write fewer, or use a wider type in the schema."))


def _put_counts(memory: Memory, places: Int64s, counter: CountField, counts: Int64s) -> None:
    _scatter(memory, places + counter.offset, counts.astype(counter.type))


def _scatter(memory: Memory, places: Int64s, values: NDArray[Any]) -> None:
    """Write each value at its place, which may be any byte."""
    width = values.dtype.itemsize
    if len(places):
        windows: Any = np.ndarray((len(memory) - width + 1,), f"V{width}", buffer=memory, strides=(1,))
        windows[places] = values.view(f"V{width}")
