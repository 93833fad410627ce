"""Calls the source and the sink in this process as Spark's engine calls them: the same calls, in the same order.

Between the calls, this module does what the engine does. It converts offsets to JSON and back. It logs the end of a
batch before it runs the batch, plans a failed batch again from the logged end, and does not log the initial offset.
Spark plans queries and runs tasks in different processes, so everything that a task gets or returns is pickled.
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
from pyspark.sql.types import StructType

from aeron_spark.spark.pyspark_api import ReadAllAvailable
from aeron_spark.spark.source import AeronDataSource
from aeron_spark.spark.task_context import BATCH, QUERY, RUN
from tests.aeron.streams import number, numbered
from tests.spark.jvm_engine import JvmStreamReader

T = TypeVar("T")


def make_source(options: Mapping[str, str], **more: object) -> AeronDataSource:
    """Return the data source for options. As in Spark, their names are in lower case and ``True`` is ``"true"``."""
    return AeronDataSource({name.lower(): value for name, value in _texts(options, more).items()})


def _texts(options: Mapping[str, str], more: Mapping[str, object]) -> dict[str, str]:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in more.items()}
    return {"payload": "raw", **options, **texts}


def read_table(options: Mapping[str, str], schema: StructType | None = None, **more: object) -> pa.Table:
    """Return the rows that a batch query reads, with the columns of ``schema`` or of the source."""
    source = make_source(options, **more)
    reader = source.reader(source.schema() if schema is None else schema)
    batches = [
        batch
        for partition in reader.partitions()
        for batch in pickle_and_unpickle(reader).read(pickle_and_unpickle(partition))
    ]
    return pa.Table.from_batches(batches) if batches else pa.table({"value": pa.array([], pa.binary())})


def read_numbers(options: Mapping[str, str], **more: object) -> list[int]:
    """Return the numbers of the values that a batch query reads, in the order of its rows."""
    return [number(value) for value in read_table(options, **more)["value"].to_pylist()]


class Query:
    """A streaming query that reads, and its checkpoint. ``restart`` keeps the checkpoint and makes a new reader.

    ``source`` is the format's name; ``aeron-jvm`` is called in the JVM of the Spark session.
    """

    def __init__(self, options: Mapping[str, str], *, source: str = "aeron", **more: object) -> None:
        self.source = source
        start = {} if "startingTimestamp" in more else {"startingOffsets": "earliest"}
        self.options = {**start, **options}
        self.more = more
        self.planned_ends: list[str] = []
        self.committed_batches = 0
        self.read_bytes = 0  # bytes of the log that the last read batch covers
        self.restart()

    def restart(self, **more: object) -> None:
        """Start the query again from its checkpoint; ``more`` are changed options."""
        self.more |= more
        self.reader: Any
        if self.source == "aeron":
            source = make_source(self.options, **self.more)
            self.reader = source.streamReader(source.schema())
        else:
            self.reader = JvmStreamReader(_texts(self.options, self.more))
        self._start: str | None = self.planned_ends[self.committed_batches - 1] if self.committed_batches else None

    def run_available_now(self) -> list[list[int]]:
        """Restart the query with ``Trigger.AvailableNow`` and return the numbers of each batch."""
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        return list(self.run_batches())

    def request_initial_offset(self) -> None:
        """Request the initial offset from the reader, unless the query has an offset."""
        if self._start is None:
            self._start = _to_json(self.reader.initialOffset())

    def plan_batch(self, *, limited: bool = True) -> bool:
        """Log the end of the next batch, unless a logged batch is not committed; return whether a batch can run."""
        self.request_initial_offset()
        if len(self.planned_ends) == self.committed_batches:
            limit = self.reader.getDefaultReadLimit() if limited else ReadAllAvailable()
            end = _to_json(self.reader.latestOffset(json.loads(self._start), limit))
            if end == self._start and self.planned_ends:  # Spark runs the first batch even if it is empty
                return False
            self.planned_ends.append(end)
        return True

    def read_planned_batch(self) -> list[int]:
        """Read the planned batch and return its numbers."""
        assert self._start is not None
        start, end = json.loads(self._start), json.loads(self.planned_ends[self.committed_batches])
        found: list[int] = []
        self.read_bytes = 0
        for partition in self.reader.partitions(start, end):
            self.read_bytes += sum(one.length for one in partition.ranges)
            for batch in self.reader.read(pickle_and_unpickle(partition) if self.source == "aeron" else partition):
                found += [number(value) for value in batch.column("value").to_pylist()]
        return found

    def commit(self) -> None:
        """Commit the planned batch: the sink has written it."""
        self._start = self.planned_ends[self.committed_batches]
        self.committed_batches += 1

    def run_batch(self, *, limited: bool = True) -> list[int] | None:
        """Plan, read and commit one batch; return its numbers, or None if there is no batch to run."""
        if not self.plan_batch(limited=limited):
            return None
        found = self.read_planned_batch()
        self.commit()
        return found

    def run_batches(self) -> Iterator[list[int]]:
        """Run batches until nothing is left to read."""
        while (found := self.run_batch()) is not None:
            yield found

    @property
    def last_offset(self) -> dict[str, Any]:
        """The end of the last committed batch."""
        found = json.loads(self.planned_ends[self.committed_batches - 1])
        assert isinstance(found, dict)
        return found


def _to_json(offset: dict[str, Any]) -> str:
    return json.dumps(offset)


def pickle_and_unpickle(value: T) -> T:
    """Return a copy of an object, as another process would receive it."""
    copy: T = pickle.loads(pickle.dumps(value))
    return copy


@contextmanager
def run_as_task(partition: int, **properties: str) -> Iterator[None]:
    """Run the block as a Spark task. A process runs one task at a time, so tasks cannot be nested."""
    assert TaskContext.get() is None, "a task is running"
    TaskContext(partitionId=partition, attemptNumber=0, localProperties=properties)
    try:
        yield
    finally:
        TaskContext._taskContext = None


Task = Sequence[pa.RecordBatch]  # the rows of a task, in record batches


def make_batch(*values: bytes | str, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return a record batch with a column ``value`` and further columns."""
    return pa.record_batch({"value": list(values), **columns})


