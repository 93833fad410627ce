"""Decodes the groups that begin in a range of a framed log, and makes the record batches of a query's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.row_sources import BATCH_ROWS
from aeron_spark.errors import DataFormatError
from aeron_spark.log.api import Log, Range, RecordingState
from aeron_spark.log.columns import METADATA_PREFIX, MICROSECONDS
from aeron_spark.options import TimestampFrom
from aeron_spark.wire.arrow import conform, decode_batches
from aeron_spark.wire.chunk import Content, Header
from aeron_spark.wire.groups import Group, Reassembler
from aeron_spark.wire.values import Rows, Values, read_groups, repeated


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
    """A complete group, with the reserved value of its first message."""

    group: Group
    reserved: int

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


def read_range(log: Log, wanted: Range) -> Iterator[SmallValues | PlacedGroup]:
    """Yield the groups that begin in ``[start, end)``; the last one may extend to the range's ``overrun``."""
    reassembler = Reassembler(wanted.start)
    for rows in log.read(wanted):
        for found in _groups(reassembler, rows):
            inside = _starting_before(found, wanted.end)
            if inside is not None:
                yield inside
            if inside is not found:
                return
        # After the end, continue only for a group that starts before the end.
        unfinished = reassembler.unfinished
        if rows.positions[-1].as_py() >= wanted.end and (unfinished is None or unfinished >= wanted.end):
            return


def _groups(reassembler: Reassembler, rows: Rows) -> Iterator[SmallValues | PlacedGroup]:
    for found in read_groups(reassembler, rows.values, rows.positions):
        if isinstance(found, Group):
            yield PlacedGroup(found, _reserved_at(rows, found.position))
        else:
            length = len(found)
            yield SmallValues(
                found, rows.positions.slice(found.begin, length), rows.reserved.slice(found.begin, length)
            )


def _reserved_at(rows: Rows, position: int) -> int:
    """Return the reserved value of the group that starts at ``position``, or the first one if it starts earlier."""
    index = pc.index(rows.positions, position).as_py()
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
    values = found.values
    first = replace(
        values,
        values=values.values.slice(0, count),
        published=values.published.slice(0, count),
        writers=values.writers.slice(0, count),
        batches=values.batches.slice(0, count),
        partitions=values.partitions.slice(0, count),
        rows=values.rows.slice(0, count),
    )
    return SmallValues(first, positions.slice(0, count), found.reserved.slice(0, count))


NS_PER_MS: Final = 1_000_000

Column = Callable[[], "pa.Array[Any]"]


