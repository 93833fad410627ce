"""Connections of Spark to a server: their handshakes, the server's limit, and the grants of their keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from aeron_spark import log_factory
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.options import ReadOptions, ServerRoute
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from tests.aeron.streams import number
from tests.spark.simulated_engine import make_numbered_batch, read_numbers, save
from tests.spark.stream_server import StreamServer, make_numbered_rows, read_frame, run_server, write_frame
from tests.stream_requests import create_request

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")

TASKS = 4


@pytest.fixture
def key_name(server: StreamServer, request: pytest.FixtureRequest) -> str:
    """The name of a key that no other test uses, so that a test can count the handshakes with it."""
    return str(request.node.name).replace("[", "-").strip("]")


def test_all_tasks_of_a_worker_use_one_handshake(spark: SparkSession, server: StreamServer, key_name: str) -> None:
    stream = server.create_stream(TASKS)
    options = server.options(stream, identity=server.key_file(key_name))
    for repetition in range(2):
        write_frame(make_numbered_rows(spark, 40, TASKS, first=40 * repetition), options)
        assert len(read_frame(spark, options).collect()) == 40 * (repetition + 1)
        if repetition == 0:
            # There are two task slots, each with a reading and a writing worker. Planning and committing processes
            # connect separately.
            assert 2 <= (first := server.count_handshakes(server.key_file(key_name), 2)) <= 4 + 4
    assert server.count_handshakes(server.key_file(key_name)) <= first + 2  # Spark may have used other workers


def test_with_handshake_partition_each_task_makes_a_handshake(
    spark: SparkSession, server: StreamServer, key_name: str
) -> None:
    stream = server.create_stream(TASKS)
    writer, reader = (
        server.options(stream, identity=server.key_file(f"{key_name}-{name}"), handshake="partition")
        for name in ("writer", "reader")
    )
    write_frame(make_numbered_rows(spark, 40, TASKS), writer)
    # One for each task and one for the commit. A task on another worker than before makes a further one.
    assert TASKS <= server.count_handshakes(server.key_file(f"{key_name}-writer"), TASKS) <= TASKS + 2
    for _ in range(2):
        assert len(read_frame(spark, reader).collect()) == 40
    assert TASKS <= server.count_handshakes(server.key_file(f"{key_name}-reader"), TASKS) <= 2 * TASKS + 2


# With handshake=partition, a task notices that the server is full when a connection attempt ends, after ten seconds.
@pytest.mark.parametrize(
    ("handshake", "tasks"),
    [
        ("worker", 8),
        pytest.param("worker", 64, marks=pytest.mark.full("64 tasks twice; 8 of them queue as well")),
        pytest.param(
            "partition", 16, marks=pytest.mark.full("a minute of waiting; a test of 16 threads shows it without Spark")
        ),
    ],
)
def test_tasks_wait_while_a_server_has_its_largest_count_of_connections(
    spark: SparkSession, node: NodeHandle, tmp_path: Path, handshake: str, tasks: int
) -> None:
    max_connections = 6
    with run_server(
        node, tmp_path, ipc="never", max_connections=max_connections, streams_dir=str(tmp_path / "streams")
    ) as few:
        stream = few.create_stream(tasks)
        options = few.options(stream, handshake=handshake)
        write_frame(make_numbered_rows(spark, 640, tasks), options)
        rows = read_frame(spark, options)
        assert rows.rdd.getNumPartitions() == tasks
        assert sorted(number(row.value) for row in rows.collect()) == list(range(640))


def test_threads_wait_while_a_server_has_its_largest_count_of_connections(node: NodeHandle, tmp_path: Path) -> None:
    with run_server(node, tmp_path, ipc="never", max_connections=4, streams_dir=str(tmp_path / "streams")) as few:
        stream = few.create_stream()
        options = ReadOptions.parse(few.options(stream, handshake="partition"), streaming=False)
        route = cast("ServerRoute", options.route)
        most_connections = [0]
        lock = threading.Lock()

        def task(partition: int) -> int:
            with POOL.borrow(route, partition) as sessions:
                found = log_factory.open_log(route, framed=False, idle_timeout=30.0, sessions=sessions).states()
                with lock:
                    most_connections[0] = max(most_connections[0], few.endpoint.statistics["connections"])
            return len(found)

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(task, range(16))) == [1] * 16
        assert 1 <= most_connections[0] <= 4


@pytest.fixture(scope="module")
def strict(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """A server with authorised keys: ``owner`` may use all actions, ``reader`` may read the streams ``open-*``."""
    folder = tmp_path_factory.mktemp("strict")
    owner, reader = (public_text(ensure_identity(folder / f"{name}.key").public) for name in ("owner", "reader"))
    (folder / "clients").write_text(f"all {owner} the owner\nstreams=open-*:read {reader} a reader\n")
    (folder / "clients").chmod(0o600)
    settings = {"authorized_keys": str(folder / "clients"), "streams_dir": str(folder / "streams")}
    with run_server(node, folder, ipc="never", **settings) as one:
        yield one


def test_a_key_can_use_the_actions_of_its_grants_and_no_others(strict: StreamServer) -> None:
    readable, hidden = (
        strict.endpoint.streams.create(create_request("open-1", 1)),
        strict.endpoint.streams.create(create_request("hidden", 1)),
    )
    for stream in (readable, hidden):
        save(strict.options(stream, identity=strict.key_file("owner")), [make_numbered_batch(0, 3)])
    ends = [stream.states()[0].end for stream in (readable, hidden)]
    assert all(end > 0 for end in ends)
    reader = strict.key_file("reader")
    assert read_numbers(strict.options(readable, identity=reader)) == [0, 1, 2]
    with pytest.raises(RefusedError, match="your key may not write stream 'open-1'"):
        save(strict.options(readable, identity=reader), [make_numbered_batch(3, 6)])
    for attempt in (read_numbers, lambda options: save(options, [make_numbered_batch(3, 6)])):
        with pytest.raises(OptionError, match="unknown stream 'hidden'"):  # a key without any action may not know it
            attempt(strict.options(hidden, identity=reader))
    with pytest.raises(RefusedError, match="This server does not know your key"):
        read_numbers(strict.options(readable, identity=strict.key_file("unauthorised")))
    assert [stream.states()[0].end for stream in (readable, hidden)] == ends


def test_the_pool_connects_again_after_a_connection_has_closed(server: StreamServer) -> None:
    stream = server.create_stream()
    options = ReadOptions.parse(server.options(stream, identity=server.key_file("again")), streaming=False)
    route = cast("ServerRoute", options.route)
    for count in (1, 2):
        with POOL.borrow(route) as sessions:
            assert len(log_factory.open_log(route, framed=False, idle_timeout=30.0, sessions=sessions).states()) == 1
        assert server.count_handshakes(server.key_file("again"), count) == count
        POOL.close()
