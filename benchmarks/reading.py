"""Measures reading ``raw``, compared with a Python data source that gives Spark prebuilt batches of the same shape."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final

from aeron_spark.aeron.row_sources import BATCH_BYTES
from aeron_spark.jobs.session import begin
from aeron_spark.wire.values import BATCH_ROWS
from benchmarks.environment import Environment
from benchmarks.measure import Figure, measure_seconds
from benchmarks.samples import median_ratio

SIZES: Final = ((100, 6_000_000), (1_300, 1_000_000))  # bytes of a message, messages


def run(env: Environment) -> Iterator[Figure]:
    """Measure batch queries with one and two partitions, and AvailableNow."""
    for length, messages in SIZES:
        count = 20_000 if env.quick else messages
        stream = env.recorded_stream(count, length)
        totals = env.read_batch(stream).selectExpr("count(*)", "sum(length(value))").first()
        if totals is None or tuple(totals) != (count, count * length):
            raise RuntimeError(
                f"read {totals} (rows, bytes), expected {count} messages of {length} bytes, as were published"
            )
        cases = _cases(env, stream, count, length)
        for name, (read_aeron, read_prebuilt) in cases.items():
            durations = env.take_turns({"aeron": read_aeron, "prebuilt": read_prebuilt}, warm=2)
            rates = {source: [count / seconds for seconds in samples] for source, samples in durations.items()}
            speed = statistics.median(rates["aeron"])
            yield Figure(
                f"read raw, {length} B, {name}",
                median_ratio(rates["aeron"], rates["prebuilt"]),
                "of prebuilt batches",
                "",
                f"{speed / 1e6:.2f} Mrows/s, {speed * length / 1e6:.0f} MB/s",
                rates,
            )


def _cases(
    env: Environment, stream: int, count: int, length: int
) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    batch_rows = min(BATCH_ROWS, BATCH_BYTES // length)
    prebuilt = {"rows": str(count), "batch": str(batch_rows), "length": str(length)}
    spark = env.spark

    def run_batch(frame: Any) -> float:
        return measure_seconds(lambda: frame.write.format("noop").mode("overwrite").save())

    def run_available_now(frame: Any) -> float:
        writer = frame.writeStream.format("noop").option("checkpointLocation", _new_checkpoint(env))
        return measure_seconds(lambda: begin(writer.trigger(availableNow=True).start).awaitTermination())

    def load_stream(source: str, options: dict[str, str]) -> Any:
        return spark.readStream.format(source).options(**options).load()

    raw = env.stream_options(stream, payload="raw")
    replay = {**raw, "readPath": "replay"}
    two_partitions = {**raw, "minPartitions": "2"}
    return {
        "batch, 1 partition": (
            lambda: run_batch(spark.read.format("aeron").options(**raw).load()),
            lambda: run_batch(spark.read.format("prebuilt").options(**prebuilt).load()),
        ),
        "batch, 1 partition, readPath=replay": (
            lambda: run_batch(spark.read.format("aeron").options(**replay).load()),
            lambda: run_batch(spark.read.format("prebuilt").options(**prebuilt).load()),
        ),
        "batch, 2 partitions": (
            lambda: run_batch(spark.read.format("aeron").options(**two_partitions).load()),
            lambda: run_batch(spark.read.format("prebuilt").options(**prebuilt, partitions="2").load()),
        ),
        "AvailableNow, 1 partition": (
            lambda: run_available_now(load_stream("aeron", {**raw, "startingOffsets": "earliest"})),
            lambda: run_available_now(load_stream("prebuilt", prebuilt)),
        ),
    }


def _new_checkpoint(env: Environment) -> str:
    return str(env.folder / f"checkpoint-{env.new_stream_id()}")
