"""Makes the decode table of some columns: whole numbers and texts, which go to the tasks and to the decoder in Java.

The table holds the walk through each message of the schema, whose bounds are checked in any case, and the chosen
columns. Its layout is defined here and read in ``io.aeronspark.sbe.TableReader``::

    version of the table, big-endian, framing, mode, others, id and version of the schema
    header: length; blockLength, templateId, schemaId, version (each: primitive, offset, is constant, constant); counts
    unknown parts: 0 or 1, and dimensions; 0 or 1, and header of data
    count of levels, count of data, count of messages; each message: template id, name, chosen, block
    count of columns; each column: op, count and numbers, count and texts, count and children
    block: level, count and (version, length, name of the last field), count and groups, count and data
    group: version, name, dimensions, block
    data: version, name, number, header of data
    dimensions: length; blockLength, numInGroup (each: primitive, offset); counts
    header of data: length; the data's length (primitive, offset)
    counts: numGroups, numVarDataFields (each: primitive, offset; or -1, 0)

A text is its index in ``texts``.
"""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import OptionError
from aeron_spark.sbe.columns import (
    Column,
    ColumnMapper,
    Numbering,
    Op,
    PlacedBlock,
    check_names,
    struct_of_message,
)
from aeron_spark.sbe.model import Counts, DataHeader, Dimensions, Integer, Message, Schema, UnknownParts
from aeron_spark.sbe.settings import Framing, OnMalformed, Others, SbeSettings

TABLE_VERSION: Final = 2
_OF_ROWS: Final = frozenset({Op.TEMPLATE_ID, Op.VERSION, Op.ROW, Op.CORRUPT, Op.CLUSTER})
CORRUPT_RECORD: Final = "_corrupt_record"
MESSAGE_NAME: Final = "message"
PREFIX: Final = "_aeron_"
_CLUSTER_COLUMNS: Final = ("leadershipTermId", "clusterSessionId", "clusterTimestamp")


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """The table of a decoder, picklable. ``schema`` has the columns that it fills, in order."""

    numbers: tuple[int, ...]
    texts: tuple[str, ...]
    schema: pa.Schema
    label: str  # of the schema, in errors


