"""The committed state of one stream, computed from the records of its journal. Pure: no clock and no files.

A change has two steps. A ``prepare_`` method checks a request against the state and returns the record of the change,
or raises. The caller writes this record to the journal, and then passes it to ``apply``. After a crash between the two
steps, replaying the journal gives the same state as ``apply``.

Rules for each writer:
* The ids of its transactions rise; gaps are allowed. An id up to the producer's last one is committed already. An id
  above it, but up to the writer's last one, belongs to another producer: two programs use one writer id. The rows of
  the second program are refused, and never dropped as a repetition.
* It has one current run. A new run becomes the current one and fences the run before it for good.

Epochs (see log.epochs) show which opening of the store committed which bytes of a partition, and which transactions of
the stream. See writer_histories for the stamps by which a stream detects that it lacks a writer's transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, UsageError
from aeron_spark.log.epochs import DIVERGED, FIRST, Epochs, epoch_at
from aeron_spark.streams.definition import FIND_AND_RESTORE
from aeron_spark.streams.journal_records import (
    CommitRecord,
    CommittedIn,
    ContentFixed,
    Epoch,
    Purged,
    Record,
    Recorded,
    RecordingOf,
    RunStarted,
    Snapshot,
    WriterOwned,
    WriterReleased,
    WriterState,
)
from aeron_spark.streams.time_index import SECOND_NS, TimeIndex
from aeron_spark.streams.writers import Acknowledged, Loss, WriterHistories, WriterOwners, parse_stamp, stamp_text
from aeron_spark.wire.arrow import other_payload
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Begun, Transaction

NO_TRANSACTION: Final = -1
MAX_EARLIER_RUNS: Final = 128  # of a writer: no task outlives so many restarts of its query
MAX_PRODUCERS: Final = 128  # of a writer: repetitions of a forgotten producer are refused
ANY_PRODUCER: Final = ""  # a client without a producer id: each producer may repeat its transactions
SINGLE_USE_EXPIRY_NS: Final = 86_400 * SECOND_NS  # from a single-use writer's last record until the ledger forgets it
MAX_EPOCHS: Final = 1_024  # positions and stamps of older epochs cannot be checked
MAX_EPOCH_ENDS: Final = 1 << 18  # in all epochs together: a stream of many partitions keeps fewer epochs
TRANSACTIONS: Final = -1  # the key of the epochs by number of transaction, among those by partition
CONTENTS: Final = ("raw", "framed", "arrow")


class AlreadyCommitted(AeronSparkError):
    """The transaction was committed before; rows that were staged again for it are dropped."""

    fault = "caller"


class Change(NamedTuple):
    """The changes of a stream by one transaction.

    ``ends`` and ``rows`` have the partitions that it changes: the position after its last message, and its number of
    rows. ``content`` and ``schema`` (Arrow IPC, merged already) are the stream's afterwards. ``token`` is the
    producer's own text.
    """

    ends: Mapping[int, int] = {}
    rows: Mapping[int, int] = {}
    content: str = ""
    schema: bytes | None = None
    token: str = ""


class Ledger:
    """The state after the records so far. Not safe for concurrent use."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.content = ""  # "" before the first transaction with rows, then one of CONTENTS
        self.schema: bytes | None = None  # Arrow IPC, of content arrow
        self.transactions = 0  # number of committed transactions
        self.time_ns = 0  # of the last committed transaction
        self.starts = [0] * partitions  # position of the first byte that is not purged
        self.ends = [0] * partitions  # position after the last committed byte
        self.rows = [0] * partitions  # number of committed rows
        self.checked_from = [0] * partitions  # position from which this server has checked the rows that have the mark
        self.recordings: dict[int, RecordingOf] = {}
        self.pending: dict[int, int] = {}  # by partition: the start that a purge requested, and a lease prevents
        self.owners = WriterOwners()
        self._writers: dict[str, WriterState] = {}
        self.times = [TimeIndex() for _ in range(partitions)]  # by partition
        self._epochs: deque[Epoch] = deque([self._first_epoch()])
        self._epochs_of: dict[int, Epochs] = {}  # a cache, by partition or TRANSACTIONS
        self._histories = WriterHistories()

    @classmethod
    def replay(cls, partitions: int, records: Iterable[Record]) -> Ledger:
        """Return the state after these records. Raises DataFormatError if they contradict each other."""
        ledger = cls(partitions)
        for record in records:
            ledger.apply(record)
        return ledger

    # Queries

    def last_transaction(self, writer: str, producer: str = ANY_PRODUCER) -> int:
        """Return the last committed transaction of the writer, or of one of its producers; NO_TRANSACTION for none."""
        known = self._writers.get(writer)
        if known is None:
            return NO_TRANSACTION
        if producer == ANY_PRODUCER or known.producers is None:
            return known.last
        return max((last for one, last in known.producers if one in (producer, ANY_PRODUCER)), default=NO_TRANSACTION)

    def token(self, writer: str, producer: str) -> str:
        """Return the token of the producer's last transaction under the writer id, or ""."""
        known = self._writers.get(writer)
        return "" if known is None else known.tokens.get(producer, "")

    def begun(self, writer: str) -> Begun:
        """Return the writer's last committed transaction, of whichever producer, with its stamp and its token."""
        known = self._writers.get(writer)
        committer = known.producers[-1][0] if known is not None and known.producers else ANY_PRODUCER
        return Begun(self.last_transaction(writer), self.stamp(writer), self.token(writer, committer))

    @property
    def writers(self) -> Mapping[str, WriterState]:
        """All known writers by id."""
        return self._writers

    def position_at(self, time_ns: int) -> list[int]:
        """Return, by partition, the start of the first transaction committed at or after ``time_ns`` (since 1970).

        A partition without such a transaction has its committed end. For times of more than an hour ago the position
        may be earlier than necessary, but never later; see ``time_index.THINNING``.
        """
        found = (index.find(time_ns) for index in self.times)
        return [end if begin is None else begin for begin, end in zip(found, self.ends, strict=True)]

    def committed_at(self, partition: int, position: int) -> int | None:
        """Return when the byte at ``position`` was committed, in ns since 1970; None if it is not committed yet.

        Of bytes from more than an hour ago the time may be too late; see ``TimeIndex.time_of``.
        """
        return self.times[partition].time_of(position) if position < self.ends[partition] else None

    @property
    def epoch(self) -> int:
        """The newest epoch, or FIRST before the first one."""
        return self._epochs[-1].epoch

    @property
    def restored_from_ns(self) -> int:
        """The time of the backup from which the state was restored, if nothing was changed since; else 0."""
        return self._epochs[-1].copied_ns

    def epochs(self, partition: int) -> Epochs:
        """Return the remembered epochs of a partition."""
        found = self._epochs_of.get(partition)
        if found is None:
            begins = ((one.epoch, one.ends[partition]) for one in self._epochs)
            found = self._epochs_of[partition] = Epochs.of(begins)
        return found

    def stamp(self, writer: str) -> str:
        """Return the stamp of the writer's last transaction."""
        stamp = self._histories.stamp(writer)
        if stamp:
            return stamp
        last, epochs = self.last_transaction(writer), self._transaction_epochs()
        count = 0
        if last != NO_TRANSACTION:  # a release without epochs committed it
            end = epochs.end_of(FIRST, 0)
            count = epochs.pairs[0][1] if end is None else end
        return stamp_text([Acknowledged(epochs.at(count), count, last + 1)])

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the writer's first transaction up to ``acknowledged`` that the stream does not have, or None.

        Those before it are in the stream. It may be too early, see :class:`Loss`. ``stamp`` came with that
        acknowledgement. Without a stamp (earlier releases gave none) only ids above the writer's last one are lost.
        Raises UsageError for an invalid stamp.
        """
        loss = self._find_loss(writer, acknowledged, stamp)
        return None if loss is None else loss.first

    def _find_loss(self, writer: str, acknowledged: int, stamp: str) -> Loss | None:
        if acknowledged < 0:
            return None
        if not stamp:
            last = self.last_transaction(writer)
            return Loss(last + 1, is_exact=True) if NO_TRANSACTION < last < acknowledged else None
        try:
            known = parse_stamp(stamp)
        except ValueError as error:
            raise UsageError(str(error), remedy="Give the stamp that came with the acknowledgement.") from None
        return self._histories.find_loss(writer, acknowledged, known, self._transaction_epochs(), self.transactions)

    # Checks and records of changes; these methods change nothing

    def prepare_epoch(self, time_ns: int, random: int, copied_ns: int = 0) -> Epoch:
        """Return the record that begins the epoch of an opening of the store; see ``log.epochs.epoch_at``.

        ``copied_ns``: it is the epoch of a restore from a backup of this time.
        """
        return Epoch(epoch_at(time_ns, random, self.epoch), tuple(self.ends), self.transactions, copied_ns)

    def check_acknowledged(self, transaction: Transaction) -> None:
        """Raise RefusedError, reason "diverged", if the stream lacks a transaction acknowledged to the writer."""
        writer, acknowledged = transaction.writer, transaction.acknowledged
        loss = self._find_loss(writer, acknowledged, transaction.stamp)
        if loss is None:
            return
        is_single = loss.first == acknowledged
        lost = f"transaction {acknowledged}" if is_single else f"transactions {loss.first} to {acknowledged}"
        missing = "is" if is_single else "are" if loss.is_exact else "at least the last one is"
        raise RefusedError(
            f"{lost} of writer {writer!r} {'was' if is_single else 'were'} acknowledged and {missing} no longer in the "
            "stream: the store was restored from another copy",
            remedy="Write the rows again, or give them up with accept_loss()."
            + ("" if is_single or loss.is_exact else " Read the stream to learn which of them it has."),
            reason=DIVERGED,
        )

    def prepare_run(self, transaction: Transaction, now_ns: int) -> RunStarted | None:
        """Return the record that makes the transaction's run the writer's current run, or None if it is already.

        The run that it replaces may be the same one. Raises RefusedError if a later run has fenced one of these two, if
        the writer was forgotten since the replaced run began (the outcome of its last transaction is unknown then), and
        if a numbered transaction belongs to another producer.
        """
        self._check_not_fenced(transaction)
        if transaction.replaced:
            self._check_continues(transaction)
        if transaction.number != NEXT_NUMBER and not self.is_committed(transaction):
            self._check_producer(transaction)
        known = self._writers.get(transaction.writer)
        if known is not None and known.run == transaction.run:
            return None
        return RunStarted(transaction.writer, transaction.run, max(now_ns, 0), transaction.single_use)

    def has_writer(self, writer: str) -> bool:
        """Whether the writer has a run."""
        return writer in self._writers

    def check_open(self, transaction: Transaction) -> None:
        """Raise RefusedError or AlreadyCommitted unless the run may stage rows for this transaction."""
        self._check_not_fenced(transaction)
        self._refuse_committed(transaction)
        self._check_producer(transaction)

    def _refuse_committed(self, transaction: Transaction) -> None:
        if self.is_committed(transaction):
            raise AlreadyCommitted(
                f"transaction {transaction.number} of writer {transaction.writer!r} is committed; the last one is "
                f"{self.last_transaction(transaction.writer)}",
                remedy="Give new rows a higher transaction id.",
            )

    def is_committed(self, transaction: Transaction) -> bool:
        """Whether the producer's transaction is committed. Raises UsageError for a negative number."""
        check_number(transaction)
        return transaction.number <= self.last_transaction(transaction.writer, transaction.producer)

    def check_content(self, content: str, schema: bytes | None = None) -> None:
        """Raise UsageError for an unknown content, DataFormatError if the stream has another content.

        ``schema`` (Arrow IPC) is that of the new rows, for the error.
        """
        if content not in CONTENTS:
            raise UsageError(f"unknown content {content!r} of a stream", remedy=f"Give one of: {', '.join(CONTENTS)}.")
        if self.content and content != self.content:
            raise other_payload("the stream", self.content, content, schema)

    def prepare_commit(self, transaction: Transaction, change: Change, now_ns: int) -> CommitRecord:
        """Return the record that commits the transaction.

        The record leaves out a content and a schema that the stream has. Its time is ``now_ns``, or 1 ns after the last
        transaction. Raises AlreadyCommitted; RefusedError if the run is fenced or the transaction belongs to another
        producer; DataFormatError for another content; UsageError for impossible ends.
        """
        self._refuse_committed(transaction)  # also for a run that is fenced
        self.check_open(transaction)
        if change.content:
            self.check_content(change.content)
        record = CommitRecord(
            transaction.writer,
            transaction.run,
            transaction.number,
            max(now_ns, self.time_ns + 1),
            dict(change.ends),
            dict(change.rows),
            "" if change.content == self.content else change.content,
            None if change.schema == self.schema else change.schema,
            transaction.single_use and bool(change.rows),  # without rows, the record of the run alone has the flag
            transaction.producer,
            change.token,
        )
        if fault := self._find_fault_of_ends(record):
            raise UsageError(
                f"transaction {transaction.number} of writer {transaction.writer!r} cannot be committed: {fault}",
                remedy="Report this as a bug of the server.",
            )
        return record

    def prepare_purge(self, starts: Mapping[int, int], pending: Mapping[int, int] | None = None) -> Purged | None:
        """Return the record that raises the starts of partitions, or None if it would change nothing.

        ``pending`` are the starts to which a purge is to raise them later. Raises UsageError for a start after the
        committed end.
        """
        moved = {partition: start for partition, start in starts.items() if start > self.starts[partition]}
        for partition, start in moved.items():
            if start > self.ends[partition]:
                raise UsageError(
                    f"partition {partition} cannot begin at position {start}, after its committed end "
                    f"{self.ends[partition]}",
                    remedy="Purge at most up to the committed end.",
                )
        later = {
            partition: start
            for partition, start in (pending or {}).items()
            if start > max(starts.get(partition, 0), self.starts[partition], self.pending.get(partition, 0))
        }
        return Purged(moved, later) if moved or later else None

    def snapshot(self) -> Snapshot:
        """Return the whole state as one record, which can replace all records so far."""
        indexes = [index.to_bytes() for index in self.times]
        return Snapshot(
            self.time_ns,
            self.transactions,
            self.content,
            self.schema,
            dict(self.recordings),
            list(self.starts),
            list(self.ends),
            list(self.rows),
            [times for times, _, _ in indexes],
            [begins for _, begins, _ in indexes],
            dict(self._writers),
            () if self.epoch == FIRST else tuple(self._epochs),
            self._histories.records(),
            self.owners.records(),
            [joined for _, _, joined in indexes] if any(joined for _, _, joined in indexes) else [],
            dict(self.pending),
            list(self.checked_from) if any(self.checked_from) else [],
        )

    # Changes

    def apply(self, record: Record) -> None:
        """Change the state by a record of the journal. Raises DataFormatError, without a change, if they contradict."""
        match record:
            case Recorded():
                self._apply_recorded(record)
            case RunStarted(writer=writer, run=run, time_ns=time_ns, single_use=single_use):
                self._update_writer(writer, run, time_ns, single_use)
            case WriterOwned():
                self.owners.apply(record)
            case WriterReleased(writer=writer):
                self.owners.forget([writer])
            case ContentFixed():
                self._apply_content(record)
            case CommitRecord():
                self._apply_committed(record)
            case Purged():
                self._apply_purged(record)
            case Epoch():
                self._apply_epoch(record)
            case Snapshot():
                self._apply_snapshot(record)

    def forget_single_use_writers(self, now_ns: int) -> list[str]:
        """Forget single-use writers a day after their last record; return their ids. Needs no record.

        Also forgets the owners of ids under which no run began within a day.
        """
        old = [
            name
            for name, one in self._writers.items()
            if one.single_use and now_ns - one.time_ns > SINGLE_USE_EXPIRY_NS
        ]
        for name in old:
            del self._writers[name]
            self._histories.forget(name)
        self.owners.forget([*old, *self.owners.unused(self._writers, now_ns - SINGLE_USE_EXPIRY_NS)])
        return old

    def _first_epoch(self) -> Epoch:
        return Epoch(FIRST, (0,) * self.partitions, 0)

    def _transaction_epochs(self) -> Epochs:
        """Return the epochs by number of transaction."""
        found = self._epochs_of.get(TRANSACTIONS)
        if found is None:
            found = self._epochs_of[TRANSACTIONS] = Epochs.of((one.epoch, one.transactions) for one in self._epochs)
        return found

    def _apply_epoch(self, record: Epoch) -> None:
        if list(record.ends) != self.ends or record.transactions != self.transactions or record.epoch <= self.epoch:
            raise _contradiction(
                f"epoch {record.epoch} begins at {list(record.ends)} after {record.transactions} transactions, but the "
                f"state has epoch {self.epoch}, {self.ends} and {self.transactions} transactions"
            )
        before = list(self._epochs)
        newest = before[-1]
        if len(before) > 1 and (newest.ends, newest.transactions) == (record.ends, record.transactions):
            before.pop()  # no transaction was committed in it, so no reader or writer knows it
        self._keep_epochs([*before, record])
        if record.copied_ns:  # all rows came with the backup, in which another server may have set the marks
            self.checked_from = list(record.ends)

    def _keep_epochs(self, epochs: Iterable[Epoch]) -> None:
        """Set the epochs to the newest of these."""
        self._epochs = deque(epochs, maxlen=min(MAX_EPOCHS, max(2, MAX_EPOCH_ENDS // self.partitions)))
        self._epochs_of = {}

    def _apply_recorded(self, record: Recorded) -> None:
        partition = record.partition
        # A partition with rows cannot move to another recording, which does not have their bytes.
        if (
            partition >= self.partitions
            or self.ends[partition] > self.starts[partition]
            or record.start < self.ends[partition]
        ):
            raise _contradiction(
                f"partition {partition} gets another recording, which begins at position {record.start}"
            )
        before = self.recordings.get(partition)
        first = "" if before is None else before.identity
        self.recordings[partition] = RecordingOf(record.recording_id, record.fingerprint, record.start, first)
        self.starts[partition] = self.ends[partition] = record.start

    def _apply_content(self, record: ContentFixed) -> None:
        if self.content or self.transactions:
            raise _contradiction(f"the content {record.content!r} is fixed after rows of {self.content!r}")
        self.content, self.schema = record.content, record.schema

    def _update_writer(self, writer: str, run: str, time_ns: int, single_use: bool) -> WriterState:
        before = self._writers.get(writer)
        if before is None:
            now = WriterState(run, time_ns=time_ns, single_use=single_use)
        else:
            earlier = before.earlier if before.run == run else (*before.earlier, before.run)[-MAX_EARLIER_RUNS:]
            now = replace(
                before, run=run, earlier=earlier, time_ns=time_ns, single_use=before.single_use and single_use
            )
        self._writers[writer] = now
        return now

    def _apply_committed(self, record: CommitRecord) -> None:
        fault = self._find_fault_of_ends(record)
        if not fault and record.transaction <= self.last_transaction(record.writer):
            fault = f"transaction {record.transaction} of writer {record.writer!r} is committed twice"
        if not fault and record.time_ns <= self.time_ns:
            fault = f"the time {record.time_ns} of a transaction is not after {self.time_ns}"
        if fault:
            raise _contradiction(fault)
        before = self._writers.get(record.writer)
        # The record of a commit without stages does not have the flag; that of the writer's run has it.
        single_use = record.single_use if before is None else before.single_use
        known = self._update_writer(record.writer, record.run, record.time_ns, single_use)
        producers = _producers_after(record.producer, record.transaction, known)
        self._writers[record.writer] = replace(
            known,
            last=record.transaction,
            producers=producers,
            committed_by=record.run,
            tokens=_tokens_after(record, known, producers),
        )
        for partition, end in record.ends.items():
            if end > self.ends[partition]:
                self.times[partition].add(record.time_ns, self.ends[partition])
                self.ends[partition] = end
        for partition, rows in record.rows.items():
            self.rows[partition] += rows
        self.content = record.content or self.content
        self.schema = self.schema if record.schema is None else record.schema
        self.time_ns = record.time_ns
        self.transactions += 1
        if self.epoch != FIRST:  # else it is a journal of an earlier release, whose snapshots have no epochs
            self._histories.add(record.writer, CommittedIn(self.epoch, record.transaction, self.transactions))

    def _find_fault_of_ends(self, record: CommitRecord) -> str:
        for partition in (*record.ends, *record.rows):
            if not 0 <= partition < self.partitions:
                return f"the stream has no partition {partition}, only {self.partitions} partitions"
        for partition, end in record.ends.items():
            if end < self.ends[partition]:
                return f"partition {partition} would end at position {end}, before its end {self.ends[partition]}"
        return ""

    def _apply_purged(self, record: Purged) -> None:
        for partition, start in (*record.starts.items(), *record.pending.items()):
            if not 0 <= partition < self.partitions or not self.starts[partition] <= start <= self.ends[partition]:
                raise _contradiction(
                    f"partition {partition} begins at position {start}, outside of its committed range"
                )
        for partition, start in record.starts.items():
            self.starts[partition] = start
            if start == self.ends[partition]:
                self.times[partition].clear()
            else:
                self.times[partition].forget_before(start)
        pending = {**self.pending, **record.pending}
        self.pending = {partition: start for partition, start in pending.items() if start > self.starts[partition]}

    def _apply_snapshot(self, record: Snapshot) -> None:
        parts = (record.starts, record.ends, record.rows, record.times, record.begins, record.joined or record.times)
        lengths = {len(part) for part in (*parts, record.checked_from or record.times)}
        if lengths != {self.partitions}:
            raise _contradiction(f"a snapshot has {sorted(lengths)} partitions, the stream has {self.partitions}")
        if any(len(one.ends) != self.partitions for one in record.epochs):
            raise _contradiction(f"an epoch of a snapshot does not have {self.partitions} partitions")
        joined = record.joined or [b""] * self.partitions
        times = [TimeIndex.from_bytes(*parts) for parts in zip(record.times, record.begins, joined, strict=True)]
        self._keep_epochs(record.epochs or [self._first_epoch()])
        self._histories = WriterHistories(record.committed_in)
        self.owners = WriterOwners(record.owned)
        self.content, self.schema = record.content, record.schema
        self.time_ns, self.transactions = record.time_ns, record.transactions
        self.starts, self.ends, self.rows = list(record.starts), list(record.ends), list(record.rows)
        self.recordings, self._writers, self.times = dict(record.recordings), dict(record.writers), times
        self.pending = dict(record.pending)
        self.checked_from = list(record.checked_from) or [0] * self.partitions

    def _check_not_fenced(self, transaction: Transaction) -> None:
        known = self._writers.get(transaction.writer)
        if known is not None and transaction.run in known.earlier:
            raise self._fenced_error(transaction.writer, transaction.run, known)

    def _fenced_error(self, writer: str, run: str, known: WriterState) -> RefusedError:
        return RefusedError(
            f"run {run!r} of writer {writer!r} is fenced: the later run {known.run!r} has taken over",
            remedy="Use a writerId in one query at a time, or give each query its own.",
            reason="fenced",
        )

    def _check_continues(self, transaction: Transaction) -> None:
        known = self._writers.get(transaction.writer)
        if known is None:
            raise RefusedError(
                f"writer {transaction.writer!r} is not known any more: its last request was a day or more ago, or the "
                "store was restored from an older copy",
                remedy="Check whether the stream has the rows, then create another writer.",
                reason="unknown-writer",
            )
        if known.run not in (transaction.run, transaction.replaced):
            raise self._fenced_error(transaction.writer, transaction.replaced, known)

    def _check_producer(self, transaction: Transaction) -> None:
        known = self._writers.get(transaction.writer)
        if known is not None and transaction.number <= known.last:
            raise RefusedError(
                f"transaction {transaction.number} of run {transaction.run!r} is refused: transaction {known.last} of "
                f"writer {transaction.writer!r} is committed by another producer's run "
                f"{known.committed_by or known.run!r}",
                remedy="Give each query or program its own writerId, or continue from the query's latest checkpoint.",
                reason="other-producer",
            )


def check_number(transaction: Transaction) -> None:
    """Raise UsageError for a transaction whose number is negative, also for NEXT_NUMBER."""
    if transaction.number < 0:
        raise UsageError(
            f"transaction id {transaction.number} is negative", remedy="Give transactions rising ids, from 0 on."
        )


def _producers_after(producer: str, transaction: int, known: WriterState) -> tuple[tuple[str, int], ...]:
    """Return the producers of a writer after a commit. Transactions without a producer id belong to ANY_PRODUCER."""
    before = known.producers
    if before is None:
        before = () if known.last == NO_TRANSACTION else ((ANY_PRODUCER, known.last),)
    others = [one for one in before if one[0] != producer]
    return (*others[1 - MAX_PRODUCERS :], (producer, transaction))


def _tokens_after(record: CommitRecord, known: WriterState, producers: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return the tokens of a writer's producers after a commit."""
    tokens = {**known.tokens, record.producer: record.token}
    return {producer: tokens[producer] for producer, _ in producers if tokens.get(producer)}


def _contradiction(fault: str) -> DataFormatError:
    return DataFormatError(
        f"the journal of the stream is damaged, its records contradict each other: {fault}",
        remedy=FIND_AND_RESTORE,
    )
