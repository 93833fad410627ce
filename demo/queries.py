"""What Spark does: flights from Aeron into Delta, counted by day into Delta and back to Aeron."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from demo import Failed
from demo.flights import SCHEMA, Day

DELTA_JARS: Final = Path(__file__).resolve().parents[1] / "jars" / "target" / "delta"
LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")
BEGIN_TIMEOUT: Final = 120.0  # seconds for a query to begin
END_TIMEOUT: Final = 60.0  # seconds for Spark's JVM to end
PROGRESS_KEPT: Final = 10_000  # micro-batches
FLIGHTS, DAYS, RESULTS = "flights", "days", "results"


@contextmanager
def session(place: Path) -> Iterator[SparkSession]:
    """Run Spark with two task slots and Delta for as long as the block lasts; nothing of its process is left."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark demo")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{DELTA_JARS}/*",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.python.worker.faulthandler.enabled": "false",  # it and a JVM in a worker fight over signals
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_KEPT),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        yield spark
        spark.stop()
    finally:
        _end_jvm()


def _end_jvm() -> None:
    """Have Spark's JVM end now, and not some time after this process, which is about to remove its folders."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT)


class Pipeline:
    """Three queries that read one stream of flights: each flight, and the days, into Delta; the days back to Aeron."""

    def __init__(
        self, spark: SparkSession, place: Path, flights: Mapping[str, str], results: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._place = place
        self._flights = flights
        self._results = results
        self._queries: dict[str, StreamingQuery] = {}
        self._before: list[StreamingQuery] = []  # what wrote the flights until the queries were stopped

    def start(self, *, to_the_end: bool = False) -> None:
        """Start the queries, each where its checkpoint says; ``to_the_end``: they read what is there now, and end."""
        rows = (
            self._spark.readStream.format("aeron")
            .schema(from_arrow_schema(SCHEMA))
            .options(startingOffsets="earliest", payload="arrow", maxBytesPerTrigger="16m", **self._flights)
            .load()
        )
        days = count_by_day(rows)
        message = days.select(F.to_json(F.struct("*")).alias("value"))
        for name, sink, trigger in (
            (FLIGHTS, rows.writeStream.format("delta").option("path", self._table(FLIGHTS)), "0 seconds"),
            (
                DAYS,
                days.writeStream.format("delta").option("path", self._table(DAYS)).outputMode("complete"),
                "3 seconds",
            ),
            (RESULTS, message.writeStream.format("aeron").options(**self._results).outputMode("complete"), "3 seconds"),
        ):
            sink = sink.queryName(name).option("checkpointLocation", str(self._place / "checkpoints" / name))
            sink = sink.trigger(availableNow=True) if to_the_end else sink.trigger(processingTime=trigger)
            self._queries[name] = sink.start()
            self._await_begun(name)

    def _await_begun(self, name: str) -> None:
        """Return once a query has its processes: Spark gives each ten seconds, which several at once may miss."""
        deadline = time.monotonic() + BEGIN_TIMEOUT
        while self._queries[name].isActive and self._queries[name].status["message"].startswith("Initializing"):
            if time.monotonic() > deadline:
                raise Failed(f"the query '{name}' did not begin within {BEGIN_TIMEOUT:g} s")
            time.sleep(0.05)
        self.check()

    def stop(self) -> None:
        """Stop the queries, wherever they are."""
        for query in self._queries.values():
            query.stop()
        self._before.append(self._queries[FLIGHTS])

    def finish(self, seconds: float) -> None:
        """Go on from the checkpoints to the end of the stream; raise Failed where that takes over ``seconds``."""
        self.start(to_the_end=True)
        deadline = time.monotonic() + seconds
        for name, query in self._queries.items():
            while query.isActive:
                if time.monotonic() > deadline:
                    raise Failed(f"the query '{name}' did not come to the end of the stream within {seconds:g} s")
                query.awaitTermination(1)
        self.check()

    def check(self) -> None:
        """Raise Failed where a query ended by itself."""
        for name, query in self._queries.items():
            error = query.exception()
            if error is not None:
                raise Failed(f"the query '{name}' failed: {cause(str(error))}")

    def micro_batches(self) -> list[tuple[float, int]]:
        """Return when each micro-batch of the flights began, in seconds since the epoch, and its rows."""
        progress = [one for query in (*self._before, self._queries[FLIGHTS]) for one in query.recentProgress]
        return [
            (datetime.fromisoformat(one.timestamp.replace("Z", "+00:00")).timestamp(), one.numInputRows)
            for one in progress
        ]

    def flights(self) -> pa.Table:
        """Read the flights back from Delta."""
        return self._spark.read.format("delta").load(self._table(FLIGHTS)).toArrow()

    def days(self) -> dict[str, Day]:
        """Read the days back from Delta."""
        rows = self._spark.read.format("delta").load(self._table(DAYS)).collect()
        return {row.day: Day(row.flights, row.departed, row.delay) for row in rows}

    def _table(self, name: str) -> str:
        return str(self._place / "tables" / name)


def cause(text: str) -> str:
    """Return the line of a failed query that says why: that of the Python that failed, if one did."""
    lines = text.splitlines()
    raised = [line for line in lines if line.startswith(("aeron_spark.", "pyspark.", "Caused by: "))]
    return f"{lines[0]} ({raised[-1]})" if raised else lines[0]


def count_by_day(flights: DataFrame) -> DataFrame:
    """Aggregate by event time: windows of one day (UTC) of the scheduled hour. A NaN is no delay, and no departure."""
    late = F.when(~F.isnan("dep_delay"), F.col("dep_delay")).otherwise(0.0)
    windows = flights.groupBy(F.window("time_hour", "1 day")).agg(
        F.count("*").alias("flights"),
        F.count_if(~F.isnan("dep_time")).alias("departed"),
        F.sum(late).alias("delay"),
    )
    return windows.select(F.date_format("window.start", "yyyy-MM-dd").alias("day"), "flights", "departed", "delay")
