"""A Java program with plain Aeron receives the messages that Spark and ``aeron-spark send`` write."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream
from tests.cli.conftest import pipe
from tests.peers.publishing import channel_of, messages_of_many_lengths
from tests.peers.subscribing import java_subscriber
from tests.sbe_orders import SCHEMA, encode_order, order_rows

pytestmark = pytest.mark.peers
every_medium = pytest.mark.parametrize("medium", ["ipc", "udp"])
COUNT: Final = 300
ORDER_COLUMNS: Final = (
    "id LONG, price DECIMAL(19,4), side STRING, symbol STRING, desk STRING, "
    "fills ARRAY<STRUCT<quantity: LONG>>, note STRING"
)


@every_medium
def test_a_java_subscriber_receives_what_send_writes(
    node: NodeHandle, medium: str, rng: random.Random, tmp_path: Path
) -> None:
    stream, messages = Stream(node, channel_of(medium)), messages_of_many_lengths(rng, COUNT)
    lines = [json.dumps({"valueBase64": base64.b64encode(message).decode()}) for message in messages]
    flags = ("--channel", stream.channel, "--stream-id", str(stream.id), "--aeron-dir", node.aeron_dir)
    with java_subscriber(node.aeron_dir, stream.channel, stream.id, COUNT, tmp_path / "messages") as received:
        sent = pipe(
            "\n".join(lines).encode(), "send", *flags, "--format", "json", "--payload", "raw", "--ack", "driver"
        )
        assert sent.code == 0, sent.err
        assert received() == messages


@every_medium
def test_a_java_subscriber_receives_the_values_that_spark_writes(
    spark: SparkSession, node: NodeHandle, medium: str, rng: random.Random, tmp_path: Path
) -> None:
    stream, messages = Stream(node, channel_of(medium)), messages_of_many_lengths(rng, COUNT)
    frame = spark.createDataFrame([(message,) for message in messages], "value BINARY").coalesce(1)
    with java_subscriber(node.aeron_dir, stream.channel, stream.id, COUNT, tmp_path / "messages") as received:
        frame.write.format("aeron").mode("append").options(ack="driver", payload="raw", **stream.options).save()
        assert received() == messages


def test_a_java_subscriber_receives_the_sbe_messages_that_spark_writes(
    spark: SparkSession, node: NodeHandle, tmp_path: Path
) -> None:
    stream = Stream(node)
    frame = spark.createDataFrame(order_rows(COUNT), ORDER_COLUMNS).coalesce(1)
    sbe = {"payload": "sbe", "sbeSchema": SCHEMA, "sbeMessage": "Order"}
    with java_subscriber(node.aeron_dir, stream.channel, stream.id, COUNT, tmp_path / "messages") as received:
        frame.write.format("aeron").mode("append").options(ack="driver", **sbe, **stream.options).save()
        assert received() == [encode_order(number) for number in range(COUNT)]
