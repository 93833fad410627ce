"""Source and sink driven by hand, in this process, as Spark drives them: the same calls in the same order, no engine.

What Spark does between the calls is what these tests know of it: an offset goes through JSON, the end of a batch is
logged before the batch runs, a batch that failed is planned again from the logged ends, and the first offset is not
logged at all. What plans and what runs a task are different processes: all that goes from one to the other is pickled.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from aeron_spark.spark.source import AeronDataSource
from aeron_spark.spark.task_context import BATCH, QUERY, RUN
from tests.aeron.streams import number, numbered

T = TypeVar("T")


def opened(options: Mapping[str, str], **more: object) -> AeronDataSource:
    """Return the source for options, whose names Spark has in lower case; ``True`` is ``"true"`` as Spark writes it."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in more.items()}
    return AeronDataSource({name.lower(): value for name, value in {"payload": "raw", **options, **texts}.items()})


def table(options: Mapping[str, str], **more: object) -> pa.Table:
    """Return what a batch query reads."""
    source = opened(options, **more)
    reader = source.reader(source.schema())
    batches = [batch for partition in reader.partitions() for batch in sent(reader).read(sent(partition))]
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
            for batch in self.reader.read(sent(partition)):
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


def sent(thing: T) -> T:
    """Return a thing as it arrives in another process."""
    found: T = pickle.loads(pickle.dumps(thing))
    return found


@contextmanager
def task(partition: int, **properties: str) -> Iterator[None]:
    """Run the block as a task of Spark: one at a time in a process, and none inside of another."""
    assert TaskContext.get() is None, "a task is running"
    TaskContext(partitionId=partition, attemptNumber=0, localProperties=properties)
    try:
        yield
    finally:
        TaskContext._taskContext = None


Task = Sequence[pa.RecordBatch]  # the rows of a task, batch by batch


def values(*texts: bytes | str, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return rows with a column ``value``, and others."""
    return pa.record_batch({"value": list(texts), **columns})


def numbered_values(first: int, last: int, length: int = 100) -> pa.RecordBatch:
    """Return values that say their number."""
    return values(*numbered(first, last, length))


def save(
    options: Mapping[str, str], *tasks: Task, schema: StructType | None = None, overwrite: bool = False, **more: object
) -> None:
    """Write as ``df.write`` does: the rows of each task in it, then one commit, or an abort where a task fails."""
    writer = _source(options, more).writer(_schema(tasks, schema), overwrite)
    messages: list[WriterCommitMessage | None] = []
    try:
        for partition, batches in enumerate(tasks):
            with task(partition):
                messages.append(sent(sent(writer).write(iter(batches))))
    except BaseException:
        sent(writer).abort(messages)
        raise
    sent(writer).commit(messages)


class Sink:
    """The sink of a streaming query; ``run`` is another one after each restart, ``id`` is the checkpoint's."""

    def __init__(self, options: Mapping[str, str], *, query: str = "", **more: object) -> None:
        self.options = options
        self.more = more
        self.id = query or str(uuid.uuid4())
        self.restart()

    def restart(self, **more: object) -> None:
        """Begin another run of the query, with options that may have changed."""
        self.more |= more
        self.run = str(uuid.uuid4())
        self._writer: Any = None

    def stage(self, batch: int, *tasks: Task, schema: StructType | None = None) -> list[WriterCommitMessage | None]:
        """Run the tasks of a micro-batch; return what they say to the commit."""
        # Spark makes a writer for each micro-batch
        self._writer = _source(self.options, self.more).streamWriter(_schema(tasks, schema), False)
        properties = {QUERY: self.id, RUN: self.run, BATCH: str(batch)}
        messages: list[WriterCommitMessage | None] = []
        for partition, batches in enumerate(tasks):
            with task(partition, **properties):
                messages.append(sent(sent(self._writer).write(iter(batches))))
        return messages

    def commit(self, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        """Commit a micro-batch; one whose commit fails is aborted, and the query ends."""
        try:
            sent(self._writer).commit(messages, batch)
        except BaseException:
            sent(self._writer).abort(messages, batch)
            raise

    def write(self, batch: int, *tasks: Task, schema: StructType | None = None) -> None:
        """Run a whole micro-batch."""
        self.commit(batch, self.stage(batch, *tasks, schema=schema))


def _source(options: Mapping[str, str], more: Mapping[str, object]) -> AeronDataSource:
    return opened({"payload": "auto", **options}, **more)


def _schema(tasks: Sequence[Task], schema: StructType | None) -> StructType:
    """Return the columns of the rows: Spark has them even where there is no row."""
    if schema is not None:
        return schema
    return next(from_arrow_schema(batch.schema) for batches in tasks for batch in batches)
