"""The source driven by hand, in this process, as Spark drives it: the same calls in the same order, without the engine.

What Spark does between the calls is what these tests know of it: an offset goes through JSON, the end of a batch is
logged before the batch runs, a batch that failed is planned again from the logged ends, and the first offset is not
logged at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aeron_spark.spark.source import AeronDataSource
from tests.aeron.streams import number


def opened(options: Mapping[str, str], **more: object) -> AeronDataSource:
    """Return the source for options; ``True`` is ``"true"`` as Spark writes it."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in more.items()}
    return AeronDataSource({"payload": "raw", **options, **texts})


def table(options: Mapping[str, str], **more: object) -> pa.Table:
    """Return what a batch query reads."""
    source = opened(options, **more)
    reader = source.reader(source.schema())
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches) if batches else pa.table({"value": pa.array([], pa.binary())})


def numbers(options: Mapping[str, str], **more: object) -> list[int]:
    """Return the numbers that a batch query reads, in the order it reads them."""
    return [number(value) for value in table(options, **more)["value"].to_pylist()]


class Query:
    """A streaming query and its checkpoint; ``restart`` loses everything else."""

    def __init__(self, options: Mapping[str, str], **more: object) -> None:
        begin = {} if "startingTimestamp" in more else {"startingOffsets": "earliest"}
        self.options = {**begin, **options}
        self.more = more
        self.ends: list[str] = []
        self.done = 0  # batches that are committed
        self.length = 0  # bytes of the log in the batch that was read last
        self.restart()

    def restart(self, **more: object) -> None:
        """Begin anew from the checkpoint, with options that may have changed."""
        self.more |= more
        source = opened(self.options, **self.more)
        self.reader: Any = source.streamReader(source.schema())
        self._start: str | None = self.ends[self.done - 1] if self.done else None

    def available_now(self) -> list[list[int]]:
        """Restart with ``Trigger.AvailableNow`` and return its batches."""
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        return list(self.batches())

    def begin(self) -> None:
        """Ask for the first offset, if there is none yet."""
        if self._start is None:
            self._start = _text(self.reader.initialOffset())

    def plan(self, *, limited: bool = True) -> bool:
        """Log the end of the next batch, unless one is logged that did not finish; whether there is a batch to run."""
        self.begin()
        if len(self.ends) == self.done:
            limit = self.reader.getDefaultReadLimit() if limited else ReadAllAvailable()
            end = _text(self.reader.latestOffset(json.loads(self._start), limit))
            if end == self._start and self.ends:  # the first batch is made even where it is empty
                return False
            self.ends.append(end)
        return True

    def read(self) -> list[int]:
        """Read the batch that is planned."""
        assert self._start is not None
        start, end = json.loads(self._start), json.loads(self.ends[self.done])
        found: list[int] = []
        self.length = 0
        for partition in self.reader.partitions(start, end):
            self.length += sum(one.length for one in partition.ranges)
            for batch in self.reader.read(partition):
                found += [number(value) for value in batch.column("value").to_pylist()]
        return found

    def commit(self) -> None:
        """The sink has the batch."""
        self._start = self.ends[self.done]
        self.done += 1

    def batch(self, *, limited: bool = True) -> list[int] | None:
        """Run one whole batch and return its numbers, or None where there is none to run."""
        if not self.plan(limited=limited):
            return None
        found = self.read()
        self.commit()
        return found

    def batches(self) -> Iterator[list[int]]:
        """Run batches until there is nothing to read."""
        while (found := self.batch()) is not None:
            yield found

    @property
    def offset(self) -> dict[str, Any]:
        """The end of the last batch."""
        found = json.loads(self.ends[self.done - 1])
        assert isinstance(found, dict)
        return found


def _text(offset: dict[str, Any]) -> str:
    return json.dumps(offset)
