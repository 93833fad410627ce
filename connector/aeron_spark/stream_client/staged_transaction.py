"""The rows of one transaction of a program: in stages of several partitions, or, if they are few, in the request."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass

import pyarrow as pa

from aeron_spark.errors import AeronSparkError, RefusedError, SessionLost, TransportError, UsageError
from aeron_spark.log.writing import Source
from aeron_spark.stream_client.inline_rows import InlineRequest, InlineRoom
from aeron_spark.stream_client.known_stream import KnownStream, check_partition
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.staging import STAGE_AGAIN, AppenderState, ServerAppender, staging_error
from aeron_spark.stream_client.transactions import abort, begin, commit, commit_empty
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch
from aeron_spark.waiting import Deadline
from aeron_spark.wire.stream_rpc import CommitPart, Transaction


@dataclass(frozen=True, slots=True)
class _OpenAppender:
    """The appender that takes a partition's next rows, and the rows that it can take."""

    appender: ServerAppender
    payload: str
    schema: pa.Schema | None


class StagedTransaction:
    """Stages the batches of one transaction, in stages of several partitions, and commits them.

    Within a partition, rows keep the order in which they were appended. ``deadline`` bounds every wait; the caller
    extends it before each operation. If ``error`` is set, rows are lost, and a new object must stage all rows again.

    If the server knows the transaction's run (``has_begun``), it opens no stages for a few rows of a schema that the
    stream has: the commit request carries them. Then an error of these rows comes with the commit.
    """

    def __init__(
        self, session: StreamSession, known: KnownStream, transaction: Transaction, deadline: Deadline, *,
        has_begun: bool, evolve_schema: bool = False,
    ) -> None:  # fmt: skip
        self.transaction = transaction
        self._evolve_schema = evolve_schema
        self.rows = 0  # appended so far
        self.error: AeronSparkError | None = None
        self.stamp = ""  # of the transaction, when commit() has returned
        self._session = session
        self._known = known
        self._stream = known.name
        self._room = InlineRoom() if has_begun else None
        self._deadline = deadline
        self._appenders: list[ServerAppender] = []
        self._open: dict[int, _OpenAppender] = {}  # by partition
        self._written: list[tuple[str, pa.Schema | None]] = []  # payload and schema of each appender

    @property
    def committed(self) -> bool:
        """Whether the server had committed the transaction before the first stage was opened; then rows are dropped."""
        return any(appender.committed for appender in self._appenders)

    def append(self, batch: WriteBatch) -> None:
        """Stage all rows of a batch. After an error, either none of them is staged or ``error`` is set."""
        self._refuse_broken()
        found = self._known.describe(self._deadline.remaining())
        partitions = len(found.partitions)
        partition = self._default_partition(partitions) if batch.partition is None else batch.partition
        check_partition(self._stream, partition, partitions)
        bytes_payload = "raw" if found.content == "raw" else "framed"
        payload = bytes_payload if batch.payload == BYTES else batch.payload
        appender = self._appender(
            partition, payload, batch.rows.schema if payload == "arrow" else None, found.max_message_bytes
        )
        rows_before = appender.rows
        try:
            appender.append(batch.rows)
            self.rows += batch.rows.num_rows
        except BaseException as error:
            if appender.state is AppenderState.FAILED or appender.rows != rows_before:
                self.fail(error)
            raise

    def finish(self) -> list[CommitPart]:
        """Wait until the server has all staged rows; return the parts of the commit. Can be repeated after an error.

        Raises TransportError, and sets ``error``, if the parts have another number of rows than was appended.
        """
        self._refuse_broken()
        try:
            parts = [part for appender in self._appenders for part in appender.finish()]
            staged_rows = sum(part.rows for part in parts)
            if staged_rows != self.rows and not self.committed:
                raise TransportError(
                    f"{staged_rows} of {self.rows} rows of transaction {self.transaction.number} are staged",
                    remedy=STAGE_AGAIN,
                )
        except BaseException as error:
            has_failed = any(appender.state is AppenderState.FAILED for appender in self._appenders)
            if has_failed or isinstance(error, TransportError):
                self.fail(error)
            raise
        return parts

    def commit(self, token: str = "") -> bool:
        """Make all rows visible; return whether an earlier request did. Can be repeated after an error.

        The server keeps ``token`` with the transaction, which can be without rows.
        """
        parts = self.finish()
        try:
            if self.rows:
                result = commit(
                    self._session, self._stream, self.transaction, parts, self.rows, self._deadline, token,
                    evolve_schema=self._evolve_schema,
                )  # fmt: skip
            else:  # no stage was opened, which begins the transaction, too, and says if the writer id is used once
                begin(self._session, self._stream, self.transaction, timeout_s=self._deadline.remaining())
                result = commit_empty(self._session, self._stream, self.transaction, self._deadline, token)
        except SessionLost:
            raise
        except RefusedError as error:  # for example, a stage has expired
            self.fail(error)
            raise
        self.stamp = result.stamp
        for payload, schema in self._written:
            self._known.note_committed(payload, schema)
        return result.repeated

    def fail(self, error: BaseException) -> AeronSparkError:
        """Record that the stages do not have the rows of the transaction; return the first error that was recorded."""
        if self.error is None:
            self.error = staging_error(error)
            self._known.forget()
        return self.error

    def discard(self) -> None:
        """Give up the stages. The server discards them when the transaction is aborted, or when they expire."""
        self.fail(UsageError("the staged rows were discarded", remedy=STAGE_AGAIN))
        for appender in self._appenders:
            appender.discard()

    def abort(self, timeout_s: float) -> bool:
        """Discard the staged rows; return whether the server confirmed it in time.

        A server that does not respond discards them later.
        """
        self.discard()
        try:
            abort(self._session, self._stream, self.transaction, timeout_s=timeout_s)
        except AeronSparkError:
            return False
        return True

    def _appender(
        self, partition: int, payload: str, schema: pa.Schema | None, max_message_bytes: int
    ) -> ServerAppender:  # fmt: skip
        """Return the appender of a partition. A stage has one schema: for another schema, the next stage begins."""
        found = self._open.get(partition)
        if found is not None:
            matches = found.payload == payload and found.schema == schema
            if matches and found.appender.state is AppenderState.OPEN:
                return found.appender
            try:
                found.appender.finish()
            except BaseException as error:
                if found.appender.state is AppenderState.FAILED:
                    self.fail(error)
                raise
        transaction, task = self.transaction, len(self._appenders)
        inline = None
        if self._room is not None and self._known.takes(payload, schema):
            inline = InlineRequest(self._room, max_message_bytes)
        appender = ServerAppender(
            self._session, self._stream, transaction, task=task, partition=partition,
            source=Source(transaction.writer, transaction.number, task), payload=payload, deadline=self._deadline,
            evolve_schema=self._evolve_schema, inline=inline,
        )  # fmt: skip
        self._appenders.append(appender)
        self._written.append((payload, schema))
        self._open[partition] = _OpenAppender(appender, payload, schema)
        return appender

    def _refuse_broken(self) -> None:
        if self.error is not None:
            raise copy.copy(self.error)

    def _default_partition(self, partitions: int) -> int:
        """The partition of rows that name none: a writer's transactions take turns, each writer begins at its hash."""
        return (zlib.crc32(self.transaction.writer.encode()) + self.transaction.number) % partitions
