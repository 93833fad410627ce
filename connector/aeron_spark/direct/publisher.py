"""Publishing to a stream: one kept publication a process and stream, deadlines on every wait, two acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from aeron_spark.aeron.archive import Archive, ArchiveAddress, archive_of
from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import recent_archive_error
from aeron_spark.aeron.publication import BatchPublication
from aeron_spark.errors import ConnectError, TransportError, WaitTimeout
from aeron_spark.process_cache import ProcessCache
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri
from aeron_spark.waiting import Deadline, wait_for
from aeron_spark.wire.chunk import NOT_CONTINUED
from aeron_spark.wire.groups import Chunk

POLL_INTERVAL_S: Final = 0.2  # seconds between two looks, while waiting, at whether the recording still grows
INITIAL_POSITION: Final = ("init-term-id", "term-id", "term-offset", "session-id")


@dataclass(frozen=True, slots=True)
class PublishAddress:
    """Where and how to publish; ``archive`` is the one whose recording acknowledges, or None for the driver's word."""

    aeron_dir: str
    channel: str
    stream_id: int
    archive: ArchiveAddress | None = None
    offer_timeout: float = 30.0
    connect_timeout: float = 10.0
    drop_unconnected: bool = False


class _RolledOver(Exception):
    """A new publication was begun in the middle of a group."""


