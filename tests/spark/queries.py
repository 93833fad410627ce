"""Runs Spark's streaming queries in tests, and collects the rows of their batches with foreachBatch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from aeron_spark.jobs.session import begin, has_missed_start_deadline
from aeron_spark.spark.pyspark_api import HAS_READ_LIMITS
from tests.aeron.streams import TIMEOUT_S, number
from tests.waiting import poll_until

QUERY_TIMEOUT_S: Final = 300  # for a query that ends by itself


@dataclass
class CollectingSink:
    """A foreachBatch function that keeps the numbers of each batch. A repeated batch replaces its first run."""

    batches: dict[int, list[int]] = field(default_factory=dict)
    before_batch: Callable[[int], None] | None = None  # called with a batch's id before its numbers are kept; may raise
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Keep the numbers of one batch."""
        found = [number(row.value) for row in frame.select("value").collect()]
        if self.before_batch is not None:
            self.before_batch(batch)
        with self._lock:
            self.batches[batch] = found

    @property
    def sizes(self) -> list[int]:
        """The row counts of the batches that are not empty, in order."""
        with self._lock:
            return [len(self.batches[batch]) for batch in sorted(self.batches) if self.batches[batch]]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all batches, sorted."""
        with self._lock:
            return sorted(number for batch in self.batches.values() for number in batch)


def read_stream(spark: SparkSession, options: Mapping[str, str], *, source: str = "aeron", **more: object) -> DataFrame:
    """Return a streaming DataFrame of the raw messages of a stream, from its beginning unless options set a start."""
    defaults = {"payload": "raw", "startingOffsets": "earliest"}
    return spark.readStream.format(source).options(**{**defaults, **options, **_texts(more)}).load()


def read_batch(spark: SparkSession, options: Mapping[str, str], *, source: str = "aeron", **more: object) -> DataFrame:
    """Return a DataFrame of the recorded raw messages of a stream; ``source`` is the format's name."""
    return spark.read.format(source).options(**{"payload": "raw", **options, **_texts(more)}).load()


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


@contextmanager
def run_query(
    frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None], **trigger: Any
) -> Iterator[StreamingQuery]:
    """Run a query while the block lasts."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = begin((writer.trigger(**trigger) if trigger else writer).start)
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def patient_starts() -> Iterator[None]:
    """Start each query in the block with ``begin``, also in code of pages and notebooks, which calls ``start()``."""
    start = DataStreamWriter.start

    def begin_query(writer: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        return begin(partial(start, writer, *args, **options))

    with patch.object(DataStreamWriter, "start", begin_query):
        yield


def run_to_end(
    frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None], **trigger: Any
) -> StreamingQuery:
    """Run a query until it ends, by default with ``availableNow``; raise the error with which it failed."""
    while True:
        with run_query(frame, checkpoint, sink, **(trigger or {"availableNow": True})) as query:
            try:
                assert query.awaitTermination(QUERY_TIMEOUT_S), (
                    f"still running after {QUERY_TIMEOUT_S} s: {query.status}"
                )
                return query
            except StreamingQueryException:
                # Spark allows each of its Python processes ten seconds to start, and begin() checks only the first.
                if not has_missed_start_deadline(query):
                    raise


def run_to_end_after_failure(frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None]) -> None:
    """Run a query whose last batch has failed until it has read what is there."""
    run_to_end(frame, checkpoint, sink)
    if not HAS_READ_LIMITS:  # an older Spark repeats the failed batch, and ends with it
        run_to_end(frame, checkpoint, sink)


def wait_for_query(query: StreamingQuery, what: str, poll: Callable[[], bool]) -> None:
    """Wait until ``poll()`` returns true; raise the query's error if the query fails before that."""

    def is_over() -> bool:
        if poll():
            return True
        failure = query.exception()
        if failure is not None:
            raise failure
        return False

    poll_until(is_over, TIMEOUT_S, what, state=lambda: str(query.status))
