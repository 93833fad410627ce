"""Receives a stream on the direct route as Arrow batches: the recorded rows, and with follow all future rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.log import decoding
from aeron_spark.log.api import Range, RecordingState, StreamContent
from aeron_spark.log.available import state_for
from aeron_spark.log.decoding import (
    PlacedGroup,
    RowDecoder,
    SmallValues,
    of_recording,
    read_range,
    refuse_framed,
    schema_of_group,
)
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import OpenLog, QueryPlanner
from aeron_spark.options import ReadOptions

RAW: Final = pa.schema([field for field in decoding.RAW if field.name != "timestamp"])  # a foreign stream has none


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A batch with the format of its rows in the log: ``payload`` is raw, framed or arrow."""

    payload: str
    batch: pa.RecordBatch


class Follower:
    """Receives the stream of ``options``. ``idle`` waits for new rows and returns whether to continue."""

    def __init__(self, options: ReadOptions, open_log: OpenLog, idle: Callable[[], bool]) -> None:
        self.options = options
        self._open_log = open_log
        self._idle = idle
        self._stream = QueryPlanner(options, open_log, framed=options.payload in ("framed", "arrow"))
        self._payload: str = options.payload
        self._decoder: tuple[tuple[pa.Schema, str], RowDecoder] | None = None  # the last one, with its key
        self.content: StreamContent | None = None

    def batches(self, *, follow: bool, position: int | None = None) -> Iterator[ReceivedBatch]:
        """Yield the recorded rows, and with ``follow`` future rows; start at ``position`` in each recording."""
        is_known = self._find_payload()
        first = self._first_offset(position) if follow else None
        while not is_known:  # nothing is recorded yet; later rows are after the first offset
            if not follow:
                self._stream.whole()  # raises if the stream was never recorded
                return
            if not self._idle():
                return
            is_known = self._find_payload()
        if first is None:
            for wanted in self._stream.whole():
                yield from self._read(wanted)
            return
        start = first
        while True:
            end = self._stream.latest(start, limited=True)
            if end is start:
                if not self._idle():
                    return
                continue
            for wanted in self._stream.between(start, end):
                yield from self._read(wanted)
            start = end

    def _first_offset(self, position: int | None) -> Offset:
        if position is None:
            return self._stream.initial()
        states = self._stream.followed()
        return self._stream.first({one.key: self._stream.at_given(one, position) for one in states}, states)

    def _find_payload(self) -> bool:
        """Read the stream's content if its payload is unknown. Return whether the payload is known now."""
        if self.content is None:
            self.content = self._stream.content()
        if self._payload != "auto":
            return True
        if self.content is None:
            return False
        self._payload = self.content.payload
        self._stream = QueryPlanner(self.options, self._open_log, framed=self._payload != "raw")
        return True

    def _read(self, wanted: Range) -> Iterator[ReceivedBatch]:
        log = self._stream.log
        state = state_for(log, wanted, fail_on_data_loss=self.options.fail_on_data_loss)
        if state is None:
            return
        if self._payload == "raw":
            decoder = RowDecoder(RAW, state, None)
            for rows in log.read(wanted):
                if self.options.payload == "auto":
                    refuse_framed(rows, wanted.key)
                yield ReceivedBatch("raw", decoder.raw(rows))
            return
        with of_recording(wanted.key):
            for found in read_range(log, wanted):
                self._check_content(found)
                payload = "arrow" if RowDecoder.is_arrow(found) else "framed"
                for batch in self._batches(found, state):
                    yield ReceivedBatch(payload, batch)

    def _check_content(self, found: SmallValues | PlacedGroup) -> None:
        expected, is_arrow = self.options.payload, RowDecoder.is_arrow(found)
        if expected != "auto" and is_arrow != (expected == "arrow"):
            actual = "arrow" if is_arrow else "framed"
            raise DataFormatError(
                f"the message at position {found.position} is {actual}, expected {expected}",
                remedy=f"Receive it with --payload {actual}.",
            )

    def _batches(self, found: SmallValues | PlacedGroup, state: RecordingState) -> Iterator[pa.RecordBatch]:
        metadata = decoding.metadata() if self.options.include_metadata else []
        if isinstance(found, SmallValues) or not RowDecoder.is_arrow(found):
            yield self._decoder_of(pa.schema([*decoding.VALUE_COLUMN, *metadata]), state).framed(found)
            return
        # Each group has its own schema.
        yield from self._decoder_of(pa.schema([*schema_of_group(found), *metadata]), state).arrow(found)

    def _decoder_of(self, schema: pa.Schema, state: RecordingState) -> RowDecoder:
        if self._decoder is None or self._decoder[0] != (schema, state.key):
            self._decoder = (schema, state.key), RowDecoder(schema, state, None)
        return self._decoder[1]
