"""Sessions with Aeron archives: list, record, replay, purge. Kept across tasks, replaced when disconnected."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import jpype

from aeron_spark.aeron.client import AeronClient, client_of, require_open
from aeron_spark.aeron.java_calls import (
    CORRECT_CHANNEL,
    Interruptible,
    archive_error_code,
    describe,
    interruptible,
    java_errors,
)
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import (
    NULL_POSITION,
    ArchiveAddress,
    Recording,
    ReplaysAhead,
    Span,
    UnreadableBytesError,
    recording_of,
)
from aeron_spark.errors import ConnectError, RefusedError, SetupError, TransportError, WaitTimeout
from aeron_spark.process import ProcessCache
from aeron_spark.transport.channel import without_start
from aeron_spark.waiting import MAX_SLEEP_S, Deadline, wait_for

T = TypeVar("T")

LIST_ALL: Final = 2**31 - 1
ARCHIVE_START_TIMEOUT_S: Final = 2.0  # an archive starts after its driver
# An archive drops a session, with its replays, if the client has not polled the responses for some minutes.
KEEP_ALIVE_INTERVAL_S: Final = 30.0
DORMANT_AFTER_S: Final = 60.0  # then a session is replaced, which takes about 50 ms

ACTIVE_SUBSCRIPTION: Final = 3  # codes of ArchiveException
MAX_REPLAYS: Final = 7
MAX_RECORDINGS: Final = 8
AUTHENTICATION_REJECTED: Final = 10
STORAGE_SPACE: Final = 11

NON_BLOCKING_METHODS: Final = frozenset({"state", "archiveId", "checkForErrorResponse"})
NO_REPLAY: Final = -1  # in place of the session of a replay
DELETE_IN_PROGRESS_TEXTS: Final = ("due to an outstanding delete operation", "another delete operation in progress")


@dataclass(frozen=True, slots=True)
class RecordingSubscription:
    """An archive's subscription that records each publication of the Aeron stream until it is stopped."""

    id: int
    channel: str
    stream_id: int


