"""Rows of a recording as Arrow arrays, moved by the Java helper: no Python runs per message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

import jpype
import pyarrow as pa

from aeron_spark.aeron.archive import Recording
from aeron_spark.aeron.exceptions import describe
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.replay import Replay
from aeron_spark.errors import DataFormatError, TransportError
from aeron_spark.waiting import Deadline
from aeron_spark.wire.values import Rows

BATCH_BYTES: Final = 1 << 20  # 0.5 to 16 MiB are equally fast in Spark, 64 MiB is half as fast

BATCH_ROWS: Final = 1 << 15

LARGEST_FRAME: Final = 1 << 16

LARGEST_VALUES: Final = (1 << 31) - 1  # int32 offsets, as Spark's BINARY has


class _Memory:
    """Arrow memory for one batch; it lives as long as the arrays made of it."""

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


class Source(Protocol):
    """Where the messages of a range come from; what it yields ends where a message ends."""

    @property
    def more(self) -> bool:
        """Whether the range goes on."""
        ...

    def fill(self, helper: Any) -> bool:
        """Move what there is into the helper's memory; return whether it is full."""
        ...

    def consumed(self) -> None:
        """The consumer has taken a batch, however long that took."""
        ...


class Replayed:
    """A replay as a source: it waits for more, and looks after its session."""

    def __init__(self, replay: Replay, idle_timeout: float) -> None:
        self._replay = replay
        self._at = int(replay.image.position())
        self._deadline = Deadline(
            idle_timeout, f"more of recording {replay.recording.id} of {replay.archive.address.name}"
        )

    @property
    def more(self) -> bool:
        """Whether the replay's end is not reached."""
        return self._at < self._replay.end

    def fill(self, helper: Any) -> bool:
        """Drain the image; raise WaitTimeout where no byte came for too long, TransportError where it broke off."""
        replay = self._replay
        full = bool(helper.drain(replay.image, replay.end))
        now = int(replay.image.position())
        if now > self._at:
            self._at = now
            self._deadline.progress()
        elif not full:
            replay.check()
            self._deadline.idle(f"at position {now} of [{replay.start}, {replay.end})")
        return full

    def consumed(self) -> None:
        """The wait for more begins now."""
        self._deadline.progress()
        self._replay.archive.keep_alive()


def drain(
    source: Source, recording: Recording, *, batch_bytes: int = BATCH_BYTES, batch_rows: int = BATCH_ROWS
) -> Iterator[Rows]:
    """Yield the messages of ``source`` in batches until its end is reached. Raises what the source raises."""
    helper = jclass("io.aeronspark.reading.RowAssembler")(recording.initial_term_id, recording.term_length)
    usual = max(batch_bytes, 2 * LARGEST_FRAME)
    memory = _begin(helper, usual, batch_rows)
    while source.more:
        if source.fill(helper):
            rows = int(helper.rows())
            if rows:
                yield memory.take(rows)
                source.consumed()
            # A message that fills the whole memory by itself needs a larger one.
            partial = int(helper.partialLength())
            memory = _begin(helper, max(usual, min(2 * partial + LARGEST_FRAME, LARGEST_VALUES)), batch_rows)
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


def segment_at(folder: Path, recording: Recording, position: int) -> tuple[Path, int] | None:
    """Return the file that holds ``position`` and the position of its first byte; None where it is not ours to read."""
    # The first segment begins at the term in which the recording began.
    origin = recording.start_position - recording.start_position % recording.term_length
    base = origin + (position - origin) // recording.segment_length * recording.segment_length
    path = folder / f"{recording.id}-{base}.rec"
    return (path, base) if os.access(path, os.R_OK) else None


class Segments:
    """The messages of ``[start, end)`` of a recording, both frame boundaries, as far as its files are there.

    Where a file is missing (purged meanwhile, or another user's) the range ends early, at ``position``, which is then
    the beginning of a segment and so of a message.
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
        """Whether there is more of the range in files."""
        if self.position < self.end and (self._open is None or self.position >= int(self._open.end())):
            self._next()
        return self.position < self.end and self._open is not None

    def fill(self, helper: Any) -> bool:
        """Move messages into the helper's memory; return whether it is full.

        Raises DataFormatError where a checksum does not hold, TransportError where no frame stands where one should.
        """
        try:
            full = bool(helper.drain(self._open, self.end))
        except jpype.JException as error:
            raise DataFormatError(
                f"recording {self._recording.id} was changed on its disk: {describe(error)}",
                remedy="Restore the archive's files from a copy, or read from a later position.",
            ) from error
        before, self.position = self.position, int(self._open.position())
        if full or self.position >= min(self.end, int(self._open.end())):
            return full
        if self.position > self._mapped_at:  # a frame goes on beyond what is mapped: map from there
            self._next()
        else:
            raise TransportError(
                f"the file of recording {self._recording.id} has no whole message at position {self.position} (reading "
                f"from {before} to {self.end})",
                remedy="It was truncated while it was read; trying again looks at the recording anew.",
            )
        return full

    def consumed(self) -> None:
        """Nothing waits here: what is wanted was written before it was planned."""

    def close(self) -> None:
        """Let go of the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Segments:
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
                self._open = None  # deleted between the look and the opening


MOST: Final = 1 << 20  # bytes of a piece


class ReceivedRange:
    """``[start, end)`` of a recording: ``next_piece`` gives its bytes in order, cut anywhere, and waits for them.

    ``name`` is what errors call the recording. Messages are those whose frames are whole and undamaged; a frame that
    is not raises DataFormatError, naming its position.
    """

    def __init__(self, name: str, start: int, end: int, next_piece: Callable[[], memoryview]) -> None:
        self.end = end
        self.received = start  # stream position behind what has come
        self._name = name
        self._next_piece = next_piece
        self._java = jclass("io.aeronspark.reading.ReceivedBytes")(MOST, start)
        self._memory = memoryview(self._java.memory()).cast("B")

    @property
    def more(self) -> bool:
        """Whether the range goes on."""
        return int(self._java.position()) < self.end

    def fill(self, helper: Any) -> bool:
        """Move what has come into the helper's memory, and wait for more where that was all; whether it is full."""
        try:
            if bool(helper.drain(self._java, self.end)):
                return True
        except jpype.JException as error:
            raise DataFormatError(
                f"{self._name} is damaged on its server's disk: {describe(error)}",
                remedy="Restore the archive's files from a copy, or read from a later position.",
            ) from error
        if self.more:
            piece = self._next_piece()
            if piece.nbytes > MOST:
                raise TransportError(f"a piece of {self._name} has {piece.nbytes} bytes, and {MOST} are the most")
            at = int(self._java.next())
            self._memory[at : at + piece.nbytes] = piece
            self._java.added(piece.nbytes)
            self.received += piece.nbytes
        return False

    def consumed(self) -> None:
        """Nothing waits here: the sender is held up by its branch."""