def make_numbered_batch(first: int, last: int, length: int = 100) -> pa.RecordBatch:
    """Return a record batch of values that begin with their numbers (see ``tests.aeron.streams.numbered``)."""
    return make_batch(*numbered(first, last, length))


def save(
    options: Mapping[str, str], *tasks: Task, schema: StructType | None = None, overwrite: bool = False, **more: object
) -> None:
    """Write as ``df.write`` does: run each task, then commit; abort and raise if a task fails."""
    writer = _make_sink_source(options, more).writer(_schema_of(tasks, schema), overwrite)
    messages: list[WriterCommitMessage | None] = []
    try:
        for partition, batches in enumerate(tasks):
            with run_as_task(partition):
                messages.append(pickle_and_unpickle(pickle_and_unpickle(writer).write(iter(batches))))
    except BaseException:
        pickle_and_unpickle(writer).abort(messages)
        raise
    pickle_and_unpickle(writer).commit(messages)


class Sink:
    """The sink of a streaming query. ``restart`` changes ``run_id``, and keeps the checkpoint's ``query_id``."""

    def __init__(self, options: Mapping[str, str], *, query_id: str = "", **more: object) -> None:
        self.options = options
        self.more = more
        self.query_id = query_id or str(uuid.uuid4())
        self.restart()

    def restart(self, **more: object) -> None:
        """Start another run of the query; ``more`` are changed options."""
        self.more |= more
        self.run_id = str(uuid.uuid4())
        self._writer: Any = None

    def stage(self, batch: int, *tasks: Task, schema: StructType | None = None) -> list[WriterCommitMessage | None]:
        """Run the tasks of a micro-batch; return their messages for the commit."""
        # Spark makes a new writer for each micro-batch.
        self._writer = _make_sink_source(self.options, self.more).streamWriter(_schema_of(tasks, schema), False)
        properties = {QUERY: self.query_id, RUN: self.run_id, BATCH: str(batch)}
        messages: list[WriterCommitMessage | None] = []
        for partition, batches in enumerate(tasks):
            with run_as_task(partition, **properties):
                messages.append(pickle_and_unpickle(pickle_and_unpickle(self._writer).write(iter(batches))))
        return messages

    def commit(self, batch: int, messages: list[WriterCommitMessage | None]) -> None:
        """Commit a micro-batch; abort it and raise if the commit fails, which ends a query."""
        try:
            pickle_and_unpickle(self._writer).commit(messages, batch)
        except BaseException:
            pickle_and_unpickle(self._writer).abort(messages, batch)
            raise

    def write(self, batch: int, *tasks: Task, schema: StructType | None = None) -> None:
        """Run the tasks of a micro-batch and commit it."""
        self.commit(batch, self.stage(batch, *tasks, schema=schema))


def _make_sink_source(options: Mapping[str, str], more: Mapping[str, object]) -> AeronDataSource:
    return make_source({"payload": "auto", **options}, **more)


def _schema_of(tasks: Sequence[Task], schema: StructType | None) -> StructType:
    """Return ``schema``, or that of the first record batch. Spark knows the columns even if there are no rows."""
    if schema is not None:
        return schema
    return next(from_arrow_schema(batch.schema) for batches in tasks for batch in batches)
