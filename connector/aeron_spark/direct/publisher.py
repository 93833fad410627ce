"""Publishes to a stream: one publication per process and stream, a deadline on each wait, and acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.archive import Archive, archive_of
from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import recent_archive_error
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.errors import ConnectError, TransportError, WaitTimeout
from aeron_spark.process_cache import ProcessCache
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.waiting import Deadline, wait_for
from aeron_spark.wire.chunk import NOT_CONTINUED
from aeron_spark.wire.groups import Chunk

RECORDING_POLL_INTERVAL_S: Final = 0.2  # between two checks, during a wait, that the recording has not stopped
INITIAL_POSITION: Final = ("init-term-id", "term-id", "term-offset", "session-id")


@dataclass(frozen=True, slots=True)
class PublishAddress:
    """The stream to publish to, and how; ``archive``: its recording acknowledges, None: Aeron's acceptance is enough.

    Timeouts are in seconds.
    """

    aeron_dir: str
    channel: str
    stream_id: int
    archive: ArchiveAddress | None = None
    offer_timeout: float = 30.0
    connect_timeout: float = 10.0
    drop_unconnected: bool = False


Mark = tuple[BatchPublication, int]


class _RolledOver(Exception):
    """A new publication has replaced the one that had the first chunks of a group."""


class Publisher:
    """Publishes the rows of one task to ``address``, over the publication that the process keeps.

    A publication at its maximum position is replaced by a new one, with another Aeron session id. ``connected`` is
    called each time that a publication has its subscriber and its recording, before it publishes.
    """

    def __init__(self, address: PublishAddress, connected: Callable[[], None] = lambda: None) -> None:
        self.address = address
        self._connected = connected
        self.dropped = 0  # messages, because no subscriber was connected
        self._publication = publication_of(address, address.channel)
        self._recording_id: int | None = None
        self._is_connected = False
        self._next_check = 0.0  # of the recording, in monotonic seconds

    @property
    def max_message_bytes(self) -> int:
        """The length of the longest message that the publication takes."""
        return self._publication.max_message_bytes

    @property
    def closed(self) -> bool:
        """Whether the publication or its Aeron client is closed."""
        return self._publication.closed or self._publication.client.closed

    def publish_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Publish each value as one message; see :meth:`BatchPublication.offer_values` for the arrays."""
        first = 0

        def attempt() -> OfferResult | None:
            nonlocal first
            taken, result = self._publication.offer_values(values, reserved, first)
            first += taken
            if taken:
                self._deadline.progress()
            if result is OfferResult.NOT_CONNECTED and self.address.drop_unconnected:
                self.dropped += len(values) - first
                return None
            return result

        self._repeat_until_taken(attempt)

    def publish_group(self, chunks: Callable[[], Iterable[Chunk]], reserved: int = 0) -> None:
        """Publish the chunks of one group; if a new publication is needed within it, publish all of them there.

        ``chunks`` returns them, each time from the first one.
        """
        while True:
            group_position = NOT_CONTINUED
            try:
                for chunk in chunks():
                    is_first = chunk.header.first
                    position = self._publish_chunk(
                        chunk, group_position, reserved if is_first else 0, continues=not is_first
                    )
                    if position is None:
                        break  # dropped: a reader cannot join a group that lacks a chunk
                    group_position = position if is_first else group_position
            except _RolledOver:
                continue
            return

    def _publish_chunk(self, chunk: Chunk, group_position: int, reserved: int, *, continues: bool) -> int | None:
        """Publish one message; return the publication's position before it, or None if the message was dropped."""
        header = pa.py_buffer(chunk.encode_header(group_position, crc32))
        position: int | None = None

        def attempt() -> OfferResult | None:
            nonlocal position
            position = self._publication.position
            result = self._publication.offer_gathered(header, chunk.payload, reserved)
            if result is OfferResult.NOT_CONNECTED and self.address.drop_unconnected:
                self.dropped += chunk.header.rows
                position = result = None
            return result

        self._repeat_until_taken(attempt, in_group=continues)
        return position

    def wait_acknowledged(self) -> None:
        """Return when the archive has recorded all published messages; at once if no archive acknowledges.

        Raises WaitTimeout if the recording does not grow for ``offer_timeout``, TransportError if it stopped early.
        """
        if self.address.archive is None or self._recording_id is None:
            return
        # Read the position first: a new session with a restarted archive closes the publications of the old one.
        target = self._publication.position
        archive, recording_id = archive_of(self.address.archive), self._recording_id
        deadline = Deadline(self.address.offer_timeout, f"recording {recording_id} to reach position {target}")
        recorded = archive.position(recording_id)
        while recorded < target:
            self._refuse_stopped()
            deadline.idle(f"it is at {recorded}")
            position = archive.position(recording_id)
            if position > recorded:
                recorded = position
                deadline.progress()

    def mark(self) -> Mark:
        """Return the present end of what was published, for :meth:`has_recorded`."""
        return self._publication, self._publication.position

    def has_recorded(self, mark: Mark) -> bool:
        """Whether the archive has recorded all before ``mark``; True if no archive acknowledges. Does not wait."""
        publication, position = mark
        if self.address.archive is None or self._recording_id is None:
            return True
        if publication is not self._publication:  # the next one began after the archive had recorded this one
            return True
        return archive_of(self.address.archive).position(self._recording_id) >= position

    def _repeat_until_taken(self, attempt: Callable[[], OfferResult | None], *, in_group: bool = False) -> None:
        """Repeat an offer until it returns None: Aeron has taken all of it, or it was dropped."""
        self.connect()
        self._deadline = Deadline(self.address.offer_timeout, self._on_stream("room to publish"))
        while (result := attempt()) is not None:
            if result is OfferResult.MAX_POSITION_EXCEEDED:
                self._roll_over()
                if in_group:
                    raise _RolledOver
            elif result is OfferResult.NOT_CONNECTED:
                self._refuse_stopped(now=True)  # a recording that begins later would hide the missing messages
                self._is_connected = False
                self.connect()
            else:
                self._refuse_stopped()
                self._deadline.idle(f"Aeron answered {result.name}: {result.sentence}")

    def connect(self) -> None:
        """Wait for a subscriber, and for the recording if it acknowledges: earlier messages would not be recorded."""
        if self._is_connected:
            return
        address = self.address
        try:
            if address.archive is not None:
                archive = archive_of(address.archive)
                self._recording_id = wait_for(
                    lambda: self._find_recording(archive),
                    address.connect_timeout,
                    self._on_stream("the archive to record"),
                )
            if not address.drop_unconnected:
                wait_for(lambda: self._publication.connected, address.connect_timeout, self._on_stream("a subscriber"))
        except WaitTimeout as error:
            raise ConnectError(
                f"{error}{self._archive_error_text()}",
                remedy="Start a subscriber, have the stream recorded (option 'record'), or set whenUnconnected=drop "
                "to publish as plain Aeron does.",
            ) from error
        self._is_connected = True
        self._connected()

    def _find_recording(self, archive: Archive) -> int | None:
        if self.closed:
            raise TransportError(
                self._on_stream("the publication of") + " closed before its recording began",
                remedy="Check that the media driver runs, then publish again.",
            )
        return archive.recording_of_session(self._publication.session_id, self.address.stream_id)

    def _refuse_stopped(self, *, now: bool = False) -> None:
        """Raise TransportError if the recording stopped before the publication's position.

        Requests the state from the archive each ``RECORDING_POLL_INTERVAL_S`` at most, unless ``now`` is set.
        """
        time_s = time.monotonic()
        if self.address.archive is None or self._recording_id is None or (time_s < self._next_check and not now):
            return
        self._next_check = time_s + RECORDING_POLL_INTERVAL_S
        stop = archive_of(self.address.archive).find_stop_position(self._recording_id)
        if stop is None or stop >= self._publication.position:
            return
        recording_id, position = self._recording_id, self._publication.position
        self._publication.close()  # the next attempt opens a new publication with a new recording
        raise TransportError(
            f"recording {recording_id} {self._on_stream('of what is published')} stopped at position {stop}, and "
            f"{position} was published{self._archive_error_text()}",
            remedy="What was acknowledged before is recorded. Put the archive right (its disk may be full: "
            "'aeron-spark doctor', 'aeron-spark errors'), then write this again.",
        )

    def _archive_error_text(self) -> str:
        archive = self.address.archive
        error = recent_archive_error(archive.aeron_dir) if archive is not None and archive.local else ""
        return f"; the archive says: {error}" if error else ""

    def _roll_over(self) -> None:
        self.wait_acknowledged()
        self._publication.close()
        # An initial position in the channel was for the first publication; Aeron chooses that of the next one.
        channel = ChannelUri.parse(self.address.channel).without(*INITIAL_POSITION)
        self._publication = publication_of(self.address, str(channel))
        self._recording_id, self._is_connected = None, False
        self.connect()

    def _on_stream(self, what: str) -> str:
        return f"{what} on {self.address.channel} stream {self.address.stream_id}"


# By driver directory, channel and stream id.
PUBLICATIONS: Final[ProcessCache[tuple[str, str, int], BatchPublication]] = ProcessCache()


def publication_of(address: PublishAddress, channel: str) -> BatchPublication:
    """Return this process's publication of a stream, shared by its tasks; after a close a new one."""
    return PUBLICATIONS.get(
        (address.aeron_dir, address.channel, address.stream_id),
        lambda: BatchPublication(client_of(address.aeron_dir), channel, address.stream_id),
        lambda publication: not publication.closed,
        lambda closed: None,
    )


def close_all() -> None:
    """Close every publication of this process."""
    for key in PUBLICATIONS.cached_keys():
        publication = PUBLICATIONS.take(key)
        if publication is not None:
            publication.close()