class Archive:
    """A session with the archive at ``address``; made by :func:`archive_of`."""

    def __init__(self, address: ArchiveAddress, client: AeronClient) -> None:
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
                self.java: Any = Interruptible(session, NON_BLOCKING_METHODS)
                requests = jclass("io.aeronspark.client.ReplayRequests")(session)
                self.replays: Any = Interruptible(requests, frozenset({"error"}))
        except ConnectError as error:
            raise ConnectError(
                f"no archive answered at {where} within {address.timeout:g} s",
                remedy="Start the archive, correct option 'archive' (its control channel), let its responses reach "
                f"{address.response_channel} (option 'responseChannel'), or wait longer (option 'connectTimeout').",
            ) from error
        except TransportError as error:
            if archive_error_code(error.__cause__) == AUTHENTICATION_REJECTED:
                raise RefusedError(str(error), remedy="Set its credentials with option 'credentialsFile'.") from error
            raise
        self._reader = client.aeron.countersReader()
        self._positions = jclass("io.aeron.archive.status.RecordingPos")
        self.archive_id = int(self.java.archiveId())
        self.used_at = time.monotonic()

    @property
    def dormant(self) -> bool:
        """Whether the session has been unused for so long that the archive may have dropped it."""
        return time.monotonic() - self.used_at > DORMANT_AFTER_S

    @property
    def closed(self) -> bool:
        """Whether the session or its client has ended."""
        return self.client.closed or str(self.java.state().name()) != "CONNECTED"

    def keep_alive(self) -> None:
        """Poll the control responses if the last poll is ``KEEP_ALIVE_INTERVAL_S`` ago. Long replays must call this."""
        if time.monotonic() - self.used_at > KEEP_ALIVE_INTERVAL_S:
            self.used_at = time.monotonic()
            with java_errors("polling the archive's responses"):
                self.java.checkForErrorResponse()

    def poll_error(self, timeout_s: float, session_id: int = NO_REPLAY) -> str:
        """Return an error that the archive reports within ``timeout_s``, or an empty text.

        It is one of the replay with this session, or by default one of an operation that is not a replay.
        """
        end = time.monotonic() + timeout_s
        while not self.closed:
            try:
                error = self.replays.error(session_id)
            except jpype.JException:
                break
            if error is not None or time.monotonic() > end:
                return "" if error is None else str(error)
            time.sleep(MAX_SLEEP_S)
        return ""

    def recordings(self, stream_id: int | None = None, from_id: int = 0) -> list[Recording]:
        """Return the recordings of ``stream_id``, or of all streams, with ids from ``from_id``, ordered by id."""

        def request(listing: Any) -> None:
            if stream_id is None:
                self.java.listRecordings(from_id, LIST_ALL, listing)
            else:
                self.java.listRecordingsForUri(from_id, LIST_ALL, "", stream_id, listing)

        with java_errors("listing the archive's recordings"):
            found = _listed(request, _recording)
        self.used_at = time.monotonic()
        return found

    def recording(self, recording_id: int) -> Recording | None:
        """Return one recording, or None if the archive has no recording with that id."""
        with java_errors(f"looking up recording {recording_id}"):
            found = _listed(partial(self.java.listRecording, recording_id), _recording)
        return found[0] if found else None

    def _counters(self, action: str) -> Any:
        """Return the driver's counters. Raises TransportError if the client has ended.

        A closed client has unmapped the counters: reading them would crash the process.
        """
        require_open(self.client, action)
        return self._reader

    def position(self, recording_id: int) -> int:
        """Return the recording's end now: from the driver's counters if the archive is local, else by a request."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdByRecording(counters, recording_id, self.archive_id))
            if counter >= 0:
                value = int(counters.getCounterValue(counter))
                if bool(self._positions.isActive(counters, counter, recording_id)):
                    return value
        with java_errors(f"requesting the position of recording {recording_id}"):
            return int(self.java.getMaxRecordedPosition(recording_id))

    def find_stop_position(self, recording_id: int) -> int | None:
        """Return the stop position of a recording, or None while it is active."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdByRecording(counters, recording_id, self.archive_id))
            if counter >= 0:
                return None
        found = self.recording(recording_id)
        return None if found is None else found.stop_position

    def recording_of_session(self, session_id: int, stream_id: int) -> int | None:
        """Return the id of the active recording of an Aeron session id, or None."""
        if self.address.local:
            counters = self._counters("looking for a recording")
            counter = int(self._positions.findCounterIdBySession(counters, session_id, self.archive_id))
            if counter >= 0:
                return int(self._positions.getRecordingId(counters, counter))
            return None
        active = [r for r in self.recordings(stream_id) if r.session_id == session_id and r.stop_position is None]
        return active[-1].id if active else None

    def subscriptions(self, stream_id: int | None = None) -> list[RecordingSubscription]:
        """Return the subscriptions with which the archive records ``stream_id``, or every Aeron stream."""
        one_stream = stream_id is not None
        with java_errors("listing the archive's recording subscriptions"):
            request = partial(self.java.listRecordingSubscriptions, 0, LIST_ALL, "", stream_id or 0, one_stream)
            found = _listed(request, _subscription)
        self.used_at = time.monotonic()
        return found

    def recorded_channels(self, stream_id: int) -> list[str]:
        """Return the channels on which the archive records ``stream_id``."""
        return [one.channel for one in self.subscriptions(stream_id)]

    def start_recording(self, channel: str, stream_id: int) -> RecordingSubscription | None:
        """Start the recording of an Aeron stream; return None, and do nothing, if the archive records it already."""
        location = jclass("io.aeron.archive.codecs.SourceLocation")
        where = location.LOCAL if channel.startswith(("aeron:ipc", "aeron-spy:")) else location.REMOTE
        try:
            with java_errors(f"recording {without_start(channel)} stream {stream_id}", unknown_host=CORRECT_CHANNEL):
                return RecordingSubscription(
                    int(self.java.startRecording(channel, stream_id, where)), channel, stream_id
                )
        except TransportError as error:
            code = archive_error_code(error.__cause__)
            if code == STORAGE_SPACE:
                raise TransportError(error.what, remedy="Free space on the archive's disk.") from error
            if code != ACTIVE_SUBSCRIPTION:
                raise
            return None

    def stop_recording(self, channel: str, stream_id: int) -> bool:
        """Stop the recording of an Aeron stream. Return whether it was recorded."""
        with java_errors(f"stopping the recording of {channel} stream {stream_id}"):
            return bool(self.java.tryStopRecording(channel, stream_id))

    def stop_subscription(self, subscription: RecordingSubscription) -> bool:
        """Stop a recording subscription and its recordings. Return whether the archive still had the subscription."""
        with java_errors(f"stopping the recording of {subscription.channel} stream {subscription.stream_id}"):
            return bool(self.java.tryStopRecording(subscription.id))

    def record_session(self, channel: str, stream_id: int, recording_id: int | None = None) -> None:
        """Record the Aeron session that ``channel`` names, until it ends, as a new recording or an extension.

        ``recording_id`` is the stopped recording to extend. The archive reports an invalid extension (another start
        position or term length) only after the publication exists: see :meth:`poll_error`.
        """
        local = jclass("io.aeron.archive.codecs.SourceLocation").LOCAL
        target = "a new recording" if recording_id is None else f"recording {recording_id}"
        with java_errors(f"recording {channel} stream {stream_id} as {target}"):
            if recording_id is None:
                self.java.startRecording(channel, stream_id, local, True)
            else:
                request = partial(self.java.extendRecording, recording_id, channel, stream_id, local, True)
                self._retry_during_delete(recording_id, request)

    def stop_recording_by_id(self, recording_id: int, seconds: float) -> int | None:
        """Stop a recording if it is active, and return its stop position, or None if the recording does not exist.

        Raises WaitTimeout if it has not stopped after ``seconds``.
        """
        found = self.recording(recording_id)
        if found is None or found.stop_position is not None:
            return None if found is None else found.stop_position
        with java_errors(f"stopping recording {recording_id}"):
            self.java.tryStopRecordingByIdentity(recording_id)
        return wait_for(lambda: self._stop_position(recording_id), seconds, f"recording {recording_id} to stop")

    def _stop_position(self, recording_id: int) -> int | None:
        with java_errors(f"requesting the stop position of recording {recording_id}"):
            position = int(self.java.getStopPosition(recording_id))
        return None if position == NULL_POSITION else position

    def purge_segments(self, recording_id: int, position: int) -> int:
        """Delete the segments before ``position``, a segment's base. Return the number of deleted segments."""
        with java_errors(f"purging recording {recording_id} below {position}"):
            return int(self._retry_during_delete(recording_id, lambda: self.java.purgeSegments(recording_id, position)))

    def truncate(self, recording_id: int, position: int) -> None:
        """Truncate a stopped recording at ``position``, which must be the start of a frame."""
        with java_errors(f"truncating recording {recording_id} at {position}"):
            self._retry_during_delete(recording_id, lambda: self.java.truncateRecording(recording_id, position))

    def delete(self, recording_id: int) -> None:
        """Delete a stopped recording and its files."""
        with java_errors(f"deleting recording {recording_id}"):
            self._retry_during_delete(recording_id, lambda: self.java.purgeRecording(recording_id))

    def _retry_during_delete(self, recording_id: int, request: Callable[[], Any]) -> Any:
        """Return ``request()``; repeat the request while the archive still deletes files of the recording.

        The archive responds to a delete request before it has deleted the files. Raises WaitTimeout after the
        archive's timeout.
        """
        deadline = Deadline(self.address.timeout, f"files of recording {recording_id} to be deleted")
        while True:
            try:
                return request()
            except jpype.JException as error:
                # This error has no code.
                if not any(text in str(error.getMessage()) for text in DELETE_IN_PROGRESS_TEXTS):
                    raise
            deadline.idle()

    def close(self) -> None:
        """End the session."""
        self.java.close()


