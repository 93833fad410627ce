"""Fixtures that all tests of this folder share: one Spark session, one node, and two servers on that node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from aeron_spark.jobs.session import begin
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from aeron_spark.spark import configure, register
from tests.aeron.ended import check_ended_endpoints, ended_endpoints
from tests.aeron.streams import Stream, open_stream, own_node
from tests.spark.queries import QUERY_TIMEOUT_S, CollectingSink, read_stream, run_to_end
from tests.spark.stream_server import StreamServer, commit_values, read_frame, run_server
from tests.spark_conf import spark_conf

__all__ = ["check_ended_endpoints", "ended_endpoints"]

FOLDER: Final = Path(__file__).parent
SOURCES: Final = ("aeron", "aeron-jvm")
LAST: Final = frozenset({"test_pages.py", "test_quickstart.py"})  # they change settings of the session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules of this folder that need no Spark first, and the code of documentation and notebooks last.

    Spark ends its Python processes after a minute without work, and their next start takes seconds of processor time.
    """
    places = [index for index, item in enumerate(items) if item.path.parent == FOLDER]
    own = [items[index] for index in places]
    with_spark = {item.path for item in own if isinstance(item, pytest.Function) and "spark" in item.fixturenames}
    own.sort(key=lambda item: (item.path in with_spark, item.path.name in LAST))
    for index, item in zip(places, own, strict=True):
        items[index] = item


@pytest.fixture(autouse=True)
def close_connections_after_the_test() -> Iterator[None]:
    """Close the connections of this process, which the simulated engine opens. Idle ones would stay open for 60 s."""
    yield
    POOL.close()


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, shared_node: NodeHandle
) -> Iterator[SparkSession]:
    """A Spark session with two task slots, with Delta on its class path and without fixed ports.

    The source is registered at once: a registration changes how Spark starts its Python processes, and it would start
    all of them again.
    """
    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark tests")
    conf = spark_conf(folder) | {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
    if pytestconfig.option.markexpr == "soak":
        # Soak tests have a row of 1 GiB, of which Spark holds several copies, one of them twice as long.
        conf["spark.driver.memory"] = "10g"
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # Spark's reports of provoked errors are long
    gateway = SparkContext._gateway
    assert gateway is not None
    # foreachBatch and listeners need this server. It opens a port, which would count as a leak of the first such test.
    ensure_callback_server_started(gateway)
    register(session)
    warm_up(session, shared_node, folder)
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


def warm_up(spark: SparkSession, node: NodeHandle, folder: Path) -> None:
    """Run one query of each kind, so that Spark loads its classes and starts its processes before the first test."""
    options = {"channel": "aeron:ipc", "streamId": "4999", "aeronDir": node.aeron_dir, "record": "auto"}
    spark.range(0, 2, 1, 2).selectExpr("concat(id, '.') as value").write.format("aeron").mode("append").options(
        **options
    ).save()
    assert spark.read.format("aeron").options(**options).load().selectExpr("string(value)").count() == 2
    sink = CollectingSink()
    run_to_end(read_stream(spark, options), folder / "warm-up", sink)
    assert sink.numbers == [0, 1]


@pytest.fixture(scope="session")
def shared_node(run_name: str) -> Iterator[NodeHandle]:
    """A node on which each test uses separate stream ids. Its segments are small, so that tests can purge them.

    It is the default node of this process and of Spark's, for the code of the documentation.
    """
    with own_node(run_name, segment_length="256k") as handle, pytest.MonkeyPatch.context() as patches:
        patches.setenv("AERON_SPARK_AERON_DIR", handle.aeron_dir)
        yield handle


@pytest.fixture(scope="session")
def node(shared_node: NodeHandle) -> NodeHandle:
    """The shared node. A module whose tests need another node overrides this fixture."""
    return shared_node


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream that no other test uses."""
    for one in open_stream(node):
        yield one.record()


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    """The name of the format: of each source, one after the other. The one in Java is inside the session's JVM."""
    return str(request.param)


@pytest.fixture(scope="session")
def server(shared_node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """A server on the shared node, on which each test creates separate streams.

    Its store is not the node's default one, which servers in the documentation use.
    """
    folder = tmp_path_factory.mktemp("server")
    with run_server(shared_node, folder, streams_dir=str(folder / "streams")) as one:
        yield one


@pytest.fixture(scope="session")
def server_route_warmed_up(spark: SparkSession, server: StreamServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run a query through the server, so that Spark's processes are started and connected before the first test."""
    source, target = server.create_stream(2), server.create_stream(2)
    commit_values(source, 0, 2)
    frame = read_stream(spark, server.options(source)).select("value")
    writer = frame.writeStream.format("aeron").options(**server.options(target))
    folder = tmp_path_factory.mktemp("server-route")
    query = begin(writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start)
    assert query.awaitTermination(QUERY_TIMEOUT_S), query.status
    assert read_frame(spark, server.options(target), payload="raw").count() == 2


@pytest.fixture(scope="session")
def second_server(shared_node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """A second server on the shared node, with a separate store; clients connect to it over UDP."""
    folder = tmp_path_factory.mktemp("second")
    with run_server(shared_node, folder, ipc="never", streams_dir=str(folder / "streams")) as one:
        yield one
