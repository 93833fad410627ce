"""Reads the committed rows of a stream. Readers take no lock: they use the last view and the archive's files."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.boundary_walk import find_boundary
from aeron_spark.aeron.recording import ArchiveAddress, Recording, segment_at
from aeron_spark.errors import AeronSparkError, DataLossError, OptionError, UsageError
from aeron_spark.log.api import Boundary
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import PartitionState, StreamSettings, StreamView
from aeron_spark.waiting import fail, resolve

Block = tuple[int, bytes | memoryview]  # position and bytes


class ReadableStream:
    """The committed part of a stream. Thread-safe."""

    def __init__(
        self, definition: Definition, address: ArchiveAddress, settings: StreamSettings, view: StreamView
    ) -> None:
        self.definition = definition
        self._address = address
        self._timeout_s = settings.timeout_s
        self._view = view
        self._view_lock = threading.Lock()
        self._waits: dict[Future[bool], list[int]] = {}  # for commits, each with the ends to exceed
        self._closed: AeronSparkError | None = None  # raised by every call

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
        position, rows = find_boundary(
            archive_of(self._address), _recording(state), framed=framed, start=start,
            limit=min(limit, end), end=end, max_rows=max_rows, idle_timeout=self._timeout_s,
        )  # fmt: skip
        return Boundary(position, rows)

    def blocks(
        self, partition: int, start: int, end: int, max_bytes: int, into: memoryview | None = None
    ) -> Iterator[Block]:
        """Return the committed bytes of ``[start, end)``, as ``(position, bytes)`` of at most ``max_bytes``.

        With ``into``, a memory of ``max_bytes``, each block is read into this memory and is valid until the next one.
        Raises DataLossError if bytes were purged, at the call or while the caller iterates.
        """
        state = self._state_from(partition, start)
        name = f"partition {partition} of stream {self.definition.name!r}"
        folder, end = Path(self._address.archive_dir), min(end, state.end)
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

    def check_partition(self, partition: int) -> None:
        """Raise OptionError if the stream has no such partition."""
        if not 0 <= partition < self.definition.partitions:
            raise OptionError(
                f"stream {self.definition.name!r} has no partition {partition}",
                remedy=f"Use a partition from 0 to {self.definition.partitions - 1}.",
                reason="no-partition",
            )

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


def _recording(state: PartitionState) -> Recording:
    """Return the fields of the partition's recording that reading its files needs, without a request to the archive."""
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
