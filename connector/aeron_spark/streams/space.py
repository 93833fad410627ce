"""The disk space of a stream: raises the starts of its partitions, and deletes the files before them.

The start of a partition rises from transaction to transaction; files follow in whole segments. A partition without rows
continues in a new recording at the same position, so that its last segment goes, too. The steps of this move:

1. The archive begins the new recording, at the partition's end.
2. The journal assigns it to the partition.
3. The archive deletes the recording before.

A crash between two steps leaves a recording that the journal does not have; the next start deletes it.

A thread that calls ``purge`` or ``apply_retention`` holds the stream's lock ``_writing``. ``state`` is the stream's
lock ``_state``, which guards the ledger, the journal and the leases.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from aeron_spark.errors import AeronSparkError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal import JournaledLedger
from aeron_spark.streams.journal_records import Recorded
from aeron_spark.streams.model import LeaseOverridden, Shape, StreamTrimmed
from aeron_spark.streams.partition import NoSpaceToRecord
from aeron_spark.streams.reader_leases import ReaderLeases
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.retention import RetentionLimits, allowed_start
from aeron_spark.streams.store_parts import NoRoomToRecord, StoreParts
from aeron_spark.streams.time_index import SECOND_NS
from aeron_spark.wire.stream_requests import HeldBytes, PurgedPartition

# A partition without rows for so long continues in another recording. A shorter time would make recordings for a stream
# whose rows expire before the next ones come.
EMPTY_S: Final = 30.0
MAX_MOVES: Final = 8  # of partitions of a stream to other recordings in one call: commits wait meanwhile


class StreamSpace:
    """The space of the stream with this ``definition``, and the leases of its readers.

    ``renew_view`` is called after a partition has changed. While the store has a hold, rows become unreadable, and
    their files stay.
    """

    def __init__(
        self,
        definition: Callable[[], Definition],
        journal: JournaledLedger,
        recordings: Recordings,
        parts: StoreParts,
        state: threading.Lock,
        renew_view: Callable[[], object],
        leases: ReaderLeases | None = None,
    ) -> None:
        self.lease_overrides = 0
        """Leases whose rows the retention deleted, since the stream was opened."""
        self._definition = definition
        self._journal = journal
        self._ledger = journal.ledger
        self._recordings = recordings
        self._facts = parts.facts
        self._holds = parts.holds
        self._state = state
        self._renew_view = renew_view
        self._clock = parts.clock
        self._ages = parts.ages
        self.leases = ReaderLeases() if leases is None else leases
        """Those of the stream's readers; a renamed stream keeps them."""
        self._empty_since: dict[int, float] = {}  # by partition without rows, whose recording has bytes

    @property
    def limits(self) -> RetentionLimits:
        """The retention of each partition."""
        return RetentionLimits.of(self._definition())

    def retention_starts(self, definition: Definition) -> list[int]:
        """Return, by partition, where the retention of ``definition`` would begin now. The caller holds ``state``."""
        ledger, now_ns = self._ledger, self._ages.now_ns()
        return [
            max(start, RetentionLimits.of(definition).start(times, end, now_ns))
            for times, start, end in zip(ledger.times, ledger.starts, ledger.ends, strict=True)
        ]

    def purge(
        self, partition: int | None, before_position: int | None, before_time_ns: int | None
    ) -> list[PurgedPartition]:
        """Make the transactions of one or all partitions before a position or a commit time unreadable, and free space.

        Rows under a lease follow when it ends.
        """
        with self._state:
            wanted = [min(before_position or 0, end) for end in self._ledger.ends]
            if before_time_ns is not None:
                wanted = list(map(max, wanted, self._ledger.position_at(before_time_ns)))
            indexes = range(len(wanted)) if partition is None else [partition]
            before = {index: self._ledger.starts[index] for index in indexes}
            held_before = {index: sum(self._recordings.unreadable_bytes(index, before[index])) for index in indexes}
            goals = {
                index: allowed_start(
                    self._ledger.times[index], wanted[index], start=before[index], end=self._ledger.ends[index]
                )
                for index in indexes
            }
            self._move_starts({index: self._allowed(index, goal) for index, goal in goals.items()}, goals)
        self._free_files([index for index in self._empty_partitions(0.0) if index in before])
        return [self._purged(index, goals[index], before[index], held_before[index]) for index in indexes]

    def _purged(self, index: int, goal: int, before: int, held_before: int) -> PurgedPartition:
        """Return what a purge did and did not do in a partition."""
        start = self._ledger.starts[index]
        deletable, in_segment = self._recordings.unreadable_bytes(index, start)
        held = []
        if deletable:
            held.append(HeldBytes(deletable, "hold", self._holds.holder))
        if in_segment:
            held.append(HeldBytes(in_segment, "segment" if start < self._ledger.ends[index] else "recording"))
        if goal > start:
            with self._state:
                holders = self.leases.holders(index, goal, self._clock())
            last = max(holders, key=lambda one: (one.seconds, -one.positions[index]), default=None)
            if last is not None:
                until_ns = self._ages.now_ns() + int(last.seconds * SECOND_NS)
                held.append(HeldBytes(goal - start, "lease", last.owner, last.reader, until_ns))
        freed = held_before + start - before - deletable - in_segment
        return PurgedPartition(index, before, start, freed, tuple(held))

    def apply_retention(self, lease_delay_s: float) -> None:
        """Raise the starts by the retention and by purges that leases have delayed, and delete files.

        Leases delay the retention by ``lease_delay_s`` at most.
        """
        with self._state:
            self.leases.expire(self._clock())
            self._move_starts(self._due_starts(lease_delay_s))
        self._free_files(self._empty_partitions(EMPTY_S))

    def _free_files(self, empty: Sequence[int]) -> None:
        """Delete the files without readable rows, and let ``empty`` partitions continue in new recordings."""
        try:
            self._leave_empty_recordings(empty)
        finally:
            if not self._holds.holder:
                self._recordings.purge()

    def _due_starts(self, lease_delay_s: float) -> dict[int, int]:
        """Return, by partition, the starts that are worth a record of the journal. The caller holds ``state``."""
        ledger, limits = self._ledger, self.limits
        if not any(limits) and not ledger.pending:
            return {}
        now_ns = self._ages.now_ns()
        then_ns = now_ns - int(lease_delay_s * SECOND_NS)
        found = {}
        for index, (times, start, end) in enumerate(zip(ledger.times, ledger.starts, ledger.ends, strict=True)):
            if start == end:
                continue
            pending = ledger.pending.get(index, 0)
            wanted = max(pending, limits.start(times, end, now_ns))
            if wanted <= start:
                continue
            then = times.find(then_ns)
            overdue = limits.start(times, end, then_ns, end_then=end if then is None else then)
            allowed = self._allowed(index, wanted, overdue)
            if allowed > start and (
                allowed in (pending, end)
                or self._recordings.frees_segment(index, allowed, end)
                or limits.is_due(times, start, allowed, now_ns)
            ):
                found[index] = allowed
        return found

    def _allowed(self, index: int, wanted: int, overdue: int = 0) -> int:
        """Return the start of a partition towards ``wanted`` that leases allow; rows before ``overdue`` have none."""
        return allowed_start(
            self._ledger.times[index],
            wanted,
            start=self._ledger.starts[index],
            end=self._ledger.ends[index],
            leased=self.leases.lowest_position(index, self._clock()),
            overdue=overdue,
        )

    def _move_starts(self, starts: Mapping[int, int], pending: Mapping[int, int] | None = None) -> None:
        """Raise the starts of partitions to these transactions. The caller holds ``state``.

        ``pending`` are the starts to which a later call is to raise them.
        """
        ledger = self._ledger
        record = ledger.prepare_purge(starts, pending)
        if record is None:
            return
        overridden = self.leases.overridden(record.starts, self._clock())
        self.lease_overrides += len(overridden)
        trimmed = sum(start - ledger.starts[index] for index, start in record.starts.items())
        self._journal.write(record)
        if trimmed:
            self._facts.emit(StreamTrimmed(self._definition().name, trimmed))
        if overridden:
            self._facts.emit(LeaseOverridden(self._definition().name, overridden))
        self._renew_view()
        self._recordings.schedule_purge(record.starts, ledger.ends)

    def _empty_partitions(self, seconds: float) -> list[int]:
        """Return the partitions without rows for ``seconds`` or longer, whose recordings have bytes."""
        now, ledger = self._clock(), self._ledger
        found = []
        for index, (start, end) in enumerate(zip(ledger.starts, ledger.ends, strict=True)):
            if start < end or ledger.recordings[index].start == end:
                self._empty_since.pop(index, None)
            elif now - self._empty_since.setdefault(index, now) >= seconds:
                found.append(index)
        return found

    def _leave_empty_recordings(self, indexes: Sequence[int]) -> None:
        """Let partitions without rows continue in new recordings, at most ``MAX_MOVES`` of them; see the module."""
        partitions = self._recordings.partitions
        free = [index for index in indexes if not partitions[index].is_published_ahead]
        with suppress(NoRoomToRecord, NoSpaceToRecord):  # a later call does it
            for index in free[:MAX_MOVES]:
                self._move_to_new_recording(index)

    def _move_to_new_recording(self, index: int) -> None:
        end = self._ledger.ends[index]
        successor = self._recordings.create_successor(index, end)
        with self._state:
            try:
                self._journal.write(Recorded(index, successor.id, Shape.of(successor).fingerprint, end))
            except AeronSparkError:
                if self._journal.failure is None:  # otherwise the journal may have the new recording
                    self._recordings.retire(index, successor)
                raise
            self._recordings.move_to(index, successor, end)
            self._renew_view()
