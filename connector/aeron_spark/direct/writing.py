"""Writes to a channel and stream id: publishes rows, and waits until an archive has recorded them.

``ArchiveWriter`` is the ``LogWriter`` of this route: rows are visible at once, so a commit has nothing to do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.aeron.archive import Archive, archive_of
from aeron_spark.aeron.checksum import crc32
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import recent_archive_error
from aeron_spark.aeron.publications import BatchPublication
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress, archives_of
from aeron_spark.direct.recordings import check_receivable
from aeron_spark.errors import (
    TOO_LONG,
    AeronSparkError,
    ConnectError,
    DataFormatError,
    OptionError,
    SetupError,
    TransportError,
    WaitTimeout,
)
from aeron_spark.log.writing import RowEncoder, Source, values_of
from aeron_spark.options import WriteOptions, direct_route
from aeron_spark.process import ProcessCache
from aeron_spark.transport.api import OfferResult
from aeron_spark.transport.channel import ChannelUri, refuse_archive_streams
from aeron_spark.waiting import Deadline, wait_for
from aeron_spark.wire.arrow import other_payload
from aeron_spark.wire.chunks import NOT_CONTINUED, Chunk, Header, Payload, split
from aeron_spark.wire.stream_requests import CommitPart, Committed, LastCommitted, Transaction

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


CONFIRM_INTERVAL_S: Final = 0.1  # between two looks at how far the archive has recorded

# Streams whose archive has acknowledged rows of this process: directory, archive, channel and stream id.
ACKNOWLEDGED: Final[set[tuple[str | None, str, str, int]]] = set()


class ArchiveWriter:
    """Writes to the stream of ``options``, at least once; see :class:`aeron_spark.log.writing.LogWriter`.

    Rows are visible when they are published. ``commit`` and ``abort`` do nothing; a repeated task publishes its rows
    again.
    """

    has_transactions = False
    has_schema = False
    servers: tuple[str, ...] = ()

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def check_other_host(self) -> None:
        """Raise SetupError if the embedded archive has to acknowledge the rows: each host has another one."""
        if direct_route(self._options.route).embedded and self._options.ack == "archive":
            raise SetupError(
                "archive=embedded is the archive of one machine, but this task runs on another machine than the driver",
                remedy="Name an archive that all hosts reach with option 'archive', or set ack=driver.",
            )

    def server_of(self, transaction: Transaction) -> str:
        """Return "": no server takes the rows."""
        return ""

    def has_reached(self, server: str) -> bool:
        """Whether the archive has acknowledged rows of this process."""
        route = direct_route(self._options.route)
        return any(known[:2] == (route.aeron_dir, route.archive[0]) for known in ACKNOWLEDGED)

    def check_answers(self, transaction: Transaction, server: str) -> None:
        """Return if the media driver answers, and the archive, too, if it has acknowledged rows of this process."""
        route = direct_route(self._options.route)
        archives = archives_of(route).archives[:1]
        if self.has_reached(server):
            ArchiveLog(StreamAddress(route.channel, route.stream_id, archives)).recorded()

    def begin(self, transaction: Transaction, source: Source, payload: str) -> DirectAppender:
        """Return an appender for the rows of one task."""
        return DirectAppender(self._options, source, payload=payload)

    def commit(
        self, transaction: Transaction, server: str, parts: Sequence[CommitPart], rows: int, token: str = ""
    ) -> Committed:
        """Do nothing: published rows are visible."""
        return Committed(repeated=False, ends=(), stamp="")

    def abort(self, transaction: Transaction, server: str) -> None:
        """Do nothing: published rows cannot be taken back."""

    def last_committed(self, transaction: Transaction, server: str) -> LastCommitted:
        """Return that no transaction is committed."""
        return LastCommitted(-1, "")


class DirectAppender:
    """Appends the rows of one task to the stream of ``options``; see :class:`aeron_spark.log.writing.Appender`.

    ``payload`` is that of :meth:`append`. Rows are numbered from 0. ``connected`` is called each time that a
    publication has its subscriber and its recording, before it publishes.
    """

    committed = False

    def __init__(
        self,
        options: WriteOptions,
        source: Source,
        *,
        payload: str = "arrow",
        clock: Callable[[], int] = time.time_ns,
        connected: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.route = direct_route(options.route)
        self._payload = payload
        self._connected = connected
        self._encoder = RowEncoder(source, clock=clock, reuses_memory=True)
        self._publishers: dict[tuple[str, int], Publisher] = {}
        self._recordings: list[Callable[[], object]] = []  # each ends one that this appender has started
        self._payloads: dict[tuple[str, int], str] = {}  # of the publishers' streams
        self._unconfirmed: deque[tuple[int, list[tuple[Publisher, Mark]]]] = deque()  # rows, and all before them
        self._next_check = 0.0  # of what is recorded, in monotonic seconds
        self.confirmed = 0
        """The number of rows that ``check_confirmed`` has found recorded, or with ack=driver taken by the driver."""

    @property
    def rows(self) -> int:
        """The number of rows appended so far, dropped ones included."""
        return self._encoder.rows

    @property
    def dropped(self) -> int:
        """The number of messages that were dropped because no subscriber was connected (``whenUnconnected=drop``)."""
        return sum(publisher.dropped for publisher in self._publishers.values())

    def append(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch as the payload says; see :meth:`aeron_spark.log.writing.Appender.append`."""
        if self._payload == "arrow":
            self.arrow(batch)
            return
        append_values = self.framed if self._payload == "framed" else self.raw
        for at, part in self._by_stream(batch):
            values, reserved = values_of(part)
            append_values(values, reserved, at)

    def raw(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None, at: tuple[str, int] | None = None
    ) -> None:
        """Append each value as one message, its bytes unchanged. ``at``: channel and id of another stream."""
        publisher = self._publisher(at, "raw")
        self._check_values(values, publisher.max_message_bytes)
        self._encoder.raw(values, reserved, _PublisherSink(publisher, publisher.max_message_bytes))

    def framed(
        self, values: pa.Array[Any], reserved: pa.Array[Any] | None = None, at: tuple[str, int] | None = None
    ) -> None:
        """Append each value in the wire format, in chunks if it is larger than a message."""
        publisher = self._publisher(at, "framed")
        limit = self._message_limit(publisher)
        self._encoder.framed(values, reserved, _PublisherSink(publisher, limit), limit)

    def arrow(self, batch: pa.RecordBatch, at: tuple[str, int] | None = None) -> None:
        """Append the rows of a batch as Arrow, divided into groups that fit into a message; a longer row in chunks."""
        publisher = self._publisher(at, "arrow", batch.schema)
        limit = self._message_limit(publisher)
        self._encoder.arrow(batch, _PublisherSink(publisher, limit), limit)

    def finish(self) -> tuple[CommitPart, ...]:
        """Wait until all rows are acknowledged. Returns no parts: a commit has nothing to do."""
        for publisher in self._publishers.values():
            publisher.wait_acknowledged()
        self._unconfirmed.clear()
        self.confirmed = self.rows
        return ()

    def check_confirmed(self) -> None:
        """Count the rows that are confirmed now; call it after :meth:`append`. Does not wait for an archive.

        Looks at the archive once in ``CONFIRM_INTERVAL_S`` at most, so ``confirmed`` may be lower than what is
        recorded, and never higher.
        """
        marks = [(publisher, publisher.mark()) for publisher in self._publishers.values()]
        self._unconfirmed.append((self.rows, marks))
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + CONFIRM_INTERVAL_S
        with suppress(AeronSparkError):  # an archive that does not answer confirms nothing
            while self._unconfirmed and all(one.has_recorded(mark) for one, mark in self._unconfirmed[0][1]):
                self.confirmed = self._unconfirmed.popleft()[0]

    def end_recordings(self) -> None:
        """End the recordings that this appender has started, after a failure; ignores errors of the archive."""
        while self._recordings:
            with suppress(AeronSparkError):
                self._recordings.pop()()

    def discard(self) -> None:
        """Do nothing: published rows cannot be taken back."""

    def _message_limit(self, publisher: Publisher) -> int:
        wanted, limit = self.options.max_message_bytes, publisher.max_message_bytes
        if wanted is not None and wanted > limit:
            raise OptionError(
                f"option 'maxMessageBytes' is {wanted}, and this channel's longest message has {limit} bytes",
                remedy="Lower it, or raise the channel's term-length, of which a message may be an eighth.",
            )
        return limit if wanted is None else wanted

    def _check_values(self, values: pa.Array[Any], limit: int) -> None:
        if values.null_count:
            raise DataFormatError(
                f"{values.null_count} of {len(values)} values are null, and a message cannot be null",
                remedy="Filter the nulls out before writing, or write all columns with payload=arrow.",
            )
        if self.options.max_message_bytes is not None:
            limit = min(limit, self.options.max_message_bytes)
        lengths: Any = pc.binary_length(values)  # type: ignore[call-overload]  # stubs know no Array[Any]
        longest = pc.max(lengths).as_py() or 0
        if longest > limit:
            raise DataFormatError(
                f"a value has {longest} bytes, and the longest message of this channel has {limit}",
                remedy="Write with payload=framed, which sends it in chunks, or raise the channel's term-length, "
                "of which a message may be an eighth (16 MiB at most).",
                reason=TOO_LONG,
            )

    def _by_stream(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int] | None, pa.RecordBatch]]:
        """Divide a batch by the streams that its rows name, in order within each; null is the stream of the options."""
        channels: Any
        stream_ids: Any
        names = batch.schema.names
        if "channel" not in names and "streamId" not in names:
            yield None, batch
            return
        rows = batch.num_rows
        channels = batch.column("channel") if "channel" in names else pa.nulls(rows, pa.string())
        stream_ids = batch.column("streamId") if "streamId" in names else pa.nulls(rows, pa.int32())
        channels = pc.fill_null(channels, self.route.channel)
        stream_ids = pc.fill_null(stream_ids.cast(pa.int64()), self.route.stream_id)
        streams = pa.table({"channel": channels, "stream": stream_ids})
        for stream in streams.group_by(["channel", "stream"], use_threads=False).aggregate([]).to_pylist():
            is_of_stream = pc.and_(pc.equal(channels, stream["channel"]), pc.equal(stream_ids, stream["stream"]))
            yield (stream["channel"], int(stream["stream"])), batch.filter(is_of_stream)

    def _publisher(self, at: tuple[str, int] | None, payload: str, schema: pa.Schema | None = None) -> Publisher:
        """Return the publisher of a stream, for rows of ``payload``, ``arrow`` rows with ``schema``.

        Raises DataFormatError if the stream holds another payload.
        """
        route = self.route
        channel, stream_id = (route.channel, route.stream_id) if at is None else at

        def check_payload(held: str | None) -> None:
            if held not in (None, payload):
                raise other_payload(f"stream {stream_id} of {channel}", held, payload, schema)

        check_payload(self._payloads.get((channel, stream_id)))
        publisher = self._publishers.get((channel, stream_id))
        if publisher is None:
            if at is not None:  # the options were checked when the query was built, the stream of a row was not
                refuse_archive_streams(ChannelUri.parse(channel), stream_id)
            publisher = self._publishers[channel, stream_id] = self._open(channel, stream_id, check_payload)
            self._payloads[channel, stream_id] = payload
        return publisher

    def _open(self, channel: str, stream_id: int, check_payload: Callable[[str | None], None]) -> Publisher:
        options, route = self.options, self.route
        archives = archives_of(route)
        known = (route.aeron_dir, route.archive[0], channel, stream_id)
        log, writer = ArchiveLog(StreamAddress(channel, stream_id, archives.archives[:1])), self._encoder.source.writer
        archive = acknowledging_archive(
            options, log, check_payload, self._recordings, writer, is_needed=known in ACKNOWLEDGED
        )
        if archive is not None:
            ACKNOWLEDGED.add(known)
        drops = options.when_unconnected == "drop"
        offer_s, connect_s = options.offer_timeout, route.connect_timeout
        address = PublishAddress(archives.aeron_dir, channel, stream_id, archive, offer_s, connect_s, drops)
        return Publisher(address, self._connected)


