"""Writing through a server: tasks stage their rows, and one commit makes all of them visible, once.

A micro-batch is one transaction: its writer is the query (or ``writerId``), its run the query's, its number the
batch's. A server that has it already says so, whoever asks again; a later run of the query fences off the earlier.
Where the stream lives on several servers a transaction goes to one of them as a whole, so that it is still all or
nothing: micro-batches take turns.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from aeron_spark.errors import AeronSparkError, RefusedError, SetupError, UsageError
from aeron_spark.options import ServerRoute, WriteOptions
from aeron_spark.pool import POOL
from aeron_spark.spark.batch_order import Progress, check_follows, token_of
from aeron_spark.spark.row_values import as_nullable, values_of
from aeron_spark.spark.task_context import (
    BATCH,
    QUERY,
    RUN,
    local_property,
    partition_of_task,
    resolve_key_files,
    source_of,
)

if TYPE_CHECKING:
    from aeron_spark.stream_client.appending import ServerAppender, Transaction
    from aeron_spark.stream_client.session import StreamSession
    from aeron_spark.wire.stream_rpc import StagedPart

ABORT_SECONDS: Final = 5.0  # what is not aborted expires on the server


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task staged, for the commit, which runs in another process: of which transaction, on which server.

    ``committed``: the server said that it has the transaction already, so that it took no rows.
    """

    transaction: Transaction
    server: str
    stages: tuple[StagedPart, ...]
    rows: int
    committed: bool = False