def _require_archive(client: AeronClient) -> None:
    """Raise ConnectError if the driver has no archive. Without this check the connection attempt would time out."""
    counters = client.aeron.countersReader()
    archive_type = int(jclass("io.aeron.AeronCounters").ARCHIVE_CONTROL_SESSIONS_TYPE_ID)

    def has_archive() -> bool:
        # A client that has ended, with its driver, has unmapped the counters: reading them would crash the process.
        require_open(client, "looking for the archive")
        return any(int(counters.getCounterTypeId(i)) == archive_type for i in range(int(counters.maxCounterId()) + 1))

    try:
        wait_for(has_archive, ARCHIVE_START_TIMEOUT_S, "the archive's counters")
    except WaitTimeout:
        raise ConnectError(
            f"the media driver in {client.aeron_dir} has no archive",
            remedy="Start an archive on that driver, name another one with option 'archive', or omit 'aeronDir' to use "
            "this machine's node, which has an archive.",
        ) from None


def _recording(numbers: Any, texts: Any) -> Recording:
    return recording_of(map(int, numbers), map(str, texts))


def _subscription(numbers: Any, texts: Any) -> RecordingSubscription:
    subscription_id, stream_id = map(int, numbers)
    return RecordingSubscription(subscription_id, str(texts[0]), stream_id)


