"""Decodes recorded messages to record batches with the columns that a query selects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aeron_spark.aeron.framed_values import FramedDecoder
from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.options import TimestampFrom
from aeron_spark.wire.arrow import decode_batches
from aeron_spark.wire.chunks import FIXED_BYTES, MAGIC, Content, Group, Reassembler, decode
from aeron_spark.wire.foreign_arrow import read_schema
from aeron_spark.wire.values import FIELDS, Rows, ValueDecoder, Values, read_groups, repeated

METADATA_PREFIX: Final = "_aeron_"
MICROSECONDS: Final = pa.timestamp("us", "UTC")

VALUE_COLUMN: Final = pa.schema({"value": pa.binary()})

_POSITION: list[pa.Field[Any]] = [
    pa.field("channel", pa.string()),
    pa.field("streamId", pa.int32()),
    pa.field("sessionId", pa.int32()),
    pa.field("recordingId", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("reservedValue", pa.int64()),
    pa.field("timestamp", MICROSECONDS),
]
_WRITER: list[pa.Field[Any]] = [
    pa.field("writer", pa.string()),
    pa.field("batch", pa.int64()),
    pa.field("partition", pa.int32()),
    pa.field("row", pa.int64()),
]

POSITION: Final = pa.schema(_POSITION)
WRITER: Final = pa.schema(_WRITER)
RAW: Final = pa.schema([*VALUE_COLUMN, *POSITION])


def metadata() -> list[pa.Field[Any]]:
    """Return the metadata columns of ``framed`` and ``arrow``."""
    return [field.with_name(METADATA_PREFIX + field.name) for field in (*POSITION, *WRITER)]


# Of rows of several streams, by name: the stream of each row. With ``raw`` the first one is there anyway.
STREAM_FIELDS: Final = {"streamId": POSITION.field("streamId"), "stream": pa.field("stream", pa.string())}

_TYPES: Final = {field.name: field.type for field in (*POSITION, *WRITER, *STREAM_FIELDS.values())}


class ConstantColumns:
    """Metadata columns with one value for all rows of a batch. An array of a value is made once, and sliced then."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[int | str, pa.Array[Any]]] = {}

    def column(self, name: str, value: int | str, rows: int) -> pa.Array[Any]:
        """Return the column ``name`` with ``rows`` rows; a timestamp's ``value`` is in µs since 1970."""
        last, array = self._arrays.get(name, (None, None))
        if array is None or last != value:
            array = repeated(value, _TYPES[name], rows)
        elif len(array) < rows:
            array = repeated(value, _TYPES[name], max(rows, 2 * len(array)))
        self._arrays[name] = value, array
        return array.slice(0, rows)