class MessageColumns:
    """All columns of the messages that the settings choose, and the decode table of some of them.

    Raises OptionError for a message that the schema does not have, or if none is chosen among several.
    """

    def __init__(self, schema: Schema, settings: SbeSettings) -> None:
        self.schema = schema
        self.settings = settings
        self.messages = _chosen(schema, settings.messages)
        self.is_flat = len(self.messages) == 1 and settings.messages != ("*",)
        numbering = Numbering()
        self._placed = {message.id: numbering.place(message.block) for message in schema.messages}
        self.columns = self._all_columns()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of all columns. Names may differ only by case: see :meth:`check_names`."""
        return pa.schema([column.field for column in self.columns])

    def columns_of(self, message: str) -> tuple[Column, ...]:
        """Return the columns of one chosen message."""
        if not self.is_flat:
            return next(column.children for column in self.columns if column.name == message)
        return tuple(column for column in self.columns if column.op not in _OF_ROWS)

    def check_names(self) -> None:
        """Raise OptionError for two names that Spark takes as one."""
        check_names(self.columns)

    def table(self, chosen: pa.Schema | None = None, *, name: str = "") -> DecodeTable:
        """Return the table for the ``chosen`` columns, or for all. Raises OptionError for a column that is not there.

        A struct may be chosen with some of its fields. ``name`` adds a column of this name that has the name of each
        row's message, which is null in a row without one.
        """
        columns = self.columns if chosen is None else _select(self.columns, chosen, "")
        if name:
            columns = (*columns, Column(name, pa.string(), Op.MESSAGE_NAME))
        encoder = _Encoder()
        encoder.head(self.schema, self.settings, _others(self.settings, self.is_flat))
        ids = {message.id for message in self.messages}
        encoder.messages(self.schema, self._placed, ids)
        encoder.columns((*columns, Column("", pa.int32(), Op.SOURCE)))
        digest = zlib.crc32(repr((encoder.numbers, encoder.texts)).encode())
        label = f"{self.schema.name}: id {self.schema.id}, version {self.schema.version}, table {digest:08x}"
        return DecodeTable(
            tuple(encoder.numbers), tuple(encoder.texts), pa.schema([column.field for column in columns]), label
        )

    def _all_columns(self) -> tuple[Column, ...]:
        mapper = ColumnMapper(self.settings)
        found: list[Column] = []
        if self.is_flat:
            found += mapper.columns(self._placed[self.messages[0].id])
        else:
            found.append(Column(MESSAGE_NAME, pa.string(), Op.MESSAGE_NAME))
            for message in self.messages:
                placed = self._placed[message.id]
                found.append(struct_of_message(message.name, mapper.columns(placed), placed.level))
        self._check_units(mapper.used_units)
        if self.settings.mode is OnMalformed.PERMISSIVE:
            found.append(Column(CORRUPT_RECORD, pa.binary(), Op.CORRUPT))
        if self.settings.metadata:
            found += self._metadata()
        return tuple(found)

    def _metadata(self) -> Iterator[Column]:
        yield Column(PREFIX + "templateId", pa.int32(), Op.TEMPLATE_ID)
        yield Column(PREFIX + "version", pa.int32(), Op.VERSION)
        if not self.settings.framing.is_single:
            yield Column(PREFIX + "row", pa.int32(), Op.ROW)
        if self.settings.framing is Framing.CLUSTER:
            for number, name in enumerate(_CLUSTER_COLUMNS):
                yield Column(PREFIX + name, pa.int64(), Op.CLUSTER, (number,))

    def _check_units(self, used: set[str]) -> None:
        missing = [name for name, _ in self.settings.times.units if name not in used]
        if missing:
            raise OptionError(
                f"a unit of time is given for {missing[0]!r}, which is not a 64-bit integer of "
                f"{' or '.join(message.name for message in self.messages[:5])}",
                remedy="Name fields as 'aeron-spark sbe describe' shows them, such as 'sendingTime' or 'bids.at'.",
            )


def _chosen(schema: Schema, names: tuple[str, ...]) -> tuple[Message, ...]:
    if names == ("*",):
        return schema.messages
    known = {message.name: message for message in schema.messages}
    if not names:
        if len(known) == 1:
            return schema.messages
        raise OptionError(
            f"the schema {schema.name} has {len(known)} messages, and none is chosen: {_listed(list(known))}",
            remedy="Name one, such as .option('sbeMessage', '" + next(iter(known)) + "'), or '*' for all of them.",
        )
    by_id = {str(message.id): message for message in schema.messages}
    found = []
    for name in names:
        message = known.get(name) or by_id.get(name)
        if message is None:
            close = difflib.get_close_matches(name, known, n=1)
            raise OptionError(
                f"the schema {schema.name} has no message {name!r}: it has {_listed(list(known))}",
                remedy=f"Did you mean {close[0]!r}?" if close else "Choose one of them, or '*' for all.",
            )
        found.append(message)
    return tuple(dict.fromkeys(found))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _others(settings: SbeSettings, is_flat: bool) -> Others:
    if settings.others:
        return Others[settings.others.upper()]
    return Others.SKIP if is_flat or settings.messages != ("*",) else Others.KEEP


def _select(columns: tuple[Column, ...], chosen: Any, path: str) -> tuple[Column, ...]:
    """Return the chosen columns in their chosen order; ``chosen`` is an Arrow schema or a struct type."""
    by_name = {column.name: column for column in columns}
    found = []
    for field in chosen:
        column = by_name.get(field.name)
        if column is None:
            close = difflib.get_close_matches(field.name, by_name, n=1)
            raise OptionError(
                f".schema(...) has the column {path + field.name!r}, which the message does not have",
                remedy=(f"Did you mean {path + close[0]!r}? " if close else "")
                + "'aeron-spark sbe describe' lists the columns.",
            )
        found.append(_narrow(column, field.type, path + field.name))
    return tuple(found)


def _narrow(column: Column, kind: pa.DataType, path: str) -> Column:
    if column.type == kind:
        return column
    if column.op is Op.STRUCT and pa.types.is_struct(kind) and kind.num_fields:
        children = _select(column.children, [kind.field(index) for index in range(kind.num_fields)], path + ".")
        return Column(column.name, pa.struct([one.field for one in children]), column.op, column.numbers, (), children)
    if column.op is Op.GROUP and pa.types.is_list(kind):
        entry = _narrow(column.children[0], kind.value_type, path)
        arrow = pa.list_(entry.field)
        return Column(column.name, arrow, column.op, column.numbers, (), (entry,))
    raise OptionError(
        f".schema(...) has {path!r} with the type {kind}, and the message has it as {column.type}",
        remedy="Use the type that 'aeron-spark sbe describe' shows, and cast the column in the query.",
    )


class _Encoder:
    """Writes the table."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.texts: list[str] = []
        self._indexes: dict[str, int] = {}

    def _text(self, text: str) -> int:
        index = self._indexes.setdefault(text, len(self.texts))
        if index == len(self.texts):
            self.texts.append(text)
        return index

    def head(self, schema: Schema, settings: SbeSettings, others: Others) -> None:
        self.numbers += (
            TABLE_VERSION,
            int(schema.big_endian),
            int(settings.framing),
            int(settings.mode),
            int(others),
            schema.id,
            schema.version,
            schema.header.length,
        )
        header = schema.header
        for one in (header.block_length, header.template_id, header.schema_id, header.version):
            self.numbers += (*_integer(one), int(one.constant is not None), one.constant or 0)
        self.numbers += _counts(header.counts)
        self._unknown(schema.unknown)

    def _unknown(self, unknown: UnknownParts) -> None:
        self.numbers += (0,) if unknown.dimensions is None else (1, *_dimensions(unknown.dimensions))
        self.numbers += (0,) if unknown.data is None else (1, *_data_header(unknown.data))

    def messages(self, schema: Schema, placed: dict[int, PlacedBlock], chosen: set[int]) -> None:
        blocks = [one for root in placed.values() for one in _blocks(root)]
        self.numbers += (len(blocks), sum(len(one.data) for one in blocks), len(schema.messages))
        for message in schema.messages:
            self.numbers += (message.id, self._text(message.name), int(message.id in chosen))
            self._block(placed[message.id])

    def _block(self, placed: PlacedBlock) -> None:
        required = placed.block.required_lengths()
        self.numbers += (placed.level, len(required))
        for since, length, name in required:
            self.numbers += (since, length, self._text(name))
        self.numbers.append(len(placed.groups))
        for one in placed.groups:
            self.numbers += (one.group.since, self._text(one.group.name), *_dimensions(one.group.dimensions))
            self._block(one.block)
        self.numbers.append(len(placed.data))
        for data, number in placed.data:
            self.numbers += (data.since, self._text(data.name), number, *_data_header(data.header))

    def columns(self, columns: tuple[Column, ...]) -> None:
        self.numbers.append(len(columns))
        for column in columns:
            self.numbers += (int(column.op), len(column.numbers), *column.numbers, len(column.texts))
            self.numbers += (self._text(text) for text in column.texts)
            self.columns(column.children)


def _integer(integer: Integer) -> tuple[int, int]:
    return int(integer.primitive), integer.offset


def _counts(counts: Counts) -> tuple[int, ...]:
    return tuple(number for one in (counts.groups, counts.data) for number in (_integer(one) if one else (-1, 0)))


def _dimensions(one: Dimensions) -> tuple[int, ...]:
    return (one.length, *_integer(one.block_length), *_integer(one.count), *_counts(one.counts))


def _data_header(header: DataHeader) -> tuple[int, ...]:
    return (header.size, *_integer(header.length))


def _blocks(placed: PlacedBlock) -> Iterator[PlacedBlock]:
    yield placed
    for group in placed.groups:
        yield from _blocks(group.block)
