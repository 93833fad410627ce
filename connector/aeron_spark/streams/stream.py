"""One named stream: serves committed rows to readers, and commits each transaction exactly once and as a whole.

A stream has two locks. A thread holds ``_writing`` while it changes recordings, so that only one commit, purge or
recovery runs at a time. ``_state`` guards the ledger, the journal and the stages; a thread may hold it during an fsync
of the journal. A thread may take ``_state`` while it holds ``_writing``, never the reverse. Readers take no lock: they
see the last view.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, RefusedError, StillWorking
from aeron_spark.facts import Bus
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition, closed_stream, ended_stream, write_definition
from aeron_spark.streams.journal import JournaledLedger, StoreOpening
from aeron_spark.streams.ledger import Change, check_number
from aeron_spark.streams.model import (
    AbortedTransaction,
    CommittedTransaction,
    SchemaChanged,
    StreamCut,
    StreamFigures,
    StreamReadOnly,
    StreamRecovery,
    StreamSettings,
    WriterFenced,
    WriteRights,
    figures_of,
)
from aeron_spark.streams.partition import RecordedLogs
from aeron_spark.streams.reader_leases import ReaderLeases
from aeron_spark.streams.reads import ReadableStream
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.retention import AgeClock
from aeron_spark.streams.schema_changes import Evolution, check_fields, evolve
from aeron_spark.streams.space import DeletionHolds, StreamSpace
from aeron_spark.streams.stage_files import StageSpace
from aeron_spark.streams.stages import (
    CommittableRows,
    InlineRows,
    Stage,
    Stages,
    by_partition,
    check_parts,
    check_transaction,
    merge_content,
)
from aeron_spark.wire import stream_requests as rpc
from aeron_spark.wire.stream_requests import PurgedPartition, StreamLease, StreamWriterId
from aeron_spark.wire.tokens import check_token

STAGES: Final = "stages"
ALL_RIGHTS: Final = WriteRights()  # of the server's own program
MARK_INTERVAL_S: Final = 10.0  # between two updates of the archive's mark, each of which calls fsync


class Stream(ReadableStream):
    """A stream with its files in ``folder``; :class:`StreamStore` creates it. Thread-safe.

    ``free_slots`` is called when the archive cannot record more publications at once. It closes publications of another
    stream, and returns whether it closed one. ``leases`` are those of the same stream before it was renamed. Raises
    DataLossError or DataFormatError for a damaged journal.
    """

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        address: ArchiveAddress,
        settings: StreamSettings,
        space: StageSpace,
        opening: StoreOpening,
        holds: DeletionHolds,
        *,
        clock: Callable[[], float],
        wall: Callable[[], int],
        ages: AgeClock,
        free_slots: Callable[[], bool],
        recorded_logs: RecordedLogs,
        facts: Bus,
        leases: ReaderLeases | None,
    ) -> None:
        self._folder = folder
        self._ages = ages
        self._facts = facts
        self._holds = holds
        self._options: Final = settings.options
        self._writing_timeout_s = settings.writing_timeout_s
        self._publication_idle_s = settings.publication_idle_s
        self._clock = clock  # seconds, monotonic
        self._wall = wall  # ns since 1970
        self._writing = threading.Lock()
        self._state = threading.Lock()
        self._recovery_loss: DataLossError | None = None  # found by the recovery; it makes the stream read-only
        self._is_shut = False  # whether the files are closed
        self._commit_loss: DataLossError | None = None  # found by the last commit
        self._reported_failure = ""  # text of a failure of the journal
        self._mark_updated_at = clock()
        mark = ArchiveMark(address.archive_dir, definition, folder)
        self._journal = journal = JournaledLedger(folder, definition.partitions, opening, mark)
        self._ledger = journal.ledger
        try:
            self._recordings = Recordings(
                definition, address, settings, journal.ledger.recordings, self._facts, clock=clock,
                free_slots=free_slots, recorded_logs=recorded_logs,
            )  # fmt: skip
            self._stages = Stages(
                folder / STAGES,
                space,
                now=clock(),
                expiry_s=settings.stage_expiry_s,
                max_value_bytes=definition.max_message_bytes,
                sync=settings.sync_stages,
            )
        except BaseException:
            journal.close()
            raise
        super().__init__(definition, address, settings, self._recordings.view(journal.ledger))
        self.space = StreamSpace(
            definition, journal, self._recordings, self._facts, holds, self._state, self._renew_view, clock=clock,
            ages=self._ages, leases=leases,
        )  # fmt: skip

    @property
    def problem(self) -> AeronSparkError | None:
        """The error that makes the stream read-only, or None."""
        return self._recovery_loss or self._commit_loss or self._journal.failure

    # For readers; ReadableStream has more methods for them

    def position_at(self, time_ns: int) -> list[int]:
        """Return, by partition, the start of the first transaction committed at or after ``time_ns``, or its end.

        ``time_ns`` is ns since 1970 by this server's clock. Only the time index in the ledger is searched.
        """
        self._refuse_closed()
        with self._state:
            found = self._ledger.position_at(time_ns)
            return [max(position, start) for position, start in zip(found, self._ledger.starts, strict=True)]

    def lags_ns(self, positions: Mapping[int, int]) -> dict[int, int]:
        """Return, by partition, how long ago the first byte from a reader's position on was committed, in ns.

        0 without such a byte. By this server's clock. Only the time index in the ledger is searched. Raises OptionError
        for an unknown partition.
        """
        self._refuse_closed()
        for partition in positions:
            self.check_partition(partition)
        now_ns = self._wall()
        with self._state:
            times = {partition: self._ledger.committed_at(partition, at) for partition, at in positions.items()}
        return {partition: 0 if at is None else max(0, now_ns - at) for partition, at in times.items()}

    def lease(self, reader: str, positions: Mapping[int, int], seconds: float, owner: str = "") -> None:
        """Lease the bytes from ``positions`` (by partition) on to ``reader`` for ``seconds``; replace its former lease.

        Without positions, or with 0 seconds, its lease ends. ``owner`` identifies the client's key, "" this program.
        Raises RefusedError if too many readers have leases, OptionError for invalid ``seconds``.
        """
        with self._state:
            self._refuse_closed()
            self.space.lease(reader, positions, seconds, owner)

    def end_leases(self, owner: str) -> None:
        """End all leases of a client's key."""
        with self._state:
            self.space.end_leases(owner)

    def live_leases(self) -> list[StreamLease]:
        """Return the leases that have not expired, by owner and reader id."""
        with self._state:
            self._refuse_closed()
            return self.space.leases.listed(self._clock())

    def release_lease(self, reader: str) -> None:
        """End the leases of a reader id. Raises OptionError for a reader without a lease."""
        with self._state:
            self._refuse_closed()
            self.space.leases.release(reader, self._clock())

    # For writers

    def claim_writer(self, writer: str, owner: str, *, is_granted: bool = False) -> None:
        """Give a writer id that has no owner to a client's key.

        Raises RefusedError if it belongs to another key, unless it ``is_granted`` to this one by name.
        """
        with self._state:
            record = self._ledger.owners.prepare(writer, owner, max(self._wall(), 0), is_granted=is_granted)
            if record is not None:
                self._refuse_unwritable()
                self._journal.write(record)

    def last_committed(self, writer: str, producer: str = "") -> rpc.LastCommitted:
        """Return the last committed transaction of the writer, or of one of its producers, with that one's token."""
        with self._state:
            self._refuse_closed()
            return rpc.LastCommitted(
                self._ledger.last_transaction(writer, producer), self._ledger.token(writer, producer)
            )

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the writer's first transaction up to ``acknowledged`` that this stream lacks, or None.

        See ``Stream.begin`` for the arguments.
        """
        with self._state:
            self._refuse_closed()
            return self._ledger.first_lost(writer, acknowledged, stamp)

    def begin(self, transaction: rpc.Transaction) -> rpc.Begun:
        """Begin a transaction. A new run of its writer fences the run before it.

        Returns the writer's last committed transaction, or -1, with its stamp and its token.

        Raises RefusedError if a later run has fenced the transaction's run, or the one that it replaces; if the writer
        is not known any more; if the transaction belongs to another producer; and, without a change, with the reason
        "diverged" if the stream lacks an acknowledged transaction, and with the reason "ended" if it takes no more
        rows. Raises DataLossError if the stream is read-only.
        """
        with self._state:
            self._refuse_unwritable()
            self._begin(transaction)
            return self._ledger.begun(transaction.writer)

    def open_stage(self, request: rpc.OpenStage, rights: WriteRights = ALL_RIGHTS) -> Stage:
        """Open a stage for the rows of one task and partition; begins the transaction as :meth:`begin` does.

        Raises AlreadyCommitted; RefusedError as :meth:`begin`, if the space for stages is full, or with the reason
        "schema" for columns that the schema policy refuses; DataFormatError for another content than the stream's, or a
        schema that does not merge with the stream's.
        """
        transaction, schema = request.transaction, request.schema or None
        partition = self.partition_of(request)
        evolution = Evolution.of(request.evolve_schema, rights.may_evolve)
        self.check_partition(partition)
        check_number(transaction)
        check_fields(self._ledger.schema, schema, self._options().max_columns)
        with self._state:
            self._refuse_unwritable()
            self._begin(transaction)
            self._ledger.check_open(transaction)
            self._ledger.check_content(request.content, schema)
            if schema is not None:
                merged = evolve(self._ledger.schema, schema, self.definition.schema_policy, evolution)
                check_fields(self._ledger.schema, merged, self._options().max_columns)
            return self._stages.open(
                request, partition, now=self._clock(), evolves=evolution is Evolution.PERMITTED,
                share=self._stages.space.share(rights.owner, rights.stage_bytes),
            )  # fmt: skip

    def partition_of(self, part: rpc.OpenStage | rpc.InlinePart) -> int:
        """Return the partition of a task's rows: the one that the request names, else one by the task's number."""
        return part.task % self.definition.partitions if part.partition is None else part.partition

    def stage(self, stage_id: str) -> Stage:
        """Return a stage by its id. Raises RefusedError for an unknown or expired one."""
        self._refuse_closed()
        return self._stages.get(stage_id)

    def commit(self, request: rpc.CommitTransaction, rights: WriteRights = ALL_RIGHTS) -> rpc.Committed:
        """Make the rows of these parts visible, all at once. Do nothing for a transaction that is committed already.

        A part is a finished stage, or rows of the request itself, which reserve space for stages until the end of the
        call. With such rows the call begins the transaction first, as :meth:`open_stage` does: it is refused also for a
        committed transaction if a later run has fenced this one.

        Within a partition, the rows are in the order of the tasks. Other stages of the writer for this or an earlier
        transaction are removed. After an error no row of the transaction is visible; the caller may repeat the commit,
        unless it was refused. The request has the longest wait for another commit.

        Raises UsageError for a token of more than 1,024 bytes of UTF-8. Raises RefusedError without stages, if the
        stages have another number of rows, if one was removed, if the run is fenced, if the transaction belongs to
        another producer, if the stream has ended, or if the schema policy refuses the columns. Raises DataFormatError
        for a damaged stage or a schema that does not merge; TransportError or WaitTimeout if the archive or the disk
        failed; StillWorking after the longest wait; DataLossError if the stream is read-only.
        """
        parts = [
            part if isinstance(part, rpc.StagedPart) else InlineRows.of(request, part, self.partition_of(part))
            for part in request.parts
        ]
        inline = [part for part in parts if isinstance(part, InlineRows)]
        for part in inline:  # before the wait for other commits, which must not wait for these checks
            self.check_partition(part.description.partition)
            check_fields(self._ledger.schema, part.description.schema, self._options().max_columns)
            part.check(self.definition.max_message_bytes)
        share = self._stages.space.share(rights.owner, rights.stage_bytes)
        with share.reserved(sum(part.bytes for part in inline)):
            return self._commit_unless_repeated(request, parts, rights.may_evolve)

    def commit_empty(self, request: rpc.CommitEmptyTransaction) -> rpc.Committed:
        """Commit a transaction without rows; see :meth:`commit`."""
        return self._commit_unless_repeated(request, ())

    def _commit_unless_repeated(
        self, request: rpc.CommitTransaction | rpc.CommitEmptyTransaction,
        parts: Sequence[rpc.StagedPart | InlineRows], may_evolve: bool = True,
    ) -> rpc.Committed:  # fmt: skip
        transaction = request.transaction
        check_number(transaction)
        check_token(transaction.writer, transaction.number, request.token)
        with self._lock_writing(request.seconds):
            with self._state:
                self._refuse_unwritable()
                if any(isinstance(part, InlineRows) for part in parts):
                    self._begin(transaction)
                is_repeated = self._ledger.is_committed(transaction)
                if not is_repeated:
                    self._refuse_ended(transaction)
                    self._ledger.check_open(transaction)
            if not is_repeated:
                begun = self._clock()
                if isinstance(request, rpc.CommitTransaction):
                    check_parts(request)
                self._commit(transaction, self._rows_of(transaction, parts), request.token, begun, may_evolve)
            for stage in self._stages.of(transaction.writer):
                if stage.description.transaction <= transaction.number:
                    stage.release()
            with self._state:
                ends = tuple(state.end for state in self._view.states)
                return rpc.Committed(is_repeated, ends, self._ledger.stamp(transaction.writer))

    def publish_ahead(self, stage: Stage, published: int = 0) -> int:
        """Publish more of a growing stage than its first ``published`` bytes; return the number of published bytes.

        Readers do not see them. A commit of other rows to the partition truncates the recording before them. Returns -1
        if another thread changes recordings now, or if the partition has other stages. Raises the errors of
        :meth:`commit`.
        """
        if not self._writing.acquire(blocking=False):
            return -1
        try:
            self._refuse_unwritable()
            if not self._stages.is_only_stage(stage):
                return -1
            return self._recordings.publish_ahead(stage, published, self._ledger.ends[stage.description.partition])
        finally:
            self._writing.release()

    def abort(self, transaction: rpc.Transaction) -> None:
        """Remove the stages of this run for the transaction. A committed transaction stays."""
        with self._lock_writing():
            self._refuse_closed()
            for stage in self._stages.of(transaction.writer, transaction.number):
                if stage.description.run == transaction.run:
                    stage.discard()
        self._facts.emit(AbortedTransaction(self.definition.name))

    # For the operator and the server

    def writers(self) -> list[StreamWriterId]:
        """Return the writer ids that have a run or an owner, by name."""
        with self._state:
            self._refuse_closed()
            return self._ledger.owners.known_writers(self._ledger.writers)

    def release_writer(self, writer: str) -> None:
        """Forget the owner of a writer id, if it has one. Raises OptionError for an unknown id."""
        with self._state:
            self._refuse_unwritable()
            record = self._ledger.owners.prepare_release(writer, self._ledger.writers)
            if record is not None:
                self._journal.write(record)

    def purge(
        self, *, partition: int | None = None, before_position: int | None = None, before_time_ns: int | None = None,
        seconds: float | None = None,
    ) -> list[PurgedPartition]:  # fmt: skip
        """Make the transactions of one or all partitions before a position or a commit time unreadable.

        The transaction with the position stays. Transactions that a reader has leased go when the lease ends. Returns
        for each partition what was freed now, and what is not. ``seconds`` is the longest wait for a commit. Raises
        StillWorking after it.
        """
        self.check_partition(partition or 0)
        with self._lock_writing(seconds):
            self._refuse_unwritable()
            return self.space.purge(partition, before_position, before_time_ns)

    def redefine(self, change: Callable[[Definition], Definition], seconds: float | None = None) -> Definition:
        """Replace the definition by ``change`` of it, in the file and here; return it. Ends waits if the stream ended.

        ``seconds`` is the longest wait for a commit. Raises StillWorking after it, TransportError if the disk fails;
        the definition is unchanged then.
        """
        with self._lock_writing(seconds), self._state:
            self._refuse_closed()
            changed = change(self.definition)
            write_definition(self._folder, changed)
            self.definition = self.space.definition = changed
        if changed.is_ended:
            self._end_waits()
        return changed

    def retention_starts(self, definition: Definition) -> list[int]:
        """Return the first position of each partition that the retention of ``definition`` would keep now."""
        with self._state:
            self._refuse_closed()
            return self.space.retention_starts(definition)

    def recover(self, recordings: Mapping[int, Recording] | None = None) -> None:
        """Truncate each recording at its committed end. ``recordings`` are the archive's by id, if they were listed.

        A recording that is missing or too short makes the stream read-only.
        """
        begun = self._clock()
        with self._lock_writing():
            recovered = self._recordings.recover(recordings, self._ledger.starts, self._ledger.ends)
            self._recovery_loss = recovered.loss
            self._renew_view()
        self._facts.emit(
            StreamRecovery(
                self.definition.name, self.definition.partitions, self._journal.torn_bytes, recovered.truncated,
                recovered.loss, self._clock() - begun, self._ledger.restored_from_ns,
            )
        )  # fmt: skip

    def figures(self) -> StreamFigures:
        """Return the sizes of the stream and the lag of its readers, for metrics."""
        with self._state:
            leases = self.space.live_leases()
            return figures_of(self._view.states, leases, len(self._stages), self._ledger.committed_at, self._wall())

    def cut(self) -> StreamCut:
        """Return the committed state, for a backup. The caller holds back deletions, so that the files stay."""
        with self._state:
            self._refuse_closed()
            return self._journal.cut(self.definition, self._recordings.view(self._ledger))

    def release_slots(self) -> bool:
        """Close this stream's publications, which frees recording slots of the archive; return whether any was open.

        Does nothing while another thread changes recordings.
        """
        if not self._writing.acquire(blocking=False):
            return False
        try:
            return self._recordings.release_slots()
        finally:
            self._writing.release()

    def tick(self, lease_delay_s: float) -> list[AeronSparkError]:
        """Do the housekeeping, and return the errors. Leases delay the retention by ``lease_delay_s`` at most."""
        if not self._writing.acquire(blocking=False):
            return []  # a commit, purge or recovery is under way
        try:
            if self._closed:
                return []
            self._report_failure()
            self._recordings.close_idle(self._publication_idle_s)
            self._recordings.truncate_abandoned(self._stages, self._ledger.ends)
            with self._state:
                self._stages.expire(self._clock())
                if self._clock() - self._mark_updated_at >= MARK_INTERVAL_S:
                    self._mark_updated_at = self._clock()
                    self._journal.update_mark()
            if self._recovery_loss is None:
                self.space.apply_retention(lease_delay_s)
                with self._state:
                    if not self._holds.holder:  # a backup copies the journal's file
                        self._journal.compact(self._ages.now_ns(), self.space.limits.max_joined_bytes)
        except AeronSparkError as error:
            return [error]
        finally:
            self._writing.release()
        return []

    def refuse_calls(self, error: AeronSparkError) -> None:
        """Refuse every call from now on, with ``error``; a commit that runs goes on. ``close`` is to follow."""
        self._mark_closed(error)

    def close(self, error: AeronSparkError | None = None, seconds: float | None = None) -> None:
        """Close the publications and files. Committed and staged rows stay on the disk. Later calls raise ``error``.

        ``seconds`` is the longest wait for a commit. Raises StillWorking after it; the stream stays open then.
        """
        with self._lock_writing(seconds):
            with self._state:
                if self._is_shut:
                    return
                self._is_shut = True
                self._mark_closed(error or self._closed or closed_stream(self.definition.name))
                self._stages.close()
                self._journal.close()
            self._recordings.close_idle(0.0)

    # Steps of the methods above

    def _renew_view(self) -> None:
        self._replace_view(self._recordings.view(self._ledger))

    def _refuse_unwritable(self) -> None:
        self._refuse_closed()
        if self._recovery_loss is not None:
            raise self._recovery_loss
        self._journal.check_writable()

    def _report_failure(self) -> None:
        """Report once that the journal takes no more records."""
        failure = self._journal.failure
        if failure is not None and str(failure) != self._reported_failure:
            self._facts.emit(StreamReadOnly(self.definition.name, failure))
        self._reported_failure = "" if failure is None else str(failure)

    def _commit(
        self, transaction: rpc.Transaction, named: list[CommittableRows], token: str, begun: float, may_evolve: bool
    ) -> None:
        with_rows = [stage for stage in named if stage.rows]
        with self._state:
            content, schema = merge_content(
                self._ledger, with_rows, self.definition.schema_policy, may_evolve=may_evolve
            )
            check_fields(self._ledger.schema, schema, self._options().max_columns)
            changes_schema = schema != self._ledger.schema
            ends_before = list(self._ledger.ends)
        stages = by_partition(with_rows)
        publishing_at = self._clock()
        try:
            ends = self._recordings.publish(stages, self._ledger.ends)
        except DataLossError as error:
            if self._commit_loss is None:
                self._facts.emit(StreamReadOnly(self.definition.name, error))
            self._commit_loss = error
            raise
        self._commit_loss = None
        recorded_at = self._clock()
        try:
            with self._state:
                # Another run may have fenced this one while its rows were published.
                rows = {index: sum(stage.rows for stage in of_partition) for index, of_partition in stages.items()}
                change = Change(ends, rows, content, schema, token)
                self._journal.write(self._ledger.prepare_commit(transaction, change, self._wall()))
                self._renew_view()
        except BaseException:
            self._recordings.mark_uncommitted(stages)
            raise
        record_s = self._recordings.awaited_s
        self._facts.emit(
            CommittedTransaction(
                self.definition.name, transaction.writer, transaction.number, sum(stage.rows for stage in named),
                sum(end - ends_before[index] for index, end in ends.items()),
                stage_s=publishing_at - begun, publish_s=recorded_at - publishing_at - record_s, record_s=record_s,
                journal_s=self._clock() - recorded_at,
            )
        )  # fmt: skip
        if changes_schema:
            self._facts.emit(SchemaChanged(self.definition.name, transaction.writer))

    def _rows_of(
        self, transaction: rpc.Transaction, parts: Sequence[rpc.StagedPart | InlineRows]
    ) -> list[CommittableRows]:  # fmt: skip
        found: list[CommittableRows] = [
            part if isinstance(part, InlineRows) else self._take_stage(part) for part in parts
        ]
        check_transaction(found, transaction)
        return found

    def _take_stage(self, ref: rpc.StagedPart) -> Stage:
        """Return the stage that a commit names. Raises RefusedError if it was removed or has changed."""
        try:
            return self._stages.take(ref, self._clock())
        except DataFormatError as error:
            raise RefusedError(error.what, remedy=error.remedy, reason=error.reason) from error

    def _begin(self, transaction: rpc.Transaction) -> None:
        """Begin a transaction; see :meth:`begin`. The caller holds ``_state``."""
        self._refuse_ended(transaction)
        self._ledger.check_acknowledged(transaction)
        started = self._ledger.prepare_run(transaction, self._wall())
        if started is not None:
            fences = self._ledger.has_writer(transaction.writer)
            if transaction.replaced:
                self._journal.write_run(started)
            else:
                self._journal.write(started)
            if fences:
                self._facts.emit(WriterFenced(self.definition.name, transaction.writer))

    @contextmanager
    def _lock_writing(self, seconds: float | None = None) -> Iterator[None]:
        timeout_s = self._writing_timeout_s if seconds is None else max(0.0, min(seconds, self._writing_timeout_s))
        if not self._writing.acquire(timeout=timeout_s):
            raise StillWorking(
                f"waited {timeout_s:g} s for another commit of stream {self.definition.name!r} to end",
                remedy="Repeat the request.",
            )
        try:
            yield
        finally:
            self._writing.release()

    def _refuse_ended(self, transaction: rpc.Transaction) -> None:
        """Raise RefusedError if the stream has ended, unless the transaction is committed."""
        if not self.definition.is_ended:
            return
        if transaction.number == rpc.NEXT_NUMBER or not self._ledger.is_committed(transaction):
            raise ended_stream(self.definition)
