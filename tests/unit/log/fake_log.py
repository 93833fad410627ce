"""A log of messages of given sizes and rows, for tests of planning: a simple implementation of ``Boundaries``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from aeron_spark.log.api import Boundary, Range, RecordingState, SourceStream, direct_stream
from aeron_spark.wire.values import Rows


@dataclass
class FakeLog:
    """``messages``: (bytes, rows) of each message or group, in order, by recording."""

    messages: Mapping[str, Sequence[tuple[int, int]]]
    tails: Mapping[str, int] = field(default_factory=dict)  # bytes of an unfinished message at the end
    stopped: frozenset[str] = frozenset()
    boundary_calls: list[str] = field(default_factory=list)  # keys of the recordings

    @property
    def stream(self) -> SourceStream:
        return direct_stream("aeron:ipc", 1001)

    def states(self) -> list[RecordingState]:
        return [
            RecordingState(
                key,
                "00000000",
                0,
                sum(size for size, _ in sizes) + self.tails.get(key, 0),
                key not in self.stopped,
                65536,
                session_id=number,
            )
            for number, (key, sizes) in enumerate(self.messages.items())
        ]

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        return None

    def counting(self, *, framed: bool) -> FakeLog:
        return self

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield one message at the begin of a range; each recording has other ones."""
        positions = pa.array([wanted.start], pa.int64())
        yield Rows(pa.array([wanted.key.encode()], pa.binary()), positions, positions)

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        assert start <= limit <= end
        self.boundary_calls.append(key)
        position = begun = rows = 0
        for size, count in self.messages[key]:
            position += size
            if position <= start:
                begun = position
                continue
            assert begun >= start, "the start is within a message"
            fits = position <= limit and (max_rows is None or rows + count <= max_rows)
            if not fits:
                first = begun == start and position <= end
                return Boundary(position, count) if first else Boundary(begun, rows)
            begun, rows = position, rows + count
        return Boundary(max(begun, start), rows)

    def count_between(self, key: str, start: int, end: int) -> tuple[int, int, int]:
        """Return the messages, bytes and rows between two boundaries."""
        position = messages = size_sum = row_sum = 0
        for size, rows in self.messages[key]:
            if start <= position < end:
                messages, size_sum, row_sum = messages + 1, size_sum + size, row_sum + rows
            position += size
        assert size_sum == end - start, "the end is not a boundary"
        return messages, size_sum, row_sum
