"""A stream with two recordings, for tests of ranges, bounds and filters that do not change it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aeron_spark.node import NodeHandle
from tests.aeron.streams import PublishedRecording, Stream, numbered, open_stream

ALL: Final = [*range(20), *range(100, 105)]
"""The numbers of the messages, in the order of the recordings."""


@dataclass(frozen=True)
class TwoRecordings:
    """A stream with two recordings, of numbers 0 to 19 and 100 to 104. The message of number 10 is fragmented."""

    stream: Stream
    first: PublishedRecording
    second: PublishedRecording
    positions: dict[int, int]  # of the beginning of each number's message

    @property
    def options(self) -> dict[str, str]:
        return self.stream.options


def two_recordings(node: NodeHandle, times: Sequence[int] | None = None) -> Iterator[TwoRecordings]:
    """Publish the stream, and close it after the tests. ``times`` are the reserved values of the first recording."""
    for stream in open_stream(node):
        stream.record()
        first, second = stream.publisher(), stream.publisher()
        values = [*numbered(0, 10), *numbered(10, 11, 5_000), *numbered(11, 20)]
        positions = dict(enumerate(first.send(values, times)))
        positions |= dict(enumerate(second.send(numbered(100, 105)), 100))
        yield TwoRecordings(stream, first, second, positions)
