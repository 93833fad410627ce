"""Writes a stream: batch and streaming writers, and the order of micro-batches.

Spark does not store a sink's progress, so the servers do. With each micro-batch a server gets a token: the run of the
query, and the last micro-batch of each of its servers. The next micro-batch compares the token with the current state
of the servers. A server that was restored from an older copy has an earlier micro-batch than in the token.

A micro-batch is one transaction: its writer is the query (or ``writerId``), its run is the query's run, and its id is
the number of the micro-batch. Through a server it is committed exactly once: a server that has it says so to each
request, and a later run of the query fences the earlier ones. If a stream is on several servers, one of them takes the
whole transaction, so that it stays all or nothing. On the direct route rows are published at least once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.errors import DataFormatError, RefusedError, SetupError, UsageError
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.log.restarts import Outages, RestartableAppender, outage_limit
from aeron_spark.log.sbe_rows import encoded_batches
from aeron_spark.log.writing import LogWriter
from aeron_spark.log_factory import open_writer
from aeron_spark.options import DirectRoute, ServerRoute, WriteOptions
from aeron_spark.sbe.encoding import EncodePlan, row_of
from aeron_spark.spark.pyspark_api import DataSourceStreamArrowWriter
from aeron_spark.spark.row_values import as_nullable, payload_of
from aeron_spark.spark.sbe import sbe_plan
from aeron_spark.spark.shown_errors import short_errors
from aeron_spark.spark.task_context import (
    BATCH,
    QUERY,
    RUN,
    check_route,
    local_property,
    partition_of_task,
    resolve_key_files,
    source_of,
    with_servers,
)
from aeron_spark.texts import parse_json
from aeron_spark.wire.stream_requests import CommitPart, Transaction

NONE: Final = -1  # for a server without a micro-batch of the query
TAG_CHARACTERS: Final = 6  # 36 bits: the tags of a query's servers differ


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch of a query on a server (-1 for none), with its token.

    ``run``: the run of the query that wrote it. ``servers``: the last micro-batch of each server of the query, by
    ``tag_of`` its name, after that one; None if a release without tokens wrote it.
    """

    last: int
    run: str = ""
    servers: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, last: int, token: str) -> Progress:
        """Parse a token. Raises DataFormatError for a token that no sink wrote."""
        if last == NONE or not token:
            return cls(last)
        try:
            found = parse_json(token)
            return cls(last, str(found["run"]), _parse_servers(last, found["servers"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFormatError(
                f"the token of micro-batch {last} was not written by a sink: {error!r}",
                remedy="Give the query a separate writerId: another program writes with this one.",
            ) from None


def token_of(batch: int, server: str, run: str, progress: Mapping[str, Progress]) -> str:
    """Return the token of a micro-batch for ``server``; ``progress`` is the current state of all servers.

    It has each server's tag, followed by how many micro-batches its last one is before this one; nothing for a server
    without any. So the servers of a query with a hundred of them fit into the 1 KiB that a server stores.
    """
    servers = {name: one.last for name, one in progress.items()} | {server: batch}
    listed = ",".join(f"{tag_of(name)}{'' if last == NONE else batch - last}" for name, last in servers.items())
    return json.dumps({"run": run, "servers": listed}, separators=(",", ":"))


def tag_of(server: str) -> str:
    """Return the short form of a server's name in tokens."""
    return base64.urlsafe_b64encode(hashlib.sha256(server.encode()).digest())[:TAG_CHARACTERS].decode()


def _parse_servers(batch: int, listed: str) -> dict[str, int]:
    entries = [(one[:TAG_CHARACTERS], one[TAG_CHARACTERS:]) for one in listed.split(",")]
    if not all(before.isascii() and (before.isdecimal() or not before) for _, before in entries):
        raise ValueError(f"{listed!r} are not servers with numbers")
    return {tag: batch - int(before) if before else NONE for tag, before in entries}


def _tags(servers: Iterable[str]) -> frozenset[str]:
    return frozenset(map(tag_of, servers))


def check_follows(
    batch: int, run: str, progress: Mapping[str, Progress], *, query: str, stream: str, accept_gap: bool
) -> None:
    """Raise RefusedError with reason "diverged" if the servers do not have all micro-batches before ``batch``.

    ``progress`` is by server; no server has ``batch`` or a later one. A new server has none. A removed server may have
    the last ones. ``accept_gap`` accepts the first micro-batch of a run in any case. A query of a release without
    tokens is accepted once.
    """
    latest = max(progress.values(), key=lambda one: one.last)
    if accept_gap and latest.run != run:
        return
    if latest.last == NONE:
        if batch:
            raise _refused(
                f"micro-batch {batch} of query {query} follows micro-batch {batch - 1}, but {stream} has none"
            )
        return
    if latest.servers is None:
        return
    removed = len(latest.servers.keys() - _tags(progress))
    if latest.last + 1 + removed < batch:
        raise _refused(
            f"micro-batch {batch} of query {query} does not follow {latest.last}, the last of this query in {stream}"
        )
    for name, one in progress.items():
        had = latest.servers.get(tag_of(name), NONE)
        if one.last < had:
            raise _refused(
                f"micro-batch {batch} of query {query} is not written to {stream}: the server {name} had micro-batch "
                f"{had} of this query, and now has {'none' if one.last == NONE else f'{one.last} as the last'}"
            )


def _refused(text: str) -> RefusedError:
    return RefusedError(
        text,
        remedy="If a server was restored from an older copy, restore the query's checkpoint of the same time; or set "
        "acceptGap=true for one start, which loses the rows in between.",
        reason=DIVERGED,
    )


@dataclass
class WrittenRows(WriterCommitMessage):
    """The rows that one task wrote, for the commit in another process.

    ``server`` has the staged ``parts``; on the direct route it is "" and has none. ``committed``: the server had
    committed the transaction before, and took no rows.
    """

    transaction: Transaction
    server: str
    parts: tuple[CommitPart, ...]
    rows: int
    committed: bool = False


@dataclass(frozen=True)
class WriteTask:
    """Writes the rows of a Spark task, on any machine, and commits the rows of all tasks.

    ``write_id`` is unique for this write. ``planned_on`` is the host of the Spark driver.
    """

    options: WriteOptions
    route: DirectRoute | ServerRoute
    payload: str
    write_id: str
    planned_on: str
    sbe: EncodePlan | None = None  # of payload=sbe, whose messages are written as ``raw``

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write all rows; return when they are acknowledged, on the direct route, or staged.

        Waits out a restart of the archive or the server, see :class:`RestartableAppender`. Raises SetupError if the
        rows would go to the embedded archive of another machine than the driver's.
        """
        partition = partition_of_task() or 0
        with open_writer(self.options, resolve_key_files(self.route), partition) as writer:
            if self.planned_on != this_host():
                writer.check_other_host()
            transaction = self._transaction(writer)
            server = writer.server_of(transaction)
            is_schema_fixed = self.payload == "arrow" and writer.has_schema
            appender = self._appender(writer, transaction, server)
            try:
                for batch in (
                    batches
                    if self.sbe is None
                    else encoded_batches(self.sbe, batches, row_of(f"Spark partition {partition}"))
                ):
                    if batch.num_rows:
                        appender.append(as_nullable(batch) if is_schema_fixed else batch)
                parts = tuple(appender.finish())
            except BaseException:
                appender.discard()
                raise
        return WrittenRows(transaction, server, parts, appender.rows, appender.committed)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible at once; do nothing if they are. On the direct route, do nothing.

        Raises RefusedError if a later run has fenced this one, if another query has used the writer's id, and, with the
        reason "diverged", if the servers do not have the micro-batches of the query before this one.
        """
        written = _of_one_transaction(messages)
        if not written:
            return
        transaction, server = written[0].transaction, written[0].server
        with open_writer(self.options, resolve_key_files(self.route)) as writer:
            if transaction.single_use:
                _commit(writer, written)
                return
            progress = {name: _progress(writer, transaction, name) for name in writer.servers}
            try:
                is_committed = self._is_committed(transaction, progress)
            except RefusedError:
                writer.abort(transaction, server)
                raise
            if is_committed:
                writer.abort(transaction, server)
                return
            token = token_of(transaction.number, server, transaction.run, progress)
            if _commit(writer, written, token):  # another process has committed it in the meantime
                self._is_committed(transaction, {server: _progress(writer, transaction, server)})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the staged rows. After a commit, whose response may have been lost, it does nothing."""
        written = _of_one_transaction(messages)
        if written:
            with open_writer(self.options, resolve_key_files(self.route)) as writer:
                writer.abort(written[0].transaction, written[0].server)

    def _appender(self, writer: LogWriter, transaction: Transaction, server: str) -> RestartableAppender:
        source = source_of(self.options, f"batch-{self.write_id}")
        return RestartableAppender(
            lambda: writer.begin(transaction, source, self.payload),
            Outages(outage_limit(self.route), lambda: writer.check_answers(transaction, server)),
            is_running=source.batch > 0 or writer.has_reached(server),
        )

    def _transaction(self, writer: LogWriter) -> Transaction:
        """Return the transaction of this task's rows; a log without transactions does not use it."""
        writer_id = self.options.writer_id
        if not (self.options.streaming and writer.has_transactions):
            name = f"{writer_id}/{self.write_id}" if writer_id else f"batch-{self.write_id}"
            return Transaction(name, self.write_id, 0, single_use=True, producer=self.write_id)
        query, run, batch = local_property(QUERY), local_property(RUN), local_property(BATCH)
        if query is None or run is None or batch is None:
            raise SetupError(
                "Spark does not say of which query, run and micro-batch this task is, so that its rows could be "
                "written twice",
                remedy="Write with a streaming query.",
            )
        return Transaction(writer_id or query, run, int(batch), producer=query)

    def _is_committed(self, transaction: Transaction, progress: Mapping[str, Progress]) -> bool:
        """Return whether a server has the micro-batch. Which server takes it depends on option ``server``.

        Raises RefusedError if a later micro-batch of the query is committed, because these rows would be lost, and if
        the micro-batches before this one are missing.
        """
        last = max(one.last for one in progress.values())
        if last > transaction.number:
            raise RefusedError(
                f"micro-batch {transaction.number} of writer {transaction.writer!r} was not written to "
                f"{self.route.label}: micro-batch {last} of that query is committed, so that this is an older copy of "
                "its checkpoint",
                remedy="Continue from the checkpoint of that micro-batch, or start with a new checkpoint and a new "
                "writerId.",
            )
        if last == transaction.number:
            return True
        number, run, query = transaction.number, transaction.run, transaction.producer
        accept_gap = self.options.accept_gap
        check_follows(number, run, progress, query=query, stream=self.route.label, accept_gap=accept_gap)
        return False


class AeronBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: at least once on the direct route; all rows once, or none, through a server."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        """Write the rows of one task."""
        return self._task.write(iterator)

    @short_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks."""
        self._task.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the rows of all tasks, because one failed."""
        self._task.abort(messages)


class AeronStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query: at least once on the direct route, exactly once through a server."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    @short_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        """Write the rows of one task."""
        return self._task.write(iterator)

    @short_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch."""
        self._task.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Discard a micro-batch, because a task or its commit failed."""
        self._task.abort(messages)


def write_task(options: WriteOptions, schema: StructType) -> WriteTask:
    """Return the task of a write. Checks the columns against the payload, and the keys, before anything starts."""
    plan = sbe_plan(options, schema) if options.payload == "sbe" else None
    payload = "raw" if plan is not None else payload_of(options, schema)
    route = with_servers(options.route)
    check_route(route)
    return WriteTask(options, route, payload, str(uuid.uuid4()), this_host(), plan)


def _commit(writer: LogWriter, written: Sequence[WrittenRows], token: str = "") -> bool:
    """Commit the rows of all tasks; return whether they were committed before."""
    transaction, server = written[0].transaction, written[0].server
    is_reported_committed = any(message.committed for message in written)
    if is_reported_committed and writer.last_committed(transaction, server).transaction >= transaction.number:
        return True
    parts = [part for message in written for part in message.parts]
    rows = sum(message.rows for message in written)
    return writer.commit(transaction, server, parts, rows, token).repeated


def _progress(writer: LogWriter, transaction: Transaction, server: str) -> Progress:
    found = writer.last_committed(transaction, server)
    return Progress.parse(found.transaction, found.token)


def _of_one_transaction(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenRows]:
    """Return the tasks' messages; failed tasks have none. Raises UsageError for messages of several transactions."""
    found = [message for message in messages if isinstance(message, WrittenRows)]
    if len({(message.transaction, message.server) for message in found}) > 1:
        raise UsageError("the tasks of one write staged rows of several transactions", remedy="Write them one by one.")
    return found
