"""A stream for readers, without an archive: a test publishes its committed ends."""

from __future__ import annotations

import threading
from typing import Final

from aeron_spark.log.epochs import Epochs
from aeron_spark.streams.definition import Definition, closed_stream, deleted_stream
from aeron_spark.streams.journal_records import RecordingOf
from aeron_spark.streams.model import PartitionState, Shape, StreamView
from aeron_spark.streams.stream import Stream

NAME: Final = "flights"


def view(*ends: int) -> StreamView:
    """Return the view of a stream whose partitions have these committed ends."""
    shapes = (Shape(index, "f", index + 1, 0, 1 << 16, 1408, 1 << 16) for index in range(len(ends)))
    states = tuple(
        PartitionState(index, shape, RecordingOf(index, "f"), 0, end, 0, Epochs(), 0)
        for index, (shape, end) in enumerate(zip(shapes, ends, strict=True))
    )
    return StreamView(states, "raw", None)


class MemoryStream(Stream):
    """A stream with the parts that readers use. ``publish`` stands for a commit, ``end`` for its close or deletion."""

    def __init__(self, *ends: int) -> None:
        self.definition = Definition(NAME, len(ends), tuple(range(1, len(ends) + 1)), 1 << 16)
        self._view = view(*ends)
        self._view_lock = threading.Lock()
        self._waits = {}
        self._closed = None

    def publish(self, *ends: int) -> None:
        self._replace_view(view(*ends))

    def end(self, why: str) -> None:
        self._mark_closed(closed_stream(NAME) if why == "closed" else deleted_stream(NAME))

    def end_waits(self) -> None:
        """Stand for the end of the stream, which takes no more rows then."""
        self._end_waits()

    @property
    def waits(self) -> int:
        return len(self._waits)
