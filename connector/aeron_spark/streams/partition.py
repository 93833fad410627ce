"""Writes the recording of one partition, which has committed transactions only; each new publication extends it.

A commit publishes rows after the committed end; they count once the journal has the commit. The rows of a failed commit
are truncated before the recording is extended, so positions of committed rows never change. One thread at a time uses
a partition: the one that holds the stream's ``_writing`` lock.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from aeron_spark.aeron.archive import MAX_RECORDINGS, STORAGE_SPACE, Archive, archive_of
from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.counters import recent_archive_error
from aeron_spark.aeron.java_calls import archive_error_code, java_errors
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.aeron.recording import Recording
from aeron_spark.errors import TOO_LONG, AeronSparkError, DataFormatError, DataLossError, TransportError
from aeron_spark.node.paths import TERMS_PER_LOG
from aeron_spark.streams.definition import FIND_AND_RESTORE, Definition
from aeron_spark.streams.model import RecordingStopped, Shape
from aeron_spark.streams.store_parts import NoRoomToRecord, RecordedLogs, StoreParts
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.waiting import Deadline, wait_for
from aeron_spark.wire.chunks import NOT_CONTINUED, Content, split
from aeron_spark.wire.staged_items import Item, StagedGroup, StagedValues

# Aeron reserves the session ids from -1 to 1000; a program may choose any id above.
FIRST_SESSION: Final = 1_001
LAST_SESSION: Final = 2**31 - 1
POLL_INTERVAL_S: Final = 0.2  # between two checks of a waiting thread whether the archive still records


class NoSpaceToRecord(TransportError):
    """The archive begins and continues no recording, because its disk has too few free bytes."""


def create_recording(parts: StoreParts, alias: str, stream_id: int, term_length: int) -> Shape:
    """Create the recording of a new partition, at position 0; return its shape.

    Raises NoRoomToRecord, TransportError.
    """
    channel = ChannelUri("ipc").with_params(alias=alias, term_length=term_length, mtu=parts.settings.mtu, sparse=True)
    return Shape.of(_create_recorded(parts, channel, stream_id))


def _create_recorded(parts: StoreParts, channel: ChannelUri, stream_id: int) -> Recording:
    """Create an empty recording by a publication that is closed at once; return it.

    Raises NoRoomToRecord, TransportError.
    """
    archive = archive_of(parts.address)
    publication, recording_id = _open_recorded(archive, parts.recorded_logs, channel, stream_id, None)
    _close(publication, parts.recorded_logs, f"closing the first publication of {channel}")
    found = archive.recording(recording_id)
    if found is None:
        raise TransportError(
            f"the archive does not list the new recording {recording_id} of {channel}",
            remedy="See the archive's errors: aeron-spark errors.",
        )
    return found


@dataclass(frozen=True, slots=True)
class PublishedAhead:
    """The first ``bytes`` of a stage, published from the committed ``end`` to ``position`` before their commit."""

    stage_id: str
    end: int
    bytes: int
    position: int


class Partition:
    """The recording of partition ``index`` of a stream, for writing.

    It emits ``RecordingStopped`` if the archive has stopped recording the open publication, once for each publication.
    """

    def __init__(self, stream: Definition, index: int, shape: Shape, parts: StoreParts) -> None:
        self.shape = shape
        self.first_position = 0
        """The first position in the recording's files, once they are attached."""
        self.used_at = 0.0  # seconds by the clock of ``Recordings``
        self.name = f"partition {index} of stream {stream.name!r}"
        self.alias = alias_of(stream, index)
        self._parts = parts
        self._stream = stream.name
        self._index = index
        self._is_stop_reported = False
        self._publication: BatchPublication | None = None
        self._has_uncommitted = False
        self._ahead: PublishedAhead | None = None

    @property
    def is_open(self) -> bool:
        """Whether its publication is open."""
        return self._publication is not None

    @property
    def session_id(self) -> int:
        """The Aeron session id of the open publication, or 0."""
        return 0 if self._publication is None else self._publication.session_id

    @property
    def is_published_ahead(self) -> bool:
        """Whether bytes of a stage were published before their commit."""
        return self._ahead is not None

    def attach(self, found: Recording | None, end: int) -> None:
        """Take over the shape that the archive reports. Raises DataLossError for a missing or another recording."""
        self._check_identity(found, end)
        if found is not None:
            self.shape = Shape.of(found)
            self.first_position = found.start_position

    def prepare(self, end: int, stage_id: str) -> int:
        """Open a publication at the committed ``end``, or after the bytes of stage ``stage_id`` published ahead.

        Returns the number of bytes of that stage that are published already. Other bytes after ``end`` are truncated.
        Raises DataLossError if the recording ends before ``end``, TransportError (retriable) if Aeron failed.
        """
        publication, ahead = self._publication, self._ahead
        if (
            publication is not None
            and not self._has_uncommitted
            and not publication.client.closed
            and not publication.closed
            and publication.connected
        ):
            position = publication.position
            if ahead is not None and (ahead.stage_id, ahead.end, ahead.position) == (stage_id, end, position):
                return ahead.bytes
            if position == end:
                return 0
        elif publication is not None and not self._is_publication_gone and not publication.connected:
            self._report_stop(
                TransportError(
                    f"recording {self.shape.recording_id} of {self.name} stopped{self._archive_error()}",
                    remedy="The server extends it for the next commit. If this repeats, check the archive's disk.",
                )
            )
        self.truncate_to(end)
        self._extend(end)
        return 0

    def mark_uncommitted(self) -> None:
        """Mark the bytes after the committed end as uncommitted; the next :meth:`prepare` truncates them."""
        self._has_uncommitted = True

    def note_published_ahead(self, stage_id: str, end: int, published: int) -> None:
        """Remember for the next :meth:`prepare` that ``published`` bytes of a stage are after the committed ``end``."""
        self._ahead = PublishedAhead(stage_id, end, published, self.position)

    def truncate_abandoned(self, live: Container[str], end: int) -> None:
        """Truncate bytes that were published ahead at ``end``, if their stage is not in ``live`` any more."""
        ahead = self._ahead
        if ahead is not None and ahead.stage_id not in live:
            self._ahead = None
            if ahead.end == end:  # otherwise a commit has moved the end after them
                self.truncate_to(end)

    def truncate_to(self, end: int, known: Recording | None = None) -> int:
        """Close the publication, stop the recording and truncate it at ``end``; return the position of its former end.

        ``known`` is the recording as the archive has just listed it, if the caller has it. Raises DataLossError if the
        recording is missing, is another one, or ends before ``end``.
        """
        self.close_publication()
        archive = archive_of(self._parts.address)
        found = archive.recording(self.shape.recording_id) if known is None else known
        self._check_identity(found, end)
        # The media driver keeps the publication of a killed server for some seconds, and the archive records it.
        stop = None if found is None else found.stop_position
        if stop is None:
            stop = archive.stop_recording_by_id(self.shape.recording_id, self._parts.settings.timeout_s)
        if stop is None or stop < end:
            raise self._data_loss(f"recording {self.shape.recording_id} ends at position {stop}", end)
        if stop > end:
            archive.truncate(self.shape.recording_id, end)
        self._has_uncommitted = False
        return stop

    def publish(self, item: Item, between: Callable[[], None]) -> None:
        """Publish a staged item: each value as one message, a group as its chunks.

        Calls ``between`` after each part of a large item. Raises DataFormatError for a value that is longer than a
        message may be, or that readers would take for checked rows, TransportError, WaitTimeout.
        """
        if isinstance(item, StagedGroup):
            self._publish_group(item, between)
        else:
            self._publish_values(item, between)

    def _publish_values(self, item: StagedValues, between: Callable[[], None]) -> None:
        publication = self._require_publication()
        if item.is_marked:  # here and not when they are staged: this is the first time that all values are read
            raise DataFormatError(
                f"a value for {self.name} is a message with the mark of rows that a server has checked, and readers "
                "would not check it",
                remedy="If you copy another stream, read it with payload=arrow, and write its rows.",
            )
        if item.longest > publication.max_message_bytes:
            raise DataFormatError(
                f"a value of {item.longest} bytes is too long for a message of {self.name}, limit "
                f"{publication.max_message_bytes} bytes",
                remedy="Write it with payload=framed or payload=arrow, which divide values into chunks, or create the "
                "stream with longer segments (--segment): a value has at most an eighth of a segment.",
                reason=TOO_LONG,
            )
        first = 0

        def attempt() -> tuple[int, OfferResult | None]:
            nonlocal first
            taken, result = publication.offer_values(item.values, item.reserved, first)
            first += taken
            between()
            return taken, result

        self._repeat_until_accepted(attempt)

    def _publish_group(self, item: StagedGroup, between: Callable[[], None]) -> None:
        publication = self._require_publication()
        group_position = NOT_CONTINUED
        # Rows that are published ahead are checked before their commit, and no reader has them earlier.
        checked = item.header.content is Content.ARROW
        limit = publication.max_message_bytes
        for chunk in split(item.payload, item.header, max_message_bytes=limit, checked=checked):
            at = publication.position
            head = pa.py_buffer(chunk.encode_header(group_position, crc32))
            data = chunk.payload

            def attempt(head: pa.Buffer = head, data: pa.Buffer = data) -> tuple[int, OfferResult | None]:
                return 0, publication.offer_gathered(head, data)

            self._repeat_until_accepted(attempt)
            group_position = at if chunk.header.first else group_position
            between()

    @property
    def position(self) -> int:
        """The position after the last published byte."""
        return self._require_publication().position

    def await_recorded(self) -> int:
        """Wait until the archive has recorded all published bytes; return their end position.

        Raises WaitTimeout if the recording makes no progress, TransportError if it stopped.
        """
        target = self.position
        archive, recording_id = archive_of(self._parts.address), self.shape.recording_id
        deadline = Deadline(
            self._parts.settings.timeout_s, f"recording {recording_id} of {self.name} to reach position {target}"
        )
        reached, checked_at = archive.position(recording_id), deadline.remaining()
        while reached < target:
            if checked_at - deadline.remaining() > POLL_INTERVAL_S:
                checked_at = deadline.remaining()
                self._check_recording(archive)
            deadline.idle(f"it is at position {reached}")
            archive.keep_alive()
            now = archive.position(recording_id)
            if now > reached:
                reached = now
                deadline.progress()
                checked_at = deadline.remaining()
        return target

    def purge(self, position: int) -> None:
        """Delete the segments before ``position``, which is the start of a segment."""
        archive = archive_of(self._parts.address)
        found = archive.recording(self.shape.recording_id)
        if found is not None and found.start_position < position:
            archive.purge_segments(self.shape.recording_id, position)
        self.first_position = position

    def create_successor(self, end: int) -> Recording:
        """Create an empty recording that begins at ``end``, for :meth:`move_to`. Closes the publication.

        Raises NoRoomToRecord, TransportError.
        """
        self.close_publication()
        return _create_recorded(self._parts, self._channel(end), self.shape.stream_id)

    def move_to(self, successor: Recording) -> None:
        """Continue in another recording, which :meth:`create_successor` made."""
        self.shape = Shape.of(successor)
        self.first_position = successor.start_position
        self._has_uncommitted = False

    def close_publication(self) -> None:
        """Close the publication, which stops its recording; the next :meth:`prepare` extends the recording."""
        publication, self._publication = self._publication, None
        self._ahead = None  # the next extension truncates these bytes
        if publication is not None:
            with suppress(TransportError):
                _close(publication, self._parts.recorded_logs, f"closing the publication of {self.name}")

    def await_recording_ended(self) -> None:
        """Wait until the recording of a closed publication has stopped, which frees its slot in the archive.

        Raises TransportError, WaitTimeout.
        """
        archive_of(self._parts.address).stop_recording_by_id(self.shape.recording_id, self._parts.settings.timeout_s)

    def delete(self) -> None:
        """Delete the recording and its files, if it exists."""
        self.close_publication()
        delete_recording(self._parts, self.shape.recording_id)

    def _channel(self, end: int) -> ChannelUri:
        """Return the channel of a publication that begins at ``end``."""
        shape = self.shape
        terms, offset = divmod(end, shape.term_length)
        return ChannelUri("ipc").with_params(
            alias=self.alias,
            term_length=shape.term_length,
            mtu=shape.mtu,
            sparse=True,
            init_term_id=shape.initial_term_id,
            term_id=_int32(shape.initial_term_id + terms),
            term_offset=offset,
        )

    def _extend(self, end: int) -> None:
        archive = archive_of(self._parts.address)
        self._publication, _ = _open_recorded(
            archive, self._parts.recorded_logs, self._channel(end), self.shape.stream_id, self.shape.recording_id
        )
        self._is_stop_reported = False
        if self._publication.position != end:
            raise TransportError(
                f"the publication of {self.name} began at position {self._publication.position}, expected {end}",
                remedy="Commit again. If this repeats, restart the server.",
            )

    @property
    def _is_publication_gone(self) -> bool:
        """Whether the publication has ended with its media driver, which is no fault of the archive."""
        publication = self._require_publication()
        return publication.client.closed or publication.closed

    def _require_publication(self) -> BatchPublication:
        if self._publication is None:
            raise TransportError(f"{self.name} has no open publication", remedy="Commit again.")
        return self._publication

    def _repeat_until_accepted(self, attempt: Callable[[], tuple[int, OfferResult | None]]) -> None:
        deadline = Deadline(self._parts.settings.timeout_s, f"room to publish to {self.name}")
        checked_at = deadline.remaining()
        while True:
            with java_errors(f"publishing to {self.name}"):
                taken, result = attempt()
            if result is None:
                return
            if result in (OfferResult.NOT_CONNECTED, OfferResult.MAX_POSITION_EXCEEDED):
                error = TransportError(
                    f"publishing to {self.name} failed: {result.sentence}{self._archive_error()}",
                    remedy="Commit again.",
                )
                if result is OfferResult.NOT_CONNECTED and not self._is_publication_gone:
                    self._report_stop(error)
                raise error
            if taken:
                deadline.progress()
                checked_at = deadline.remaining()
            elif checked_at - deadline.remaining() > POLL_INTERVAL_S:
                checked_at = deadline.remaining()
                self._check_recording(archive_of(self._parts.address))
            deadline.idle(f"Aeron returned {result.name}: {result.sentence}")

    def _check_recording(self, archive: Archive) -> None:
        stop = archive.find_stop_position(self.shape.recording_id)
        if stop is not None:
            error = TransportError(
                f"recording {self.shape.recording_id} of {self.name} stopped at position {stop} while a transaction "
                f"was written to it{self._archive_error()}",
                remedy="The transaction is not committed. Check the archive (its disk may be full), then commit again.",
            )
            self._report_stop(error)
            raise error

    def _report_stop(self, error: TransportError) -> None:
        if not self._is_stop_reported:
            self._is_stop_reported = True
            self._parts.facts.emit(RecordingStopped(self._stream, self._index, self.shape.recording_id, error))

    def _check_identity(self, found: Recording | None, end: int) -> None:
        if found is None:
            raise self._data_loss(f"recording {self.shape.recording_id} is missing", end)
        if Shape.of(found).fingerprint != self.shape.fingerprint:
            raise self._data_loss(f"recording {self.shape.recording_id} is not the one that was created for it", end)

    def _data_loss(self, what: str, end: int) -> DataLossError:
        return DataLossError(
            f"{self.name} is damaged: {what}, but transactions were committed up to position {end}",
            remedy=f"{FIND_AND_RESTORE} Until then it is read-only.",
        )

    def _archive_error(self) -> str:
        error = recent_archive_error(self._parts.address.aeron_dir)
        return f"; the archive reports: {error}" if error else ""


