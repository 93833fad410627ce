"""Handshakes, places and permissions: what a server sees of Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aeron_spark import log_factory
from aeron_spark.errors import RefusedError
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.options import ReadOptions, ServerRoute
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from tests.aeron.streams import number
from tests.spark.simulated_engine import make_numbered_batch, read_numbers, save
from tests.spark.stream_server import StreamServer, make_numbered_rows, read_frame, run_server, write_frame

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")

TASKS = 4


@pytest.fixture
def fresh(server: StreamServer, request: pytest.FixtureRequest) -> str:
    """The name of a key that nobody has come with yet, so that its handshakes can be counted."""
    return str(request.node.name).replace("[", "-").strip("]")


def test_a_worker_has_one_handshake_for_all_its_tasks(spark: SparkSession, server: StreamServer, fresh: str) -> None:
    stream = server.create_stream(TASKS)
    options = server.options(stream, identity=server.key_file(fresh))
    for turn in range(2):
        write_frame(make_numbered_rows(spark, 40, TASKS, first=40 * turn), options)
        assert len(read_frame(spark, options).collect()) == 40 * (turn + 1)
        if turn == 0:
            # two task slots, each with a worker that reads and one that writes; what plans and commits has its own
            assert 2 <= (first := server.count_handshakes(server.key_file(fresh), 2)) <= 4 + 4
    assert server.count_handshakes(server.key_file(fresh)) <= first + 2  # another of those may have been chosen


def test_a_partition_has_a_handshake_of_its_own_where_that_is_wanted(
    spark: SparkSession, server: StreamServer, fresh: str
) -> None:
    stream = server.create_stream(TASKS)
    writer, reader = (
        server.options(stream, identity=server.key_file(f"{fresh}-{name}"), handshake="partition")
        for name in ("writer", "reader")
    )
    write_frame(make_numbered_rows(spark, 40, TASKS), writer)
    # each task's, and what commits; a task that comes to another worker than before makes another
    assert TASKS <= server.count_handshakes(server.key_file(f"{fresh}-writer"), TASKS) <= TASKS + 2
    for _ in range(2):
        assert len(read_frame(spark, reader).collect()) == 40
    assert TASKS <= server.count_handshakes(server.key_file(f"{fresh}-reader"), TASKS) <= 2 * TASKS + 2


# A task with a handshake of its own hears that the server is full at the end of a step, which takes ten seconds.
@pytest.mark.parametrize(
    ("handshake", "tasks"),
    [
        ("worker", 8),
        pytest.param("worker", 64, marks=pytest.mark.full("64 tasks twice; 8 of them queue, too")),
        pytest.param(
            "partition", 16, marks=pytest.mark.full("a minute of waiting; threads_at_once shows it without Spark")
        ),
    ],
)
def test_many_tasks_queue_for_a_server_with_few_places(
    spark: SparkSession, node: NodeHandle, tmp_path: Path, handshake: str, tasks: int
) -> None:
    places = 6
    with run_server(node, tmp_path, ipc=False, max_connections=places, streams_dir=str(tmp_path / "streams")) as few:
        stream = few.create_stream(tasks)
        options = few.options(stream, handshake=handshake)
        write_frame(make_numbered_rows(spark, 640, tasks), options)
        rows = read_frame(spark, options)
        assert rows.rdd.getNumPartitions() == tasks
        assert sorted(number(row.value) for row in rows.collect()) == list(range(640))


def test_threads_at_once_wait_for_a_place_too(node: NodeHandle, tmp_path: Path) -> None:
    with run_server(node, tmp_path, ipc=False, max_connections=4, streams_dir=str(tmp_path / "streams")) as few:
        stream = few.create_stream()
        options = ReadOptions.parse(few.options(stream, handshake="partition"), streaming=False)
        way = cast("ServerRoute", options.route)
        most = [0]
        lock = threading.Lock()

        def task(partition: int) -> int:
            with POOL.borrow(way, partition) as hosts:
                found = log_factory.open_log(way, framed=False, idle_timeout=30.0, sessions=hosts).states()
                with lock:
                    most[0] = max(most[0], few.endpoint.statistics["connections"])
            return len(found)

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(task, range(16))) == [1] * 16
        assert 1 <= most[0] <= 4


@pytest.fixture(scope="module")
def strict(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """A server that lets only keys of its list come: ``owner`` may do everything, ``reader`` read ``open-*``."""
    folder = tmp_path_factory.mktemp("strict")
    owner, reader = (public_text(ensure_identity(folder / f"{name}.key").public) for name in ("owner", "reader"))
    (folder / "clients").write_text(f"{owner} the owner\nstreams=open-*:read {reader} a reader\n")
    (folder / "clients").chmod(0o600)
    given = {"authorized_keys": str(folder / "clients"), "streams_dir": str(folder / "streams")}
    with run_server(node, folder, ipc=False, **given) as one:
        yield one


def test_a_key_may_do_what_it_may_and_no_more(strict: StreamServer) -> None:
    shown, hidden = strict.endpoint.streams.create("open-1", 1), strict.endpoint.streams.create("hidden", 1)
    for stream in (shown, hidden):
        save(strict.options(stream, identity=strict.key_file("owner")), [make_numbered_batch(0, 3)])
    ends = [stream.states()[0].end for stream in (shown, hidden)]
    reader = strict.key_file("reader")
    assert read_numbers(strict.options(shown, identity=reader)) == [0, 1, 2]
    with pytest.raises(RefusedError, match="your key may not read"):
        read_numbers(strict.options(hidden, identity=reader))
    for stream in (shown, hidden):
        with pytest.raises(RefusedError, match=r"your key may not .*write"):
            save(strict.options(stream, identity=reader), [make_numbered_batch(3, 6)])
    with pytest.raises(RefusedError, match="This server does not know your key"):
        read_numbers(strict.options(shown, identity=strict.key_file("stranger")))
    assert [stream.states()[0].end for stream in (shown, hidden)] == ends


def test_spark_comes_with_a_key_and_shows_what_it_may_not(spark: SparkSession, strict: StreamServer) -> None:
    stream = strict.endpoint.streams.create("closed", 1)
    write_frame(make_numbered_rows(spark, 3, 1), strict.options(stream, identity=strict.key_file("owner")))
    end = stream.states()[0].end
    with pytest.raises(PySparkException, match=r"your key may not .*write"):
        write_frame(make_numbered_rows(spark, 3, 1), strict.options(stream, identity=strict.key_file("reader")))
    assert 0 < end == stream.states()[0].end


def test_a_connection_that_ended_is_made_anew(server: StreamServer) -> None:
    stream = server.create_stream()
    options = ReadOptions.parse(server.options(stream, identity=server.key_file("again")), streaming=False)
    way = cast("ServerRoute", options.route)
    for turn in (1, 2):
        with POOL.borrow(way) as hosts:
            assert len(log_factory.open_log(way, framed=False, idle_timeout=30.0, sessions=hosts).states()) == 1
        assert server.count_handshakes(server.key_file("again"), turn) == turn
        POOL.close()
