"""A session with one Aeron Archive: list, record, replay, purge. Kept across tasks, rebuilt when it is disconnected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import jpype

from aeron_spark.aeron.client import Client, client_of, require_open
from aeron_spark.aeron.exceptions import CORRECT_CHANNEL, archive_error_code, java_errors
from aeron_spark.aeron.interruptible import Interruptible, interruptible
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import ConnectError, RefusedError, SetupError, TransportError, WaitTimeout
from aeron_spark.process_cache import ProcessCache
from aeron_spark.transport.recording_start import without_start
from aeron_spark.waiting import MAX_SLEEP_S, Deadline, wait_for

NULL_POSITION: Final = -1
LIST_ALL: Final = 2**31 - 1
ARCHIVE_START: Final = 2.0  # seconds an archive may begin later than its driver
# An archive drops a client whose responses nobody polled for some minutes, and its replays with it.
KEEPALIVE: Final = 30.0  # seconds after which a session in use is polled
DORMANT: Final = 60.0  # seconds after which an unused session is made anew, which takes some 50 ms

ACTIVE_RECORDING: Final = 2  # codes of ArchiveException
ACTIVE_SUBSCRIPTION: Final = 3
UNKNOWN_RECORDING: Final = 5
MAX_REPLAYS: Final = 7
MAX_RECORDINGS: Final = 8
AUTHENTICATION_REJECTED: Final = 10
STORAGE_SPACE: Final = 11
UNAUTHORISED_ACTION: Final = 13

AT_ONCE: Final = frozenset({"state", "archiveId", "checkForErrorResponse", "pollForErrorResponse"})
DELETING: Final = ("due to an outstanding delete operation", "another delete operation in progress")


@dataclass(frozen=True, slots=True)
class ArchiveAddress:
    """How to reach an archive. ``name`` stands in offsets; ``local``: it uses the client's own media driver."""

    name: str
    aeron_dir: str
    control_channel: str
    control_stream_id: int = 10
    response_channel: str = "aeron:ipc?term-length=64k"
    replay_channel: str = "aeron:ipc"
    local: bool = True
    archive_dir: str = ""
    credentials_file: str = field(default="", repr=False)
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording as the archive's catalogue describes it; ``stop_position`` is None while it is recorded."""

    id: int
    start_timestamp: int
    stop_timestamp: int | None
    start_position: int
    stop_position: int | None
    initial_term_id: int
    segment_length: int
    term_length: int
    mtu: int
    session_id: int
    stream_id: int
    channel: str
    original_channel: str
    source: str


@dataclass(frozen=True, slots=True)
class RecordingSubscription:
    """A standing subscription of an archive: it records each publisher of the stream until it is stopped."""

    id: int
    channel: str
    stream_id: int


