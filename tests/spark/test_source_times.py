"""Publish times: found by search, and shown in the column ``timestamp``."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, numbered, open_stream
from tests.spark.simulated_engine import Query, make_source, read_numbers, read_table

BEGIN: Final = datetime(2026, 3, 1, 9, 0, tzinfo=timezone.utc)
COUNT: Final = 700  # of 1,000 bytes: several terms of 256 KiB
NS: Final = 1_000_000_000


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream that no other test uses."""
    for one in open_stream(node):
        yield one.record()


def moment(index: int) -> datetime:
    """Return when message ``index`` was published: one a minute."""
    return BEGIN + timedelta(minutes=index)


def in_ns(when: datetime) -> int:
    return int(when.timestamp()) * NS


def times_in(stream: Stream, place: str) -> None:
    """Publish ``COUNT`` messages that have their publish time in ``place``."""
    values = numbered(0, COUNT, 1_000)
    times = [in_ns(moment(index)) for index in range(COUNT)]
    if place == "reserved-ns":
        stream.publisher().send(values, times)
    elif place == "reserved-ms":
        stream.publisher().send(values, [at // 1_000_000 for at in times])
    else:
        offset = int(place)
        stamped = [
            value[:offset] + struct.pack("<q", at) + value[offset:] for value, at in zip(values, times, strict=True)
        ]
        stream.publisher().send(stamped)


@pytest.mark.parametrize("place", ["reserved-ns", "reserved-ms", "900"])
def test_a_foreign_stream_is_searched_for_a_time_and_shows_its_times(stream: Stream, place: str) -> None:
    times_in(stream, place)
    for index in (0, 1, 260, 261, 262, 263, 500, COUNT - 1):
        found = read_numbers(stream.options, timestampFrom=place, startingTimestamp=moment(index).isoformat())
        assert found == list(range(index, COUNT)), index
        between = (moment(index) - timedelta(seconds=1)).isoformat()
        assert read_numbers(stream.options, timestampFrom=place, startingTimestamp=between) == found
    late = (moment(COUNT - 1) + timedelta(seconds=1)).isoformat()
    assert read_numbers(stream.options, timestampFrom=place, startingTimestamp=late) == []
    shown = read_table(stream.options, timestampFrom=place)["timestamp"].to_pylist()
    assert shown == [moment(index) for index in range(COUNT)]


def test_a_time_before_now_is_relative_to_when_the_query_begins(stream: Stream) -> None:
    now = time.time_ns()
    hours = [now - back * 3_600 * NS for back in (10, 5, 2, 1)]
    stream.publisher().send(numbered(0, 4), hours)
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-6h") == [1, 2, 3]
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-90m") == [3]
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-1d") == [0, 1, 2, 3]


def test_a_query_keeps_the_place_its_time_was_when_it_began(stream: Stream) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10), [in_ns(moment(index)) for index in range(10)])
    query = Query(
        stream.options, timestampFrom="reserved-ns", startingTimestamp=moment(6).isoformat(), maxRowsPerTrigger=2
    )
    assert query.run_batch() == [6, 7]
    query.restart(startingTimestamp=moment(0).isoformat())
    assert list(query.run_batches()) == [[8, 9]], "it counts for new queries only"


def test_messages_too_short_to_have_a_time_are_passed_over_in_the_search(stream: Stream) -> None:
    times = [in_ns(moment(index)) for index in range(3)]
    values = [b"0.", b"1.", *(b"%d.......%s" % (n + 2, struct.pack("<q", at)) for n, at in enumerate(times)), b"5."]
    stream.publisher().send(values)
    assert read_numbers(stream.options, timestampFrom="8", startingTimestamp=moment(1).isoformat()) == [3, 4, 5]
    assert read_table(stream.options, timestampFrom="8")["timestamp"].to_pylist() == [
        None,
        None,
        moment(0),
        moment(1),
        moment(2),
        None,
    ]


@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_stream_in_the_wire_format_carries_its_own_times(stream: Stream, payload: str) -> None:
    for index in range(12):
        large = 300_000 if index == 5 else 100  # in chunks: a chunk inside a group is no place to begin
        rows = pa.array(numbered(index, index + 1, large), pa.binary())
        batch = rows if payload == "framed" else pa.RecordBatch.from_arrays([rows, rows], ["value", "again"])
        stream.append(payload, batch, in_ns(moment(index)))
    for begin in (0, 4, 5, 6, 11):
        options = {"payload": payload, "startingTimestamp": moment(begin).isoformat(), "includeMetadata": True}
        found = read_table(stream.options, **options)
        assert [int(bytes(value).split(b".")[0]) for value in found["value"].to_pylist()] == list(range(begin, 12))
        assert found["_aeron_timestamp"].to_pylist() == [moment(index) for index in range(begin, 12)]


def test_a_raw_stream_whose_times_nobody_named_is_refused_with_the_option_that_names_them(stream: Stream) -> None:
    stream.publisher().send(numbered(0, 3))
    for payload in ("raw", "auto"):
        with pytest.raises(OptionError, match="timestampFrom"):
            read_numbers(stream.options, payload=payload, startingTimestamp="-10m")
    source = make_source(stream.options, payload="auto", startingTimestamp="-10m")
    with pytest.raises(OptionError, match="which are unknown for the messages of recording"):
        source.streamReader(source.schema()).initialOffset()
