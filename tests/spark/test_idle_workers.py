"""Idle workers of Spark close their connections and end their threads."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from aeron_spark.pool import IDLE_TIMEOUT_S
from aeron_spark.waiting import wait_for
from tests.java_threads import descendants, java_threads
from tests.spark.stream_server import StreamServer, make_numbered_rows, read_frame, write_frame

TASKS = 8


def threads_by_worker() -> dict[int, set[str]]:
    """Return the names of this package's and Aeron's threads, of Python and Java, by the pid of their worker."""
    threads = {pid: java_threads(pid) for pid in descendants("pyspark.daemon")}
    return {pid: names for pid, names in threads.items() if names}


@pytest.mark.full("it waits for 60 seconds of real time; tests/unit/test_pool.py shows the same with a simulated clock")
def test_a_worker_has_no_connection_and_no_thread_60_seconds_after_its_last_use(
    spark: SparkSession, server: StreamServer
) -> None:
    """Regression: idle workers kept connections, an Aeron client, and threads, also of Java."""
    stream = server.create_stream(TASKS)
    options = server.options(stream, identity=server.key_file("idle-workers"))
    write_frame(make_numbered_rows(spark, 400, TASKS), options)
    assert len(read_frame(spark, options).collect()) == 400
    assert server.endpoint.connections, "the workers keep their connections for a while"
    assert threads_by_worker(), "no worker has a thread of a connection"
    wait_for(lambda: not server.endpoint.connections, IDLE_TIMEOUT_S + 30, "the workers' connections to be closed")
    # Spark ends workers after a minute without a task.
    # tests/aeron/stream_client/test_idle_pool.py tests a process that does not end.
    wait_for(lambda: not threads_by_worker(), 30, "the workers' threads to end", state=lambda: str(threads_by_worker()))
