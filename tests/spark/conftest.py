"""One Spark session, one node and one server for all tests here; a test that needs others makes its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from spark_jobs.session import begin
from tests.aeron.streams import own_node
from tests.spark.queries import FINISH, Collected, finish, read_stream
from tests.spark.served import Served, read, serving, write_values
from tests.spark_conf import spark_conf


@pytest.fixture(autouse=True)
def connections_end_with_the_test() -> Iterator[None]:
    """A test that drives a source or a sink by hand connects this process; the idle connection would stay for 60 s."""
    yield
    POOL.close()


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, shared_node: NodeHandle
) -> Iterator[SparkSession]:
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
    warm_up(session, shared_node, place)
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


def warm_up(spark: SparkSession, node: NodeHandle, place: Path) -> None:
    """Do once what each kind of query does, so that no test pays for the classes and processes that all of them use."""
    options = {"channel": "aeron:ipc", "streamId": "4999", "aeronDir": node.aeron_dir, "record": "auto"}
    spark.range(0, 2, 1, 2).selectExpr("concat(id, '.') as value").write.format("aeron").mode("append").options(
        **options
    ).save()
    assert spark.read.format("aeron").options(**options).load().selectExpr("string(value)").count() == 2
    seen = Collected()
    finish(read_stream(spark, options), place / "warm-up", seen)
    assert seen.numbers == [0, 1]


@pytest.fixture(scope="session")
def shared_node(run_name: str) -> Iterator[NodeHandle]:
    """A media driver and archive; each test has a stream id of its own there. Segments are small, to be purged."""
    with own_node(run_name, segment_length="256k") as handle:
        yield handle


@pytest.fixture(scope="session")
def node(shared_node: NodeHandle) -> NodeHandle:
    """That node; a module whose tests need another one has a fixture of this name."""
    return shared_node


@pytest.fixture(scope="session")
def served(shared_node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on that node; each test has streams of its own there."""
    with serving(shared_node, tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture(scope="session")
def copied(spark: SparkSession, served: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For modules with queries through a server: the processes that all of them use are there, and connected."""
    source, target = served.stream(2), served.stream(2)
    write_values(source, 0, 2)
    frame = read_stream(spark, served.options(source)).select("value")
    writer = frame.writeStream.format("aeron").options(**served.options(target))
    place = tmp_path_factory.mktemp("copied")
    query = begin(writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start)
    assert query.awaitTermination(FINISH), query.status
    assert read(spark, served.options(target), payload="raw").count() == 2


@pytest.fixture(scope="session")
def second(shared_node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A second server on that node, with streams of its own; it is reached over UDP."""
    folder = tmp_path_factory.mktemp("second")
    with serving(shared_node, folder, ipc=False, streams_dir=str(folder / "streams")) as one:
        yield one
