"""A publication that has used up its positions is followed by another one, and no row is lost or repeated by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, open_stream

TERM: Final = 64 << 10
LAST_TERM: Final = 2**31 - 1  # terms are counted in 31 bits
INITIAL_TERM_IDS: Final = (0, -7, 2**31 - 1)  # the last one wraps around


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    for one in open_stream(node):
        yield one.record()


def near_the_end(initial: int, room: int) -> str:
    """A channel whose publication has ``room`` bytes left before its maximum position, all in its last term."""
    term_id = (initial + LAST_TERM + 2**31) % 2**32 - 2**31
    return f"aeron:ipc?term-length=64k|init-term-id={initial}|term-id={term_id}|term-offset={TERM - room}"


def cases(*payloads: str) -> list[Any]:
    """Each payload with each term id: in make test one each, as what counts terms knows nothing of payloads."""
    more = pytest.mark.full("the same with other initial term ids")
    return [
        pytest.param(payload, initial, marks=() if initial == INITIAL_TERM_IDS[at] else more)
        for at, payload in enumerate(payloads)
        for initial in INITIAL_TERM_IDS
    ]


@pytest.mark.parametrize(("payload", "initial"), cases("raw", "framed", "arrow"))
def test_small_rows_go_on_in_a_new_publication(spark: SparkSession, stream: Stream, payload: str, initial: int) -> None:
    frame = spark.range(0, 600, 1, 1).selectExpr("rpad(concat(id, '.'), 300, '-') as value")
    options = {**stream.options, "channel": near_the_end(initial, 16 << 10), "payload": payload}
    options["maxMessageBytes"] = "4k"  # some messages before the end, in arrow, too
    frame.write.format("aeron").mode("append").options(**options).save()
    found = spark.read.format("aeron").options(includeMetadata="true", **stream.options).load().collect()
    assert Counter(str(row.value if payload == "arrow" else bytes(row.value).decode()) for row in found) == Counter(
        row.value for row in frame.collect()
    )
    place = "recordingId" if payload == "raw" else "_aeron_recordingId"
    rows = Counter(row[place] for row in found)
    assert len(rows) == 2, f"one publication before its end, one after: {rows}"
    assert min(rows.values()) > 10
    first = stream.archive.recording(min(rows))
    assert first is not None
    assert first.start_position == (LAST_TERM * TERM) + TERM - (16 << 10)


@pytest.mark.parametrize(("payload", "initial"), cases("framed", "arrow"))
def test_a_group_of_chunks_that_meets_the_end_is_begun_again(
    spark: SparkSession, stream: Stream, payload: str, initial: int
) -> None:
    frame = spark.range(0, 3, 1, 1).selectExpr("rpad(concat(id, '.'), 40000, '-') as value")
    options = {**stream.options, "channel": near_the_end(initial, 60 << 10), "payload": payload}
    options["maxMessageBytes"] = "4k"
    frame.write.format("aeron").mode("append").options(**options).save()
    found = spark.read.format("aeron").options(includeMetadata="true", **stream.options).load().collect()
    values = [str(row.value if payload == "arrow" else bytes(row.value).decode()) for row in found]
    assert sorted(values) == [f"{n}.".ljust(40_000, "-") for n in range(3)]
    # 60 KiB hold one group and a part of the next one, which is whole in the second recording only.
    assert sorted(Counter(row._aeron_recordingId for row in found).values()) == [1, 2]
    raw = spark.read.format("aeron").options(payload="raw", **stream.options).load()
    begun = [row.value for row in raw.collect() if row.value[6] & 1]
    assert len(begun) == 4, "the second group was begun twice"
