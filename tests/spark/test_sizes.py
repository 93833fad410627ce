"""Values of all sizes on the direct route: unfragmented, fragmented, in chunks, and too long for raw messages."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.errors import DataFormatError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, open_stream
from tests.spark.simulated_engine import make_batch, read_table, save

HEADER: Final = 32
MTU_PAYLOAD: Final = 1408 - HEADER
LONGEST: Final = (256 << 10) // 8  # an eighth of the term of this module's node
LARGE: Final = 64 << 20
SIZES: Final = (0, 1, MTU_PAYLOAD, MTU_PAYLOAD + 1, LONGEST)


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


def make_value(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def make_values(spark: SparkSession, *sizes: int) -> DataFrame:
    """Return a DataFrame with one row for each size. The task that writes the rows makes their bytes."""

    def make(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for size in sizes:
            yield pa.record_batch({"value": pa.array([random.Random(size).randbytes(size)], pa.binary())})

    return spark.range(0, 1, 1, 1).mapInArrow(make, "value binary")


def write(frame: DataFrame, stream: Stream, payload: str) -> None:
    options = {**stream.options, "record": "auto", "payload": payload}
    frame.write.format("aeron").mode("append").options(**options).save()


def read_digests(spark: SparkSession, stream: Stream) -> set[tuple[int, str]]:
    """Return the length and the SHA-256 digest of each value; Spark does not collect the values themselves."""
    found = spark.read.format("aeron").options(**stream.options).load()
    rows = found.selectExpr("length(value) as length", "sha2(value, 256) as digest").collect()
    assert len(rows) == len(set(rows))
    return {(row.length, row.digest) for row in rows}


def expected_digests(*sizes: int) -> set[tuple[int, str]]:
    return {(size, hashlib.sha256(make_value(size)).hexdigest()) for size in sizes}


def test_raw_values_around_the_longest_frame_and_message_arrive_unchanged(spark: SparkSession, stream: Stream) -> None:
    write(make_values(spark, *SIZES), stream, "raw")
    assert read_digests(spark, stream) == expected_digests(*SIZES)


@pytest.mark.parametrize("size", [LONGEST + 1, LARGE])
def test_raw_refuses_a_value_longer_than_a_message_and_the_error_suggests_framed(stream: Stream, size: int) -> None:
    with pytest.raises(DataFormatError) as refused:
        save({**stream.options, "record": "auto"}, [make_batch(bytes(size))], payload="raw")
    text = str(refused.value)
    assert f"a value has {size} bytes, and the longest message of this channel has {LONGEST}" in text
    assert "Write with payload=framed, which sends it in chunks, or raise the channel's term-length" in text


@pytest.mark.parametrize("mib", [8, pytest.param(64, marks=pytest.mark.full("8 MiB are hundreds of chunks as well"))])
@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_values_around_the_longest_frame_and_message_and_large_ones_arrive_unchanged(
    spark: SparkSession, stream: Stream, payload: str, mib: int
) -> None:
    """Large values are sent in chunks."""
    large = mib << 20
    sizes = (*SIZES, LONGEST + 1, large, 2)
    write(make_values(spark, *sizes), stream, payload)
    assert read_digests(spark, stream) == expected_digests(*sizes)
    messages = read_table(stream.options)["value"]
    assert len(messages) > large // LONGEST
    assert max(map(len, messages.to_pylist())) == LONGEST