class RowDecoder:
    """Makes the record batches of one range of a recording; ``schema`` is the Arrow schema of the query's rows."""

    def __init__(self, schema: pa.Schema, recording: RecordingState, times: TimestampFrom | None) -> None:
        self._schema = schema
        self._own = pa.schema([field for field in schema if not field.name.startswith(METADATA_PREFIX)])
        self._metadata = [field for field in schema if field.name.startswith(METADATA_PREFIX)]
        self._times = times
        # These are constant in a recording: one array is made and sliced for each batch.
        self._constant: dict[str, pa.Array[Any]] = {
            "channel": repeated(recording.channel, pa.string(), BATCH_ROWS),
            "streamId": repeated(recording.stream_id, pa.int32(), BATCH_ROWS),
            "sessionId": repeated(recording.session_id, pa.int32(), BATCH_ROWS),
            "recordingId": repeated(recording.recording_id, pa.int64(), BATCH_ROWS),
        }
        self._no_time = pa.nulls(BATCH_ROWS, MICROSECONDS)

    def raw(self, rows: Rows) -> pa.RecordBatch:
        """Return one row per message, with unchanged bytes."""
        return self._batch(self._schema, "", {"value": lambda: rows.values} | self._of_rows(rows), len(rows))

    def raw_metadata(self, rows: Rows) -> pa.RecordBatch:
        """Return the metadata columns of messages with unchanged bytes."""
        return self._batch(pa.schema(self._metadata), METADATA_PREFIX, self._of_rows(rows), len(rows))

    def _of_rows(self, rows: Rows) -> dict[str, Column]:
        return {
            "position": lambda: rows.positions,
            "reservedValue": lambda: rows.reserved,
            "timestamp": lambda: self._timestamps(rows),
        }

    def framed(self, found: SmallValues | PlacedGroup) -> pa.RecordBatch:
        """Return the rows of values in the wire format."""
        value = values_of(found)
        return self._with_metadata([value] if self._own.names else [], _of_values(found), len(value))

    def framed_metadata(self, found: SmallValues | PlacedGroup) -> pa.RecordBatch:
        """Return the metadata columns of values in the wire format."""
        return self._batch(pa.schema(self._metadata), METADATA_PREFIX, _of_values(found), len(values_of(found)))

    @staticmethod
    def is_arrow(found: SmallValues | PlacedGroup) -> bool:
        """Whether the group has Arrow batches."""
        return isinstance(found, PlacedGroup) and found.group.header.content is Content.ARROW

    def arrow(self, found: SmallValues | PlacedGroup) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Arrow batches in the wire format."""
        if isinstance(found, SmallValues) or found.group.header.content is not Content.ARROW:
            raise _other_content(found, "Arrow batches", "framed")
        first = 0
        try:
            for batch in decode_batches(found.group.payload, found.group.header.rows):
                rows = conform(batch, self._own)
                if rows.num_rows:
                    yield self._with_metadata(rows.columns, _of_group(found, first, rows.num_rows), rows.num_rows)
                first += rows.num_rows
        except DataFormatError as error:
            raise DataFormatError(
                f"the group at position {found.group.position}: {error.what}", remedy=error.remedy
            ) from error

    def _with_metadata(self, own: list[pa.Array[Any]], columns: Mapping[str, Column], rows: int) -> pa.RecordBatch:
        if not self._metadata:
            return pa.RecordBatch.from_arrays(own, schema=self._schema)
        extra = self._batch(pa.schema(self._metadata), METADATA_PREFIX, columns, rows)
        by_name = dict(zip(self._own.names, own, strict=True)) | dict(
            zip(extra.schema.names, extra.columns, strict=True)
        )
        return pa.RecordBatch.from_arrays([by_name[name] for name in self._schema.names], schema=self._schema)

    def _batch(self, schema: pa.Schema, prefix: str, columns: Mapping[str, Column], rows: int) -> pa.RecordBatch:
        arrays = []
        for field in schema:
            name = field.name.removeprefix(prefix)
            arrays.append(columns[name]() if name in columns else self._same(self._constant[name], rows))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @staticmethod
    def _same(constant: pa.Array[Any], rows: int) -> pa.Array[Any]:
        return constant.slice(0, rows) if rows <= len(constant) else pa.repeat(constant[0], rows)

    def _timestamps(self, rows: Rows) -> pa.Array[Any]:
        if self._times is None:
            return (
                self._same(self._no_time, len(rows)) if len(rows) <= BATCH_ROWS else pa.nulls(len(rows), MICROSECONDS)
            )
        return _from_ns(publish_times(rows, self._times))


def publish_times(rows: Rows, times: TimestampFrom) -> pa.Array[Any]:
    """Return each message's publish time in ns since 1970 (int64); null for a payload that is too short."""
    if times.location == "reserved-ns":
        return rows.reserved
    if times.location == "reserved-ms":
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


def values_of(found: SmallValues | PlacedGroup) -> pa.Array[Any]:
    """Return the values (binary) of messages in the wire format. Raises DataFormatError for Arrow batches."""
    if isinstance(found, SmallValues):
        return found.values.values
    if found.group.header.content is not Content.BYTES:
        raise _other_content(found, "values", "arrow")
    payload = found.group.payload
    offsets = pa.array([0, payload.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])


def _of_values(found: SmallValues | PlacedGroup) -> dict[str, Column]:
    if isinstance(found, PlacedGroup):
        return _of_group(found, 0, 1)
    values = found.values
    return {
        "position": lambda: found.positions,
        "reservedValue": lambda: found.reserved,
        "timestamp": lambda: _from_ns(values.published),
        "writer": lambda: values.writers,
        "batch": lambda: values.batches,
        "partition": lambda: values.partitions,
        "row": lambda: values.rows,
    }


def _of_group(found: PlacedGroup, first: int, rows: int) -> dict[str, Column]:
    header: Header = found.group.header
    return {
        "position": lambda: repeated(found.group.position, pa.int64(), rows),
        "reservedValue": lambda: repeated(found.reserved, pa.int64(), rows),
        "timestamp": lambda: _from_ns(repeated(header.published_ns, pa.int64(), rows)),
        "writer": lambda: repeated(header.writer, pa.string(), rows),
        "batch": lambda: repeated(header.batch, pa.int64(), rows),
        "partition": lambda: repeated(header.partition, pa.int32(), rows),
        "row": lambda: pa.array(np.arange(header.row + first, header.row + first + rows, dtype=np.int64)),
    }


def _from_ns(times: pa.Array[Any]) -> pa.Array[Any]:
    return pc.divide(times, 1000).cast(MICROSECONDS)


def _other_content(found: SmallValues | PlacedGroup, expected: str, other: str) -> DataFormatError:
    return DataFormatError(
        f"the message at position {found.position} does not have {expected}",
        remedy=f"Read this stream with payload={other}, or use a separate stream for each payload.",
    )