def alias_of(stream: Definition, index: int) -> str:
    """Return the alias of a partition's channel, which the archive lists; no other stream has it."""
    return f"aeron-spark:{stream.original_name}:{index}:{stream.created_ns:x}"


def has_alias(recording: Recording, alias: str) -> bool:
    """Whether the channel of a recording has this alias."""
    return ChannelUri.parse(recording.original_channel, foreign=True).get("alias") == alias


def is_recording_of(recording: Recording, mark: str) -> bool:
    """Whether a recording is one of the stream with this mark: its original name and its creation, as in the alias."""
    alias = ChannelUri.parse(recording.original_channel, foreign=True).get("alias") or ""
    prefix, _, rest = alias.rpartition(":")
    return f"{prefix.rpartition(':')[0]}-{rest}" == f"aeron-spark:{mark}"


def delete_recording(parts: StoreParts, recording_id: int) -> None:
    """Stop a recording and delete it with its files, if it exists."""
    archive = archive_of(parts.address)
    if archive.stop_recording_by_id(recording_id, parts.settings.timeout_s) is not None:
        archive.delete(recording_id)


def _open_recorded(
    archive: Archive, recorded_logs: RecordedLogs, channel: ChannelUri, stream_id: int, recording_id: int | None
) -> tuple[BatchPublication, int]:
    """Open a publication with a new session id and record it, or extend ``recording_id``; return it and the id.

    Raises NoRoomToRecord, NoSpaceToRecord, TransportError.
    """
    size = TERMS_PER_LOG * int(channel.get("term-length") or 0)
    recorded_logs.add(size)
    try:
        return _open_publication(archive, channel, stream_id, recording_id)
    except BaseException:
        recorded_logs.remove(size)
        raise


