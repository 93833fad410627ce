"""The space of one stream: which of its bytes may be deleted, by retention, purges and leases; and their deletion.

A thread that calls ``purge`` or ``apply_retention`` holds the stream's lock ``_writing``. ``state`` is the stream's
lock ``_state``, which guards the ledger, the journal and the leases.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from aeron_spark.streams.definition import Definition
from aeron_spark.streams.deletion_holds import DeletionHolds
from aeron_spark.streams.journal import JournaledLedger
from aeron_spark.streams.observer import StreamObserver
from aeron_spark.streams.reader_leases import ReaderLease, ReaderLeases
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.retention import Layout, purge_to, retention_starts
from aeron_spark.streams.time_index import SECOND_NS


class StreamSpace:
    """The space of the stream with this ``definition``, which may change.

    ``renew_view`` is called after the starts have changed. While ``holds`` has a hold, rows become unreadable, and
    their files stay.
    """

    def __init__(
        self,
        definition: Definition,
        journal: JournaledLedger,
        recordings: Recordings,
        observer: StreamObserver,
        holds: DeletionHolds,
        state: threading.Lock,
        renew_view: Callable[[], object],
        *,
        clock: Callable[[], float],
        wall: Callable[[], int],
        leases: ReaderLeases | None = None,
    ) -> None:
        self.lease_overrides = 0
        """Leases whose rows the retention deleted, since the stream was opened."""
        self.definition = definition
        self._journal = journal
        self._ledger = journal.ledger
        self._recordings = recordings
        self._observer = observer
        self._holds = holds
        self._state = state
        self._renew_view = renew_view
        self._clock = clock
        self._wall = wall
        self.leases = ReaderLeases() if leases is None else leases
        """Those of the stream's readers; a renamed stream keeps them."""

    # Leases; the caller holds ``state``

    def lease(self, reader: str, positions: Mapping[int, int], seconds: float, owner: str) -> None:
        """Lease the bytes from ``positions`` on to ``reader``; see ``ReaderLeases.renew``."""
        self.leases.renew(reader, positions, seconds, self._clock(), owner)

    def end_leases(self, owner: str) -> None:
        """End all leases of a client's key."""
        self.leases.end_of_owner(owner)

    def live_leases(self) -> list[ReaderLease]:
        """Return the leases that have not expired."""
        return list(self.leases.live(self._clock()).values())

    # Deletion

    def purge(self, partition: int | None, before_position: int | None, before_time_ns: int | None) -> None:
        """Delete whole segments of one or all partitions before a position or a commit time, unless they are leased."""
        with self._state:
            wanted = [before_position or 0] * self.definition.partitions
            if before_time_ns is not None:
                wanted = list(map(max, wanted, self._ledger.position_at(before_time_ns)))
            indexes = range(len(wanted)) if partition is None else [partition]
            self._move_starts({index: wanted[index] for index in indexes}, {})
        self._delete_files()

    def apply_retention(self, lease_delay_s: float) -> None:
        """Raise the starts by the retention. Leases delay it by ``lease_delay_s`` at most."""
        with self._state:
            self.leases.expire(self._clock())
            overdue = self.retention_starts(self.definition, lease_delay_s)
            self._move_starts(self.retention_starts(self.definition), overdue)
        self._delete_files()

    def _delete_files(self) -> None:
        if not self._holds.holder:
            self._recordings.purge()

    def retention_starts(self, definition: Definition, delay_s: float = 0.0) -> dict[int, int]:
        """Return, by partition, the position from which the retention kept rows ``delay_s`` ago; empty without one.

        The retention is that of ``definition``. The caller holds ``state``.
        """
        now_ns = self._wall() - int(delay_s * SECOND_NS)
        ends = self._ledger.position_at(now_ns) if delay_s else self._ledger.ends
        return retention_starts(
            ends, self._ledger.position_at, now_ns, retention_bytes=definition.retention_bytes,
            retention_seconds=definition.retention_seconds,
        )  # fmt: skip

    def _move_starts(self, wanted: Mapping[int, int], overdue: Mapping[int, int]) -> None:
        """Raise the starts of partitions towards these positions, by whole unleased segments.

        Leases do not protect the rows before the positions ``overdue``. The caller holds ``state``.
        """
        now, ledger = self._clock(), self._ledger
        starts = {}
        for index, position in wanted.items():
            shape = self._recordings.partitions[index].shape
            starts[index] = purge_to(
                position,
                Layout(0, shape.term_length, shape.segment_length),
                start=ledger.starts[index],
                end=ledger.ends[index],
                leased=self.leases.lowest_position(index, now),
                overdue=overdue.get(index, 0),
            )
        record = ledger.prepare_purge(starts)
        if record is None:
            return
        overridden = self.leases.overridden(dict(record.starts), now)
        self.lease_overrides += len(overridden)
        trimmed = sum(start - ledger.starts[index] for index, start in record.starts.items())
        self._journal.write(record)
        self._observer.trimmed(self.definition.name, trimmed)
        if overridden:
            self._observer.lease_overridden(self.definition.name, overridden)
        self._renew_view()
        self._recordings.schedule_purge(record.starts)
