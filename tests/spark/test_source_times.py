"""Publish times: a query starts at one with ``startingTimestamp`` and shows them in the column ``timestamp``."""

from __future__ import annotations

import struct
import time
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark.errors import OptionError
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import Query, make_source, read_numbers, read_table

BEGIN: Final = datetime(2026, 3, 1, 9, 0, tzinfo=timezone.utc)
COUNT: Final = 700  # of messages of 1,000 bytes, in several terms of 256 KiB
NS: Final = 1_000_000_000


def publish_time(index: int) -> datetime:
    """Return the publish time of a message; the messages are one minute apart."""
    return BEGIN + timedelta(minutes=index)


def to_ns(when: datetime) -> int:
    return int(when.timestamp()) * NS


def publish_with_times(stream: Stream, time_from: str) -> None:
    """Publish ``COUNT`` messages with publish times where the option ``timestampFrom=time_from`` reads them."""
    values = numbered(0, COUNT, 1_000)
    times = [to_ns(publish_time(index)) for index in range(COUNT)]
    if time_from == "reserved-ns":
        stream.publisher().send(values, times)
    elif time_from == "reserved-ms":
        stream.publisher().send(values, [at // 1_000_000 for at in times])
    else:
        offset = int(time_from)
        stamped = [
            value[:offset] + struct.pack("<q", at) + value[offset:] for value, at in zip(values, times, strict=True)
        ]
        stream.publisher().send(stamped)


@pytest.mark.parametrize("time_from", ["reserved-ns", "reserved-ms", "900"])
def test_a_query_finds_and_shows_the_publish_times_of_a_foreign_stream(stream: Stream, time_from: str) -> None:
    publish_with_times(stream, time_from)
    for index in (0, 1, 260, 261, 262, 263, 500, COUNT - 1):
        found = read_numbers(stream.options, timestampFrom=time_from, startingTimestamp=publish_time(index).isoformat())
        assert found == list(range(index, COUNT)), index
        between = (publish_time(index) - timedelta(seconds=1)).isoformat()
        assert read_numbers(stream.options, timestampFrom=time_from, startingTimestamp=between) == found
    late = (publish_time(COUNT - 1) + timedelta(seconds=1)).isoformat()
    assert read_numbers(stream.options, timestampFrom=time_from, startingTimestamp=late) == []
    shown = read_table(stream.options, timestampFrom=time_from)["timestamp"].to_pylist()
    assert shown == [publish_time(index) for index in range(COUNT)]


def test_a_batch_ends_before_the_first_message_of_its_ending_time(stream: Stream) -> None:
    publish_with_times(stream, "reserved-ns")
    for first, last in ((0, 1), (0, 262), (261, 263), (500, COUNT - 1), (7, 7)):
        found = read_numbers(
            stream.options,
            timestampFrom="reserved-ns",
            startingTimestamp=(publish_time(first) - timedelta(seconds=1)).isoformat(),
            endingTimestamp=publish_time(last).isoformat(),
        )
        assert found == list(range(first, last)), (first, last)
    before = publish_time(0).isoformat()
    assert read_numbers(stream.options, timestampFrom="reserved-ns", endingTimestamp=before) == []
    late = (publish_time(COUNT - 1) + timedelta(seconds=1)).isoformat()
    assert len(read_numbers(stream.options, timestampFrom="reserved-ns", endingTimestamp=late)) == COUNT
    with pytest.raises(OptionError, match="'endingTimestamp' is not after 'startingTimestamp'"):
        read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp=late, endingTimestamp=before)


def test_a_negative_starting_time_is_relative_to_the_start_of_the_query(stream: Stream) -> None:
    now = time.time_ns()
    times = [now - hours * 3_600 * NS for hours in (10, 5, 2, 1)]
    stream.publisher().send(numbered(0, 4), times)
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-6h") == [1, 2, 3]
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-90m") == [3]
    assert read_numbers(stream.options, timestampFrom="reserved-ns", startingTimestamp="-1d") == [0, 1, 2, 3]


def test_a_restarted_query_continues_at_its_offset_and_ignores_a_changed_starting_time(stream: Stream) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 10), [to_ns(publish_time(index)) for index in range(10)])
    query = Query(
        stream.options, timestampFrom="reserved-ns", startingTimestamp=publish_time(6).isoformat(), maxRowsPerTrigger=2
    )
    assert query.run_batch() == [6, 7]
    query.restart(startingTimestamp=publish_time(0).isoformat())
    assert list(query.run_batches()) == [[8, 9]], "the option applies to new queries only"


def test_the_search_for_a_time_skips_messages_that_are_too_short_to_have_one(stream: Stream) -> None:
    times = [to_ns(publish_time(index)) for index in range(3)]
    values = [b"0.", b"1.", *(b"%d.......%s" % (n + 2, struct.pack("<q", at)) for n, at in enumerate(times)), b"5."]
    stream.publisher().send(values)
    assert read_numbers(stream.options, timestampFrom="8", startingTimestamp=publish_time(1).isoformat()) == [3, 4, 5]
    assert read_table(stream.options, timestampFrom="8")["timestamp"].to_pylist() == [
        None,
        None,
        publish_time(0),
        publish_time(1),
        publish_time(2),
        None,
    ]


@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_query_finds_and_shows_the_publish_times_of_the_wire_format(stream: Stream, payload: str) -> None:
    for index in range(12):
        large = 300_000 if index == 5 else 100  # in chunks: a query must not start inside a group
        rows = pa.array(numbered(index, index + 1, large), pa.binary())
        batch = rows if payload == "framed" else pa.RecordBatch.from_arrays([rows, rows], ["value", "again"])
        stream.append(payload, batch, to_ns(publish_time(index)))
    for begin in (0, 4, 5, 6, 11):
        options = {"payload": payload, "startingTimestamp": publish_time(begin).isoformat(), "includeMetadata": True}
        found = read_table(stream.options, **options)
        assert [int(bytes(value).split(b".")[0]) for value in found["value"].to_pylist()] == list(range(begin, 12))
        assert found["_aeron_timestamp"].to_pylist() == [publish_time(index) for index in range(begin, 12)]


def test_a_starting_time_for_a_raw_stream_is_refused_without_the_option_timestamp_from(stream: Stream) -> None:
    stream.publisher().send(numbered(0, 3))
    for payload in ("raw", "auto"):
        with pytest.raises(OptionError, match="timestampFrom"):
            read_numbers(stream.options, payload=payload, startingTimestamp="-10m")
    source = make_source(stream.options, payload="auto", startingTimestamp="-10m")
    with pytest.raises(OptionError, match="which are unknown for the messages of recording"):
        source.streamReader(source.schema()).initialOffset()
