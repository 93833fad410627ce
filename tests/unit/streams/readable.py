"""A stream for readers, without an archive: a test publishes its committed ends."""

from __future__ import annotations

from typing import Final

from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.log.epochs import Epochs
from aeron_spark.streams.definition import Definition, closed_stream, deleted_stream
from aeron_spark.streams.model import PartitionState, StreamSettings, StreamView
from aeron_spark.streams.reads import ReadableStream

NAME: Final = "flights"


def view(*ends: int) -> StreamView:
    """Return the view of a stream whose partitions have these committed ends."""
    states = tuple(
        PartitionState(
            partition=index, recording_id=index, fingerprint="f", start=0, end=end, term_length=1 << 16,
            initial_term_id=0, mtu=1408, stream_id=index + 1, session_id=0, segment_length=1 << 16, start_position=0,
            epochs=Epochs(), checked_from=0,
        )
        for index, end in enumerate(ends)
    )  # fmt: skip
    return StreamView(states, "raw", None)


class MemoryStream(ReadableStream):
    """A readable stream. ``publish`` stands for a commit, ``end`` for the end of a closed or deleted stream."""

    def __init__(self, *ends: int) -> None:
        definition = Definition(NAME, len(ends), tuple(range(1, len(ends) + 1)), 1 << 16)
        super().__init__(definition, ArchiveAddress("archive", "", ""), StreamSettings(), view(*ends))

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
