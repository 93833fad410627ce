"""Publications and their recordings, with the bytes of each frame."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa

from aeron_spark.aeron.boundary import FrameWalk, Walked, WalkRange, WantedBoundary, find_end
from aeron_spark.aeron.recording import BEGIN, END
from aeron_spark.log.api import Boundary, Log, Range, RecordingState, SourceStream, StreamContent, direct_stream
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import QueryPlanner
from aeron_spark.options import ReadOptions
from aeron_spark.wire.values import Rows

HEADER = struct.Struct("<iBBHiiii8x")  # length, version, flags, type, term offset, checksum, stream, term id, reserved
TERM = 65_536
FRAME = 32 + 32


@dataclass
class Recording:
    """A recording in the catalog of the archive in ``key``; its first byte is at ``start`` of the publication."""

    key: str
    initial_term_id: int
    session_id: int
    start: int
    data: bytearray
    active: bool = True
    purged: int = 0  # new start
    started: int = 0
    stopped: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class Publication:
    """The publication of one Aeron session, and the recordings that get its messages."""

    session_id: int
    initial_term_id: int
    position: int = 0
    recordings: list[Recording] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=itertools.count)

    def publish(self, row: str, frames: int = 1) -> None:
        """Publish a message in some frames of 64 bytes."""
        for number in range(frames):
            flags = (BEGIN if number == 0 else 0) | (END if number == frames - 1 else 0)
            self.send(flags, row)

    def send(self, flags: int, row: str) -> None:
        """Publish one frame."""
        term_id = self.initial_term_id + self.position // TERM
        payload = row.encode().ljust(32, b"\0")
        # As the archive of our node does: the checksum of the message in place of the Aeron session id.
        header = HEADER.pack(FRAME, 0, flags, 1, self.position % TERM, zlib.crc32(payload) >> 1, 1001, term_id)
        for one in self.recordings:
            one.data += header + payload
        self.position += FRAME

    def close(self) -> None:
        for one in self.recordings:
            one.active, one.stopped = False, next(self.clock)
        self.recordings = []


class Archives:
    """A log of all recordings, of one archive or several. Files of the archives in ``remote`` are not readable."""

    framed = False
    archives = ("embedded", "other")

    def __init__(self, *, remote: bool = False) -> None:
        self.recordings: dict[str, Recording] = {}
        self.remote = remote
        self.clock = itertools.count(1_000)
        self._sessions = 0

    def publication(self, extended: Recording | None = None, session_id: int | None = None) -> Publication:
        """Return a new publication; it continues the recording ``extended``, if that is given."""
        self._sessions += 1
        session_id = 1_000 + self._sessions if session_id is None else session_id
        if extended is None:
            return Publication(session_id, 50_000 * self._sessions, clock=self.clock)
        extended.session_id, extended.active = session_id, True
        return Publication(session_id, extended.initial_term_id, extended.end, [extended], self.clock)

    def record(self, publication: Publication, key: str = "") -> Recording:
        """Start a recording of a publication, as a recording subscription does."""
        key = key or f"embedded/{len(self.recordings)}"
        started = next(self.clock)
        one = Recording(
            key, publication.initial_term_id, publication.session_id, publication.position, bytearray(), started=started
        )
        publication.recordings.append(one)
        self.recordings[key] = one
        return one

    @property
    def stream(self) -> SourceStream:
        return direct_stream("aeron:ipc", 1001)

    def prepare(self, states: list[RecordingState], *, record: str, query: str = "") -> None:
        """Do nothing."""

    def check_recorded(self, states: list[RecordingState]) -> None:
        """Do nothing."""

    def content(self, states: list[RecordingState]) -> StreamContent:
        return StreamContent("raw")

    def lags_s(self, positions: object) -> None:
        return None

    def states(self) -> list[RecordingState]:
        return [self.state(key) for key in self.recordings]

    def state(self, key: str) -> RecordingState:
        one = self.recordings[key]
        known = f"{zlib.crc32(f'{one.initial_term_id} {one.started}'.encode()):08x}"
        return RecordingState(
            key, known, max(one.start, one.purged), one.end, one.active, TERM, one.initial_term_id,
            stream_id=1001, session_id=one.session_id, start_timestamp=one.started,
            stop_timestamp=None if one.active else one.stopped or None,
        )  # fmt: skip

    def recorded_bytes(self, key: str, position: int, length: int) -> bytes | None:
        one = self.recordings[key]
        assert position // TERM == (position + length - 1) // TERM, "bytes of two terms"
        assert max(one.start, one.purged) <= position <= position + length <= one.end
        return None if self.remote else bytes(one.data[position - one.start : position + length - one.start])

    def boundary(self, key: str, start: int, limit: int, end: int, max_rows: int | None) -> Boundary:
        one = self.recordings[key]

        def walk(wanted: WalkRange) -> Walked:
            found = FrameWalk(wanted, framed=False, term_length=TERM)
            found.walk(bytes(one.data[wanted.start - one.start : wanted.end - one.start]), wanted.start)
            return found.result

        position, rows = find_end(walk, TERM, WantedBoundary(start, limit, end, max_rows))
        return Boundary(position, rows)

    def counting(self, *, framed: bool) -> Archives:
        assert not framed
        return self

    def read(self, wanted: Range) -> Iterator[Rows]:
        """Yield the messages of a range, as a replay does."""
        found = list(self.rows(wanted))
        if found:
            positions = pa.array([position for position, _ in found], pa.int64())
            yield Rows(pa.array([row.encode() for _, row in found], pa.binary()), positions, positions)

    def rows(self, wanted: Range) -> Iterator[tuple[int, str]]:
        """Yield position and text of the messages that begin in a range and end in it."""
        one = self.recordings[wanted.key]
        begin: int | None = None
        for at in range(wanted.start, wanted.end, FRAME):
            _, _, flags, *_ = HEADER.unpack_from(one.data, at - one.start)
            begin = at if flags & BEGIN else begin
            if flags & END and begin is not None:
                yield begin, one.data[at - one.start + 32 : at - one.start + FRAME].rstrip(b"\0").decode()
                begin = None


class Query:
    """A streaming query with a checkpoint, whose planner may be started again."""

    def __init__(self, log: Archives, **options: str) -> None:
        self.log = log
        self._options = {"channel": "aeron:ipc", "streamId": "1001", "startingOffsets": "earliest"} | options
        self.rows: list[str] = []
        self.restart()
        self.offset = self.planner.initial()

    def restart(self) -> None:
        """Start a new planner, as a restart of the query does."""
        self.planner = planner_of(self.log, **self._options)

    def plan(self) -> Offset | None:
        """Return the end of the next batch, as the checkpoint has it; None without new rows."""
        end = self.planner.latest(self.offset, limited=True)
        if end is self.offset:
            return None
        assert Offset.parse(end.to_dict()) == end
        return end

    def run(self, end: Offset) -> list[str]:
        """Return the rows of the batch up to ``end``."""
        found = [row for one in self.planner.between(self.offset, end) for _, row in self.log.rows(one)]
        assert all(one.start < one.end for one in self.planner.between(self.offset, end))
        return found

    def commit(self, end: Offset, rows: list[str]) -> None:
        """Commit the batch up to ``end``."""
        self.rows += rows
        self.offset = end

    def batch(self) -> list[str]:
        """Run all batches that have rows now, and return those rows."""
        found: list[str] = []
        while (end := self.plan()) is not None:
            rows = self.run(end)
            self.commit(end, rows)
            found += rows
        return found


def planner_of(log: Archives, *, streaming: bool = True, **options: str) -> QueryPlanner:
    """Return a planner of a query over ``log``."""
    given = {"channel": "aeron:ipc", "streamId": "1001"} | options
    parsed = ReadOptions.parse(given, streaming=streaming)
    return QueryPlanner(parsed, lambda options, framed: cast("Log", log), framed=False)


def batch_rows(log: Archives, **options: str) -> list[str]:
    """Return the rows of a batch query."""
    return [row for one in planner_of(log, streaming=False, **options).whole() for _, row in log.rows(one)]
