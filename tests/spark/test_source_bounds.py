"""The bounds of a query: offsets, positions, Aeron session ids and pushed-down filters."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import number
from tests.spark.queries import read_batch
from tests.spark.simulated_engine import Query, make_source, read_numbers, read_table
from tests.spark.two_recordings import ALL, TwoRecordings, two_recordings


@pytest.fixture(scope="module")
def two(node: NodeHandle) -> Iterator[TwoRecordings]:
    """Two recordings, which no test changes."""
    yield from two_recordings(node)


def format_offsets(**offsets: object) -> str:
    return json.dumps(offsets)


def test_a_batch_query_reads_from_the_earliest_to_the_latest_offset_by_default(two: TwoRecordings) -> None:
    assert read_numbers(two.options) == ALL
    assert read_numbers(two.options, startingOffsets="earliest", endingOffsets="latest") == ALL


def test_an_offset_names_a_recording_by_its_id_or_by_archive_and_id(two: TwoRecordings) -> None:
    short, full = str(two.first.recording_id), two.second.key
    assert read_numbers(
        two.options, startingOffsets=format_offsets(**{short: two.positions[7], full: two.positions[103]})
    ) == [*range(7, 20), 103, 104]
    assert read_numbers(two.options, startingOffsets=format_offsets(**{full: two.positions[103]})) == [
        *range(20),
        103,
        104,
    ]
    assert read_numbers(two.options, endingOffsets=format_offsets(**{full: two.positions[103]})) == [
        *range(20),
        100,
        101,
        102,
    ]
    assert read_numbers(
        two.options,
        startingOffsets=format_offsets(**{short: two.positions[10], full: "earliest"}),
        endingOffsets=format_offsets(**{short: two.positions[11], full: two.positions[100]}),
    ) == [10]


def test_a_streaming_query_starts_at_given_offsets_the_latest_or_the_earliest(two: TwoRecordings, source: str) -> None:
    named = format_offsets(**{str(two.first.recording_id): two.positions[18], two.second.key: "latest"})
    assert Query(two.options, source=source, startingOffsets=named).run_batch() == [18, 19]
    assert Query(two.options, source=source, startingOffsets="latest").run_batch() == []
    assert Query(two.options, source=source, startingOffsets="earliest").run_batch() == ALL


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (
            {"first": 33},
            r"option 'startingOffsets' must be JSON whose positions are multiples of 32, .*the position of '\d+' is 33",
        ),
        ({"first": 32}, r"option 'startingOffsets': position 32 of recording \S+ is inside a message.*Use 160"),
        ({"first": "a fragment"}, r"is inside a message"),
        ({"first": 1 << 30}, r"position 1073741824 is outside of recording \S+, expected 0 to \d+"),
        ({"9999": 0}, r"has recording 9999, which the stream does not have. Choose from its recordings: embedded/"),
        ({"elsewhere/1": 0}, r"has recording elsewhere/1, which the stream does not have"),
    ],
)
def test_invalid_positions_and_unknown_recordings_are_refused(
    two: TwoRecordings, source: str, wanted: dict[str, object], text: str
) -> None:
    named = {}
    for name, value in wanted.items():
        # the position of the second frame of message 10
        position = two.positions[10] + 1_408 if value == "a fragment" else value
        named[str(two.first.recording_id) if name == "first" else name] = position
    with pytest.raises(OptionError, match=text):
        read_numbers(two.options, startingOffsets=json.dumps(named))
    with pytest.raises(OptionError, match=text):
        Query(two.options, source=source, startingOffsets=json.dumps(named)).run_batch()
    with pytest.raises(OptionError, match=text.replace("startingOffsets", "endingOffsets")):
        read_numbers(two.options, endingOffsets=json.dumps(named))


def test_position_bounds_select_the_messages_that_begin_within_them(two: TwoRecordings) -> None:
    at = two.positions
    assert read_numbers(two.options, startPosition=at[7]) == [n for n in ALL if at[n] >= at[7]]
    assert read_numbers(two.options, startPosition=at[7] + 1) == [n for n in ALL if at[n] > at[7]]
    assert read_numbers(two.options, endPosition=at[3]) == [n for n in ALL if at[n] < at[3]]
    assert read_numbers(two.options, endPosition=at[3] + 1) == [n for n in ALL if at[n] <= at[3]]
    inside = two.positions[10] + 2_000
    assert read_numbers(two.options, startPosition=at[9], endPosition=inside) == [9, 10]
    assert read_numbers(two.options, startPosition=inside) == list(range(11, 20))
    assert read_numbers(two.options, startPosition=1 << 40) == []


def test_a_query_selects_publications_by_aeron_session_id(two: TwoRecordings) -> None:
    one, other = two.first.publication.session_id, two.second.publication.session_id
    assert read_numbers(two.options, sessionIds=other) == list(range(100, 105))
    assert read_numbers(two.options, sessionIds=f"{other}, {one}") == ALL
    assert read_numbers(two.options, sessionIds=one ^ other ^ 1, startPosition=0) == []


def test_columns_show_the_position_and_origin_of_each_message(two: TwoRecordings) -> None:
    rows = read_table(two.options).to_pylist()
    for row in rows:
        recording = two.first if number(row["value"]) < 100 else two.second
        assert row["position"] == two.positions[number(row["value"])]
        assert row["recordingId"] == recording.recording_id
        assert row["sessionId"] == recording.publication.session_id
        assert (row["streamId"], row["channel"]) == (two.stream.id, "aeron:ipc")
        assert (row["reservedValue"], row["timestamp"]) == (0, None)


def read_filtered(two: TwoRecordings, *filters: Filter) -> tuple[list[int], int]:
    """Return the numbers and the count of log bytes that a query with filters reads, before Spark filters rows."""
    source = make_source(two.options, pushdown=True)
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark must still apply every filter"
    partitions = reader.partitions()
    found = [
        number(value) for one in partitions for batch in reader.read(one) for value in batch.column("value").to_pylist()
    ]
    return found, sum(range.length for one in partitions for range in one.ranges)


def test_filters_on_positions_and_session_ids_limit_the_ranges_to_read(two: TwoRecordings) -> None:
    at, position, session = two.positions, ("position",), ("sessionId",)
    numbers, all_bytes = read_filtered(two)
    assert numbers == ALL
    assert all_bytes == two.first.position + two.second.position
    assert read_filtered(two, EqualTo(position, at[11])) == ([11], 160)
    assert read_filtered(two, GreaterThanOrEqual(position, at[18]))[0] == [18, 19]
    assert read_filtered(two, GreaterThan(position, at[18]))[0][-1] == 19
    assert read_filtered(two, LessThan(position, at[2])) == ([0, 1, 100, 101], 4 * 160)
    assert read_filtered(two, LessThanOrEqual(position, at[2]))[0] == [0, 1, 2, 100, 101, 102]
    assert read_filtered(two, GreaterThanOrEqual(position, at[2]), LessThan(position, at[4]))[0] == [2, 3, 102, 103]
    assert read_filtered(two, GreaterThan(position, at[4]), LessThan(position, at[2])) == ([], 0)
    other = two.second.publication.session_id
    assert read_filtered(two, EqualTo(session, other)) == (list(range(100, 105)), two.second.position)
    assert read_filtered(two, In(session, (other, 1, None)))[0] == list(range(100, 105))
    assert read_filtered(two, EqualTo(session, other), EqualTo(session, two.first.publication.session_id)) == ([], 0)
    assert read_filtered(two, EqualTo(("streamId",), 7), GreaterThan(("reservedValue",), 7))[1] == all_bytes


def test_spark_pushes_filters_down_to_the_source(spark: SparkSession, two: TwoRecordings) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        bounds = f"position >= {two.positions[3]} and sessionId = {two.second.publication.session_id}"

        def loaded() -> DataFrame:
            # Each query loads again: Spark would use the ranges of one query's filter for all of the same DataFrame.
            return read_batch(spark, two.options, pushdown=True, minPartitions=2)

        wanted = loaded().where(bounds)
        assert sorted(number(row.value) for row in wanted.collect()) == [103, 104]
        # Two recordings are two Spark partitions; the filter selects one recording.
        assert (loaded().rdd.getNumPartitions(), wanted.rdd.getNumPartitions()) == (2, 1)
        assert loaded().where(f"position > {1 << 40}").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_query_reads_the_range_between_two_offsets(two: TwoRecordings, source: str) -> None:
    start = format_offsets(**{str(two.first.recording_id): two.positions[17], two.second.key: two.positions[102]})
    end = format_offsets(**{two.second.key: two.positions[104]})
    assert read_numbers(two.options, startingOffsets=start, endingOffsets=end) == [17, 18, 19, 102, 103]
    assert Query(two.options, source=source, startingOffsets=start).run_batch() == [17, 18, 19, 102, 103, 104]
