"""How fast ``raw`` is read, compared with a Python data source that hands Spark prebuilt batches of the same shape."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final

from aeron_spark.aeron.row_sources import BATCH_BYTES, BATCH_ROWS
from benchmarks.measure import Figure, ratio, seconds
from benchmarks.stage import Stage
from spark_jobs.session import begin

SIZES: Final = ((100, 6_000_000), (1_300, 1_000_000))  # bytes of a message, messages
TARGET: Final = ">= 0.85"


def run(stage: Stage) -> Iterator[Figure]:
    """Measure batch queries with one and two partitions, and AvailableNow."""
    for length, messages in SIZES:
        count = 20_000 if stage.quick else messages
        stream = stage.filled(count, length)
        read = stage.batch(stream).selectExpr("count(*)", "sum(length(value))").first()
        if read is None or tuple(read) != (count, count * length):
            raise RuntimeError(f"read {read}, and {count} messages of {length} bytes were published")
        cases = _cases(stage, stream, count, length)
        for name, (own, peer) in cases.items():
            taken = stage.turns({"aeron": own, "prebuilt": peer}, warm=2)
            rates = {who: [count / one for one in times] for who, times in taken.items()}
            speed = statistics.median(rates["aeron"])
            yield Figure(
                f"read raw, {length} B, {name}",
                ratio(rates["aeron"], rates["prebuilt"]),
                "of prebuilt batches",
                TARGET if name == "batch, 1 partition" else "",
                f"{speed / 1e6:.2f} Mrows/s, {speed * length / 1e6:.0f} MB/s",
                rates,
            )


def _cases(
    stage: Stage, stream: int, count: int, length: int
) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    rows = min(BATCH_ROWS, BATCH_BYTES // length)
    shape = {"rows": str(count), "batch": str(rows), "length": str(length)}
    spark = stage.spark

    def batch(frame: Any) -> float:
        return seconds(lambda: frame.write.format("noop").mode("overwrite").save())

    def available_now(frame: Any) -> float:
        query = frame.writeStream.format("noop").option("checkpointLocation", _checkpoint(stage))
        return seconds(lambda: begin(query.trigger(availableNow=True).start).awaitTermination())

    def stream_of(source: str, options: dict[str, str]) -> Any:
        return spark.readStream.format(source).options(**options).load()

    own = stage.options(stream, payload="raw")
    replayed = {**own, "readPath": "replay"}
    halved = {**own, "minPartitions": "2"}
    return {
        "batch, 1 partition": (
            lambda: batch(spark.read.format("aeron").options(**own).load()),
            lambda: batch(spark.read.format("prebuilt").options(**shape).load()),
        ),
        "batch, 1 partition, readPath=replay": (
            lambda: batch(spark.read.format("aeron").options(**replayed).load()),
            lambda: batch(spark.read.format("prebuilt").options(**shape).load()),
        ),
        "batch, 2 partitions": (
            lambda: batch(spark.read.format("aeron").options(**halved).load()),
            lambda: batch(spark.read.format("prebuilt").options(**shape, partitions="2").load()),
        ),
        "AvailableNow, 1 partition": (
            lambda: available_now(stream_of("aeron", {**own, "startingOffsets": "earliest"})),
            lambda: available_now(stream_of("prebuilt", shape)),
        ),
    }


def _checkpoint(stage: Stage) -> str:
    return str(stage.work / f"checkpoint-{stage.new_stream()}")
