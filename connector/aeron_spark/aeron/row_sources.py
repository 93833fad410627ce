"""Copies rows of a recording into Arrow arrays with the Java helper; no Python runs per message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

import jpype
import pyarrow as pa

from aeron_spark.aeron.archive import ReplayedRange
from aeron_spark.aeron.java_calls import java_errors
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.aeron.recording import Recording, UnreadableBytesError, segment_at
from aeron_spark.errors import TransportError
from aeron_spark.transport.api import BULK_MESSAGE_BYTES
from aeron_spark.wire.values import BATCH_ROWS, Rows

BATCH_BYTES: Final = 1 << 20  # 0.5 to 16 MiB are equally fast in Spark, 64 MiB is half as fast

MAX_FRAME_BYTES: Final = 1 << 16

MAX_VALUES_BYTES: Final = (1 << 31) - 1  # int32 offsets, as in Spark's BINARY


class _Memory:
    """Arrow memory for one batch; the arrays of :meth:`take` keep it alive."""

    def __init__(self, value_bytes: int, rows: int) -> None:
        self.values = pa.allocate_buffer(value_bytes)
        self.offsets = pa.allocate_buffer(4 * (rows + 1))
        self.positions = pa.allocate_buffer(8 * rows)
        self.reserved = pa.allocate_buffer(8 * rows)
        self.capacity = rows

    def take(self, rows: int) -> Rows:
        return Rows(
            pa.Array.from_buffers(pa.binary(), rows, [None, self.offsets, self.values]),
            pa.Array.from_buffers(pa.int64(), rows, [None, self.positions]),
            pa.Array.from_buffers(pa.int64(), rows, [None, self.reserved]),
        )


class MessageSource(Protocol):
    """The source of a range's messages; the range ends at the end of a message."""

    @property
    def more(self) -> bool:
        """Whether the end of the range is not reached."""
        ...

    def fill(self, helper: Any) -> bool:
        """Move available messages into the helper's memory. Return whether the memory is full."""
        ...

    def consumed(self) -> None:
        """Take notice that the consumer has processed a batch, which may have taken long."""
        ...


class ReplaySource:
    """The messages of a replay. Waits for them, and keeps the session with the archive alive."""

    def __init__(self, replayed: ReplayedRange) -> None:
        self._replayed = replayed

    @property
    def more(self) -> bool:
        """Whether the end of the range is not reached."""
        return self._replayed.position < self._replayed.end

    def fill(self, helper: Any) -> bool:
        """Drain the image. Raises the errors of ``ReplayedRange.poll``."""
        replayed = self._replayed
        return replayed.poll(lambda image: bool(helper.drain(image, replayed.end)))

    def consumed(self) -> None:
        """Restart the wait for data, without the consumer's time."""
        self._replayed.progress()
        self._replayed.archive.keep_alive()


def drain(source: MessageSource, recording: Recording) -> Iterator[Rows]:
    """Yield the messages of ``source`` in batches until its end.

    Raises the errors of the source; before an UnreadableBytesError, the last batch has all messages before the damage.
    """
    helper = jclass("io.aeronspark.reading.RowAssembler")(recording.initial_term_id, recording.term_length)
    memory_bytes = max(BATCH_BYTES, 2 * MAX_FRAME_BYTES)
    memory = _begin(helper, memory_bytes, BATCH_ROWS)
    while source.more:
        try:
            is_full = source.fill(helper)
        except UnreadableBytesError:
            if rows := int(helper.rows()):
                yield memory.take(rows)
            raise
        if is_full:
            rows = int(helper.rows())
            if rows:
                yield memory.take(rows)
                enter_java()  # another thread may request the next batch
                source.consumed()
            # One message that fills the memory needs a larger one.
            partial = int(helper.partialLength())
            needed = min(2 * partial + MAX_FRAME_BYTES, MAX_VALUES_BYTES)
            memory = _begin(helper, max(memory_bytes, needed), BATCH_ROWS)
    rows = int(helper.rows())
    if rows:
        yield memory.take(rows)


