"""Rows of a recording as Arrow arrays, moved by the Java helper: no Python runs per message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

from aeron_spark.aeron.archive import Recording
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.replay import Replay
from aeron_spark.transport.waiting import Deadline
from aeron_spark.wire.rows import Rows

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
    helper = jclass("io.aeronspark.FragmentDrain")(recording.initial_term_id, recording.term_length)
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