@dataclass(frozen=True)
class StagingTask:
    """What a task needs to stage its rows, wherever it runs, and what commits them. ``save`` names a batch write."""

    options: WriteOptions
    way: ServerRoute
    payload: str
    save: str

    def write(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage all rows, and return once the server has them; nothing of them is visible."""
        transaction = self._transaction()
        server = server_of(transaction, self.way.names)
        partition = partition_of_task() or 0
        appender: ServerAppender | None = None
        with POOL.borrow(self._here(), partition) as hosts:
            try:
                for batch in batches:
                    if batch.num_rows:
                        appender = appender or self._appender(hosts[server], transaction, partition)
                        self._append(appender, batch)
                stages = () if appender is None else tuple(appender.finish())
            except BaseException:
                if appender is not None:
                    appender.discard()
                raise
        if appender is None:
            return StagedRows(transaction, server, (), 0)
        return StagedRows(transaction, server, stages, appender.rows, appender.committed)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make what the tasks staged visible, all at once; what had been committed before stays as it is.

        Raises RefusedError where a later run fenced this one, where another query has used the writer's id, and, with
        the reason "diverged", where the servers do not have the query's micro-batches before this one.
        """
        staged = _staged(messages)
        if not staged:
            return
        transaction, server = staged[0].transaction, staged[0].server
        with POOL.borrow(self._here()) as hosts:
            if transaction.once:
                self._commit(hosts[server], transaction, staged)
                return
            progress = {name: self._progress(session, transaction) for name, session in hosts.items()}
            try:
                already = self._is_committed(transaction, progress)
            except RefusedError:
                self._abort(hosts[server], transaction)
                raise
            if already:
                self._abort(hosts[server], transaction)
                return
            token = token_of(transaction.id, server, transaction.run, progress)
            if self._commit(hosts[server], transaction, staged, token):  # meanwhile, by another process
                self._is_committed(transaction, {server: self._progress(hosts[server], transaction)})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks staged; after a commit, whose answer may have been lost, it does nothing."""
        staged = _staged(messages)
        if not staged:
            return
        with POOL.borrow(self._here()) as hosts:
            self._abort(hosts[staged[0].server], staged[0].transaction)

    def _commit(
        self, session: StreamSession, transaction: Transaction, staged: Sequence[StagedRows], token: str = ""
    ) -> bool:  # fmt: skip
        """Commit what the tasks staged on a server; return whether that had been done before."""
        from aeron_spark.stream_client.appending import commit, commit_empty, enter

        stages = [one for message in staged for one in message.stages]
        rows = sum(message.rows for message in staged)
        if any(message.committed for message in staged) and self._last(session, transaction) >= transaction.id:
            return True
        if rows:
            return commit(session, self.way.stream, transaction, stages, rows, token=token)[0]
        enter(session, self.way.stream, transaction)  # no task has told the server of this run yet
        return commit_empty(session, self.way.stream, transaction, token=token)[0]

    def _abort(self, session: StreamSession, transaction: Transaction) -> None:
        from aeron_spark.stream_client.appending import abort

        with suppress(AeronSparkError):
            abort(session, self.way.stream, transaction, seconds=ABORT_SECONDS)

    def _here(self) -> ServerRoute:
        way = resolve_key_files(self.way)
        assert isinstance(way, ServerRoute)
        return way

    def _transaction(self) -> Transaction:
        from aeron_spark.stream_client.appending import Transaction

        named = self.options.writer_id
        if not self.options.streaming:
            writer = f"{named}/{self.save}" if named else f"batch-{self.save}"
            return Transaction(writer, self.save, 0, once=True)
        query, run, batch = local_property(QUERY), local_property(RUN), local_property(BATCH)
        if query is None or run is None or batch is None:
            raise SetupError(
                "Spark does not say of which query, run and micro-batch this task is, so that its rows could be "
                "written twice",
                remedy="Write with a streaming query of Spark 4.2 or newer.",
            )
        return Transaction(named or query, run, int(batch), author=query)

    def _appender(self, session: StreamSession, transaction: Transaction, partition: int) -> ServerAppender:
        from aeron_spark.stream_client.appending import ServerAppender

        return ServerAppender(
            session,
            self.way.stream,
            transaction,
            task=partition,
            source=source_of(self.options, f"batch-{self.save}"),
            payload=self.payload,
            max_message_bytes=self.options.max_message_bytes,
        )

    def _append(self, appender: ServerAppender, batch: pa.RecordBatch) -> None:
        if self.payload == "arrow":
            appender.arrow(as_nullable(batch))
        elif self.payload == "framed":
            appender.framed(*values_of(batch))
        else:
            appender.raw(*values_of(batch))

    def _is_committed(self, transaction: Transaction, progress: Mapping[str, Progress]) -> bool:
        """Whether a server has the micro-batch, whichever takes it now; which one does changes with option ``server``.

        Raises RefusedError where the query is committed further than this, so that its rows would be dropped, and where
        the micro-batches before this one are not there.
        """
        last = max(one.last for one in progress.values())
        if last > transaction.id:
            raise RefusedError(
                f"micro-batch {transaction.id} of writer {transaction.writer!r} was not written to {self.way.label}: "
                f"micro-batch {last} of that query is committed, so that this is an older copy of its checkpoint",
                remedy="Go on from the checkpoint there was, or begin with a new one and a writerId of its own.",
            )
        if last == transaction.id:
            return True
        check_follows(
            transaction.id, transaction.run, progress, query=transaction.by, stream=self.way.label,
            accept_gap=self.options.accept_gap,
        )  # fmt: skip
        return False

    def _progress(self, session: StreamSession, transaction: Transaction) -> Progress:
        from aeron_spark.stream_client.appending import last_with_token

        return Progress.parse(*last_with_token(session, self.way.stream, transaction))

    def _last(self, session: StreamSession, transaction: Transaction) -> int:
        from aeron_spark.stream_client.appending import last_of

        return last_of(session, self.way.stream, transaction)


def server_of(transaction: Transaction, names: Sequence[str]) -> str:
    """Return the server that takes the whole of a transaction: micro-batches take turns, batch writes are spread."""
    turn = zlib.crc32(transaction.writer.encode()) if transaction.once else transaction.id
    return names[turn % len(names)]


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedRows]:
    """What the tasks said; those that failed said nothing. Raises UsageError where it is of several transactions."""
    found = [message for message in messages if isinstance(message, StagedRows)]
    if len({(message.transaction, message.server) for message in found}) > 1:
        raise UsageError("the tasks of one write staged rows of several transactions", remedy="Write them one by one.")
    return found
