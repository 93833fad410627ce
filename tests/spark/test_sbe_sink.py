"""``payload=sbe`` writes rows as SBE messages, in batch and streaming queries, on both routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream
from tests.sbe_orders import SCHEMA
from tests.spark.simulated_engine import read_table
from tests.spark.stream_server import StreamServer, write_frame

ORDERS: Final = (
    "SELECT id, CAST(id / 4 AS DECIMAL(19,4)) AS price, 'BUY' AS side, 'ÄBC' AS symbol, 'EU' AS desk, "
    "transform(sequence(1, 2), x -> named_struct('quantity', x * id)) AS fills, concat('note ', id) AS note "
    "FROM RANGE(1, 101)"
)
SBE: Final = {"payload": "sbe", "sbeSchema": SCHEMA, "sbeMessage": "Order"}
COLUMNS: Final = ("id", "price", "side", "symbol", "desk", "fills", "note")


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    """Rows with all columns of an order, as the message has them."""
    return spark.sql(ORDERS)


@pytest.fixture(scope="module")
def expected(orders: DataFrame) -> list[dict[str, Any]]:
    return orders.toArrow().sort_by("id").to_pylist()


@pytest.fixture(scope="module")
def served(server: StreamServer, orders: DataFrame) -> dict[str, str]:
    """The options of a server's stream into which a batch has written the orders."""
    options = server.options(server.create_stream(2))
    write_frame(orders, options, **SBE)
    return options


def read_orders(options: dict[str, str]) -> list[dict[str, Any]]:
    """Return the orders in a stream, by their ids."""
    return read_table(options, **SBE).select(list(COLUMNS)).sort_by("id").to_pylist()


def test_a_batch_writes_messages_on_the_direct_route(
    spark: SparkSession, node: NodeHandle, orders: DataFrame, expected: list[dict[str, Any]]
) -> None:
    stream = Stream(node, "aeron:ipc?term-length=2m").record()
    write_frame(orders, stream.options, **SBE)
    found = spark.read.format("aeron").options(**stream.options, **SBE).load()
    assert found.select(*COLUMNS).toArrow().sort_by("id").to_pylist() == expected


def test_a_batch_writes_messages_to_a_stream_of_a_server(
    served: dict[str, str], expected: list[dict[str, Any]]
) -> None:
    assert read_orders(served) == expected


def test_a_value_that_does_not_fit_fails_the_write_and_nothing_becomes_visible(
    orders: DataFrame, served: dict[str, str], expected: list[dict[str, Any]]
) -> None:
    wrong = orders.selectExpr("id", "price", "side", "repeat('x', CAST(id AS INT)) AS symbol", "desk")
    # Of several tasks, any may fail first.
    with pytest.raises(Exception, match=r"row \d+ of Spark partition \d+, column 'symbol': 'x{7,}"):
        write_frame(wrong, served, **SBE)
    assert read_orders(served) == expected


def test_a_streaming_query_writes_messages_exactly_once(
    spark: SparkSession, server: StreamServer, tmp_path: Path, orders: DataFrame, expected: list[dict[str, Any]]
) -> None:
    options = server.options(server.create_stream(1))
    source = tmp_path / "orders"
    orders.coalesce(2).write.parquet(str(source))
    stream = spark.readStream.schema(orders.schema).option("maxFilesPerTrigger", "1").parquet(str(source))
    for _ in range(2):  # the second start finds nothing new
        query = (
            stream.writeStream.format("aeron")
            .options(**options, **SBE)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    assert read_orders(options) == expected
