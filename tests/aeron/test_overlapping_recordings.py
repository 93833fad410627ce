"""The archive's own recordings: of one publication twice, and truncated and extended ones."""

from __future__ import annotations

from functools import partial

import pytest

from aeron_spark.direct.catalog import catalogued_streams, repeated_bytes_of
from aeron_spark.errors import DataLossError
from aeron_spark.log.api import Range
from aeron_spark.log.offsets import Offset
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, number, numbered

LENGTH = 32  # of a message; 64 bytes of the log


def planner(stream: Stream, *, streaming: bool) -> QueryPlanner:
    options = {**stream.options, "startingOffsets": "earliest", "payload": "raw"}
    return QueryPlanner(ReadOptions.parse(options, streaming=streaming), log_of, framed=False)


def rows(stream: QueryPlanner, ranges: list[Range]) -> list[int]:
    found = [value for one in ranges for read in stream.log.read(one) for value in read.values.to_pylist()]
    return [number(value) for value in found]


def batch(stream: QueryPlanner, start: Offset) -> tuple[Offset, list[int]]:
    end = stream.latest(start, limited=True)
    return end, rows(stream, stream.between(start, end))


def has_more(stream: Stream, known: int) -> bool:
    return len(stream.archive.recordings(stream.id)) > known


def is_at(stream: Stream, recording_id: int, position: int) -> bool:
    return stream.archive.position(recording_id) == position


def test_an_extension_that_a_standing_request_records_too_is_read_once(stream: Stream) -> None:
    """Regression: recordings (0-256) and (128-256) of one publication gave the rows of the second one twice."""
    first = stream.publisher()
    first.send(numbered(0, 2, LENGTH))
    first.stop()
    query = planner(stream, streaming=True)
    start, found = batch(query, query.initial())
    assert found == [0, 1]
    extended = stream.extend(first)
    extended.send(numbered(2, 3, LENGTH))
    stream.archive.start_recording(f"{stream.channel}?session-id={extended.publication.session_id}", stream.id)
    wait_for(lambda: len(stream.archive.recordings(stream.id)) == 2, TIMEOUT_S, "the second recording")
    extended.send(numbered(3, 5, LENGTH))
    second = stream.archive.recordings(stream.id)[-1]
    wait_for(lambda: stream.archive.position(second.id) == extended.position, TIMEOUT_S, "the second recording's end")
    start, found = batch(query, start)
    assert sorted(found) == [2, 3, 4]
    start, found = batch(query, start)  # the first recording skips the rows of the second one
    assert not found
    assert query.latest(start, limited=True) is start
    whole = planner(stream, streaming=False)
    assert sorted(rows(whole, whole.whole())) == [0, 1, 2, 3, 4]
    (described,) = [one for one in catalogued_streams([stream.address]) if one.stream_id == stream.id]
    # The driver decides whether the second recording has the message that was sent before.
    twice = extended.position - second.start_position
    assert twice in (128, 192)
    assert (described.length, repeated_bytes_of(described, TIMEOUT_S)) == (320 + twice, twice)


def test_a_recording_that_was_truncated_and_extended_is_data_loss(stream: Stream) -> None:
    """Regression: five of the eight new messages never arrived."""
    first = stream.publisher()
    first.send(numbered(0, 10, LENGTH))
    first.stop()
    query = planner(stream, streaming=True)
    start, found = batch(query, query.initial())
    assert found == list(range(10))
    stream.archive.truncate(first.recording_id, 320)
    extended = stream.extend(first)
    extended.send(numbered(10, 18, LENGTH))
    assert extended.position == 832
    with pytest.raises(DataLossError, match="was replaced from a position before 640"):
        batch(planner(stream, streaming=True), start)


def test_recordings_of_an_archive_without_readable_files_are_compared_by_their_messages(stream: Stream) -> None:
    """Regression: after two extensions the Aeron session ids differ, and the rows before the second one came twice."""
    first = stream.publisher()
    first.send(numbered(0, 2, LENGTH))
    first.stop()
    for begin in (2, 4):
        extended = stream.extend(first)
        extended.send(numbered(begin, begin + 1, LENGTH))
        known = len(stream.archive.recordings(stream.id))
        stream.archive.start_recording(f"{stream.channel}?session-id={extended.publication.session_id}", stream.id)
        wait_for(partial(has_more, stream, known), TIMEOUT_S, "a further recording")
        extended.send(numbered(begin + 1, begin + 2, LENGTH))
        last = stream.archive.recordings(stream.id)[-1]
        wait_for(partial(is_at, stream, last.id, extended.position), TIMEOUT_S, "the further recording's end")
        extended.stop()
    handle = stream.handle
    options = {
        **stream.options, "archive": f"{handle.control_channel}|stream-id={handle.control_stream}", "payload": "raw",
        "startingOffsets": "earliest",
    }  # fmt: skip
    query = QueryPlanner(ReadOptions.parse(options, streaming=False), log_of, framed=False)
    assert sorted(rows(query, query.whole())) == [0, 1, 2, 3, 4, 5]
