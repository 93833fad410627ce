"""One partition: a recording that holds committed transactions and nothing else, extended whenever somebody writes.

What a commit publishes lies behind the committed end until the journal says that it counts. Whatever a commit left
there that did not finish is cut off before the recording goes on, so that positions of what was committed never move.
A partition is used by one thread at a time: the stream's lock for writing sees to that.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.archive import MAX_RECORDINGS, Archive, ArchiveAddress, Recording, archive_of
from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.counters import recent_archive_error
from aeron_spark.aeron.exceptions import archive_error_code, java_errors
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, TransportError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.model import Shape
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.waiting import Deadline, wait_for
from aeron_spark.wire.chunk import NOT_CONTINUED
from aeron_spark.wire.groups import split
from aeron_spark.wire.staged_items import Item, StagedGroup, StagedValues

# Aeron gives the ids of its own sessions from -1 to 1000 to nobody; what is above is free to choose.
FIRST_SESSION: Final = 1_001
LAST_SESSION: Final = 2**31 - 1
RECORDING_TIMEOUT_S: Final = 30.0  # seconds without a sign of life
POLL_INTERVAL_S: Final = 0.2  # seconds between two looks, while waiting, at whether the recording still grows


class NoRoomToRecord(TransportError):
    """The archive records as many publications at once as it may."""


def create(address: ArchiveAddress, alias: str, stream_id: int, term_length: int, mtu: int) -> Shape:
    """Begin the recording of a new partition, at position 0, and return what it is. Raises TransportError."""
    archive = archive_of(address)
    channel = ChannelUri("ipc").with_params(alias=alias, term_length=term_length, mtu=mtu, sparse=True)
    offering, recording_id = _open(archive, channel, stream_id, None)
    with java_errors(f"closing the first publication of {alias}"):
        offering.close()
    found = archive.recording(recording_id)
    if found is None:
        raise TransportError(f"recording {recording_id} of {alias} is gone as soon as it began")
    return Shape.of(found)


@dataclass(frozen=True, slots=True)
class PublishedAhead:
    """What lies behind the committed ``end``: the first ``bytes`` of a stage that is not committed, to ``position``."""

    stage_id: str
    end: int
    bytes: int
    position: int


class Partition:
    """The recording of partition ``index`` of a stream, for writing. ``patience`` is in seconds."""

    def __init__(
        self,
        stream: Definition,
        index: int,
        shape: Shape,
        address: ArchiveAddress,
        *,
        patience: float = RECORDING_TIMEOUT_S,
    ) -> None:
        self.shape = shape
        self.used_at = 0.0  # by the clock of whoever rests partitions
        self.name = f"partition {index} of stream {stream.name!r}"
        self._alias = alias_of(stream, index)
        self._address = address
        self._patience = patience
        self._offering: BatchPublication | None = None
        self._dirty = False
        self._ahead: PublishedAhead | None = None

    @property
    def open(self) -> bool:
        """Whether its publication is open."""
        return self._offering is not None

    @property
    def session_id(self) -> int:
        """The session that is published now, or 0."""
        return 0 if self._offering is None else self._offering.session_id

    def meet(self, found: Recording | None, end: int) -> None:
        """Learn from the archive what the recording is. Raises DataLossError where it is none, or another one."""
        self._refuse_another(found, end)
        if found is not None:
            self.shape = Shape.of(found)

    def begin(self, end: int, stage_id: str) -> int:
        """Make ready to publish behind the committed ``end``, and what was published ahead of the stage ``stage_id``.

        Return how many bytes of that stage are there already: whatever else lies behind the end is cut off. Raises
        DataLossError where the recording does not reach it, TransportError (retriable) where Aeron failed.
        """
        offering, ahead = self._offering, self._ahead
        if (
            offering is not None
            and not self._dirty
            and not offering.client.closed
            and not offering.closed
            and offering.connected
        ):
            position = offering.position
            if ahead is not None and (ahead.stage_id, ahead.end, ahead.position) == (stage_id, end, position):
                return ahead.bytes
            if position == end:
                return 0
        self.cut_back(end)
        self._extend(end)
        return 0

    def spoil(self) -> None:
        """Note that what lies behind the committed end does not count; the next :meth:`begin` cuts it off."""
        self._dirty = True

    def keep_ahead(self, stage_id: str, end: int, published: int) -> None:
        """Note that what lies behind the committed ``end`` is so many bytes of a stage, for the next :meth:`begin`."""
        self._ahead = PublishedAhead(stage_id, end, published, self.position)

    def drop_ahead(self, live: Container[str], end: int) -> None:
        """Cut off what was published ahead of a stage that is gone and behind the committed ``end``."""
        ahead = self._ahead
        if ahead is not None and ahead.stage_id not in live:
            self._ahead = None
            if ahead.end == end:  # else it was committed
                self.cut_back(end)

    def cut_back(self, end: int, known: Recording | None = None) -> int:
        """Stop the recording where it grows, cut off what lies behind ``end``, and return where it ended before.

        ``known`` is what the archive said of it a moment ago, where it was asked. Raises DataLossError where the
        recording is gone, is another one or ends before ``end``.
        """
        self.rest()
        archive = archive_of(self._address)
        found = archive.recording(self.shape.recording_id) if known is None else known
        self._refuse_another(found, end)
        # A publication of a server that was killed lives on in the driver for some seconds, and so does its recording.
        stop = None if found is None else found.stop_position
        if stop is None:
            stop = archive.stop_recording_by_id(self.shape.recording_id, self._patience)
        if stop is None or stop < end:
            raise self._loss(f"recording {self.shape.recording_id} ends at position {stop}", end)
        if stop > end:
            archive.truncate(self.shape.recording_id, end)
        self._dirty = False
        return stop

    def publish(self, item: Item, between: Callable[[], None]) -> None:
        """Publish a staged item: each value as one message, a group as as many chunks as it needs.

        ``between`` is called again and again while a large one is published. Raises DataFormatError for a value longer
        than a message may be, TransportError, WaitTimeout.
        """
        if isinstance(item, StagedGroup):
            self._publish_group(item, between)
        else:
            self._publish_values(item, between)

    def _publish_values(self, item: StagedValues, between: Callable[[], None]) -> None:
        offering = self._publication()
        if item.longest > offering.max_message_bytes:
            raise DataFormatError(
                f"a value of {item.longest} bytes is to become one message of {self.name}, whose messages have at "
                f"most {offering.max_message_bytes}",
                remedy="Write it with payload=framed or payload=arrow, which divide it, or create the stream with "
                "longer terms: a message is at most an eighth of one.",
            )
        first = 0

        def attempt() -> tuple[int, OfferResult | None]:
            nonlocal first
            taken, result = offering.offer_values(item.values, item.reserved, first)
            first += taken
            between()
            return taken, result

        self._until_taken(attempt)

    def _publish_group(self, item: StagedGroup, between: Callable[[], None]) -> None:
        offering = self._publication()
        begun = NOT_CONTINUED
        for chunk in split(item.payload, item.header, max_message_bytes=offering.max_message_bytes):
            at = offering.position
            head = pa.py_buffer(chunk.encode_header(begun, crc32))
            data = chunk.payload

            def attempt(head: pa.Buffer = head, data: pa.Buffer = data) -> tuple[int, OfferResult | None]:
                return 0, offering.offer_gathered(head, data)

            self._until_taken(attempt)
            begun = at if chunk.header.first else begun
            between()

    @property
    def position(self) -> int:
        """Where what was published ends."""
        return self._publication().position

    def await_recorded(self) -> int:
        """Return the position behind what was published once all of it is recorded.

        Raises WaitTimeout where the recording does not come on, TransportError where it ended.
        """
        target = self.position
        archive, recording_id = archive_of(self._address), self.shape.recording_id
        deadline = Deadline(self._patience, f"recording {recording_id} of {self.name} to reach position {target}")
        reached, looked = archive.position(recording_id), deadline.remaining()
        while reached < target:
            if looked - deadline.remaining() > POLL_INTERVAL_S:
                looked = deadline.remaining()
                self._refuse_stopped(archive)
            deadline.idle(f"it is at {reached}")
            archive.keep_alive()
            now = archive.position(recording_id)
            if now > reached:
                reached = now
                deadline.progress()
                looked = deadline.remaining()
        return target

    def purge(self, position: int) -> None:
        """Delete the segments before ``position``, the base of a segment, where there are any."""
        archive = archive_of(self._address)
        found = archive.recording(self.shape.recording_id)
        if found is not None and found.start_position < position:
            archive.purge_segments(self.shape.recording_id, position)

    def rest(self) -> None:
        """Close the publication; its recording ends with it, and goes on in the next :meth:`begin`."""
        offering, self._offering = self._offering, None
        self._ahead = None  # the next one cuts it off
        if offering is not None:
            with suppress(TransportError), java_errors(f"closing the publication of {self.name}"):
                offering.close()

    def await_ended(self) -> None:
        """Wait until the recording of a closed publication has ended, which frees its place in the archive.

        Raises TransportError, WaitTimeout.
        """
        archive_of(self._address).stop_recording_by_id(self.shape.recording_id, self._patience)

    def delete(self) -> None:
        """Delete the recording and its files; nothing happens where it is gone."""
        self.rest()
        delete_recording(archive_of(self._address), self.shape.recording_id, self._patience)

    def _extend(self, end: int) -> None:
        shape = self.shape
        terms, offset = divmod(end, shape.term_length)
        channel = ChannelUri("ipc").with_params(
            alias=self._alias,
            term_length=shape.term_length,
            mtu=shape.mtu,
            sparse=True,
            init_term_id=shape.initial_term_id,
            term_id=_int32(shape.initial_term_id + terms),
            term_offset=offset,
        )
        archive = archive_of(self._address)
        self._offering, _ = _open(archive, channel, shape.stream_id, shape.recording_id)
        if self._offering.position != end:
            raise TransportError(f"the publication of {self.name} began at {self._offering.position}, not at {end}")

    def _publication(self) -> BatchPublication:
        if self._offering is None:
            raise TransportError(f"{self.name} has no publication", remedy="Commit again.")
        return self._offering

    def _until_taken(self, attempt: Callable[[], tuple[int, OfferResult | None]]) -> None:
        deadline = Deadline(self._patience, f"room to publish to {self.name}")
        looked = deadline.remaining()
        while True:
            with java_errors(f"publishing to {self.name}"):
                taken, result = attempt()
            if result is None:
                return
            if result in (OfferResult.NOT_CONNECTED, OfferResult.MAX_POSITION_EXCEEDED):
                raise TransportError(
                    f"{self.name} cannot be published to: {result.sentence}{self._complaint()}", remedy="Commit again."
                )
            if taken:
                deadline.progress()
                looked = deadline.remaining()
            elif looked - deadline.remaining() > POLL_INTERVAL_S:
                looked = deadline.remaining()
                self._refuse_stopped(archive_of(self._address))
            deadline.idle(f"Aeron answered {result.name}: {result.sentence}")

    def _refuse_stopped(self, archive: Archive) -> None:
        stop = archive.stopped_at(self.shape.recording_id)
        if stop is not None:
            raise TransportError(
                f"recording {self.shape.recording_id} of {self.name} stopped at position {stop} while a transaction "
                f"was written to it{self._complaint()}",
                remedy="Nothing of the transaction counts. Put the archive right (its disk may be full), then commit "
                "again.",
            )

    def _refuse_another(self, found: Recording | None, end: int) -> None:
        if found is None:
            raise self._loss(f"recording {self.shape.recording_id} is gone", end)
        if Shape.of(found).fingerprint != self.shape.fingerprint:
            raise self._loss(f"recording {self.shape.recording_id} is another one than was created for it", end)

    def _loss(self, what: str, end: int) -> DataLossError:
        return DataLossError(
            f"{self.name}: {what}, but transactions were committed up to position {end}",
            remedy="The archive's folder was exchanged, or lost what was not yet on its disk. Restore it from a copy; "
            "until then nothing is written to the stream.",
        )

    def _complaint(self) -> str:
        said = recent_archive_error(self._address.aeron_dir)
        return f"; the archive says: {said}" if said else ""


def alias_of(stream: Definition, index: int) -> str:
    """Name a partition's channel as listings of the archive show it; no other stream's has this name."""
    return f"aeron-spark:{stream.name}:{index}:{stream.created_ns:x}"


def delete_recording(archive: Archive, recording_id: int, patience: float = RECORDING_TIMEOUT_S) -> None:
    """Stop a recording and delete it with its files; nothing happens where it is gone."""
    if archive.stop_recording_by_id(recording_id, patience) is not None:
        archive.delete(recording_id)


def _open(
    archive: Archive, channel: ChannelUri, stream_id: int, recording_id: int | None
) -> tuple[BatchPublication, int]:
    """Open a publication on a session of its own and have it recorded; return both once the recording is there."""
    session_id = FIRST_SESSION + secrets.randbelow(LAST_SESSION - FIRST_SESSION)
    recorded = str(ChannelUri("ipc").with_params(alias=channel.get("alias") or "", session_id=session_id))
    try:
        archive.record_session(recorded, stream_id, recording_id)
    except TransportError as error:
        if archive_error_code(error.__cause__) == MAX_RECORDINGS:
            raise NoRoomToRecord(
                error.what, remedy="Let the node record more at once (setting 'max_recordings'), then try again."
            ) from error
        raise
    offering = None
    try:
        offering = BatchPublication(archive.client, str(channel.with_params(session_id=session_id)), stream_id)
        found = wait_for(
            lambda: archive.recording_of_session(session_id, stream_id),
            archive.address.timeout,
            f"the archive to record {channel}",
        )
        wait_for(lambda: offering.connected, archive.address.timeout, f"the archive to listen to {channel}")
    except AeronSparkError:
        with suppress(AeronSparkError):
            if offering is not None:
                offering.close()
            archive.stop_recording(recorded, stream_id)
        raise
    return offering, found


def _int32(number: int) -> int:
    # Term ids wrap around, as Java's ints do.
    return (number + 2**31) % 2**32 - 2**31