class Archive:
    """A session with the archive at ``address``; made by :func:`archive_of`."""

    def __init__(self, address: ArchiveAddress, client: Client) -> None:
        self.address = address
        self.client = client
        if address.local:
            _require_archive(client)
        context = jclass("io.aeron.archive.client.AeronArchive$Context")()
        context.aeron(client.aeron).ownsAeronClient(False)
        context.controlRequestChannel(address.control_channel).controlRequestStreamId(address.control_stream_id)
        context.controlResponseChannel(address.response_channel)
        context.messageTimeoutNs(int(address.timeout * 1e9)).errorHandler(client.errors)
        context.idleStrategy(jclass("org.agrona.concurrent.BackoffIdleStrategy")(10, 20, 1_000, 200_000))
        if address.credentials_file:
            context.credentialsSupplier(_credentials(address.credentials_file))
        where = f"{address.control_channel} stream {address.control_stream_id}"
        try:
            with java_errors(f"connecting to the archive at {where}"):
                connect = jclass("io.aeron.archive.client.AeronArchive").connect
                session = interruptible(connect, context, discard=lambda late: late.close())
                self.java: Any = Interruptible(session, AT_ONCE)
        except ConnectError as error:
            raise ConnectError(
                f"no archive answered at {where} within {address.timeout:g} s",
                remedy="Start the archive, correct option 'archive' (its control channel), let its answers reach "
                f"{address.response_channel} (option 'responseChannel'), or wait longer (option 'connectTimeout').",
            ) from error
        except TransportError as error:
            if archive_error_code(error.__cause__) == AUTHENTICATION_REJECTED:
                raise RefusedError(str(error), remedy="Give its credentials with 'credentialsFile'.") from error
            raise
        self._reader = client.aeron.countersReader()
        self._positions = jclass("io.aeron.archive.status.RecordingPos")
        self.archive_id = int(self.java.archiveId())
        self.used_at = time.monotonic()

    @property
    def dormant(self) -> bool:
        """Whether nobody used the session for so long that the archive may have dropped it."""
        return time.monotonic() - self.used_at > DORMANT

    @property
    def closed(self) -> bool:
        """Whether the session or its client has ended."""
        return self.client.closed or str(self.java.state().name()) != "CONNECTED"

    def keep_alive(self) -> None:
        """Poll the control responses where nothing else has for a while; to be called within long replays."""
        if time.monotonic() - self.used_at > KEEPALIVE:
            self.used_at = time.monotonic()
            with java_errors("polling the archive's responses"):
                self.java.checkForErrorResponse()

    def last_report(self, seconds: float) -> str:
        """Return an error that the archive reported of something under way, or an empty text where none comes."""
        end = time.monotonic() + seconds
        while not self.closed:
            try:
                report = self.java.pollForErrorResponse()
            except jpype.JException:
                break
            if report is not None or time.monotonic() > end:
                return "" if report is None else str(report)
            time.sleep(MAX_SLEEP_S)
        return ""

    def recordings(self, stream_id: int | None = None, from_id: int = 0) -> list[Recording]:
        """Return the recordings of ``stream_id``, or all, with ids from ``from_id`` on, in the order of their ids."""
        found: list[Recording] = []
        consumer = _consumer(
            "RecordingDescriptorConsumer", "onRecordingDescriptor", lambda *row: found.append(_recording(row))
        )
        with java_errors("listing the archive's recordings"):
            if stream_id is None:
                self.java.listRecordings(from_id, LIST_ALL, consumer)
            else:
                self.java.listRecordingsForUri(from_id, LIST_ALL, "", stream_id, consumer)
        self.used_at = time.monotonic()
        return found

    def recording(self, recording_id: int) -> Recording | None:
        """Return one recording, or None where the archive has none of that id."""
        found: list[Recording] = []
        consumer = _consumer(
            "RecordingDescriptorConsumer", "onRecordingDescriptor", lambda *row: found.append(_recording(row))
        )
        with java_errors(f"looking up recording {recording_id}"):
            self.java.listRecording(recording_id, consumer)
        return found[0] if found else None

    def _counters(self, doing: str) -> Any:
        """Return the driver's counters; a client that ended has unmapped them: reading them would end the process."""
        require_open(self.client, doing)
        return self._reader

    def position(self, recording_id: int) -> int:
        """Return how far the recording reaches now: from the driver's counters where they are ours, else by asking."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdByRecording(counters, recording_id, self.archive_id))
            if counter >= 0:
                value = int(counters.getCounterValue(counter))
                if bool(self._positions.isActive(counters, counter, recording_id)):
                    return value
        with java_errors(f"asking for the position of recording {recording_id}"):
            return int(self.java.getMaxRecordedPosition(recording_id))

    def stopped_at(self, recording_id: int) -> int | None:
        """Return where a recording ended, or None while it grows."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdByRecording(counters, recording_id, self.archive_id))
            if counter >= 0:
                return None
        found = self.recording(recording_id)
        return None if found is None else found.stop_position

    def recording_of_session(self, session_id: int, stream_id: int) -> int | None:
        """Return the id of the active recording of a publication's session, or None."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdBySession(counters, session_id, self.archive_id))
            if counter >= 0:
                return int(self._positions.getRecordingId(counters, counter))
            return None
        active = [r for r in self.recordings(stream_id) if r.session_id == session_id and r.stop_position is None]
        return active[-1].id if active else None

    def subscriptions(self, stream_id: int | None = None) -> list[RecordingSubscription]:
        """Return the standing subscriptions with which the archive records ``stream_id``, or every stream."""
        found: list[RecordingSubscription] = []
        consumer = _consumer(
            "RecordingSubscriptionDescriptorConsumer",
            "onSubscriptionDescriptor",
            # controlSessionId and correlationId come first
            lambda *row: found.append(RecordingSubscription(int(row[2]), str(row[4]), int(row[3]))),
        )
        one_stream = stream_id is not None
        with java_errors("listing what the archive records"):
            self.java.listRecordingSubscriptions(0, LIST_ALL, "", stream_id or 0, one_stream, consumer)
        self.used_at = time.monotonic()
        return found

    def recorded_channels(self, stream_id: int) -> list[str]:
        """Return the channels of ``stream_id`` that the archive was asked to record."""
        return [one.channel for one in self.subscriptions(stream_id)]

    def start_recording(self, channel: str, stream_id: int) -> None:
        """Ask the archive to record a stream from now on; one that is recorded already is fine."""
        location = jclass("io.aeron.archive.codecs.SourceLocation")
        where = location.LOCAL if channel.startswith(("aeron:ipc", "aeron-spy:")) else location.REMOTE
        try:
            with java_errors(f"recording {without_start(channel)} stream {stream_id}", unknown_host=CORRECT_CHANNEL):
                self.java.startRecording(channel, stream_id, where)
        except TransportError as error:
            code = archive_error_code(error.__cause__)
            if code == STORAGE_SPACE:
                raise TransportError(error.what, remedy="Free space on the archive's disk.") from error
            if code != ACTIVE_SUBSCRIPTION:
                raise

    def stop_recording(self, channel: str, stream_id: int) -> bool:
        """Stop recording a stream; whether it was recorded."""
        with java_errors(f"stopping the recording of {channel} stream {stream_id}"):
            return bool(self.java.tryStopRecording(channel, stream_id))

    def stop_subscription(self, subscription: RecordingSubscription) -> bool:
        """End a standing subscription and the recordings that it feeds; whether the archive still had it."""
        with java_errors(f"stopping the recording of {subscription.channel} stream {subscription.stream_id}"):
            return bool(self.java.tryStopRecording(subscription.id))

    def record_session(self, channel: str, stream_id: int, recording_id: int | None = None) -> None:
        """Record the one session that ``channel`` names, until it ends: as a new recording, or on in a stopped one.

        What is wrong with an extension (its publication begins elsewhere, another term length) the archive says only
        once the publication is there, and then as a report: :meth:`last_report`.
        """
        local = jclass("io.aeron.archive.codecs.SourceLocation").LOCAL
        into = "a new recording" if recording_id is None else f"recording {recording_id}"
        with java_errors(f"recording {channel} stream {stream_id} as {into}"):
            if recording_id is None:
                self.java.startRecording(channel, stream_id, local, True)
            else:
                request = partial(self.java.extendRecording, recording_id, channel, stream_id, local, True)
                self._once_deleted(recording_id, request)

    def stop_recording_by_id(self, recording_id: int, seconds: float) -> int | None:
        """Stop a recording if it grows; return where it ended once it has, or None where there is none of that id.

        Raises WaitTimeout where it goes on after ``seconds``.
        """
        found = self.recording(recording_id)
        if found is None or found.stop_position is not None:
            return None if found is None else found.stop_position
        with java_errors(f"stopping recording {recording_id}"):
            self.java.tryStopRecordingByIdentity(recording_id)
        return wait_for(lambda: self._stop_position(recording_id), seconds, f"recording {recording_id} to stop")

    def _stop_position(self, recording_id: int) -> int | None:
        with java_errors(f"asking where recording {recording_id} stopped"):
            position = int(self.java.getStopPosition(recording_id))
        return None if position == NULL_POSITION else position

    def purge_segments(self, recording_id: int, position: int) -> int:
        """Delete the segments before ``position``, a segment's base; how many went."""
        with java_errors(f"purging recording {recording_id} below {position}"):
            return int(self._once_deleted(recording_id, lambda: self.java.purgeSegments(recording_id, position)))

    def truncate(self, recording_id: int, position: int) -> None:
        """Cut a stopped recording at ``position``, which must be a frame's beginning."""
        with java_errors(f"truncating recording {recording_id} at {position}"):
            self._once_deleted(recording_id, lambda: self.java.truncateRecording(recording_id, position))

    def delete(self, recording_id: int) -> None:
        """Delete a stopped recording and its files."""
        with java_errors(f"deleting recording {recording_id}"):
            self._once_deleted(recording_id, lambda: self.java.purgeRecording(recording_id))

    def _once_deleted(self, recording_id: int, request: Callable[[], Any]) -> Any:
        """Return ``request()`` once no files of the recording are being deleted: the archive answers before they are.

        Raises WaitTimeout where they still are after the archive's time-out.
        """
        deadline = Deadline(self.address.timeout, f"files of recording {recording_id} to be deleted")
        while True:
            try:
                return request()
            except jpype.JException as error:
                # It has no code of its own.
                if not any(text in str(error.getMessage()) for text in DELETING):
                    raise
            deadline.idle()

    def close(self) -> None:
        """End the session."""
        self.java.close()


