"""Receiving a stream: what is recorded now, or on and on as it grows; Arrow batches with a reader's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.log import columns
from aeron_spark.log.api import Range, RecordingState, StreamContent
from aeron_spark.log.decoding import PlacedGroup, RowDecoder, SmallValues, of_recording, read_range
from aeron_spark.log.inspection import at_message
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import OpenLog, QueryPlanner
from aeron_spark.options import ReadOptions
from aeron_spark.wire.arrow import decode_batches

RAW: Final = pa.schema([field for field in columns.RAW if field.name != "timestamp"])  # a foreign stream has none


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A batch, and what it was in the log: ``payload`` is raw, framed or arrow."""

    payload: str
    batch: pa.RecordBatch


class Follower:
    """Receives the stream of ``options``. ``idle`` waits a little where nothing is new, and says whether to go on."""

    def __init__(self, options: ReadOptions, open_log: OpenLog, idle: Callable[[], bool]) -> None:
        self.options = options
        self._open_log = open_log
        self._idle = idle
        self._stream = QueryPlanner(options, open_log, framed=options.payload in ("framed", "arrow"))
        self._payload: str = options.payload
        self._kept: tuple[tuple[pa.Schema, str], RowDecoder] | None = None
        self.content: StreamContent | None = None

    def batches(self, *, follow: bool, position: int | None = None) -> Iterator[ReceivedBatch]:
        """Yield what is there, and with ``follow`` what comes; ``position`` is where to begin in every recording."""
        known = self._know_payload()
        begun = self._begin(position) if follow else None
        while not known:  # nothing is recorded yet; what comes now is behind the beginning
            if not follow:
                self._stream.whole()  # raises where the stream was never recorded
                return
            if not self._idle():
                return
            known = self._know_payload()
        if begun is None:
            for wanted in self._stream.whole():
                yield from self._read(wanted)
            return
        start = begun
        while True:
            end = self._stream.latest(start, limited=True)
            if end is start:
                if not self._idle():
                    return
                continue
            for wanted in self._stream.between(start, end):
                yield from self._read(wanted)
            start = end

    def _begin(self, position: int | None) -> Offset:
        if position is None:
            return self._stream.initial()
        states = self._stream.followed()
        log = self._stream.log
        return Offset.first({one.key: at_message(log, one, position) for one in states}, states, log.stream)

    def _know_payload(self) -> bool:
        """Look what the stream holds, unless that is known or was said; whether it is known now."""
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
        state = log.state(wanted.key)
        if self._payload == "raw":
            maker = RowDecoder(RAW, state, None)
            for rows in log.read(wanted):
                yield ReceivedBatch("raw", maker.raw(rows))
            return
        with of_recording(wanted.key):
            for found in read_range(log, wanted):
                self._check_content(found)
                payload = "arrow" if RowDecoder.is_arrow(found) else "framed"
                for batch in self._batches(found, state):
                    yield ReceivedBatch(payload, batch)

    def _check_content(self, found: SmallValues | PlacedGroup) -> None:
        asked, is_arrow = self.options.payload, RowDecoder.is_arrow(found)
        if asked != "auto" and is_arrow != (asked == "arrow"):
            other = "arrow" if is_arrow else "framed"
            raise DataFormatError(
                f"the message at position {found.position} is {other}, and {asked} was asked for",
                remedy=f"Receive it with --payload {other}.",
            )

    def _batches(self, found: SmallValues | PlacedGroup, state: RecordingState) -> Iterator[pa.RecordBatch]:
        metadata = columns.metadata() if self.options.include_metadata else []
        if isinstance(found, SmallValues) or not RowDecoder.is_arrow(found):
            yield self._maker(pa.schema([*columns.VALUE, *metadata]), state).framed(found)
            return
        # Every group says for itself what its columns are.
        for first in decode_batches(found.group.payload):
            yield from self._maker(pa.schema([*first.schema, *metadata]), state).arrow(found)
            return

    def _maker(self, schema: pa.Schema, state: RecordingState) -> RowDecoder:
        if self._kept is None or self._kept[0] != (schema, state.key):
            self._kept = (schema, state.key), RowDecoder(schema, state, None)
        return self._kept[1]
