"""One named stream: serves committed rows to readers, and commits each transaction exactly once and as a whole.

A stream has three locks. A thread holds ``_writing`` while it changes recordings, so that only one commit, purge or
recovery runs at a time. ``_state`` guards the ledger, the journal and the stages; a thread may hold it during an fsync
of the journal. A thread may take ``_state`` while it holds ``_writing``, never the reverse. ``_view_lock`` guards the
replacement of the view and the waits for commits. Readers take no lock: they see the last view.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.boundary import WantedBoundary
from aeron_spark.aeron.boundary_walk import find_boundary
from aeron_spark.aeron.recording import Recording, segment_at
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    DataLossError,
    OptionError,
    RefusedError,
    StillWorking,
    UsageError,
)
from aeron_spark.log.api import Boundary
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition, closed_stream, ended_stream, write_definition
from aeron_spark.streams.journal import JournaledLedger, StoreOpening
from aeron_spark.streams.ledger import Change, check_number
from aeron_spark.streams.model import (
    AbortedTransaction,
    CommittedTransaction,
    PartitionState,
    SchemaChanged,
    StreamCut,
    StreamReadOnly,
    StreamRecovery,
    StreamView,
    WriterFenced,
    WriteRights,
    usage_of,
)
from aeron_spark.streams.reader_leases import ReaderLeases
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.schema_changes import Evolution, check_fields, evolve
from aeron_spark.streams.space import StreamSpace
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
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.waiting import fail, resolve
from aeron_spark.wire.field_bounds import check_token
from aeron_spark.wire.stream_requests import (
    NEXT_NUMBER,
    Begun,
    CommitEmptyTransaction,
    Committed,
    CommitTransaction,
    InlinePart,
    LastCommitted,
    OpenStage,
    PurgedPartition,
    StagedPart,
    StreamLease,
    StreamStage,
    StreamUsage,
    StreamWriterId,
    Transaction,
)

STAGES: Final = "stages"
ALL_RIGHTS: Final = WriteRights()  # of the server's own program
MARK_INTERVAL_S: Final = 10.0  # between two updates of the archive's mark, each of which calls fsync

Block = tuple[int, bytes | memoryview]  # position and bytes


class Stream:
    """A stream with its files in ``folder``; :class:`StreamStore` creates it. Thread-safe.

    ``free_slots`` is called when the archive cannot record more publications at once. It closes publications of another
    stream, and returns whether it closed one. ``leases`` are those of the same stream before it was renamed. Raises
    DataLossError or DataFormatError for a damaged journal.
    """

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        parts: StoreParts,
        opening: StoreOpening,
        free_slots: Callable[[], bool],
        leases: ReaderLeases | None = None,
    ) -> None:
        self.definition = definition
        self._folder = folder
        self._parts: Final = parts
        self._facts = parts.facts
        self._clock = parts.clock
        self._writing = threading.Lock()
        self._state = threading.Lock()
        self._view_lock = threading.Lock()
        self._waits: dict[Future[bool], list[int]] = {}  # for commits, each with the ends to exceed
        self._closed: AeronSparkError | None = None  # raised by every call
        self._recovery_loss: DataLossError | None = None  # found by the recovery; it makes the stream read-only
        self._is_shut = False  # whether the files are closed
        self._commit_loss: DataLossError | None = None  # found by the last commit
        self._reported_failure = ""  # text of a failure of the journal
        self._mark_updated_at = parts.clock()
        mark = ArchiveMark(parts.address.archive_dir, definition, folder)
        self._journal = journal = JournaledLedger(folder, definition.partitions, opening, mark)
        self._ledger = journal.ledger
        try:
            self._recordings = Recordings(definition, journal.ledger.recordings, parts, free_slots)
            self._stages = Stages(
                folder / STAGES,
                parts.stage_space,
                now=parts.clock(),
                expiry_s=parts.settings.stage_expiry_s,
                max_value_bytes=definition.max_message_bytes,
                sync=parts.settings.sync_stages,
            )
        except BaseException:
            journal.close()
            raise
        self._view = self._recordings.view(journal.ledger)
        self.space = StreamSpace(
            lambda: self.definition, journal, self._recordings, parts, self._state, self._renew_view, leases
        )

    @property
    def problem(self) -> AeronSparkError | None:
        """The error that makes the stream read-only, or None."""
        return self._recovery_loss or self._commit_loss or self._journal.failure

    # For readers, which take no lock: they use the last view and the archive's files

    def content(self) -> tuple[str, bytes | None]:
        """Return the content ("raw", "framed", "arrow", or "" before the first rows), and the Arrow schema."""
        view = self._view
        return view.content, view.schema

    def states(self) -> list[PartitionState]:
        """Return all partitions at one moment: each transaction is in all of its partitions, or in none."""
        self._refuse_closed()
        return list(self._view.states)

    def boundary(
        self, partition: int, start: int, limit: int, end: int, max_rows: int | None, *, framed: bool
    ) -> Boundary:
        """Return the position at which a range from ``start`` may end; see :class:`aeron_spark.log.api.Boundaries`.

        Raises DataLossError if ``start`` was purged.
        """
        state = self._state_from(partition, start)
        end = min(end, state.end)
        if start >= end:
            return Boundary(start, 0)
        archive, idle_s = archive_of(self._parts.address), self._parts.settings.timeout_s
        wanted = WantedBoundary(start, min(limit, end), end, max_rows)
        return Boundary(*find_boundary(archive, _recording(state), wanted, framed=framed, idle_timeout=idle_s))

    def blocks(
        self, partition: int, start: int, end: int, max_bytes: int, into: memoryview | None = None
    ) -> Iterator[Block]:
        """Return the committed bytes of ``[start, end)``, as ``(position, bytes)`` of at most ``max_bytes``.

        With ``into``, a memory of ``max_bytes``, each block is read into this memory and is valid until the next one.
        Raises DataLossError if bytes were purged, at the call or while the caller iterates.
        """
        state = self._state_from(partition, start)
        name = f"partition {partition} of stream {self.definition.name!r}"
        folder, end = Path(self._parts.address.archive_dir), min(end, state.end)
        blocks = read_blocks(folder, _recording(state), name, start, end, max(1, max_bytes), into)
        return self._until_closed(blocks)

    def _until_closed(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield these blocks. Raises UsageError when the stream is closed or deleted."""
        for block in blocks:
            self._refuse_closed()
            yield block

    def check_epoch(self, partition: int, epoch: int, position: int) -> None:
        """Raise DataLossError, reason "diverged", if this stream lacks the bytes before a reader's position.

        ``epoch`` is the epoch of the byte before ``position``.
        """
        self._refuse_closed()
        self.check_partition(partition)
        state = self._view.states[partition]
        if not state.epochs.has(epoch, position, state.end):
            raise DataLossError(
                f"partition {partition} of stream {self.definition.name!r} diverged: the reader is at {position}, and "
                "the store was restored from a copy without the bytes before this position",
                remedy="Start the reader or the query again: its error names the position at which it can continue.",
                reason=DIVERGED,
            )

    def when_beyond(self, ends: list[int]) -> Future[bool]:
        """Return a future that becomes True when a partition's committed end is after its position in ``ends``.

        It becomes False when the stream is ended, and raises the reason when it is closed, deleted or renamed. The
        caller may cancel it, or set its result, to end the wait. Its callbacks run in the thread that commits, ends or
        closes, some of them under the stream's locks: they must not wait.
        """
        if len(ends) != self.definition.partitions:
            raise UsageError(
                f"{len(ends)} positions for stream {self.definition.name!r}, expected {self.definition.partitions}",
                remedy="Give one position for each partition.",
            )
        wait: Future[bool] = Future()
        with self._view_lock:  # without it, a commit between the check and the registration would not end the wait
            self._refuse_closed()
            is_beyond = self._view.is_beyond(ends)
            if not is_beyond:
                self._waits[wait] = ends
        if is_beyond:
            wait.set_result(True)
        else:
            wait.add_done_callback(self._forget_wait)
        return wait

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
        now_ns = self._parts.wall()
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
            self.space.leases.renew(reader, positions, seconds, self._clock(), owner)

    def end_leases(self, owner: str) -> None:
        """End all leases of a client's key."""
        with self._state:
            self.space.leases.end_of_owner(owner)

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

    def open_stages(self) -> list[StreamStage]:
        """Return the stages of transactions that are not committed, by id."""
        with self._state:
            self._refuse_closed()
            return self._stages.listed(self._clock())

    def claim_writer(self, writer: str, owner: str, *, is_granted: bool = False) -> None:
        """Give a writer id that has no owner to a client's key.

        Raises RefusedError if it belongs to another key, unless it ``is_granted`` to this one by name.
        """
        with self._state:
            record = self._ledger.owners.prepare(writer, owner, max(self._parts.wall(), 0), is_granted=is_granted)
            if record is not None:
                self._refuse_unwritable()
                self._journal.write(record)

    def last_committed(self, writer: str, producer: str = "") -> LastCommitted:
        """Return the last committed transaction of the writer, or of one of its producers, with that one's token."""
        with self._state:
            self._refuse_closed()
            return LastCommitted(self._ledger.last_transaction(writer, producer), self._ledger.token(writer, producer))

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the writer's first transaction up to ``acknowledged`` that this stream lacks, or None.

        See ``Stream.begin`` for the arguments.
        """
        with self._state:
            self._refuse_closed()
            return self._ledger.first_lost(writer, acknowledged, stamp)

    def begin(self, transaction: Transaction) -> Begun:
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

    def open_stage(self, request: OpenStage, rights: WriteRights = ALL_RIGHTS) -> Stage:
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
        check_fields(self._ledger.schema, schema, self._parts.settings.options().max_columns)
        with self._state:
            self._refuse_unwritable()
            self._begin(transaction)
            self._ledger.check_open(transaction)
            self._ledger.check_content(request.content, schema)
            if schema is not None:
                merged = evolve(self._ledger.schema, schema, self.definition.schema_policy, evolution)
                check_fields(self._ledger.schema, merged, self._parts.settings.options().max_columns)
            share = self._stages.space.share(rights.owner, rights.stage_bytes)
            evolves = evolution is Evolution.PERMITTED
            return self._stages.open(request, partition, now=self._clock(), evolves=evolves, share=share)

    def partition_of(self, part: OpenStage | InlinePart) -> int:
        """Return the partition of a task's rows: the one that the request names, else one by the task's number."""
        return part.task % self.definition.partitions if part.partition is None else part.partition

    def stage(self, stage_id: str) -> Stage:
        """Return a stage by its id. Raises RefusedError for an unknown or expired one."""
        self._refuse_closed()
        return self._stages.get(stage_id)

    def commit(self, request: CommitTransaction, rights: WriteRights = ALL_RIGHTS) -> Committed:
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
            part if isinstance(part, StagedPart) else InlineRows.of(request, part, self.partition_of(part))
            for part in request.parts
        ]
        inline = [part for part in parts if isinstance(part, InlineRows)]
        for part in inline:  # before the wait for other commits, which must not wait for these checks
            self.check_partition(part.description.partition)
            check_fields(self._ledger.schema, part.description.schema, self._parts.settings.options().max_columns)
            part.check(self.definition.max_message_bytes)
        share = self._stages.space.share(rights.owner, rights.stage_bytes)
        with share.reserved(sum(part.bytes for part in inline)):
            return self._commit_unless_repeated(request, parts, rights.may_evolve)

    def commit_empty(self, request: CommitEmptyTransaction) -> Committed:
        """Commit a transaction without rows; see :meth:`commit`."""
        return self._commit_unless_repeated(request, ())

    def _commit_unless_repeated(
        self,
        request: CommitTransaction | CommitEmptyTransaction,
        parts: Sequence[StagedPart | InlineRows],
        may_evolve: bool = True,
    ) -> Committed:
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
                if isinstance(request, CommitTransaction):
                    check_parts(request)
                self._commit(transaction, self._rows_of(transaction, parts), request.token, begun, may_evolve)
            for stage in self._stages.of(transaction.writer):
                if stage.description.transaction <= transaction.number:
                    stage.release()
            with self._state:
                ends = tuple(state.end for state in self._view.states)
                return Committed(is_repeated, ends, self._ledger.stamp(transaction.writer))

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

    def abort(self, transaction: Transaction) -> None:
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
        self,
        *,
        partition: int | None = None,
        before_position: int | None = None,
        before_time_ns: int | None = None,
        seconds: float | None = None,
    ) -> list[PurgedPartition]:
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
            self.definition = changed
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
        fact = StreamRecovery(
            self.definition.name,
            self.definition.partitions,
            self._journal.torn_bytes,
            recovered.truncated,
            recovered.loss,
            self._clock() - begun,
            self._ledger.restored_from_ns,
        )
        self._facts.emit(fact)

    def usage(self) -> StreamUsage:
        """Return the sizes of the stream and the lag of its readers."""
        with self._state:
            leases = self.space.leases.live(self._clock()).values()
            now_ns, states = self._parts.wall(), self._view.states
            return usage_of(states, leases, len(self._stages), self._ledger.committed_at, now_ns)

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
            self._recordings.close_idle(self._parts.settings.publication_idle_s)
            self._recordings.truncate_abandoned(self._stages, self._ledger.ends)
            with self._state:
                self._stages.expire(self._clock())
                if self._clock() - self._mark_updated_at >= MARK_INTERVAL_S:
                    self._mark_updated_at = self._clock()
                    self._journal.update_mark()
            if self._recovery_loss is None:
                self.space.apply_retention(lease_delay_s)
                with self._state:
                    if not self._parts.holds.holder:  # a backup copies the journal's file
                        self._journal.compact(self._parts.ages.now_ns(), self.space.limits.max_joined_bytes)
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

    def check_partition(self, partition: int) -> None:
        """Raise OptionError if the stream has no such partition."""
        if not 0 <= partition < self.definition.partitions:
            raise OptionError(
                f"stream {self.definition.name!r} has no partition {partition}",
                remedy=f"Use a partition from 0 to {self.definition.partitions - 1}.",
                reason="no-partition",
            )

    # Steps of the methods above

    def _state_from(self, partition: int, start: int) -> PartitionState:
        self._refuse_closed()
        self.check_partition(partition)
        state = self._view.states[partition]
        if start < state.start:
            raise DataLossError(
                f"partition {partition} of stream {self.definition.name!r} was purged up to position {state.start}, "
                f"and a reader continues at position {start}",
                remedy="Set failOnDataLoss=false to continue after the purged rows. Purge only rows that were read.",
            )
        return state

    def _renew_view(self) -> None:
        self._replace_view(self._recordings.view(self._ledger))

    def _replace_view(self, view: StreamView) -> None:
        """Replace the view, and end the waits for these commits."""
        with self._view_lock:
            self._view = view
            ended = [wait for wait, ends in self._waits.items() if view.is_beyond(ends)]
            for wait in ended:
                del self._waits[wait]
        for wait in ended:
            resolve(wait, True)

    def _mark_closed(self, error: AeronSparkError) -> None:
        """Raise ``error`` in every later call and every wait for commits."""
        with self._view_lock:
            self._closed = error
            ended, self._waits = self._waits, {}
        for wait in ended:
            fail(wait, copy.copy(error))

    def _end_waits(self) -> None:
        """End every wait for commits with False: the stream has ended."""
        with self._view_lock:
            ended, self._waits = self._waits, {}
        for wait in ended:
            resolve(wait, False)

    def _forget_wait(self, wait: Future[bool]) -> None:
        with self._view_lock:
            self._waits.pop(wait, None)

    def _refuse_closed(self) -> None:
        if self._closed is not None:
            raise copy.copy(self._closed)

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
        self, transaction: Transaction, named: list[CommittableRows], token: str, begun: float, may_evolve: bool
    ) -> None:
        with_rows = [stage for stage in named if stage.rows]
        with self._state:
            content, schema = merge_content(
                self._ledger, with_rows, self.definition.schema_policy, may_evolve=may_evolve
            )
            check_fields(self._ledger.schema, schema, self._parts.settings.options().max_columns)
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
                self._journal.write(self._ledger.prepare_commit(transaction, change, self._parts.wall()))
                self._renew_view()
        except BaseException:
            self._recordings.mark_uncommitted(stages)
            raise
        record_s = self._recordings.awaited_s
        committed = CommittedTransaction(
            stream=self.definition.name,
            writer=transaction.writer,
            transaction=transaction.number,
            rows=sum(stage.rows for stage in named),
            bytes=sum(end - ends_before[index] for index, end in ends.items()),
            stage_s=publishing_at - begun,
            publish_s=recorded_at - publishing_at - record_s,
            record_s=record_s,
            journal_s=self._clock() - recorded_at,
        )
        self._facts.emit(committed)
        if changes_schema:
            self._facts.emit(SchemaChanged(self.definition.name, transaction.writer))

    def _rows_of(self, transaction: Transaction, parts: Sequence[StagedPart | InlineRows]) -> list[CommittableRows]:
        found: list[CommittableRows] = [
            part if isinstance(part, InlineRows) else self._take_stage(part) for part in parts
        ]
        check_transaction(found, transaction)
        return found

    def _take_stage(self, ref: StagedPart) -> Stage:
        """Return the stage that a commit names. Raises RefusedError if it was removed or has changed."""
        try:
            return self._stages.take(ref, self._clock())
        except DataFormatError as error:
            raise RefusedError(error.what, remedy=error.remedy, reason=error.reason) from error

    def _begin(self, transaction: Transaction) -> None:
        """Begin a transaction; see :meth:`begin`. The caller holds ``_state``."""
        self._refuse_ended(transaction)
        self._ledger.check_acknowledged(transaction)
        started = self._ledger.prepare_run(transaction, self._parts.wall())
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
        longest_s = self._parts.settings.writing_timeout_s
        timeout_s = longest_s if seconds is None else max(0.0, min(seconds, longest_s))
        if not self._writing.acquire(timeout=timeout_s):
            raise StillWorking(
                f"waited {timeout_s:g} s for another commit of stream {self.definition.name!r} to end",
                remedy="Repeat the request.",
            )
        try:
            yield
        finally:
            self._writing.release()

    def _refuse_ended(self, transaction: Transaction) -> None:
        """Raise RefusedError if the stream has ended, unless the transaction is committed."""
        if not self.definition.is_ended:
            return
        if transaction.number == NEXT_NUMBER or not self._ledger.is_committed(transaction):
            raise ended_stream(self.definition)


def _recording(state: PartitionState) -> Recording:
    """Return the fields of the partition's recording that reading its files needs, without a request to the archive."""
    shape = state.shape
    return Recording(
        id=shape.recording_id,
        start_timestamp=0,
        stop_timestamp=None,
        start_position=state.recording.start,
        stop_position=None,
        initial_term_id=shape.initial_term_id,
        segment_length=shape.segment_length,
        term_length=shape.term_length,
        mtu=shape.mtu,
        session_id=0,
        stream_id=shape.stream_id,
        channel="",
        original_channel="",
        source="",
    )


