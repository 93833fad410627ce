"""Boundaries of messages: the archive's files and a replay give the same ones, and they match the messages."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from aeron_spark.aeron.boundary import WantedBoundary
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.direct.session_recordings import SessionRecordings
from aeron_spark.log.api import Boundary, Range, RecordingState
from aeron_spark.log.decoding import SmallValues, read_range
from tests.aeron.streams import Stream, frame

MTU = 1_408
FRAGMENT = MTU - 32
SIZES = (0, 0, 1, 31, 32, 33, 500, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 2 * FRAGMENT, 5_000, 8_192)


def logs_of(stream: Stream, *, framed: bool) -> tuple[ArchiveLog, ArchiveLog, RecordingState]:
    """Return a log that reads the archive's files (in Python), a log that replays, and the stream's recording."""
    assert stream.address.archive_dir
    in_place = ArchiveLog(StreamAddress(stream.channel, stream.id, (stream.address,)), framed=framed)
    without_files = replace(stream.address, archive_dir="")
    by_replay = ArchiveLog(StreamAddress(stream.channel, stream.id, (without_files,)), framed=framed)
    (state,) = in_place.states()
    by_replay.states()
    return in_place, by_replay, state


def in_java(
    stream: Stream, state: RecordingState, start: int, limit: int, end: int, max_rows: int | None, *, framed: bool
) -> Boundary:
    """Return the boundary that Java finds in the archive's files."""
    session = SessionRecordings(stream.address, 10.0)
    found = session.find(state.recording_id)
    return session.boundary(found.recording, WantedBoundary(start, limit, end, max_rows), framed=framed)


def lengths(size: int) -> list[int]:
    """Return the log bytes of each frame of a message."""
    fragments = [FRAGMENT] * (size // FRAGMENT) + ([size % FRAGMENT] if size % FRAGMENT or not size else [])
    return [frame(fragment) for fragment in fragments]


def messages_in(
    begins: Sequence[int], ends: Sequence[int], start: int, limit: int, end: int, max_rows: int | None
) -> int:
    """Return how many messages from message ``start`` a range may have: a simple form of the specification."""
    after = start
    while after < len(begins) and ends[after] <= limit and (max_rows is None or after - start < max_rows):
        after += 1
    if after == start and start < len(begins) and ends[start] <= end:
        after += 1
    return after - start


def test_boundaries_are_the_same_in_place_and_by_replay_and_those_of_the_messages(
    stream: Stream, rng: random.Random
) -> None:
    sizes = [rng.choice(SIZES) for _ in range(250)]
    begins = stream.publisher().send([b"x" * size for size in sizes])
    ends = [begin + sum(lengths(size)) for begin, size in zip(begins, sizes, strict=True)]
    assert any(begin > end for begin, end in zip(begins[1:], ends, strict=False)), "no term ended in padding"
    in_place, by_replay, state = logs_of(stream, framed=False)
    # A recorded position may be inside a message, but only at the end of a frame.
    frames = sorted(
        {
            begin + sum(lengths(size)[:count])
            for begin, size in zip(begins, sizes, strict=True)
            for count in range(len(lengths(size)) + 1)
        }
    )
    for _ in range(80):
        first = rng.randrange(len(begins))
        start = begins[first]
        end = rng.choice([state.end, *rng.sample(frames[bisect_left(frames, start) :], 1)])
        limit = rng.randrange(start, end + 1) if rng.random() < 0.8 else end
        max_rows = rng.choice([None, None, 1, 2, 7, 60])
        query = f"start={start} limit={limit} end={end} max_rows={max_rows}"
        found = in_place.boundary(state.key, start, limit, end, max_rows)
        assert found == by_replay.boundary(state.key, start, limit, end, max_rows), query
        assert found == in_java(stream, state, start, limit, end, max_rows, framed=False), query
        count = messages_in(begins, ends, first, limit, end, max_rows)
        earliest = ends[first + count - 1] if count else start
        latest = begins[first + count] if first + count < len(begins) else state.end
        # the range may include the padding after the last message, or not
        assert earliest <= found.position <= latest, query
        if max_rows is not None:
            assert found.rows == count, query


def test_boundaries_never_divide_groups_of_chunks_in_files_or_by_replay(stream: Stream, rng: random.Random) -> None:
    for index in range(60):
        size = rng.choice([0, 1, 100, 3_000, 8_000, 30_000, 100_000] if index % 10 else [150_000])
        stream.append("framed", pa.array([b"x" * size], pa.binary()), 1_000 * index)
    in_place, by_replay, state = logs_of(stream, framed=True)
    whole = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
    begins = groups_of(in_place, whole)
    assert len(begins) == 60
    for _ in range(40):
        first = rng.randrange(len(begins))
        start = begins[first]
        limit = rng.randrange(start, state.end + 1)
        max_rows = rng.choice([None, None, 1, 5])
        query = f"start={start} limit={limit} max_rows={max_rows}"
        found = in_place.boundary(state.key, start, limit, state.end, max_rows)
        assert found == by_replay.boundary(state.key, start, limit, state.end, max_rows), query
        assert found == in_java(stream, state, start, limit, state.end, max_rows, framed=True), query
        count = bisect_left(begins, found.position) - first
        assert count >= 1, query
        assert count == 1 or found.position <= limit, query
        assert max_rows is None or count == found.rows <= max_rows, query
        if max_rows is None and first + count < len(begins):
            after = in_place.boundary(state.key, found.position, found.position, state.end, 1).position
            assert after > limit, f"one more group fits: {query}"
        inside = replace(whole, start=start, end=found.position, overrun=found.position)
        assert groups_of(in_place, inside) == begins[first : first + count], query


def groups_of(log: ArchiveLog, wanted: Range) -> list[int]:
    """Return the first position of each group in a range."""
    return list(
        chain.from_iterable(
            found.positions.to_pylist() if isinstance(found, SmallValues) else [found.group.position]
            for found in read_range(log, wanted)
        )
    )
