"""The state of one stream, and what may be done to it. Pure: no clock, no file; a function of the journal's records.

Deciding and doing are apart: ``enter`` and ``ready`` check a wish against the state and return the record that would
make it true, or raise; whoever asked writes that record to the journal and only then gives it to ``apply``. So a crash
between the two leaves what the journal says, and reading the journal gives the same state again.

Rules, for each writer:
* Its transactions have rising ids (gaps are allowed). One at or below the last one that the same author committed is
  committed already. One above that, and at or below the writer's last one, is in the place of another author's: two
  programs write under one id, and the rows of the second one are refused, never dropped as a repeat.
* It has one current run. A run that was never seen becomes the current one and fences the one before, for good.

Epochs (see log.epochs) say which opening of the store committed what: by position for each partition, and by number
for the transactions of the whole stream. A *stamp* is the epoch and that number of a writer's last transaction: a
stream that was restored from a copy without this transaction does not have it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, UsageError
from aeron_spark.log.epochs import DIVERGED, FIRST, Epochs, epoch_at, parse_stamp, stamp_text
from aeron_spark.streams.journal_records import (
    Committed,
    CommittedIn,
    Entered,
    Epoch,
    Record,
    Recorded,
    RecordingOf,
    Retained,
    Snapshot,
    Writer,
)
from aeron_spark.streams.time_index import SECOND_NS, TimeIndex

NO_TRANSACTION: Final = -1
MOST_EARLIER_RUNS: Final = 128  # of a writer; a task that is still alive after so many restarts of its query is a ghost
MOST_AUTHORS: Final = 128  # of a writer; one that is forgotten is refused where it repeats itself
ANYBODY: Final = ""  # the author that did not say who it is: what it committed counts as everybody's
FORGET_ONCE_NS: Final = 86_400 * SECOND_NS  # after its last record a writer of one transaction is forgotten
MOST_EPOCHS: Final = 1_024  # state of an older one cannot be checked
MOST_ENDS: Final = 1 << 18  # of all epochs together: a stream of many partitions keeps fewer epochs
MOST_EPOCHS_OF_WRITER: Final = 32
TRANSACTIONS: Final = -1  # where epochs are kept by partition: those by number of transaction
CONTENTS: Final = ("raw", "framed", "arrow")


class AlreadyCommitted(AeronSparkError):
    """The transaction is committed: nothing is left to do, and what was staged again is dropped."""

    fault = "caller"


class Ledger:
    """What the records said so far. Not safe for concurrent use."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.content = ""  # "" before the first transaction with rows, then one of CONTENTS
        self.schema: bytes | None = None  # Arrow IPC, of content arrow
        self.transactions = 0  # committed ones, in all
        self.time_ns = 0  # of the last committed one
        self.starts = [0] * partitions  # positions: the first there is
        self.ends = [0] * partitions  # positions: behind the last committed transaction
        self.rows = [0] * partitions  # committed ones, in all
        self.recordings: dict[int, RecordingOf] = {}
        self._writers: dict[str, Writer] = {}
        self._times = [TimeIndex() for _ in range(partitions)]
        self._epochs: deque[Epoch] = deque([self._no_epoch()])
        self._epochs_of: dict[int, Epochs] = {}  # by partition, or TRANSACTIONS; made when it is wanted
        # By writer, for each epoch: its last transaction there, and which one of the stream's that is.
        self._committed_in: dict[str, tuple[CommittedIn, ...]] = {}

    @classmethod
    def replay(cls, partitions: int, records: Iterable[Record]) -> Ledger:
        """Return the state after these records. Raises DataFormatError where they contradict each other."""
        ledger = cls(partitions)
        for record in records:
            ledger.apply(record)
        return ledger

    # What is known

    def last(self, writer: str, author: str = ANYBODY) -> int:
        """Return the writer's last committed transaction, of one author or of all; NO_TRANSACTION for none."""
        known = self._writers.get(writer)
        if known is None:
            return NO_TRANSACTION
        if author == ANYBODY or known.authors is None:
            return known.last
        return max((last for one, last in known.authors if one in (author, ANYBODY)), default=NO_TRANSACTION)

    def token(self, writer: str, author: str) -> str:
        """Return the token of the author's last transaction under the writer's id; "" where it gave none."""
        known = self._writers.get(writer)
        return "" if known is None else known.tokens.get(author, "")

    def run(self, writer: str) -> str | None:
        """Return the writer's current run, None where the writer is not known."""
        known = self._writers.get(writer)
        return None if known is None else known.run

    @property
    def writers(self) -> Mapping[str, Writer]:
        """All known writers by id."""
        return self._writers

    def position_at(self, time_ns: int) -> list[int]:
        """Return for each partition where the first transaction committed at or after a time (ns since 1970) begins.

        The committed end where there is none. For a time of more than an hour ago it may begin earlier than that, never
        later (times.py says by how much).
        """
        found = (index.find(time_ns) for index in self._times)
        return [end if begin is None else begin for begin, end in zip(found, self.ends, strict=True)]

    def indexed(self) -> int:
        """Return how many entries the time index has, over all partitions."""
        return sum(map(len, self._times))

    @property
    def epoch(self) -> int:
        """The newest epoch; FIRST where none was ever begun."""
        return self._epochs[-1].epoch

    def epochs(self, partition: int) -> Epochs:
        """Return the epochs of a partition that are kept."""
        found = self._epochs_of.get(partition)
        if found is None:
            begins = ((one.epoch, one.ends[partition]) for one in self._epochs)
            found = self._epochs_of[partition] = Epochs.of(begins)
        return found

    def stamp(self, writer: str) -> str:
        """Return the stamp of the writer's last transaction."""
        known = self._committed_in.get(writer)
        if known:
            return stamp_text(known[-1].epoch, known[-1].count)
        # Its last one, if it has any, was committed before epochs were kept.
        count = 0 if self.last(writer) == NO_TRANSACTION else self._of_transactions().diverged_at(FIRST, 2**63, 2**63)
        return stamp_text(self._of_transactions().at(count or 0), count or 0)

    def first_lost(self, writer: str, acknowledged: int, stamp: str) -> int | None:
        """Return the first transaction up to ``acknowledged`` of the writer that is not in the stream; None for none.

        ``stamp`` is what the writer was given with that acknowledgement. Without one (an earlier release gave none)
        only a number above the writer's last one is lost. Raises UsageError for a stamp that is none.
        """
        if acknowledged < 0:
            return None
        if not stamp:
            last = self.last(writer)
            return last + 1 if NO_TRANSACTION < last < acknowledged else None
        try:
            epoch, count = parse_stamp(stamp)
        except ValueError as error:
            raise UsageError(str(error), remedy="Give the stamp that came with the acknowledgement") from None
        parted = self._of_transactions().diverged_at(epoch, count, self.transactions)
        if parted is None:
            return None
        shared = [one.transaction for one in self._committed_in.get(writer, ()) if one.count <= parted]
        return min(max(shared, default=NO_TRANSACTION) + 1, acknowledged)

    # Decisions: nothing changes

    def begin_epoch(self, time_ns: int, random: int) -> Epoch:
        """Return the record that begins the epoch of an opening; see ``log.epochs.epoch_at``."""
        return Epoch(epoch_at(time_ns, random, self.epoch), tuple(self.ends), self.transactions)

    def check_acknowledged(self, writer: str, acknowledged: int, stamp: str) -> None:
        """Raise RefusedError, reason "diverged", where the stream does not have what the writer saw acknowledged."""
        first = self.first_lost(writer, acknowledged, stamp)
        if first is None:
            return
        one = first == acknowledged
        lost = f"transaction {first}" if one else f"transactions {first} to {acknowledged}"
        raise RefusedError(
            f"{lost} of writer {writer!r} {'was' if one else 'were'} acknowledged and {'is' if one else 'are'} no "
            "longer in the stream",
            remedy="The store was restored from an older copy. Write them again, or give them up with accept_loss()",
            reason=DIVERGED,
        )

    def enter(
        self, writer: str, run: str, *, now_ns: int, once: bool = False, transaction: int | None = None,
        author: str = ANYBODY, replaced: str = "",
    ) -> Entered | None:  # fmt: skip
        """Return the record that makes ``run`` the writer's current one, None where it is.

        ``replaced`` is the run of the same program before it, or the same run, where the program entered before. Raises
        RefusedError where a later run has fenced one of them, where the writer was forgotten since, so that what became
        of its transaction is not known, and where it begins a ``transaction`` in the place of another author's: that
        one goes on.
        """
        self._check_not_fenced(writer, run)
        if replaced:
            self._check_goes_on(writer, run, replaced)
        if transaction is not None and not self.is_committed(writer, transaction, author):
            self._check_own(writer, run, transaction)
        known = self._writers.get(writer)
        return None if known is not None and known.run == run else Entered(writer, run, max(now_ns, 0), once)

    def check_open(self, writer: str, run: str, transaction: int, author: str = ANYBODY) -> None:
        """Raise unless rows may be staged for this transaction, after ``enter``: RefusedError, AlreadyCommitted."""
        self._check_not_fenced(writer, run)
        if self.is_committed(writer, transaction, author):
            raise AlreadyCommitted(
                f"transaction {transaction} of writer {writer!r} is committed; the last one is {self.last(writer)}",
                remedy="Nothing is left to do; new rows need a higher transaction id",
            )
        self._check_own(writer, run, transaction)

    def is_committed(self, writer: str, transaction: int, author: str = ANYBODY) -> bool:
        """Whether the author's transaction is in; UsageError for an id that is none."""
        if transaction < 0:
            raise UsageError(f"{transaction} is no transaction id", remedy="Transaction ids are 0 or more and rise")
        return transaction <= self.last(writer, author)

    def check_content(self, content: str) -> None:
        """Raise DataFormatError where the stream's content is another, UsageError where ``content`` is none."""
        if content not in CONTENTS:
            raise UsageError(f"{content!r} is no content of a stream", remedy=f"Give one of {', '.join(CONTENTS)}")
        if self.content and content != self.content:
            raise DataFormatError(
                f"the stream holds {self.content}, and the rows are {content}",
                remedy=f"Write with payload={self.content}, or to another stream",
            )

    def ready(
        self,
        writer: str,
        run: str,
        transaction: int,
        *,
        now_ns: int,
        ends: Mapping[int, int] | None = None,
        rows: Mapping[int, int] | None = None,
        content: str = "",
        schema: bytes | None = None,
        once: bool = False,
        author: str = ANYBODY,
        token: str = "",
    ) -> Committed:
        """Return the record that commits the transaction.

        ``ends`` and ``rows`` are of the partitions it touched: behind its last message, and how many rows it added. A
        ``content`` and a ``schema`` (already merged) that the stream has stay out of the record. Its time is ``now_ns``
        or just behind the last transaction's. Raises AlreadyCommitted, RefusedError where the run is fenced or the
        transaction is another author's, DataFormatError for another content, UsageError for ends that cannot be.
        """
        if self.is_committed(writer, transaction, author):
            self.check_open(writer, self._writers[writer].run, transaction, author)
        self.check_open(writer, run, transaction, author)
        if content:
            self.check_content(content)
        record = Committed(
            writer,
            run,
            transaction,
            max(now_ns, self.time_ns + 1),
            dict(ends or {}),
            dict(rows or {}),
            "" if content == self.content else content,
            None if schema == self.schema else schema,
            once,
            author,
            token,
        )
        if fault := self._fault_of_ends(record):
            raise UsageError(f"a transaction cannot be committed: {fault}", remedy="This is a fault of the server")
        return record

    def retain(self, starts: Mapping[int, int]) -> Retained | None:
        """Return the record that moves the starts of partitions, None where none moves. They never go back."""
        moved = {at: start for at, start in starts.items() if start > self.starts[at]}
        for at, start in moved.items():
            if start > self.ends[at]:
                raise UsageError(
                    f"partition {at} cannot begin at {start}, behind its end {self.ends[at]}",
                    remedy="Purge at most to the committed end",
                )
        return Retained(moved) if moved else None

    def snapshot(self) -> Snapshot:
        """Return all of the state as one record: alone it replaces all records so far."""
        indexes = [index.to_bytes() for index in self._times]
        return Snapshot(
            self.time_ns,
            self.transactions,
            self.content,
            self.schema,
            dict(self.recordings),
            list(self.starts),
            list(self.ends),
            list(self.rows),
            [times for times, _ in indexes],
            [begins for _, begins in indexes],
            dict(self._writers),
            () if self.epoch == FIRST else tuple(self._epochs),
            dict(self._committed_in),
        )

    # Changes

    def apply(self, record: Record) -> None:
        """Make a journalled record true. Raises DataFormatError, with nothing changed, if it contradicts the state."""
        match record:
            case Recorded():
                self._recorded(record)
            case Entered(writer=writer, run=run, time_ns=time_ns, once=once):
                self._known(writer, run, time_ns, once)
            case Committed():
                self._committed(record)
            case Retained(starts=starts):
                self._retained(starts)
            case Epoch():
                self._begun(record)
            case Snapshot():
                self._restored(record)

    def thin(self, now_ns: int) -> int:
        """Join old entries of the time index, as before a snapshot; return how many are gone. Needs no record."""
        return sum(index.thin(now_ns) for index in self._times)

    def forget(self, now_ns: int) -> list[str]:
        """Forget writers of one transaction a day after their last record; return their ids. Needs no record."""
        old = [name for name, one in self._writers.items() if one.once and now_ns - one.time_ns > FORGET_ONCE_NS]
        for name in old:
            del self._writers[name]
            self._committed_in.pop(name, None)
        return old

    def _no_epoch(self) -> Epoch:
        return Epoch(FIRST, (0,) * self.partitions, 0)

    def _of_transactions(self) -> Epochs:
        """The epochs by number of transaction."""
        found = self._epochs_of.get(TRANSACTIONS)
        if found is None:
            found = self._epochs_of[TRANSACTIONS] = Epochs.of((one.epoch, one.transactions) for one in self._epochs)
        return found

    def _begun(self, record: Epoch) -> None:
        if list(record.ends) != self.ends or record.transactions != self.transactions or record.epoch <= self.epoch:
            raise _contradiction(
                f"epoch {record.epoch} is said to begin at {list(record.ends)}, after epoch {self.epoch} and "
                f"{self.ends}"
            )
        before = list(self._epochs)
        newest = before[-1]
        if len(before) > 1 and (newest.ends, newest.transactions) == (record.ends, record.transactions):
            before.pop()  # nothing was committed in it, so that no state has it
        self._keep_epochs([*before, record])

    def _keep_epochs(self, epochs: Iterable[Epoch]) -> None:
        """Keep the newest of these."""
        self._epochs = deque(epochs, maxlen=min(MOST_EPOCHS, max(2, MOST_ENDS // self.partitions)))
        self._epochs_of = {}

    def _recorded(self, record: Recorded) -> None:
        at = record.partition
        # A partition that still holds something cannot move to another recording: its positions would lie.
        if at >= self.partitions or self.ends[at] > self.starts[at] or record.start < self.ends[at]:
            raise _contradiction(f"partition {at} is said to be recorded anew, from {record.start} on")
        self.recordings[at] = RecordingOf(record.recording_id, record.fingerprint)
        self.starts[at] = self.ends[at] = record.start

    def _known(self, writer: str, run: str, time_ns: int, once: bool) -> Writer:
        before = self._writers.get(writer)
        if before is None:
            now = Writer(run, time_ns=time_ns, once=once)
        else:
            earlier = before.earlier if before.run == run else (*before.earlier, before.run)[-MOST_EARLIER_RUNS:]
            now = replace(before, run=run, earlier=earlier, time_ns=time_ns, once=before.once and once)
        self._writers[writer] = now
        return now

    def _committed(self, record: Committed) -> None:
        fault = self._fault_of_ends(record)
        if not fault and record.transaction <= self.last(record.writer):
            fault = f"transaction {record.transaction} of writer {record.writer!r} is there twice"
        if not fault and record.time_ns <= self.time_ns:
            fault = f"its time {record.time_ns} is not after {self.time_ns}"
        if fault:
            raise _contradiction(fault)
        before = self._writers.get(record.writer)
        # A commit without stages does not say that its writer has one transaction only; its beginning did.
        once = record.once if before is None else before.once
        known = self._known(record.writer, record.run, record.time_ns, once)
        authors = _with(record.author, record.transaction, known)
        self._writers[record.writer] = replace(
            known,
            last=record.transaction,
            authors=authors,
            committed_by=record.run,
            tokens=_tokens(record, known, authors),
        )
        for at, end in record.ends.items():
            if end > self.ends[at]:
                self._times[at].add(record.time_ns, self.ends[at])
                self.ends[at] = end
        for at, rows in record.rows.items():
            self.rows[at] += rows
        self.content = record.content or self.content
        self.schema = self.schema if record.schema is None else record.schema
        self.time_ns = record.time_ns
        self.transactions += 1
        self._note_epoch(record.writer, record.transaction)

    def _note_epoch(self, writer: str, transaction: int) -> None:
        if self.epoch == FIRST:  # a journal of an earlier release, whose snapshots say nothing of this
            return
        before = tuple(one for one in self._committed_in.get(writer, ()) if one.epoch != self.epoch)
        now = CommittedIn(self.epoch, transaction, self.transactions)
        self._committed_in[writer] = (*before[1 - MOST_EPOCHS_OF_WRITER :], now)

    def _fault_of_ends(self, record: Committed) -> str:
        for at in (*record.ends, *record.rows):
            if not 0 <= at < self.partitions:
                return f"there is no partition {at}, only {self.partitions} of them"
        for at, end in record.ends.items():
            if end < self.ends[at]:
                return f"partition {at} would end at {end}, before {self.ends[at]}"
        return ""

    def _retained(self, starts: Mapping[int, int]) -> None:
        for at, start in starts.items():
            if not 0 <= at < self.partitions or not self.starts[at] <= start <= self.ends[at]:
                raise _contradiction(f"partition {at} is said to begin at {start}")
        for at, start in starts.items():
            self.starts[at] = start
            self._times[at].forget_before(start)

    def _restored(self, record: Snapshot) -> None:
        lengths = {len(part) for part in (record.starts, record.ends, record.rows, record.times, record.begins)}
        if lengths != {self.partitions}:
            raise _contradiction(f"a snapshot is of {sorted(lengths)} partitions, the stream has {self.partitions}")
        if any(len(one.ends) != self.partitions for one in record.epochs):
            raise _contradiction(f"an epoch of a snapshot is not of {self.partitions} partitions")
        times = [TimeIndex.from_bytes(*both) for both in zip(record.times, record.begins, strict=True)]
        self._keep_epochs(record.epochs or [self._no_epoch()])
        self._committed_in = dict(record.committed_in)
        self.content, self.schema = record.content, record.schema
        self.time_ns, self.transactions = record.time_ns, record.transactions
        self.starts, self.ends, self.rows = list(record.starts), list(record.ends), list(record.rows)
        self.recordings, self._writers, self._times = dict(record.recordings), dict(record.writers), times

    def _check_not_fenced(self, writer: str, run: str) -> None:
        known = self._writers.get(writer)
        if known is not None and run in known.earlier:
            raise self._fenced(writer, run, known)

    def _fenced(self, writer: str, run: str, known: Writer) -> RefusedError:
        return RefusedError(
            f"run {run!r} of writer {writer!r} is fenced: the later run {known.run!r} has taken over",
            remedy="Let one query at a time write with a writerId, or give each its own",
        )

    def _check_goes_on(self, writer: str, run: str, replaced: str) -> None:
        known = self._writers.get(writer)
        if known is None:
            raise RefusedError(
                f"writer {writer!r} is not known any more: its last request was a day or more ago, or the store was "
                "restored from an older copy",
                remedy="Look in the stream whether the rows are there, then make another writer",
            )
        if known.run not in (run, replaced):
            raise self._fenced(writer, replaced, known)

    def _check_own(self, writer: str, run: str, transaction: int) -> None:
        known = self._writers.get(writer)
        if known is not None and transaction <= known.last:
            raise RefusedError(
                f"transaction {transaction} of run {run!r} is not written: transaction {known.last} of writer "
                f"{writer!r} is committed by another author's run {known.committed_by or known.run!r}",
                remedy="Give each query or program a writerId of its own, or go on from the checkpoint there was",
            )


def _with(author: str, transaction: int, known: Writer) -> tuple[tuple[str, int], ...]:
    """The authors of a writer after a commit. What was committed before anybody said who it was is everybody's."""
    before = known.authors
    if before is None:
        before = () if known.last == NO_TRANSACTION else ((ANYBODY, known.last),)
    others = [one for one in before if one[0] != author]
    return (*others[1 - MOST_AUTHORS :], (author, transaction))


def _tokens(record: Committed, known: Writer, authors: Iterable[tuple[str, int]]) -> dict[str, str]:
    """The tokens of a writer's authors after a commit."""
    tokens = {**known.tokens, record.author: record.token}
    return {author: tokens[author] for author, _ in authors if tokens.get(author)}


def _contradiction(fault: str) -> DataFormatError:
    return DataFormatError(
        f"the records of a stream's journal contradict each other: {fault}",
        remedy="Restore the journal from a copy; nothing of the stream was changed",
    )
