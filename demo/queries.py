"""Streaming queries that belong together: started, watched, stopped, and gone on with from their checkpoints."""

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

from demo import Failed
from spark_jobs.session import begin

BEGIN_TIMEOUT: Final = 120.0  # seconds for a query to begin


class Queries(ABC):
    """Queries with checkpoints under ``place``; one of them is ``counted``."""

    def __init__(self, place: Path, counted: str) -> None:
        self._place = place
        self._counted = counted
        self._queries: dict[str, StreamingQuery] = {}
        self._before: list[StreamingQuery] = []  # the counted one, until the queries were stopped

    @abstractmethod
    def sinks(self) -> Mapping[str, tuple[DataStreamWriter, str]]:
        """Return what is written by each query, anew, and how often."""

    def start(self, *, to_the_end: bool = False) -> None:
        """Start the queries, each where its checkpoint says; ``to_the_end``: they read what is there now, and end."""
        for name, (sink, interval) in self.sinks().items():
            sink = sink.queryName(name).option("checkpointLocation", str(self._place / name))
            sink = sink.trigger(availableNow=True) if to_the_end else sink.trigger(processingTime=interval)
            try:
                self._queries[name] = begin(sink.start, BEGIN_TIMEOUT)
            except TimeoutError as error:
                raise Failed(str(error)) from None
        self.check()

    def stop(self) -> None:
        """Stop the queries, wherever they are."""
        for query in self._queries.values():
            query.stop()
        self._before.append(self._queries[self._counted])

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
        """Return when each micro-batch of the counted query began, in seconds since the epoch, and its rows."""
        progress = [one for query in (*self._before, self._queries[self._counted]) for one in query.recentProgress]
        return [
            (datetime.fromisoformat(one.timestamp.replace("Z", "+00:00")).timestamp(), one.numInputRows)
            for one in progress
        ]


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
