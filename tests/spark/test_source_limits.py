"""Read limits: batches never exceed them, all recordings make progress, and the last row is always read."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.aeron.streams import Stream, frame, numbered
from tests.spark.queries import CollectingSink, read_stream, run_query, run_to_end, wait_for_query
from tests.spark.simulated_engine import Query

MESSAGE = frame(100)


LIMITS = {
    "rows": {"maxRowsPerTrigger": 5},
    "bytes": {"maxBytesPerTrigger": 5 * MESSAGE},
    "bytes and most of another message": {"maxBytesPerTrigger": 6 * MESSAGE - 1},
}
each_limit = pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())


@each_limit
def test_15_messages_with_a_limit_of_5_are_3_batches(stream: Stream, source: str, limit: dict[str, int]) -> None:
    stream.publisher().send(numbered(0, 15))
    found = Query(stream.options, source=source, **limit).run_available_now()
    assert found == [list(range(first, first + 5)) for first in (0, 5, 10)]
    assert Query(stream.options, source=source, **limit).run_batch(limited=False) == list(range(15)), (
        "Trigger.Once has no limit"
    )


def test_a_processing_time_trigger_obeys_the_limits_while_the_source_grows(
    spark: SparkSession, stream: Stream, source: str, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 12))
    seen = CollectingSink()
    frame = read_stream(spark, stream.options, source=source, maxRowsPerTrigger=5)
    with run_query(frame, tmp_path, seen, processingTime="0 seconds") as query:
        wait_for_query(query, "12 rows", lambda: len(seen.numbers) >= 12)
        assert seen.sizes == [5, 5, 2]
        publisher.send(numbered(12, 19))
        wait_for_query(query, "19 rows", lambda: len(seen.numbers) >= 19)
    assert max(seen.sizes) == 5
    assert seen.numbers == list(range(19))


@pytest.mark.full("two queries and a second of waiting; the test below shows the same without Spark")
def test_a_batch_waits_for_min_bytes_at_most_as_long_as_max_trigger_delay(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    stream.publisher().send(numbered(0, 15))
    seen = CollectingSink()
    limits = {"minBytesPerTrigger": "64m", "maxTriggerDelay": "1s"}
    with run_query(read_stream(spark, stream.options, **limits), tmp_path / "waits", seen) as query:
        wait_for_query(query, "the end of the delay", lambda: len(seen.numbers) >= 15)
    assert seen.sizes == [15]
    never = {"minBytesPerTrigger": "64m", "maxTriggerDelay": "1h"}
    now = CollectingSink()
    run_to_end(read_stream(spark, stream.options, **never), tmp_path / "now", now)
    assert now.sizes == [15], "AvailableNow must not wait for more"


def test_there_is_no_batch_below_min_bytes_and_one_of_all_rows_at_min_bytes(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 9))
    query = Query(stream.options, source=source, minBytesPerTrigger=10 * MESSAGE, maxTriggerDelay="1h")
    assert query.run_batch() == [], "Spark runs the first batch even if it is empty"
    assert query.run_batch() is None
    publisher.send(numbered(9, 10))
    assert query.run_batch() == list(range(10))


def test_a_message_larger_than_the_limit_is_a_separate_batch(stream: Stream, source: str) -> None:
    large = numbered(2, 3, 20_000)  # this message is fragmented
    stream.publisher().send([*numbered(0, 2), *large, *numbered(3, 5)])
    assert Query(stream.options, source=source, maxBytesPerTrigger=2 * MESSAGE).run_available_now() == [
        [0, 1],
        [2],
        [3, 4],
    ]
    assert Query(stream.options, source=source, maxBytesPerTrigger=1).run_available_now() == [[0], [1], [2], [3], [4]]


def test_the_limits_of_rows_and_bytes_apply_together(stream: Stream, source: str) -> None:
    stream.publisher().send([*numbered(0, 9, 10), *numbered(9, 12, 1_000), *numbered(12, 14, 10)])
    found = Query(stream.options, source=source, maxRowsPerTrigger=4, maxBytesPerTrigger=1_200).run_available_now()
    # The limit of rows applies to the small messages, that of bytes to the large ones: 64 + 1056 fit, 2 * 1056 do not.
    assert [len(batch) for batch in found] == [4, 4, 2, 1, 3]
    assert list(chain(*found)) == list(range(14))


def test_a_limit_is_divided_evenly_over_recordings_of_different_lengths(stream: Stream, source: str) -> None:
    for first, count in ((0, 60), (1_000, 6), (2_000, 6)):
        stream.publisher().send(numbered(first, first + count))
    for limit in ({"maxRowsPerTrigger": 15}, {"maxBytesPerTrigger": 15 * MESSAGE}):
        found = Query(stream.options, source=source, **limit).run_available_now()
        assert [len(batch) for batch in found] == [15, 15, 15, 15, 12], limit
        counts = [Counter(number // 1_000 for number in batch) for batch in found]
        assert counts[0] == {0: 5, 1: 5, 2: 5}, limit
        assert counts[1] == {0: 13, 1: 1, 2: 1}, limit


def test_each_recording_is_read_equally_often_when_a_batch_has_fewer_rows_than_there_are_recordings(
    stream: Stream,
    source: str,
) -> None:
    recordings = 7
    publishers = [stream.publisher() for _ in range(recordings)]
    for index, publisher in enumerate(publishers):
        publisher.send(numbered(1_000 * index, 1_000 * index + 50))
    query = Query(stream.options, source=source, maxRowsPerTrigger=1)
    taken: Counter[int] = Counter()
    for batches in range(1, 4 * recordings + 1):
        (one,) = query.run_batch() or []
        taken[one // 1_000] += 1
        assert taken[one // 1_000] <= -(-batches // recordings), "a recording was read again before each of the others"
    assert set(taken.values()) == {4}


def test_with_random_limits_each_row_is_read_once_in_order_and_no_batch_exceeds_a_limit(
    stream: Stream, rng: random.Random
) -> None:
    expected: list[int] = []
    for first in (0, 1_000, 2_000):
        values = [numbered(first + n, first + n + 1, rng.choice([10, 100, 1_000, 3_000]))[0] for n in range(40)]
        stream.publisher().send(values)
        expected += range(first, first + 40)
    for _ in range(6):
        max_rows, max_bytes = rng.randrange(1, 30), rng.randrange(100, 20_000)
        query = Query(stream.options, maxRowsPerTrigger=max_rows, maxBytesPerTrigger=max_bytes)
        found = []
        while (batch := query.run_batch()) is not None:
            assert len(batch) <= max_rows
            assert query.read_bytes <= max_bytes or len(batch) == 1
            found.append(batch)
        assert sorted(chain(*found)) == expected, (max_rows, max_bytes)
        for begin in (0, 1_000, 2_000):
            numbers = [number for batch in found for number in batch if begin <= number < begin + 1_000]
            assert numbers == sorted(numbers)
