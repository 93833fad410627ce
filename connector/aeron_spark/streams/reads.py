"""What was committed to a stream, for readers, who wait for nobody: they see the last view, and the archive's files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from aeron_spark.aeron.archive import ArchiveAddress, Recording, archive_of
from aeron_spark.aeron.boundary_walk import find_boundary
from aeron_spark.aeron.row_sources import segment_at
from aeron_spark.errors import DataLossError, OptionError, UsageError
from aeron_spark.log.api import Boundary
from aeron_spark.log.epochs import DIVERGED, diverged_sentence
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import PartitionState, StreamSettings, StreamView


class Reading:
    """The committed part of the stream ``definition``; every method may be called by many threads at once."""

    def __init__(
        self, definition: Definition, address: ArchiveAddress, settings: StreamSettings, view: StreamView
    ) -> None:
        self.definition = definition
        self._address = address
        self._patience = settings.patience
        self._view = view
        self._changed = threading.Condition()
        self._closed = ""  # why nothing can be done any more

    def content(self) -> tuple[str, bytes | None]:
        """Return what the stream holds ("raw", "framed", "arrow", "" before the first rows), and its Arrow schema."""
        view = self._view
        return view.content, view.schema

    def states(self) -> list[PartitionState]:
        """Return all partitions at one moment: a transaction is in all of those it touched or in none."""
        self._refuse_closed()
        return list(self._view.states)

    def boundary(
        self, partition: int, start: int, limit: int, end: int, max_rows: int | None, *, framed: bool
    ) -> Boundary:
        """Return where a range from ``start`` may end; see :class:`aeron_spark.log.api.Boundaries`.

        Raises DataLossError where ``start`` was purged.
        """
        state = self._readable(partition, start)
        end = min(end, state.end)
        if start >= end:
            return Boundary(start, 0)
        position, rows = find_boundary(
            archive_of(self._address), _recording(state), framed=framed, start=start,
            limit=min(limit, end), end=end, max_rows=max_rows, idle_timeout=self._patience,
        )  # fmt: skip
        return Boundary(position, rows)

    def blocks(
        self, partition: int, start: int, end: int, most: int, into: memoryview | None = None
    ) -> Iterator[tuple[int, bytes | memoryview]]:
        """Return the log of ``[start, end)``, as far as it is committed, as ``(position, bytes)`` of at most ``most``.

        Where memory for as many is given they are read ``into`` it, and last until the next ones. Raises DataLossError
        where it was purged, at once or while it is read.
        """
        state = self._readable(partition, start)
        name = f"partition {partition} of stream {self.definition.name!r}"
        return read_blocks(
            Path(self._address.archive_dir), _recording(state), name, start, min(end, state.end), max(1, most), into
        )

    def check_epoch(self, partition: int, epoch: int, position: int) -> None:
        """Raise DataLossError, reason "diverged", where this stream has not the bytes before a reader's position.

        ``epoch`` is that of the byte before ``position``.
        """
        self._refuse_closed()
        self._check_partition(partition)
        state = self._view.states[partition]
        at = state.epochs.diverged_at(epoch, position, state.end)
        if at is not None:
            raise DataLossError(
                diverged_sentence(self.definition.name, partition, "reader", position, at),
                remedy=f"Read on from position {at}, and restore what was made of the rows behind it",
                reason=DIVERGED,
            )

    def wait_beyond(self, ends: list[int], seconds: float) -> bool:
        """Wait until any partition is committed beyond ``ends``, a position for each; False where none is in time."""
        if len(ends) != self.definition.partitions:
            raise UsageError(f"{len(ends)} positions for {self.definition.partitions} partitions")
        with self._changed:
            beyond = self._changed.wait_for(lambda: self._closed or self._view.beyond(ends), max(0.0, seconds))
        self._refuse_closed()
        return bool(beyond)

    def _show(self, view: StreamView) -> None:
        """Let readers see ``view`` from now on, and wake those that wait for more."""
        with self._changed:
            self._view = view
            self._changed.notify_all()

    def _end(self, why: str) -> None:
        """Refuse everything from now on, as the stream was ``why``: closed or deleted."""
        with self._changed:
            self._closed = why
            self._changed.notify_all()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError(
                f"stream {self.definition.name!r} was {self._closed}", remedy="Create it anew, or restart the server."
            )

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self.definition.partitions:
            raise OptionError(
                f"stream {self.definition.name!r} has no partition {partition}",
                remedy=f"It has {self.definition.partitions}, numbered from 0.",
            )

    def _readable(self, partition: int, start: int) -> PartitionState:
        self._refuse_closed()
        self._check_partition(partition)
        state = self._view.states[partition]
        if start < state.start:
            raise DataLossError(
                f"partition {partition} of stream {self.definition.name!r} was purged up to position {state.start}, "
                f"and is wanted from {start}",
                remedy="Set failOnDataLoss=false to go on with what there is, and purge later than it is read.",
            )
        return state


def _recording(state: PartitionState) -> Recording:
    """The recording of a partition as readers of its files need it, without asking the archive."""
    return Recording(
        id=state.recording_id,
        start_timestamp=0,
        stop_timestamp=None,
        start_position=state.start_position,
        stop_position=None,
        initial_term_id=state.initial_term_id,
        segment_length=state.segment_length,
        term_length=state.term_length,
        mtu=state.mtu,
        session_id=0,
        stream_id=state.stream_id,
        channel="",
        original_channel="",
        source="",
    )


def read_blocks(
    folder: Path, recording: Recording, name: str, start: int, end: int, most: int, into: memoryview | None = None
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield ``(position, log bytes)`` of ``[start, end)``, each at most ``most`` bytes and never empty.

    Where memory for as many is given they are read ``into`` it, one after the other, and last until the next ones.
    Blocks follow each other without a gap and may begin and end within a frame; ``end`` must be recorded. ``name`` says
    in errors whose recording it is. Raises DataLossError where a segment was deleted or is shorter than it was.
    """
    at = start
    while at < end:
        found = segment_at(folder, recording, at)
        if found is None:
            raise _gone(recording, name, at, end)
        path, base = found
        try:
            # What is deleted while it is open can be read to its end.
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise _gone(recording, name, at, end) from None
        with file:
            stop = min(end, base + recording.segment_length)
            while at < stop:
                wanted = min(most, stop - at)
                data: bytes | memoryview
                if into is None:
                    data = os.pread(file.fileno(), wanted, at - base)
                else:
                    data = into[: os.preadv(file.fileno(), [into[:wanted]], at - base)]
                if not data:
                    raise _gone(recording, name, at, end)
                yield at, data
                at += len(data)


def _gone(recording: Recording, name: str, at: int, end: int) -> DataLossError:
    return DataLossError(
        f"{name}: the log of recording {recording.id} at position {at} is gone, and [{at}, {end}) was to be read",
        remedy="Set failOnDataLoss=false to go on with what there is, and keep more of the stream (its retention) than "
        "its slowest reader needs.",
    )
