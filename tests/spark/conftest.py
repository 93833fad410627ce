"""One Spark session for all tests here, and a node of its own for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.streams import own_node
from tests.spark.served import Served, serving
from tests.spark_conf import spark_conf


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The session all tests share: two task slots, Delta on its class path, nothing on a fixed port."""
    place = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark tests")
    conf = spark_conf(place) | {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    if pytestconfig.option.markexpr == "soak":
        # the long forms have a row of 1 GiB, of which Spark holds several copies, one of them twice as long
        conf["spark.driver.memory"] = "10g"
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # failures that tests provoke are long, and are asserted
    gateway = SparkContext._gateway
    assert gateway is not None
    # foreachBatch and listeners need it: the session's port, not that of the first test to use one
    ensure_callback_server_started(gateway)
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A media driver and archive of the module's own; each test has a stream id of its own there."""
    with own_node(run_name) as handle:
        yield handle


@pytest.fixture(scope="module")
def served(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on the module's node; each test has streams of its own there."""
    with serving(node, tmp_path_factory.mktemp("server")) as one:
        yield one