def _listed(request: Callable[[Any], object], parse: Callable[[Any, Any], T]) -> list[T]:
    """Return the entries that the archive lists during ``request(listing)``, each as ``parse(numbers, texts)``."""
    listing = jclass("io.aeronspark.client.ArchiveListing")()
    request(listing)
    return [parse(listing.numbers(entry), listing.texts(entry)) for entry in range(int(listing.size()))]


def _credentials(path: str) -> Any:
    try:
        secret = Path(path).expanduser().read_bytes().rstrip(b"\n")
    except OSError as error:
        raise SetupError(
            f"option 'credentialsFile': {path} cannot be read: {error.strerror}",
            remedy="Correct the path or the file's mode on every host that reads or writes the stream.",
        ) from None
    encoded = jpype.JArray(jpype.JByte)(secret)
    return jpype.JProxy(
        "io.aeron.security.CredentialsSupplier",
        dict={"encodedCredentials": lambda: encoded, "onChallenge": lambda _challenge: encoded},
    )


ARCHIVES: Final[ProcessCache[ArchiveAddress, Archive]] = ProcessCache()


def archive_of(address: ArchiveAddress) -> Archive:
    """Return this process's session with the archive; replace a closed or dormant one."""
    client = client_of(address.aeron_dir)

    def is_usable(archive: Archive) -> bool:
        if archive.closed or archive.dormant or archive.client is not client:
            return False
        archive.used_at = time.monotonic()  # under the cache's lock, so that no other thread finds it dormant
        return True

    return ARCHIVES.get(address, lambda: Archive(address, client), is_usable, Archive.close)


# The archive's reasons for which it does not begin a replay, or ends it, at a damaged frame.
DAMAGE: Final = re.compile(
    r"replayPosition=(\d+) does not point to a valid frame"
    r"|(?:unexpected end of recording|CRC checksum mismatch) at position=(\d+)"
)

REPLAY_STREAM_ID: Final = 20121  # on a channel of this process
# With shared memory all processes have one channel, so each process has its own stream id, far from those of users.
FIRST_IPC_REPLAY_STREAM_ID: Final = -(2**31)
IPC_REPLAY_STREAM_IDS: Final = 2**30
REASON_TIMEOUT_S: Final = 0.5  # for the archive's report of the reason for which it ended a replay
QUEUE_TIMEOUT_S: Final = 600.0  # for a free replay session of the archive; the replays of others may be long


@dataclass(frozen=True, slots=True)
class ReplaySubscription:
    """The subscription of this process that receives the replays of an archive, one image for each.

    A subscription for each replay would cost a request to the media driver, which takes as long as a short replay.
    """

    client: AeronClient
    java: Any
    channel: str  # to which the archive replays
    stream_id: int

    @property
    def is_usable(self) -> bool:
        """Whether it can still receive replays."""
        return not self.client.closed and not self.java.isClosed()

    def close(self) -> None:
        """Close the subscription. A second call does nothing."""
        self.java.close()


REPLAYS: Final[ProcessCache[ArchiveAddress, ReplaySubscription]] = ProcessCache()


