"""Spark finds the source in a session that has not registered it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.spark.row_values import RAW


def test_a_session_without_a_registration_finds_the_source(spark: SparkSession, node: NodeHandle) -> None:
    reader = spark.newSession().read.format("aeron").option("aeronDir", node.aeron_dir)
    assert reader.options(channel="aeron:ipc", streamId="1", payload="raw").load().schema == RAW