def _begin(helper: Any, value_bytes: int, rows: int) -> _Memory:
    memory = _Memory(value_bytes, rows)
    helper.carry(
        memory.values.address,
        memory.values.size,
        memory.offsets.address,
        memory.positions.address,
        memory.reserved.address,
        memory.capacity,
    )
    return memory


class SegmentSource:
    """The messages of ``[start, end)`` of a recording, both frame boundaries, from its segment files.

    If a file is missing (purged since, or not readable) the range ends early at ``position``, which is then the start
    of a segment and of a message.
    """

    def __init__(self, folder: Path, recording: Recording, start: int, end: int) -> None:
        self.position = start
        self.end = end
        self._folder = folder
        self._recording = recording
        self._open: Any = None
        self._mapped_at = start

    @property
    def more(self) -> bool:
        """Whether the files have more of the range."""
        if self.position < self.end and (self._open is None or self.position >= int(self._open.end())):
            self._next()
        return self.position < self.end and self._open is not None

    def fill(self, helper: Any) -> bool:
        """Move messages into the helper's memory. Return whether the memory is full.

        Raises UnreadableBytesError at a damaged frame: its checksum is wrong, or no complete frame is there.
        """
        try:
            full = bool(helper.drain(self._open, self.end))
        except jpype.JException as error:
            self.position = int(self._open.position())
            raise UnreadableBytesError(self.position) from error
        self.position = int(self._open.position())
        if full or self.position >= min(self.end, int(self._open.end())):
            return full
        if self.position > self._mapped_at:  # a frame extends beyond the mapped range: map again from its start
            self._next()
        else:
            raise UnreadableBytesError(self.position)
        return full

    def consumed(self) -> None:
        """Do nothing: files have the whole range already, so this source never waits."""

    def close(self) -> None:
        """Close the current file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> SegmentSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _next(self) -> None:
        self.close()
        found = segment_at(self._folder, self._recording, self.position)
        if found is not None:
            path, base = found
            self._mapped_at = self.position
            try:
                self._open = jclass("io.aeronspark.reading.SegmentFile")(str(path), base, self.position)
            except jpype.JException:
                self._open = None  # deleted since `segment_at` found it


class ReceivedRange:
    """The messages of ``[start, end)`` of a recording, from the bytes that a server sends.

    ``next_bytes`` waits for the next bytes and returns them, in order, in parts of any length. Errors name the
    recording ``name``. A damaged or incomplete frame raises UnreadableBytesError with its position.
    """

    def __init__(self, name: str, start: int, end: int, next_bytes: Callable[[], memoryview]) -> None:
        self.end = end
        self.received = start  # position after the received bytes
        self._name = name
        self._next_bytes = next_bytes
        with java_errors(f"allocating memory for {name}"):
            self._java = jclass("io.aeronspark.reading.ReceivedBytes")(BULK_MESSAGE_BYTES, start)
        self._memory = memoryview(self._java.memory()).cast("B")

    @property
    def position(self) -> int:
        """The position of the next frame to read."""
        return int(self._java.position())

    @property
    def more(self) -> bool:
        """Whether the end of the range is not reached."""
        return self.position < self.end

    def fill(self, helper: Any) -> bool:
        """Move received messages into the helper's memory, then wait for more. Return whether the memory is full."""
        try:
            if bool(helper.drain(self._java, self.end)):
                return True
        except jpype.JException as error:
            raise UnreadableBytesError(self.position) from error
        if self.more:
            if self.received >= self.end:
                raise UnreadableBytesError(self.position)
            data = self._next_bytes()
            if data.nbytes > BULK_MESSAGE_BYTES:
                raise TransportError(
                    f"the server sent {data.nbytes} bytes of {self._name} at once, the limit is {BULK_MESSAGE_BYTES}",
                    remedy="Use the same release of aeron-spark at both ends.",
                )
            try:
                at = int(self._java.next())
            except jpype.JException as error:
                raise UnreadableBytesError(self.position) from error
            self._memory[at : at + data.nbytes] = data
            self._java.added(data.nbytes)
            self.received += data.nbytes
        return False

    def consumed(self) -> None:
        """Do nothing: back-pressure of the bulk link lets the sender wait."""
