"""The recordings of one stream: publishes to them, recovers them, purges them, and closes idle publications."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import Recording
from aeron_spark.errors import AeronSparkError, ConnectError, DataLossError, TransportError, WaitTimeout
from aeron_spark.streams.definition import FIND_AND_RESTORE, Definition
from aeron_spark.streams.journal_records import RecordingOf
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import PartitionState, Shape, StreamView
from aeron_spark.streams.partition import Partition, delete_recording, has_alias
from aeron_spark.streams.retention import Layout
from aeron_spark.streams.stages import CommittableRows, RowItems, Stage
from aeron_spark.streams.store_parts import NoRoomToRecord, StoreParts
from aeron_spark.waiting import Deadline

T = TypeVar("T")

MAX_AHEAD_BYTES: Final = 8 << 20  # published ahead of a commit at a time; other commits run in between
RELEASE_INTERVAL_BYTES: Final = 32 << 20  # after publishing so much of a mapped stage, its memory is released
SLOT_TIMEOUT_S: Final = 5.0  # longest wait for a recording slot that commits of other streams use


def retry_for_slot(attempt: Callable[[], T], free_slots: Callable[[], bool]) -> T:
    """Call ``attempt`` until the archive has a recording slot for it; return its result.

    ``free_slots`` frees slots if possible, which may take time; it returns whether it freed one. Raises NoRoomToRecord
    if no slot becomes free within ``SLOT_TIMEOUT_S``.
    """
    deadline = Deadline(SLOT_TIMEOUT_S, "a recording slot of the archive")
    while True:
        try:
            return attempt()
        except NoRoomToRecord as error:
            # To close further publications while logs are deleted would free more than is needed, again and again.
            if not error.is_being_freed and free_slots():
                deadline.progress()
            elif not deadline.remaining():
                raise
        deadline.idle()


class Recovered(NamedTuple):
    """The result of recovering the recordings of a stream."""

    loss: DataLossError | None  # the first missing or short recording, if any
    truncated: dict[int, tuple[int, int]]  # by partition: the end of its recording before and now


class Recordings:
    """The recordings of a stream, for one thread at a time.

    ``assigned`` has the recording of each partition, from the journal. ``free_slots`` closes publications of another
    stream, which frees recording slots and recorded logs; it returns whether one was open.
    """

    def __init__(
        self,
        definition: Definition,
        assigned: Mapping[int, RecordingOf],
        parts: StoreParts,
        free_slots: Callable[[], bool],
    ) -> None:
        missing = [index for index in range(definition.partitions) if index not in assigned]
        if missing:
            raise DataLossError(
                f"stream {definition.name!r} is damaged: its journal names no recording of the partitions {missing}",
                remedy=FIND_AND_RESTORE,
            )
        self._parts = parts
        self._clock = parts.clock
        self.awaited_s = 0.0
        """Seconds for which the last ``publish`` waited for the archive."""
        self._free_slots = free_slots
        # By partition: the start of a segment, before which segments are still to be deleted.
        self._to_purge: dict[int, int] = {}
        # Recordings that no partition has any more, by id: the partition that had it, and its bytes.
        self._retired: dict[int, tuple[int, int]] = {}
        self.partitions: Sequence[Partition] = [
            Partition(
                definition,
                index,
                # Assumptions, which attach() replaces by the values of the archive.
                Shape(
                    recording_id=assigned[index].recording_id,
                    fingerprint=assigned[index].fingerprint,
                    stream_id=stream_id,
                    initial_term_id=0,
                    term_length=definition.term_bytes,
                    mtu=parts.settings.mtu,
                    segment_length=definition.term_bytes,
                ),
                parts,
            )
            for index, stream_id in enumerate(definition.stream_ids)
        ]

    def recover(self, known: Mapping[int, Recording] | None, starts: Sequence[int], ends: Sequence[int]) -> Recovered:
        """Truncate each recording at its committed end; return the truncated ones, and the first loss.

        ``known`` are the archive's recordings by id, if the caller has listed them. Other recordings of a partition are
        left from a move to another recording, before or after the journal had it; the next :meth:`purge` deletes them.
        """
        archive = archive_of(self._parts.address)
        loss: DataLossError | None = None
        truncated: dict[int, tuple[int, int]] = {}
        of_stream: dict[int, list[Recording]] = {}
        for one in (known or {}).values():
            of_stream.setdefault(one.stream_id, []).append(one)
        for index, partition in enumerate(self.partitions):
            recording_id = partition.shape.recording_id
            found = archive.recording(recording_id) if known is None else known.get(recording_id)
            try:
                partition.attach(found, ends[index])
                was = partition.truncate_to(ends[index], found)
            except DataLossError as error:
                loss = loss or error
            except (TransportError, ConnectError, WaitTimeout):
                continue  # for example during a replay; the next publication truncates it in any case
            else:
                if was > ends[index]:
                    truncated[index] = was, ends[index]
                self.schedule_purge({index: starts[index]}, ends)
                for one in of_stream.get(partition.shape.stream_id, ()):
                    if one.id != recording_id and has_alias(one, partition.alias):
                        self._retired[one.id] = index, (one.stop_position or one.start_position) - one.start_position
        return Recovered(loss, truncated)

    def publish(self, stages: Mapping[int, Sequence[CommittableRows]], ends: Sequence[int]) -> dict[int, int]:
        """Publish these stages after the committed ends, and wait for the archive; return the new ends by partition.

        If they have more partitions than the archive records at once, recorded ones give their slots to the next ones.
        Raises the errors of :class:`Partition`; the next publication then truncates the published bytes.
        """
        self.awaited_s = 0.0
        reached: dict[int, int] = {}
        published: list[int] = []  # partitions whose publications are open, and not awaited yet

        def finish_published() -> bool:
            reached.update(self._await_recorded(published))
            to_come = stages.keys() - published
            published.clear()
            # Publications of partitions that are still to come may be open from an earlier transaction.
            return self.release_slots(to_come) or self.release_slots()

        def free_slots() -> bool:
            return self.release_slots(stages.keys()) or self._free_slots() or finish_published()

        try:
            for index, of_partition in stages.items():
                partition = self._use(index)
                ahead = retry_for_slot(partial(partition.prepare, ends[index], of_partition[0].id), free_slots)
                for stage in of_partition:
                    self._publish_stage(partition, stage, ahead)
                    ahead = 0
                published.append(index)
            reached.update(self._await_recorded(published))
            return {index: reached[index] for index in stages}
        except BaseException:
            self.mark_uncommitted(stages)
            raise

    def _await_recorded(self, published: Iterable[int]) -> dict[int, int]:
        """Wait until the archive has recorded what was published to these partitions; return their ends."""
        begun = self._clock()
        try:
            return {index: self.partitions[index].await_recorded() for index in published}
        finally:
            self.awaited_s += self._clock() - begun

    def publish_ahead(self, stage: Stage, published: int, end: int) -> int:
        """Publish more of a growing stage after the committed ``end`` of its partition; return the published bytes.

        ``published`` is the number of its bytes published before. If another commit has truncated them, the result is
        lower, and nothing is published. Raises the errors of :meth:`publish`, after which nothing of the stage counts
        as published. Raises NoRoomToRecord without waiting: other streams do not give up slots for it.
        """
        index = stage.description.partition
        partition = self._use(index)
        try:
            before = done = partition.prepare(end, stage.id)
            if before < published:
                return before
            with stage.current_items() as items:
                release_memory = _memory_releaser(partition, items)
                for reached, item in items.complete(done):
                    partition.publish(item, release_memory)
                    done = reached
                    partition.note_published_ahead(stage.id, end, done)
                    if done - before >= MAX_AHEAD_BYTES:
                        break
            return done
        except BaseException:
            self.mark_uncommitted([index])
            raise

    def truncate_abandoned(self, live: Container[str], ends: Sequence[int]) -> None:
        """Truncate bytes that were published ahead for stages that are not in ``live``."""
        for partition, end in zip(self.partitions, ends, strict=True):
            partition.truncate_abandoned(live, end)

    def mark_uncommitted(self, indexes: Iterable[int]) -> None:
        """Mark the bytes after the committed ends of these partitions as uncommitted."""
        for index in indexes:
            self.partitions[index].mark_uncommitted()

    def _publish_stage(self, partition: Partition, stage: CommittableRows, done: int) -> None:
        """Publish the items of a stage, or of a request, from their byte ``done`` on."""
        with stage.items() as items:
            release_memory = _memory_releaser(partition, items)
            for item in items.from_byte(done):
                partition.publish(item, release_memory)

    def _use(self, index: int) -> Partition:
        partition = self.partitions[index]
        partition.used_at = self._clock()
        return partition

    def close_idle(self, idle_s: float, needed: Collection[int] = ()) -> list[Partition]:
        """Close publications without use for ``idle_s`` seconds, except ``needed``; return their partitions."""
        now = self._clock()
        idle = [
            partition
            for index, partition in enumerate(self.partitions)
            if partition.is_open and index not in needed and now - partition.used_at >= idle_s
        ]
        for partition in idle:
            partition.close_publication()
        return idle

    def release_slots(self, needed: Collection[int] = ()) -> bool:
        """Close all publications except ``needed``, and wait until their slots are free; return whether one was open.

        Without the wait, a caller that retries at once would find all slots in use, and free further ones needlessly.
        """
        closed = self.close_idle(0.0, needed)
        for partition in closed:
            partition.await_recording_ended()
        return bool(closed)

    def layout(self, index: int) -> Layout:
        """Return the positions at which the segments of a partition begin."""
        partition = self.partitions[index]
        return Layout(partition.first_position, partition.shape.term_length, partition.shape.segment_length)

    def schedule_purge(self, starts: Mapping[int, int], ends: Sequence[int]) -> None:
        """Let the next :meth:`purge` delete the whole segments before these starts of partitions."""
        for index, start in starts.items():
            base = self.layout(index).purge_base(start, ends[index])
            if base > self.partitions[index].first_position:
                self._to_purge[index] = base

    def frees_segment(self, index: int, start: int, end: int) -> bool:
        """Whether a partition that begins at ``start`` and ends at ``end`` needs fewer segments than now."""
        first = self._to_purge.get(index, self.partitions[index].first_position)
        return self.layout(index).purge_base(start, end) > first

    def unreadable_bytes(self, index: int, start: int) -> tuple[int, int]:
        """Return the bytes before ``start`` that are still on the disk: those to be deleted, and those of a segment.

        The latter are in the segment with ``start``.
        """
        first = self.partitions[index].first_position
        base = max(first, self._to_purge.get(index, first))
        retired = sum(size for owner, size in self._retired.values() if owner == index)
        return retired + base - first, max(0, start - base)

    def create_successor(self, index: int, end: int) -> Recording:
        """Create an empty recording that begins at the ``end`` of a partition without rows, for :meth:`move_to`.

        Raises NoRoomToRecord if other streams commit and use all recording slots, TransportError.
        """
        partition = self.partitions[index]
        try:
            return partition.create_successor(end)
        except NoRoomToRecord:
            if not (self.release_slots() or self._free_slots()):
                raise
            return partition.create_successor(end)

    def move_to(self, index: int, successor: Recording, end: int) -> None:
        """Continue a partition in another recording; the next :meth:`purge` deletes the one before."""
        partition = self.partitions[index]
        self._retired[partition.shape.recording_id] = index, end - partition.first_position
        self._to_purge.pop(index, None)
        partition.move_to(successor)

    def retire(self, index: int, recording: Recording) -> None:
        """Let the next :meth:`purge` delete a recording of a partition that its journal does not have."""
        self._retired[recording.id] = index, 0

    def purge(self) -> None:
        """Delete the segments and recordings that are not needed, and those of earlier calls that failed.

        Raises TransportError if the archive fails; the next call retries.
        """
        last_error: AeronSparkError | None = None
        for index, start in list(self._to_purge.items()):
            try:
                self.partitions[index].purge(start)
            except AeronSparkError as error:
                last_error = error
            else:
                del self._to_purge[index]
        for recording_id in list(self._retired):
            try:
                delete_recording(self._parts, recording_id)
            except AeronSparkError as error:
                last_error = error
            else:
                del self._retired[recording_id]
        if last_error is not None:
            raise last_error

    def view(self, ledger: Ledger) -> StreamView:
        """Return the view of these recordings for readers, by the current ledger."""
        states = [
            PartitionState(
                index,
                one.shape,
                ledger.recordings[index],
                ledger.starts[index],
                ledger.ends[index],
                one.session_id,
                ledger.epochs(index),
                ledger.checked_from[index],
            )
            for index, one in enumerate(self.partitions)
        ]
        return StreamView(tuple(states), ledger.content, ledger.schema)


def _memory_releaser(partition: Partition, items: RowItems) -> Callable[[], None]:
    """Return a function that releases the memory of ``items`` from time to time while they are published."""
    released = partition.position

    def release() -> None:
        nonlocal released
        if partition.position - released > RELEASE_INTERVAL_BYTES:
            released = partition.position
            items.release_memory()

    return release
