"""The partitions of one stream on Aeron's side: published to, recovered, purged and rested together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from aeron_spark.aeron.archive import ArchiveAddress, Recording, archive_of
from aeron_spark.errors import AeronSparkError, ConnectError, DataLossError, TransportError, WaitTimeout
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.journal_records import RecordingOf
from aeron_spark.streams.ledger import Ledger
from aeron_spark.streams.model import PartitionState, Shape, StreamSettings, StreamView
from aeron_spark.streams.partition import NoRoomToRecord, Partition
from aeron_spark.streams.stages import Stage, StageItems
from aeron_spark.waiting import Deadline

T = TypeVar("T")

AHEAD_AT_ONCE: Final = 8 << 20  # bytes of a stage that is not committed yet, before a commit may have its turn
FORGET: Final = 32 << 20  # bytes published of a mapped stage after which the kernel may have its memory back
ROOM_TIMEOUT: Final = 5.0  # seconds for somebody else to end a commit that holds all places


def with_room(attempt: Callable[[], T], make_room: Callable[[], bool]) -> T:
    """Return ``attempt()``, once there is a place among the archive's recordings.

    ``make_room`` frees some, where it can, and takes its time. Raises NoRoomToRecord where there is none for too long.
    """
    deadline = Deadline(ROOM_TIMEOUT, "a place among the archive's recordings")
    while True:
        try:
            return attempt()
        except NoRoomToRecord:
            if make_room():
                deadline.progress()
            elif not deadline.remaining():
                raise
        deadline.idle()


class Recovered(NamedTuple):
    """What became of the recordings of a stream when it was opened."""

    lost: DataLossError | None  # the first thing that is gone, if anything
    cut: dict[int, tuple[int, int]]  # by partition: where its recording ended, and where it ends now


class Recordings:
    """The recordings of a stream; for one thread at a time.

    ``make_room`` frees places of another stream among the archive's recordings and says whether there were any.
    ``held`` is what the journal says which recording holds a partition.
    """

    def __init__(
        self,
        definition: Definition,
        address: ArchiveAddress,
        settings: StreamSettings,
        held: Mapping[int, RecordingOf],
        *,
        clock: Callable[[], float],
        make_room: Callable[[], bool],
    ) -> None:
        missing = [index for index in range(definition.partitions) if index not in held]
        if missing:
            raise DataLossError(
                f"the journal of stream {definition.name!r} names no recording of its partitions {missing}",
                remedy="Restore the stream's folder from a copy.",
            )
        self._address = address
        self._clock = clock
        self._make_room = make_room
        self._to_purge: dict[int, int] = {}  # partitions with segments before their start, which is a segment's base
        self.partitions: Sequence[Partition] = [
            Partition(
                definition,
                index,
                # What the archive says of it takes the place of what is only supposed here: meet().
                Shape(
                    recording_id=held[index].recording_id,
                    fingerprint=held[index].fingerprint,
                    stream_id=stream_id,
                    initial_term_id=0,
                    term_length=definition.term_bytes,
                    mtu=settings.mtu,
                    segment_length=definition.term_bytes,
                ),
                address,
                patience=settings.patience,
            )
            for index, stream_id in enumerate(definition.stream_ids)
        ]

    def recover(self, known: Mapping[int, Recording] | None, starts: Sequence[int], ends: Sequence[int]) -> Recovered:
        """Cut each recording back to its committed end; return what was cut, and what is lost.

        ``known`` are the archive's recordings by id, where somebody has listed them.
        """
        archive = archive_of(self._address)
        lost: DataLossError | None = None
        cut: dict[int, tuple[int, int]] = {}
        for index, partition in enumerate(self.partitions):
            recording_id = partition.shape.recording_id
            found = archive.recording(recording_id) if known is None else known.get(recording_id)
            try:
                partition.meet(found, ends[index])
                was = partition.cut_back(ends[index], found)
            except DataLossError as error:
                lost = lost or error
            except (TransportError, ConnectError, WaitTimeout):
                continue  # somebody replays it, say: before anything is published it is cut back in any case
            else:
                if was > ends[index]:
                    cut[index] = was, ends[index]
                if found is not None and found.start_position < starts[index]:
                    self._to_purge[index] = starts[index]
        return Recovered(lost, cut)

    def publish(self, stages: Mapping[int, Sequence[Stage]], ends: Sequence[int]) -> dict[int, int]:
        """Publish these stages behind the committed ends; return where each partition ends once all is recorded.

        Where they touch more partitions than the archive records at once, those that are recorded make room for the
        next ones. Raises what :class:`Partition` raises; what was published is then cut off before the next time.
        """
        reached: dict[int, int] = {}
        published: list[int] = []  # and open still

        def end_wave() -> bool:
            reached.update((done, self.partitions[done].await_recorded()) for done in published)
            to_come = stages.keys() - published
            published.clear()
            # Of partitions that come later in this transaction some may be open from the one before.
            return self.give_room(to_come) or self.give_room()

        def make_room() -> bool:
            return self.give_room(stages.keys()) or self._make_room() or end_wave()

        try:
            for index, of_partition in stages.items():
                partition = self._about_to_use(index)
                ahead = with_room(partial(partition.begin, ends[index], of_partition[0].id), make_room)
                for stage in of_partition:
                    self._publish_stage(partition, stage, ahead)
                    ahead = 0
                published.append(index)
            reached.update((index, self.partitions[index].await_recorded()) for index in published)
            return {index: reached[index] for index in stages}
        except BaseException:
            self.spoil(stages)
            raise

    def publish_ahead(self, stage: Stage, published: int, end: int) -> int:
        """Publish more of a stage that may still grow behind the committed ``end`` of its partition, but no commit.

        ``published`` bytes of it are. Return how many are then: fewer where they were cut off, and none is tried again,
        for whatever came in between may come again. Raises what :meth:`publish` raises, and nothing is there then;
        NoRoomToRecord at once, for nobody is to make room for it.
        """
        index = stage.description.partition
        partition = self._about_to_use(index)
        try:
            begun = done = partition.begin(end, stage.id)
            if begun < published:
                return begun
            with stage.grown() as items:
                forget = _forgetting(partition, items)
                for reached, item in items.so_far(done):
                    partition.publish(item, forget)
                    done = reached
                    partition.keep_ahead(stage.id, end, done)
                    if done - begun >= AHEAD_AT_ONCE:
                        break
            return done
        except BaseException:
            self.spoil([index])
            raise

    def drop_ahead(self, live: Container[str], ends: Sequence[int]) -> None:
        """Cut off what was published ahead of stages that are gone: it takes room, and nobody will commit it."""
        for partition, end in zip(self.partitions, ends, strict=True):
            partition.drop_ahead(live, end)

    def spoil(self, indexes: Iterable[int]) -> None:
        """Note that what was published to these partitions does not count."""
        for index in indexes:
            self.partitions[index].spoil()

    def _publish_stage(self, partition: Partition, stage: Stage, done: int) -> None:
        """Publish a stage from its byte ``done`` on."""
        with stage.items() as items:
            forget = _forgetting(partition, items)
            for item in items.behind(done):
                partition.publish(item, forget)

    def _about_to_use(self, index: int) -> Partition:
        partition = self.partitions[index]
        partition.used_at = self._clock()
        return partition

    def rest(self, unused_for: float, needed: Collection[int] = ()) -> list[Partition]:
        """Close the publications nobody published to for so many seconds, but those needed; return whose they were."""
        now = self._clock()
        idle = [
            partition
            for index, partition in enumerate(self.partitions)
            if partition.open and index not in needed and now - partition.used_at >= unused_for
        ]
        for partition in idle:
            partition.rest()
        return idle

    def give_room(self, needed: Collection[int] = ()) -> bool:
        """Close all publications but those needed, and return once their places are free; whether there were any.

        Who asks for a place again at once would else take one that is about to be free for one that somebody holds.
        """
        closed = self.rest(0.0, needed)
        for partition in closed:
            partition.await_ended()
        return bool(closed)

    def purge(self, starts: Mapping[int, int]) -> None:
        """Delete the segments before these positions, and those that could not be deleted before.

        Raises TransportError where the archive does not; what is left is tried again the next time.
        """
        self._to_purge.update(starts)
        wrong: AeronSparkError | None = None
        for index, start in list(self._to_purge.items()):
            try:
                self.partitions[index].purge(start)
            except AeronSparkError as error:
                wrong = error
            else:
                del self._to_purge[index]
        if wrong is not None:
            raise wrong

    def view(self, ledger: Ledger) -> StreamView:
        """Return what readers see of these recordings as the ledger is now."""
        states = []
        for index, partition in enumerate(self.partitions):
            shape = partition.shape
            states.append(
                PartitionState(
                    partition=index,
                    recording_id=shape.recording_id,
                    fingerprint=shape.fingerprint,
                    start=ledger.starts[index],
                    end=ledger.ends[index],
                    term_length=shape.term_length,
                    initial_term_id=shape.initial_term_id,
                    mtu=shape.mtu,
                    stream_id=shape.stream_id,
                    session_id=partition.session_id,
                    segment_length=shape.segment_length,
                    start_position=0,
                    epochs=ledger.epochs(index),
                )
            )
        return StreamView(tuple(states), ledger.content, ledger.schema)


def _forgetting(partition: Partition, items: StageItems) -> Callable[[], None]:
    """Return what lets the kernel take back the memory of ``items`` as they are published."""
    forgotten = partition.position

    def forget() -> None:
        nonlocal forgotten
        if partition.position - forgotten > FORGET:
            forgotten = partition.position
            items.forget()

    return forget