def _require_archive(client: Client) -> None:
    """Raise ConnectError where the driver has no archive beside it, which would else show only as a time-out."""
    counters = client.aeron.countersReader()
    wanted = int(jclass("io.aeron.AeronCounters").ARCHIVE_CONTROL_SESSIONS_TYPE_ID)

    def there() -> bool:
        # A client that ended, because its driver did, has unmapped the counters: reading them would end the process.
        require_open(client, "looking for the archive")
        return any(int(counters.getCounterTypeId(i)) == wanted for i in range(int(counters.maxCounterId()) + 1))

    try:
        wait_for(there, ARCHIVE_START, "the archive's counters")  # it begins a moment after its driver
    except WaitTimeout:
        raise ConnectError(
            f"the media driver in {client.aeron_dir} has no archive beside it",
            remedy="Start an archive on that driver, name another one with option 'archive', or leave 'aeronDir' out: "
            "this machine's own node has one.",
        ) from None


def _recording(row: tuple[Any, ...]) -> Recording:
    # controlSessionId and correlationId come first; see RecordingDescriptorConsumer
    (_, _, recording_id, started, stopped, start, stop, initial, segment, term, mtu, session, stream, *texts) = row
    return Recording(
        id=int(recording_id),
        start_timestamp=int(started),
        stop_timestamp=None if int(stopped) == NULL_POSITION else int(stopped),
        start_position=int(start),
        stop_position=None if int(stop) == NULL_POSITION else int(stop),
        initial_term_id=int(initial),
        segment_length=int(segment),
        term_length=int(term),
        mtu=int(mtu),
        session_id=int(session),
        stream_id=int(stream),
        channel=str(texts[0]),
        original_channel=str(texts[1]),
        source=str(texts[2]),
    )