class Publisher:
    """Publishes to ``address`` for one task, over the publication its process keeps.

    A publication at its maximum position is replaced by a new one, with a session of its own. ``connected`` is called
    each time a publication has its subscriber and its recording, before anything is published.
    """

    def __init__(self, address: PublishAddress, connected: Callable[[], None] = lambda: None) -> None:
        self.address = address
        self._connected = connected
        self.dropped = 0
        self._offering = offering_of(address, address.channel)
        self._recording: int | None = None
        self._ready = False
        self._look_again = 0.0

    @property
    def max_message_bytes(self) -> int:
        """The longest message the publication takes."""
        return self._offering.max_message_bytes

    @property
    def closed(self) -> bool:
        """Whether this publisher can do nothing more."""
        return self._offering.closed or self._offering.client.closed

    def publish_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        """Publish each value as one message; see :meth:`BatchPublication.offer_values` for the arrays."""
        first = 0

        def attempt() -> OfferResult | None:
            nonlocal first
            taken, result = self._offering.offer_values(values, reserved, first)
            first += taken
            if taken:
                self._progress()
            if result is OfferResult.NOT_CONNECTED and self.address.drop_unconnected:
                self.dropped += len(values) - first
                return None
            return result

        self._until_taken(attempt)

    def publish_group(self, chunks: Callable[[], Iterable[Chunk]], reserved: int = 0) -> None:
        """Publish the chunks of one group; a new publication in the middle of it begins the group anew.

        ``chunks`` gives them, each time from the first one.
        """
        while True:
            begun = NOT_CONTINUED
            try:
                for chunk in chunks():
                    first = chunk.header.first
                    at = self._publish_chunk(chunk, begun, reserved if first else 0, continues=not first)
                    if at is None:
                        break  # dropped: a group with a hole in it would be worse than none
                    begun = at if first else begun
            except _RolledOver:
                continue
            return

    def _publish_chunk(self, chunk: Chunk, group_position: int, reserved: int, *, continues: bool) -> int | None:
        """Publish one message; return the position of the publication before it, or None where it was dropped."""
        header = pa.py_buffer(chunk.encode_header(group_position, crc32))
        begun: int | None = None

        def attempt() -> OfferResult | None:
            nonlocal begun
            begun = self._offering.position
            result = self._offering.offer_gathered(header, chunk.payload, reserved)
            if result is OfferResult.NOT_CONNECTED and self.address.drop_unconnected:
                self.dropped += chunk.header.rows
                begun = result = None
            return result

        self._until_taken(attempt, in_group=continues)
        return begun

    def wait_acknowledged(self) -> None:
        """Return once everything published is acknowledged: by the archive where it is asked to, else at once."""
        if self.address.archive is None or self._recording is None:
            return
        # First, since a session with an archive that was started anew closes what the one before it had open.
        target = self._offering.position
        archive, recording = archive_of(self.address.archive), self._recording
        deadline = Deadline(self.address.offer_timeout, f"recording {recording} to reach position {target}")
        reached = archive.position(recording)
        while reached < target:
            self._refuse_stopped()
            deadline.idle(f"it is at {reached}")
            now = archive.position(recording)
            if now > reached:
                reached = now
                deadline.progress()

    def _until_taken(self, attempt: Callable[[], OfferResult | None], *, in_group: bool = False) -> None:
        self._connect()
        self._deadline = Deadline(self.address.offer_timeout, self._where("room to publish"))
        while (result := attempt()) is not None:
            if result is OfferResult.MAX_POSITION_EXCEEDED:
                self._roll_over()
                if in_group:
                    raise _RolledOver
            elif result is OfferResult.NOT_CONNECTED:
                self._refuse_stopped(now=True)  # a recording that begins after it would hide the gap
                self._ready = False
                self._connect()
            else:
                self._refuse_stopped()
                self._deadline.idle(f"Aeron answered {result.name}: {result.sentence}")

    def _progress(self) -> None:
        self._deadline.progress()

    def _connect(self) -> None:
        """Wait for a subscriber, and for the recording where it acknowledges: what comes before it is not recorded."""
        if self._ready:
            return
        address = self.address
        try:
            if address.archive is not None:
                archive = archive_of(address.archive)
                self._recording = wait_for(
                    lambda: self._recording_of(archive), address.connect_timeout, self._where("the archive to record")
                )
            if not address.drop_unconnected:
                wait_for(lambda: self._offering.connected, address.connect_timeout, self._where("a subscriber"))
        except WaitTimeout as error:
            raise ConnectError(
                f"{error}{self._complaint()}",
                remedy="Start a subscriber, have the stream recorded (option 'record'), or set whenUnconnected=drop "
                "to publish as plain Aeron does.",
            ) from error
        self._ready = True
        self._connected()

    def _recording_of(self, archive: Archive) -> int | None:
        if self.closed:
            raise TransportError(self._where("the publication of") + " closed while waiting for its recording")
        return archive.recording_of_session(self._offering.session_id, self.address.stream_id)

    def _refuse_stopped(self, *, now: bool = False) -> None:
        """Raise TransportError where the recording that acknowledges ended before what was published was in it."""
        clock = time.monotonic()
        if self.address.archive is None or self._recording is None or (clock < self._look_again and not now):
            return
        self._look_again = clock + POLL_INTERVAL_S
        stop = archive_of(self.address.archive).find_stop_position(self._recording)
        if stop is None or stop >= self._offering.position:
            return
        recording, position = self._recording, self._offering.position
        self._offering.close()  # whoever tries again begins a publication, and a recording, of its own
        raise TransportError(
            f"recording {recording} {self._where('of what is published')} stopped at position {stop}, and {position} "
            f"was published{self._complaint()}",
            remedy="What was acknowledged before is recorded. Put the archive right (its disk may be full: "
            "'aeron-spark doctor', 'aeron-spark errors'), then write this again.",
        )

    def _complaint(self) -> str:
        archive = self.address.archive
        said = recent_archive_error(archive.aeron_dir) if archive is not None and archive.local else ""
        return f"; the archive says: {said}" if said else ""

    def _roll_over(self) -> None:
        self.wait_acknowledged()
        self._offering.close()
        # A position given in the channel was for the first publication; the next one begins where Aeron says.
        channel = ChannelUri.parse(self.address.channel).without(*INITIAL_POSITION)
        self._offering = offering_of(self.address, str(channel))
        self._recording, self._ready = None, False
        self._connect()

    def _where(self, what: str) -> str:
        return f"{what} on {self.address.channel} stream {self.address.stream_id}"


OFFERINGS: Final[ProcessCache[tuple[str, str, int], BatchPublication]] = ProcessCache()  # by driver, channel and stream


def offering_of(address: PublishAddress, channel: str) -> BatchPublication:
    """Return this process's publication of a stream, kept from task to task; after a close a new one."""
    return OFFERINGS.get(
        (address.aeron_dir, address.channel, address.stream_id),
        lambda: BatchPublication(client_of(address.aeron_dir), channel, address.stream_id),
        lambda offering: not offering.closed,
        lambda closed: None,
    )


def close_all() -> None:
    """Close every publication of this process."""
    for key in OFFERINGS.cached_keys():
        offering = OFFERINGS.take(key)
        if offering is not None:
            offering.close()