class _PublisherSink:
    """Publishes encoded rows; the chunks of a group fit into messages of ``max_message_bytes``."""

    def __init__(self, publisher: Publisher, max_message_bytes: int) -> None:
        self._publisher = publisher
        self._limit = max_message_bytes

    def put_values(self, values: pa.Array[Any], reserved: pa.Array[Any] | None) -> None:
        self._publisher.publish_values(values, reserved)

    def put_group(self, header: Header, payload: Payload | Sequence[pa.Buffer], reserved: int) -> None:
        self._publisher.publish_group(partial(split, payload, header, max_message_bytes=self._limit), reserved)


def acknowledging_archive(
    options: WriteOptions,
    log: ArchiveLog,
    check_payload: Callable[[str | None], None],
    started: list[Callable[[], object]],
    writer: str = "",
    *,
    is_needed: bool = False,
) -> ArchiveAddress | None:
    """Return the archive whose recording of the stream acknowledges rows, or None if Aeron's acceptance is enough.

    Calls ``check_payload`` with the payload that the stream holds, before anything starts; does not ask an archive
    only for that. Starts the recording first if option ``record`` says so, for ``writer``, and adds to ``started``
    a function that ends it. With ``ack=auto``, returns None also if the archive cannot be reached, unless it
    ``is_needed``.

    Raises OptionError for ``ack=archive`` if the stream is not recorded.
    """
    address = log.address
    archive = address.archives[0]
    is_driver_enough = options.ack == "driver" and options.record == "never"
    if is_driver_enough or (options.ack == "auto" and options.when_unconnected == "drop"):
        if archive.archive_dir:
            check_payload(_held_payload(log))
        return None
    try:
        recorded = log.recorded()
    except ConnectError:
        if options.ack == "archive" or options.record != "never" or is_needed:
            raise
        return None
    check_payload(_held_payload(log))
    if not recorded and options.record != "never":
        check_receivable(address)
        started.append(log.start_recording(writer))
        recorded = True
    if options.ack == "driver" or (options.ack == "auto" and not recorded):
        return None
    if not recorded:
        raise OptionError(
            f"option 'ack' is 'archive', and stream {address.stream_id} of {address.channel} is not recorded",
            remedy="Set option 'record' to 'auto', which has it recorded, or 'ack' to 'driver'.",
        )
    return archive


def _held_payload(log: ArchiveLog) -> str | None:
    """Return the payload of the stream's recordings; None if they have no message, or none that can be read."""
    with suppress(AeronSparkError):
        content = log.content(log.states())
        return None if content is None else content.payload
    return None