def read_blocks(
    folder: Path, recording: Recording, name: str, start: int, end: int, max_bytes: int, into: memoryview | None = None
) -> Iterator[Block]:
    """Yield ``(position, log bytes)`` of ``[start, end)``, each of 1 to ``max_bytes`` bytes.

    With ``into``, a memory of ``max_bytes``, each block is read into this memory and is valid until the next one.
    Blocks are contiguous, and may begin and end within a frame. ``end`` must be recorded. Errors name the partition by
    ``name``. Raises DataLossError if a segment was deleted or truncated.
    """
    at = start
    while at < end:
        found = segment_at(folder, recording, at)
        if found is None:
            raise _missing_error(recording, name, at, end)
        path, base = found
        try:
            # An open file can be read to its end even after the archive deletes it.
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise _missing_error(recording, name, at, end) from None
        with file:
            stop = min(end, base + recording.segment_length)
            while at < stop:
                wanted = min(max_bytes, stop - at)
                data: bytes | memoryview
                if into is None:
                    data = os.pread(file.fileno(), wanted, at - base)
                else:
                    data = into[: os.preadv(file.fileno(), [into[:wanted]], at - base)]
                if not data:
                    raise _missing_error(recording, name, at, end)
                yield at, data
                at += len(data)


def _missing_error(recording: Recording, name: str, at: int, end: int) -> DataLossError:
    return DataLossError(
        f"{name} is damaged: recording {recording.id} has no bytes at position {at} any more, and [{at}, {end}) was to "
        "be read",
        remedy="If the rows were not purged meanwhile, run 'aeron-spark server verify' with the server stopped. Set "
        "failOnDataLoss=false to continue after the lost rows.",
    )
