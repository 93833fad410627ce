"""``payload=sbe`` writes rows as SBE messages, in batch and streaming queries, on both routes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream
from tests.sbe_orders import SCHEMA
from tests.spark.stream_server import StreamServer, write_frame

ORDERS: Final = (
    "SELECT id, CAST(id / 4 AS DECIMAL(19,4)) AS price, 'BUY' AS side, 'ÄBC' AS symbol, 'EU' AS desk, "
    "transform(sequence(1, 2), x -> named_struct('quantity', x * id)) AS fills, concat('note ', id) AS note "
    "FROM RANGE(1, 101)"
)
SBE: Final = {"payload": "sbe", "sbeSchema": SCHEMA, "sbeMessage": "Order"}
COLUMNS: Final = ("id", "price", "side", "symbol", "desk", "fills", "note")


def orders(spark: SparkSession) -> DataFrame:
    """Return rows with all columns of an order, as the message has them."""
    return spark.sql(ORDERS)


def same_rows(spark: SparkSession, options: dict[str, str]) -> bool:
    """Whether a reader finds the orders in the stream."""
    found = spark.read.format("aeron").options(**options, **SBE).load().orderBy("id")
    return found.select(*COLUMNS).collect() == orders(spark).orderBy("id").collect()


def test_a_batch_writes_messages_on_the_direct_route(spark: SparkSession, node: NodeHandle) -> None:
    stream = Stream(node, "aeron:ipc?term-length=2m").record()
    write_frame(orders(spark), stream.options, **SBE)
    assert same_rows(spark, stream.options)


def test_a_batch_writes_messages_to_a_stream_of_a_server(spark: SparkSession, server: StreamServer) -> None:
    options = server.options(server.create_stream(2))
    write_frame(orders(spark), options, **SBE)
    assert same_rows(spark, options)


def test_a_value_that_does_not_fit_fails_the_write_and_nothing_becomes_visible(
    spark: SparkSession, server: StreamServer
) -> None:
    options = server.options(server.create_stream(1))
    write_frame(orders(spark), options, **SBE)
    wrong = orders(spark).selectExpr("id", "price", "side", "repeat('x', CAST(id AS INT)) AS symbol", "desk")
    # Of several tasks, any may fail first.
    with pytest.raises(Exception, match=r"row \d+ of Spark partition \d+, column 'symbol': 'x{7,}"):
        write_frame(wrong, options, **SBE)
    assert same_rows(spark, options)


def test_a_streaming_query_writes_messages_exactly_once(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    options = server.options(server.create_stream(1))
    source = tmp_path / "orders"
    orders(spark).coalesce(2).write.parquet(str(source))
    stream = spark.readStream.schema(orders(spark).schema).option("maxFilesPerTrigger", "1").parquet(str(source))
    for _ in range(2):  # the second start finds nothing new
        query = (
            stream.writeStream.format("aeron")
            .options(**options, **SBE)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    assert same_rows(spark, options)