def are_values(schema: pa.Schema) -> bool:
    """Whether rows are messages: ``value`` of bytes or text, perhaps ``reservedValue``, and no other column."""
    if "value" not in schema.names or not {*schema.names} <= {"value", "reservedValue"}:
        return False
    value_type = schema.field("value").type
    return any(matches(value_type) for matches in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


@dataclass(frozen=True, slots=True)
class SmallValues:
    """A sequence of values of one message each, with their positions and reserved values."""

    values: Values
    positions: pa.Array[Any]
    reserved: pa.Array[Any]

    @property
    def position(self) -> int:
        """Position of the first value."""
        return int(self.positions[0].as_py())


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A complete group, with the reserved value of its first message.

    ``is_checked`` is whether the server from which it comes has checked its Arrow values.
    """

    group: Group
    reserved: int
    is_checked: bool = False

    @property
    def position(self) -> int:
        """Position of the group."""
        return self.group.position


@contextmanager
def of_recording(key: str, position: int | None = None) -> Iterator[None]:
    """Add the recording, and a position if given, to a DataFormatError of the block."""
    try:
        yield
    except DataFormatError as error:
        where = f"recording {key}" if position is None else f"recording {key} at position {position}"
        raise DataFormatError(f"{where}: {error.what}", remedy=error.remedy) from error


def batches_of_group(found: PlacedGroup, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an arrow group, with ``wanted`` as :func:`decode_batches` does.

    Raises DataFormatError with the group's position.
    """
    with _at_position(found.position):
        yield from decode_batches(found.group.payload, found.group.header.rows, wanted, is_checked=found.is_checked)


def schema_of_group(found: PlacedGroup) -> pa.Schema:
    """Return the schema of an arrow group. Raises DataFormatError with the group's position."""
    with _at_position(found.position):
        return read_schema(found.group.payload)


@contextmanager
def _at_position(position: int) -> Iterator[None]:
    """Add the position of a group to a DataFormatError of the block."""
    try:
        yield
    except DataFormatError as error:
        raise DataFormatError(f"the group at position {position}: {error.what}", remedy=error.remedy) from error


def read_range(log: Log, wanted: Range, fields: Collection[str] = FIELDS) -> Iterator[SmallValues | PlacedGroup]:
    """Yield the groups that begin in ``[start, end)``; the last one may extend to the range's ``overrun``.

    ``fields`` are those of small values that the caller needs.
    """
    reassembler = Reassembler(wanted.start)
    decoder = FramedDecoder(fields)
    for rows in log.read(wanted):
        # Only a server puts groups into its log. On the direct route, where this is None, every publisher may mark its
        # groups as checked. Another server has marked those before it, which came with a restore.
        checked_from = log.state(wanted.key).checked_from  # the state is known by now
        if rows.resumed_at is not None:  # the group before them has lost its rest
            reassembler = Reassembler(rows.resumed_at)
        for found in _groups(reassembler, rows, decoder.decode, checked_from):
            inside = _starting_before(found, wanted.end)
            if inside is not None:
                yield inside
            if inside is not found:
                return
        # After the end, continue only for a group that starts before the end.
        unfinished = reassembler.unfinished
        if rows.positions[-1].as_py() >= wanted.end and (unfinished is None or unfinished >= wanted.end):
            return


def _groups(
    reassembler: Reassembler, rows: Rows, decoder: ValueDecoder, checked_from: int | None
) -> Iterator[SmallValues | PlacedGroup]:
    for found in read_groups(reassembler, rows.values, rows.positions, decoder):
        if isinstance(found, Group):
            is_checked = found.header.checked and checked_from is not None and found.position >= checked_from
            yield PlacedGroup(found, _reserved_at(rows, found.position), is_checked)
        else:
            length = len(found)
            yield SmallValues(
                found, rows.positions.slice(found.begin, length), rows.reserved.slice(found.begin, length)
            )


def _reserved_at(rows: Rows, position: int) -> int:
    """Return the reserved value of the group that starts at ``position``, or the first one if it starts earlier."""
    index = rows.positions.index(position).as_py()
    return int(rows.reserved[max(index, 0)].as_py())


def _starting_before(found: SmallValues | PlacedGroup, end: int) -> SmallValues | PlacedGroup | None:
    if isinstance(found, PlacedGroup):
        return found if found.group.position < end else None
    positions = found.positions
    if positions[-1].as_py() < end:
        return found
    count = int(np.searchsorted(positions.to_numpy(), end))
    if not count:
        return None
    return SmallValues(found.values.head(count), positions.slice(0, count), found.reserved.slice(0, count))


VALUE: Final = "value"
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000

# The field of small values that a column of the rows needs.
_FIELDS: Final = {
    VALUE: VALUE,
    f"{METADATA_PREFIX}timestamp": "published",
    **{METADATA_PREFIX + name: name for name in ("writer", "batch", "partition", "row")},
}

Column = Callable[[], "pa.Array[Any]"]


class RowDecoder:
    """Makes the record batches of one range of a recording; ``schema`` is the Arrow schema of the query's rows.

    It makes only the columns of the schema, which are any columns of the payload, in any order. ``stream_column`` is
    that of a query of several streams.
    """

    def __init__(
        self,
        schema: pa.Schema,
        recording: RecordingState,
        times: TimestampFrom | None,
        stream_column: str | None = None,
    ) -> None:
        self._schema = schema
        self._stream_column = stream_column
        of_rows = {
            field.name: field.name.startswith(METADATA_PREFIX) or field.name == stream_column for field in schema
        }
        self._own = pa.schema([field for field in schema if not of_rows[field.name]])
        self._metadata = pa.schema([field for field in schema if of_rows[field.name]])
        self._recording = recording
        self._times = times
        self._constants = ConstantColumns()

    @property
    def fields(self) -> frozenset[str]:
        """The fields of small values that the columns need, for :func:`read_range`."""
        return frozenset(_FIELDS[name] for name in self._schema.names if name in _FIELDS)

    def raw(self, rows: Rows) -> pa.RecordBatch:
        """Return one row per message, with unchanged bytes."""
        return _batch(self._schema, {VALUE: rows.values}, self._of_messages(rows))

    def raw_metadata(self, rows: Rows) -> pa.RecordBatch:
        """Return the metadata columns of messages with unchanged bytes."""
        return _batch(self._metadata, {}, _prefixed(self._of_messages(rows)) | self._of_stream(len(rows)))

    def framed(self, found: SmallValues | PlacedGroup) -> pa.RecordBatch:
        """Return the rows of values in the wire format."""
        if any(name != VALUE for name in self._own.names):
            raise _other_content(found, "Arrow batches", "framed")
        own = {VALUE: values_of(found)} if self._own.names else {}
        return _batch(self._schema, own, self._of_values(found))

    def framed_metadata(self, found: SmallValues | PlacedGroup) -> pa.RecordBatch:
        """Return the metadata columns of values in the wire format."""
        return _batch(self._metadata, {}, self._of_values(found))

    @staticmethod
    def is_arrow(found: SmallValues | PlacedGroup) -> bool:
        """Whether the group has Arrow batches."""
        return isinstance(found, PlacedGroup) and found.group.header.content is Content.ARROW

    def arrow(self, found: SmallValues | PlacedGroup) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Arrow batches in the wire format."""
        if isinstance(found, SmallValues) or found.group.header.content is not Content.ARROW:
            raise _other_content(found, "Arrow batches", "framed")
        first = 0
        for batch in batches_of_group(found, self._own):
            if batch.num_rows:
                own = dict(zip(self._own.names, batch.columns, strict=True))
                yield _batch(self._schema, own, self._of_group(found, first, batch.num_rows))
            first += batch.num_rows

    def _of_messages(self, rows: Rows) -> dict[str, Column]:
        return self._of_recording(len(rows)) | {
            "position": lambda: rows.positions,
            "reservedValue": lambda: rows.reserved,
            "timestamp": lambda: self._timestamps(rows),
            **self._of_stream(len(rows)),
        }

    def _of_values(self, found: SmallValues | PlacedGroup) -> dict[str, Column]:
        if isinstance(found, PlacedGroup):
            if self.is_arrow(found):
                raise _other_content(found, "values", "arrow")
            return self._of_group(found, 0, 1)
        fields = found.values.fields
        return _prefixed(
            self._of_recording(len(found.values))
            | {
                "position": lambda: found.positions,
                "reservedValue": lambda: found.reserved,
                "timestamp": lambda: _from_ns(fields["published"]),
                "writer": lambda: fields["writer"],
                "batch": lambda: fields["batch"],
                "partition": lambda: fields["partition"],
                "row": lambda: fields["row"],
            }
        ) | self._of_stream(len(found.values))

    def _of_group(self, found: PlacedGroup, first: int, rows: int) -> dict[str, Column]:
        header, column = found.group.header, self._constants.column
        row = header.row + first
        return _prefixed(
            self._of_recording(rows)
            | {
                "position": lambda: column("position", found.group.position, rows),
                "reservedValue": lambda: column("reservedValue", found.reserved, rows),
                "timestamp": lambda: column("timestamp", _microseconds(header.published_ns), rows),
                "writer": lambda: column("writer", header.writer, rows),
                "batch": lambda: column("batch", header.batch, rows),
                "partition": lambda: column("partition", header.partition, rows),
                "row": lambda: pa.array(np.arange(row, row + rows, dtype=np.int64)),
            }
        ) | self._of_stream(rows)

    def _of_recording(self, rows: int) -> dict[str, Column]:
        recording, column = self._recording, self._constants.column
        return {
            "channel": lambda: column("channel", recording.channel, rows),
            "streamId": lambda: column("streamId", recording.stream_id, rows),
            "sessionId": lambda: column("sessionId", recording.session_id, rows),
            "recordingId": lambda: column("recordingId", recording.recording_id, rows),
        }

    def _of_stream(self, rows: int) -> dict[str, Column]:
        """Return the column with the stream of the rows, which a query of several streams has."""
        recording, name = self._recording, self._stream_column
        if name is None:
            return {}
        # a partition of a server has the stream's name as its channel
        value = recording.stream_id if name == "streamId" else recording.channel
        return {name: lambda: self._constants.column(name, value, rows)}

    def _timestamps(self, rows: Rows) -> pa.Array[Any]:
        if self._times is None:
            return pa.nulls(len(rows), MICROSECONDS)
        return _from_ns(publish_times(rows, self._times))


def _prefixed(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {METADATA_PREFIX + name: column for name, column in columns.items()}


def _batch(schema: pa.Schema, own: Mapping[str, pa.Array[Any]], columns: Mapping[str, Column]) -> pa.RecordBatch:
    """Return the columns of ``schema``: some of ``own``, and some of ``columns``, which are made now."""
    arrays = [own[name] if name in own else columns[name]() for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def publish_times(rows: Rows, times: TimestampFrom) -> pa.Array[Any]:
    """Return each message's publish time in ns since 1970 (int64); null for a payload that is too short."""
    if times.location == "reserved-ns":
        return rows.reserved
    if times.location == "reserved-ms":
        import pyarrow.compute as pc

        return pc.multiply(rows.reserved, NS_PER_MS)
    _, ends, values = (memoryview(buffer or b"") for buffer in rows.values.buffers())
    offsets = np.frombuffer(ends, np.int32)[rows.values.offset :][: len(rows) + 1].astype(np.int64)
    data = np.frombuffer(values, np.uint8)
    starts = offsets[:-1] + times.offset
    fits = starts + 8 <= offsets[1:]
    times_ns = np.zeros(len(rows), np.int64)
    time_bytes = data[starts[fits][:, None] + np.arange(8)]
    times_ns[fits] = np.ascontiguousarray(time_bytes).view("<i8").ravel()
    return pa.array(times_ns, mask=~fits)


def refuse_framed(rows: Rows, key: str) -> None:
    """Raise DataFormatError if a message that ``payload=auto`` takes for a raw one is in the wire format.

    ``key`` is that of the recording.
    """
    index = _first_framed(rows.values)
    if index is None:
        return
    message, position = rows.values[index].as_py(), rows.positions[index].as_py()
    with of_recording(key, position):
        held = "arrow" if decode(message).header.content is Content.ARROW else "framed"
    raise DataFormatError(
        f"the message at position {position} of recording {key} is {held}, and payload=auto began with raw ones",
        remedy=f"Start again, so that payload=auto finds what the stream holds, or set payload={held}. payload=raw "
        "reads the unchanged bytes.",
    )


def _first_framed(values: pa.Array[Any]) -> int | None:
    """Return the index of the first message that begins with the wire format's magic, None if there is none."""
    _, ends, data = values.buffers()
    if not len(values) or data is None or ends is None:
        return None
    offsets = np.frombuffer(memoryview(ends), np.int32)[values.offset :][: len(values) + 1]
    content = np.frombuffer(memoryview(data), np.uint8)
    starts = offsets[: np.searchsorted(offsets[:-1], content.size)]  # without empty values at the end
    found = np.flatnonzero(content[starts] == MAGIC[0])  # few of them, so that the rest is cheap
    found = found[offsets[found + 1] - offsets[found] >= FIXED_BYTES]
    for index, byte in enumerate(MAGIC):
        found = found[content[offsets[found] + index] == byte]
    return int(found[0]) if len(found) else None


def values_of(found: SmallValues | PlacedGroup) -> pa.Array[Any]:
    """Return the values (binary) of messages in the wire format. Raises DataFormatError for Arrow batches."""
    if isinstance(found, SmallValues):
        return found.values.fields[VALUE]
    if found.group.header.content is not Content.BYTES:
        raise _other_content(found, "values", "arrow")
    payload = found.group.payload
    offsets = pa.array([0, payload.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])


def _from_ns(times: pa.Array[Any]) -> pa.Array[Any]:
    import pyarrow.compute as pc  # not at the module's import: it takes long, and planning does not need it

    return pc.divide(times, NS_PER_US).cast(MICROSECONDS)


def _microseconds(time_ns: int) -> int:
    """Return the time in µs, rounded towards 0 as ``_from_ns`` does."""
    return time_ns // NS_PER_US if time_ns >= 0 else -(-time_ns // NS_PER_US)


def _other_content(found: SmallValues | PlacedGroup, expected: str, other: str) -> DataFormatError:
    return DataFormatError(
        f"the message at position {found.position} does not have {expected}",
        remedy=f"Read this stream with payload={other}, or use a separate stream for each payload.",
    )