def _replays_of(archive: Archive, timeout: float) -> ReplaySubscription:
    """Return this process's subscription to the replays of an archive. ``timeout`` is for a port, in seconds."""
    client, own_channel = archive.client, archive.address.replay_channel

    def subscribe() -> ReplaySubscription:
        if own_channel == "aeron:ipc":
            number = int(client.aeron.nextCorrelationId()) % IPC_REPLAY_STREAM_IDS
            stream_id = FIRST_IPC_REPLAY_STREAM_ID + number
            return ReplaySubscription(client, client.subscription(own_channel, stream_id), own_channel, stream_id)
        java = client.subscription(own_channel, REPLAY_STREAM_ID)
        channel = wait_for(java.tryResolveChannelEndpointPort, timeout, f"a port for {own_channel}")
        return ReplaySubscription(client, java, str(channel), REPLAY_STREAM_ID)

    return REPLAYS.get(
        archive.address, subscribe, lambda one: one.client is client and one.is_usable, ReplaySubscription.close
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """A running replay with its image."""

    archive: Archive
    recording: Recording
    start: int
    end: int
    image: Any
    session_id: int

    def check(self) -> None:
        """Raise TransportError, or UnreadableBytesError for a damaged frame, if the replay ended before its end."""
        if not self.image.isClosed() and not self.archive.client.closed:
            return
        text = (
            f"the replay of recording {self.recording.id} of {self.archive.address.name} ended at position "
            f"{int(self.image.position())} of [{self.start}, {self.end})"
        )
        reason = self.archive.poll_error(REASON_TIMEOUT_S, self.session_id)
        _raise_damage(reason)
        raise TransportError(
            f"{text}: {reason}" if reason else text,
            remedy="Try again. The archive or its media driver stopped.",
        )


@contextmanager
def replay(
    archive: Archive, recording: Recording, start: int, end: int, *, timeout: float, ahead: ReplaysAhead | None = None
) -> Iterator[Replay]:
    """Open a replay of ``[start, end)``, both frame boundaries; close it, and stop it in the archive, at the end.

    It may have been started ``ahead``, and starts others ahead.
    """
    awaited = f"the replay of recording {recording.id} from position {start}"
    opened: tuple[Any, int]
    is_response = "control-mode=response" in archive.address.replay_channel
    with _damage(), java_errors(f"replaying recording {recording.id} from position {start}"):
        if is_response:
            opened = _replay_response(archive, recording.id, start, end)
        else:
            span = Span(archive.address.name, recording.id, start, end)
            opened = _replay_shared(archive, span, timeout, ahead or ReplaysAhead())
    subscription, session_id = opened
    image = None
    try:
        image = _image_of(archive, subscription, session_id, timeout, awaited)
        yield Replay(archive, recording, start, end, image, session_id)
    finally:
        finished = image is not None and int(image.position()) >= end
        if is_response:
            subscription.close()
        if not finished and session_id != NO_REPLAY:
            _stop(archive, session_id)


class ReplayedRange:
    """The frames of ``[start, end)``, both frame boundaries, by a replay.

    Raises UnreadableBytesError at a damaged frame, or with its cause if the archive refuses or ends the replay.

    The archive reads ahead: at a damaged frame it ends the replay without some frames before it. A second replay has
    these. A reader may keep the begin of a message between the two.
    """

    def __init__(
        self,
        archive: Archive,
        recording: Recording,
        start: int,
        end: int,
        idle_timeout: float,
        ahead: ReplaysAhead | None = None,
    ) -> None:
        self.archive = archive
        self._ahead = ahead
        self.end = end
        self._recording = recording
        self._stop = end  # or the position of a damaged frame
        self._timeout = idle_timeout
        self._deadline = Deadline(idle_timeout, f"more of recording {recording.id} of {archive.address.name}")
        self._open = ExitStack()
        self._replay = self._begin(start)
        self.position = start

    def poll(self, take: Callable[[Any], bool]) -> bool:
        """Call ``take`` with the image, and return its result: whether it took frames, or has no room for them.

        Raises WaitTimeout if no data arrive, UnreadableBytesError if the replay ended.
        """
        if self.position == self._stop < self.end:
            raise UnreadableBytesError(self.position)
        image = self._replay.image
        is_taken = take(image)
        position = int(image.position())
        if position > self.position:
            self.position = position
            self._deadline.progress()
        elif not is_taken:
            self._check()
            self._deadline.idle(f"at position {position} of [{self._replay.start}, {self.end})")
        return is_taken

    def progress(self) -> None:
        """Restart the wait for data."""
        self._deadline.progress()

    def _check(self) -> None:
        try:
            self._replay.check()
        except UnreadableBytesError as damaged:
            self._open.close()
            self._stop_at(damaged, self.position)
            self._replay = self._begin(self.position)
        except TransportError as error:
            raise UnreadableBytesError(self.position, error) from error

    def _begin(self, start: int) -> Replay:
        while True:
            timeout, ahead = self._timeout, self._ahead
            opening = replay(self.archive, self._recording, start, self._stop, timeout=timeout, ahead=ahead)
            try:
                return self._open.enter_context(opening)
            except UnreadableBytesError as damaged:
                self._stop_at(damaged, start)
            except TransportError as error:
                raise UnreadableBytesError(start, error) from error

    def _stop_at(self, damaged: UnreadableBytesError, start: int) -> None:
        """Let the next replay, from ``start``, end at the damaged frame. Raises the error if that is the next frame."""
        if not start < damaged.position < self._stop:
            raise UnreadableBytesError(start) from damaged
        self._stop = damaged.position

    def __enter__(self) -> ReplayedRange:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()


@contextmanager
def _damage() -> Iterator[None]:
    """Raise UnreadableBytesError instead of the archive's refusal to replay from a damaged frame."""
    try:
        yield
    except TransportError as error:
        _raise_damage(error.what)
        raise


def _raise_damage(reason: str) -> None:
    found = DAMAGE.search(reason)
    if found is not None:
        raise UnreadableBytesError(int(found[1] or found[2]))


def _replay_shared(archive: Archive, span: Span, timeout: float, ahead: ReplaysAhead) -> tuple[Any, int]:
    # Subscribe before the request: without a subscriber a replay sends its next setup frame 100 ms later.
    to = _replays_of(archive, timeout)
    session_id = ahead.take(span, to)
    if session_id is None:
        session_id = _queued(lambda: _start(archive, span, to, ahead))
    # The Aeron session id distinguishes the replays.
    return to.java, session_id


def _start(archive: Archive, span: Span, to: ReplaySubscription, ahead: ReplaysAhead) -> int:
    """Start the replay of ``span``, and further ones ahead. Raises the archive's exception if it refuses the first."""
    spans = [span, *ahead.following(span)]
    longs = jpype.JArray(jpype.JLong)
    _, recordings, starts, ends = map(list, zip(*spans, strict=True))
    started = archive.replays.start(to.channel, to.stream_id, longs(recordings), longs(starts), longs(ends))
    session_id, *others = map(int, started.sessions())
    for one, other in zip(spans[1:], others, strict=True):
        if other != NO_REPLAY:
            ahead.add(one, to, other, partial(_stop, archive, other))
    if session_id == NO_REPLAY:
        raise started.failures()[0]
    return session_id


def _replay_response(archive: Archive, recording_id: int, start: int, end: int) -> tuple[Any, int]:
    parameters = jclass("io.aeron.archive.client.ReplayParams")().position(start).length(end - start)
    subscription = _queued(
        lambda: archive.java.replay(recording_id, archive.address.replay_channel, REPLAY_STREAM_ID, parameters)
    )
    return subscription, NO_REPLAY


def _image_of(archive: Archive, subscription: Any, session_id: int, timeout: float, awaited: str) -> Any:
    """Wait for the replay's image. The archive may end the replay at a damaged frame before the image is seen."""
    deadline = Deadline(timeout, awaited)
    while True:
        if session_id != NO_REPLAY:
            image = subscription.imageBySessionId(_low32(session_id))
        else:
            image = subscription.imageAtIndex(0) if int(subscription.imageCount()) > 0 else None
        if image is not None:
            return image
        _raise_damage(archive.poll_error(0.0, session_id))
        deadline.idle(f"subscription {subscription.channel()} with {int(subscription.imageCount())} images")


def _queued(request: Callable[[], Any]) -> Any:
    deadline = Deadline(QUEUE_TIMEOUT_S, "a free replay session of the archive")
    while True:
        try:
            return request()
        except jpype.JException as error:
            if archive_error_code(error) != MAX_REPLAYS:
                raise
        deadline.idle("all are in use; the archive's limit is aeron.archive.max.concurrent.replays")


def _stop(archive: Archive, session_id: int) -> None:
    try:
        archive.java.stopReplay(session_id)
    except jpype.JException as error:
        # An ArchiveException means that the replay had ended; a closed session has ended its replays.
        if archive_error_code(error) is None and not archive.closed:
            raise TransportError(
                f"stopping a replay failed: {describe(error)}", remedy="Check that the archive runs."
            ) from error


def _low32(session_id: int) -> int:
    low = session_id & 0xFFFF_FFFF
    return low - (1 << 32) if low >= 1 << 31 else low