def _close(publication: BatchPublication, recorded_logs: RecordedLogs, action: str) -> None:
    """Close a publication of :func:`_open_recorded`. Raises TransportError with the name of the ``action``."""
    try:
        with java_errors(action):
            publication.close()
    finally:
        recorded_logs.remove(TERMS_PER_LOG * publication.term_length, publication.log_file)


def _open_publication(
    archive: Archive, channel: ChannelUri, stream_id: int, recording_id: int | None
) -> tuple[BatchPublication, int]:
    session_id = FIRST_SESSION + secrets.randbelow(LAST_SESSION - FIRST_SESSION)
    recorded = str(ChannelUri("ipc").with_params(alias=channel.get("alias") or "", session_id=session_id))
    try:
        archive.record_session(recorded, stream_id, recording_id)
    except TransportError as error:
        code = archive_error_code(error.__cause__)
        if code == STORAGE_SPACE:
            raise NoSpaceToRecord(
                f"the disk of the archive's folder {archive.address.archive_dir} has too few free bytes to record: "
                f"{error.what}",
                remedy="Free some space on this disk, or purge or delete a stream; then try again.",
            ) from error
        if code == MAX_RECORDINGS:
            raise NoRoomToRecord(
                error.what, remedy="Raise the setting 'max_recordings' of the node, then try again."
            ) from error
        raise
    publication = None
    try:
        publication = BatchPublication(archive.client, str(channel.with_params(session_id=session_id)), stream_id)
        found = wait_for(
            lambda: archive.recording_of_session(session_id, stream_id),
            archive.address.timeout,
            f"the archive to record {channel}",
        )
        wait_for(lambda: publication.connected, archive.address.timeout, f"the archive to listen to {channel}")
    except AeronSparkError:
        with suppress(AeronSparkError):
            if publication is not None:
                publication.close()
            archive.stop_recording(recorded, stream_id)
        raise
    return publication, found


def _int32(number: int) -> int:
    # Term ids wrap around like ints of Java.
    return (number + 2**31) % 2**32 - 2**31
