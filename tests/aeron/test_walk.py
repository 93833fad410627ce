"""Where messages end: the archive's files in place, and a replay, must say the same, and what was published."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest

from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archives import StreamAddress
from aeron_spark.log.api import Range, RecordingState
from aeron_spark.log.decoding import SmallValues, read_range
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, frame, open_stream

MTU = 1_408
FRAGMENT = MTU - 32
SIZES = (0, 0, 1, 31, 32, 33, 500, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 2 * FRAGMENT, 5_000, 8_192)


@pytest.fixture(scope="module")
def node(node_of_64k: NodeHandle) -> NodeHandle:
    """A node whose terms and segments are so short that a little data has many of them."""
    return node_of_64k


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of the test's own."""
    for one in open_stream(node):
        yield one.record()


def both_ways(stream: Stream, *, framed: bool) -> tuple[ArchiveLog, ArchiveLog, RecordingState]:
    """Return the log that looks into the archive's files, the one that replays, and the one recording."""
    assert stream.address.archive_dir
    in_place = ArchiveLog(StreamAddress(stream.channel, stream.id, (stream.address,)), framed=framed)
    elsewhere = replace(stream.address, archive_dir="")
    by_replay = ArchiveLog(StreamAddress(stream.channel, stream.id, (elsewhere,)), framed=framed)
    (state,) = in_place.states()
    by_replay.states()
    return in_place, by_replay, state


def lengths(size: int) -> list[int]:
    """Return the log bytes of each frame of a message."""
    pieces = [FRAGMENT] * (size // FRAGMENT) + ([size % FRAGMENT] if size % FRAGMENT or not size else [])
    return [frame(piece) for piece in pieces]


def messages_in(
    begins: Sequence[int], ends: Sequence[int], start: int, limit: int, end: int, max_rows: int | None
) -> int:
    """Return how many messages from message ``start`` on a range may hold: the promise, in the plainest way."""
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
    in_place, by_replay, state = both_ways(stream, framed=False)
    # A recorded position may lie inside a message, but only where a frame ends.
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
        asked = f"start={start} limit={limit} end={end} max_rows={max_rows}"
        found = in_place.boundary(state.key, start, limit, end, max_rows)
        assert found == by_replay.boundary(state.key, start, limit, end, max_rows), asked
        count = messages_in(begins, ends, first, limit, end, max_rows)
        earliest = ends[first + count - 1] if count else start
        latest = begins[first + count] if first + count < len(begins) else state.end
        # padding behind the last message may belong to the range, or not
        assert earliest <= found.position <= latest, asked
        if max_rows is not None:
            assert found.rows == count, asked


def test_groups_of_chunks_are_never_cut_in_place_or_by_replay(stream: Stream, rng: random.Random) -> None:
    for index in range(60):
        size = rng.choice([0, 1, 100, 3_000, 8_000, 30_000, 100_000] if index % 10 else [150_000])
        stream.append("framed", pa.array([b"x" * size], pa.binary()), 1_000 * index)
    in_place, by_replay, state = both_ways(stream, framed=True)
    whole = Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)
    begins = groups_of(in_place, whole)
    assert len(begins) == 60
    for _ in range(40):
        first = rng.randrange(len(begins))
        start = begins[first]
        limit = rng.randrange(start, state.end + 1)
        max_rows = rng.choice([None, None, 1, 5])
        asked = f"start={start} limit={limit} max_rows={max_rows}"
        found = in_place.boundary(state.key, start, limit, state.end, max_rows)
        assert found == by_replay.boundary(state.key, start, limit, state.end, max_rows), asked
        count = bisect_left(begins, found.position) - first
        assert count >= 1, asked
        assert count == 1 or found.position <= limit, asked
        assert max_rows is None or count == found.rows <= max_rows, asked
        if max_rows is None and first + count < len(begins):
            after = in_place.boundary(state.key, found.position, found.position, state.end, 1).position
            assert after > limit, f"one more group would have fitted: {asked}"
        inside = replace(whole, start=start, end=found.position, overrun=found.position)
        assert groups_of(in_place, inside) == begins[first : first + count], asked


def groups_of(log: ArchiveLog, wanted: Range) -> list[int]:
    """Return where each group of a range begins."""
    return list(
        chain.from_iterable(
            found.positions.to_pylist() if isinstance(found, SmallValues) else [found.group.position]
            for found in read_range(log, wanted)
        )
    )
