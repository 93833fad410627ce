"""The process in which Spark plans a streaming query of this machine's archive has no JVM."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.aeron.streams import Stream, numbered
from tests.java_threads import descendants
from tests.spark.queries import CollectingSink, read_stream, run_query, wait_for_query

PLANNER = "python_streaming_source_runner"


def has_jvm(pid: int) -> bool:
    """Whether a process has loaded a JVM."""
    return "libjvm.so" in Path(f"/proc/{pid}/maps").read_text()


def planners_with_jvm(spark: SparkSession, stream: Stream, checkpoint: Path, count: int) -> list[bool]:
    """Run a query until it has read ``count`` values; return for each new planner process whether it has a JVM."""
    before = set(descendants(PLANNER))
    sink = CollectingSink()
    with run_query(read_stream(spark, stream.options), checkpoint, sink) as query:
        wait_for_query(query, f"{count} values", lambda: len(sink.numbers) == count)
        return [has_jvm(pid) for pid in descendants(PLANNER) if pid not in before]


def test_a_query_plans_a_recorded_stream_without_a_jvm(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    """Regression: each query started a JVM with an Aeron client and a session with the archive, only to plan."""
    published = stream.publisher()
    published.send(numbered(0, 300))
    assert planners_with_jvm(spark, stream, tmp_path / "active", 300) == [False]
    published.stop()
    # Only the archive knows whether it would record a new publisher of a stream without one.
    assert planners_with_jvm(spark, stream, tmp_path / "stopped", 300) == [True]
