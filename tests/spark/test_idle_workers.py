"""Finding C7: what is left in Spark's Python workers of connections that nothing uses any more."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from aeron_spark.pool import IDLE_TIMEOUT_S
from aeron_spark.waiting import wait_for
from tests.java_threads import descendants, java_threads
from tests.spark.stream_server import StreamServer, make_numbered_rows, read_frame, write_frame

TASKS = 8


def threads_of_workers() -> dict[int, set[str]]:
    """Return the names of the threads that are ours or Aeron's, by worker that has any; Python's and Java's alike."""
    found = {pid: java_threads(pid) for pid in descendants("pyspark.daemon")}
    return {pid: names for pid, names in found.items() if names}


@pytest.mark.full("it waits for 60 seconds of real time; tests/unit/test_pool.py shows the same by a clock of its own")
def test_finding_c7_60_seconds_after_its_last_use_a_worker_has_no_connection_and_no_thread_of_ours(
    spark: SparkSession, server: StreamServer
) -> None:
    """Finding C7: workers kept connections, an Aeron client and threads, of Java too, which Python does not list."""
    stream = server.create_stream(TASKS)
    options = server.options(stream, identity=server.key_file("idle-workers"))
    write_frame(make_numbered_rows(spark, 400, TASKS), options)
    assert len(read_frame(spark, options).collect()) == 400
    assert server.endpoint.connections, "the workers keep their connections for a while"
    assert threads_of_workers(), "no worker has a thread of a connection"
    wait_for(lambda: not server.endpoint.connections, IDLE_TIMEOUT_S + 30, "the workers' connections to be closed")
    # Spark ends workers after a minute without a task.
    # tests/aeron/stream_client/test_idle_pool.py has a process that goes on.
    wait_for(
        lambda: not threads_of_workers(), 30, "the workers' threads to end", state=lambda: str(threads_of_workers())
    )
