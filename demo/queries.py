"""Starts, monitors, stops and continues a group of streaming queries."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aeron_spark.jobs.session import begin
from demo import DemoError

BEGIN_TIMEOUT_S: Final = 120.0  # for a query to start


class Queries(ABC):
    """Queries with checkpoints below ``folder``. ``counted`` is the query whose micro-batches are counted."""

    def __init__(self, folder: Path, counted: str) -> None:
        self._folder = folder
        self._counted = counted
        self._queries: dict[str, StreamingQuery] = {}
        self._stopped: list[StreamingQuery] = []  # earlier runs of the counted query

    @abstractmethod
    def sinks(self) -> Mapping[str, tuple[DataStreamWriter, str]]:
        """Return new writers by query name, each with its trigger interval."""

    def start(self, *, to_the_end: bool = False) -> None:
        """Start the queries from their checkpoints. With ``to_the_end`` they read the available rows and end."""
        for name, (sink, interval) in self.sinks().items():
            sink = sink.queryName(name).option("checkpointLocation", str(self._folder / name))
            sink = sink.trigger(availableNow=True) if to_the_end else sink.trigger(processingTime=interval)
            try:
                self._queries[name] = begin(sink.start, BEGIN_TIMEOUT_S)
            except TimeoutError as error:
                raise DemoError(str(error)) from None
        self.check()

    def stop(self) -> None:
        """Stop the queries."""
        for query in self._queries.values():
            query.stop()
        self._stopped.append(self._queries[self._counted])

    def finish(self, seconds: float) -> None:
        """Continue from the checkpoints to the end of the stream. Raises DemoError if that takes over ``seconds``."""
        self.start(to_the_end=True)
        deadline = time.monotonic() + seconds
        for name, query in self._queries.items():
            while query.isActive:
                if time.monotonic() > deadline:
                    raise DemoError(f"the query '{name}' did not reach the end of the stream within {seconds:g} s")
                query.awaitTermination(1)
        self.check()

    def check(self) -> None:
        """Raise DemoError if a query failed."""
        for name, query in self._queries.items():
            error = query.exception()
            if error is not None:
                raise DemoError(f"the query '{name}' failed: {cause(str(error))}")

    def micro_batches(self) -> list[tuple[float, int]]:
        """Return the start time (seconds since 1970) and the rows of each micro-batch of the counted query."""
        progress = [one for query in (*self._stopped, self._queries[self._counted]) for one in query.recentProgress]
        return [
            (datetime.fromisoformat(one.timestamp.replace("Z", "+00:00")).timestamp(), one.numInputRows)
            for one in progress
        ]


def cause(text: str) -> str:
    """Return the first line of a query's error, with the line of the Python exception if there is one."""
    lines = text.splitlines()
    raised = [line for line in lines if line.startswith(("aeron_spark.", "pyspark.", "Caused by: "))]
    return f"{lines[0]} ({raised[-1]})" if raised else lines[0]


def count_by_day(flights: DataFrame) -> DataFrame:
    """Aggregate by event time, in windows of one day (UTC). NaN means no delay or no departure."""
    late = F.when(~F.isnan("dep_delay"), F.col("dep_delay")).otherwise(0.0)
    windows = flights.groupBy(F.window("time_hour", "1 day")).agg(
        F.count("*").alias("flights"),
        F.count_if(~F.isnan("dep_time")).alias("departed"),
        F.sum(late).alias("delay"),
    )
    return windows.select(F.date_format("window.start", "yyyy-MM-dd").alias("day"), "flights", "departed", "delay")