def _consumer(interface: str, method: str, call: Callable[..., None]) -> Any:
    # Called on this thread, once a recording, while a listing is polled: never on the data path.
    return jpype.JProxy(f"io.aeron.archive.client.{interface}", dict={method: call})


def _credentials(path: str) -> Any:
    try:
        secret = Path(path).expanduser().read_bytes().rstrip(b"\n")
    except OSError as error:
        raise SetupError(
            f"option 'credentialsFile': {path} cannot be read: {error.strerror}",
            remedy="Correct the path or the file's mode, on every host that reads or writes the stream.",
        ) from None
    encoded = jpype.JArray(jpype.JByte)(secret)
    return jpype.JProxy(
        "io.aeron.security.CredentialsSupplier",
        dict={"encodedCredentials": lambda: encoded, "onChallenge": lambda _challenge: encoded},
    )


ARCHIVES: Final[ProcessCache[ArchiveAddress, Archive]] = ProcessCache()


def archive_of(address: ArchiveAddress) -> Archive:
    """Return this process's session with the archive; one that was disconnected, or may have been, is replaced."""
    client = client_of(address.aeron_dir)

    def is_usable(archive: Archive) -> bool:
        if archive.closed or archive.dormant or archive.client is not client:
            return False
        archive.used_at = time.monotonic()  # under the cache's lock: no other thread finds it dormant meanwhile
        return True

    return ARCHIVES.get(address, lambda: Archive(address, client), is_usable, Archive.close)
