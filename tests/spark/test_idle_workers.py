"""Finding C7: what is left in Spark's Python workers of connections that nothing uses any more."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from aeron_spark.pool import IDLE_SECONDS
from aeron_spark.transport.waiting import wait_for
from tests.spark.served import Served, numbered_rows, read, write

TASKS = 8


def threads_of_a_worker(_: object) -> list[tuple[int, bool, list[str]]]:
    """Return a worker's process, whether it has used the pool, and the names of its threads that are ours or Aeron's.

    The system is asked, not Python, which does not know the threads that Java began.
    """
    import os
    import sys

    from tests.java_threads import java_threads

    return [(os.getpid(), "aeron_spark.pool" in sys.modules, sorted(java_threads()))]


@pytest.mark.full("it waits for 60 seconds of real time; tests/unit/test_pool.py shows the same by a clock of its own")
def test_finding_c7_60_seconds_after_its_last_use_a_worker_has_no_connection_and_no_thread_of_ours(
    spark: SparkSession, served: Served
) -> None:
    stream = served.stream(TASKS)
    options = served.options(stream, identity=served.key("idle-workers"))
    write(numbered_rows(spark, 400, TASKS), options)
    assert len(read(spark, options).collect()) == 400
    assert served.server.connections, "the workers keep their connections for a while"
    wait_for(lambda: not served.server.connections, IDLE_SECONDS + 30, "the workers' connections to be closed")
    tasks = spark.sparkContext.parallelize(range(TASKS), TASKS)

    def left() -> list[tuple[int, bool, list[str]]]:
        return [one for one in tasks.mapPartitions(threads_of_a_worker).collect() if one[1]]

    assert left(), "no worker that has read or written was asked"
    wait_for(
        lambda: not any(names for _, _, names in left()), 30, "the workers' threads to end", state=lambda: str(left())
    )
