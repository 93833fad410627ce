"""Streaming queries of tests: what each batch held, seen from foreachBatch, and queries that end with their test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.session import begin, missed_its_start
from tests.aeron.streams import TIMEOUT_S, number
from tests.waiting import poll_until

FINISH: Final = 300  # seconds for a query that ends by itself


@dataclass
class Collected:
    """A sink that keeps the numbers of each batch; a batch that is repeated takes its first one's place."""

    batches: dict[int, list[int]] = field(default_factory=dict)
    before: Callable[[int], None] | None = None  # called with a batch's id before it is kept; may raise
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Take one batch."""
        found = [number(row.value) for row in frame.select("value").collect()]
        if self.before is not None:
            self.before(batch)
        with self._lock:
            self.batches[batch] = found

    @property
    def sizes(self) -> list[int]:
        """The rows of each batch that had any, in their order."""
        with self._lock:
            return [len(self.batches[batch]) for batch in sorted(self.batches) if self.batches[batch]]

    @property
    def numbers(self) -> list[int]:
        """Every number seen, sorted."""
        with self._lock:
            return sorted(number for batch in self.batches.values() for number in batch)


def read_stream(spark: SparkSession, options: Mapping[str, str], **more: object) -> DataFrame:
    """Return the raw stream of ``options``, from its beginning."""
    defaults = {"payload": "raw", "startingOffsets": "earliest"}
    return spark.readStream.format("aeron").options(**{**defaults, **options, **_texts(more)}).load()


def read_batch(spark: SparkSession, options: Mapping[str, str], **more: object) -> DataFrame:
    """Return what is recorded of the raw stream of ``options``."""
    return spark.read.format("aeron").options(**{"payload": "raw", **options, **_texts(more)}).load()


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


@contextmanager
def running(
    frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None], **trigger: Any
) -> Iterator[StreamingQuery]:
    """Run a query while the block lasts."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = begin((writer.trigger(**trigger) if trigger else writer).start)
    try:
        yield query
    finally:
        query.stop()


def finish(
    frame: DataFrame, checkpoint: Path, sink: Callable[[DataFrame, int], None], **trigger: Any
) -> StreamingQuery:
    """Run a query that ends by itself (``availableNow`` if nothing is said), and raise what it failed with."""
    while True:
        with running(frame, checkpoint, sink, **(trigger or {"availableNow": True})) as query:
            try:
                assert query.awaitTermination(FINISH), f"still running after {FINISH} s: {query.status}"
                return query
            except StreamingQueryException:
                # Spark gives each of its Python processes ten seconds to come up, and begin() sees only the first one
                if not missed_its_start(query):
                    raise


def await_that(query: StreamingQuery, what: str, poll: Callable[[], bool]) -> None:
    """Wait until ``poll()``; raise what the query failed with, if it does meanwhile."""

    def done() -> bool:
        if poll():
            return True
        failure = query.exception()
        if failure is not None:
            raise failure
        return False

    poll_until(done, TIMEOUT_S, what, state=lambda: str(query.status))
