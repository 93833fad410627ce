"""Replays ranges of recordings; waits if the archive's limit of concurrent replays is reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import jpype

from aeron_spark.aeron.archive import MAX_REPLAYS, Archive
from aeron_spark.aeron.exceptions import archive_error_code, describe, java_errors
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import Recording, UnreadableBytesError
from aeron_spark.errors import TransportError
from aeron_spark.waiting import Deadline, wait_for

# The archive's reasons for which it does not begin a replay, or ends it, at a damaged frame.
DAMAGE: Final = re.compile(
    r"replayPosition=(\d+) does not point to a valid frame"
    r"|(?:unexpected end of recording|CRC checksum mismatch) at position=(\d+)"
)

REPLAY_STREAM_ID: Final = 20121
REASON_TIMEOUT_S: Final = 0.5  # for the archive's report of the reason for which it ended a replay
QUEUE_TIMEOUT_S: Final = 600.0  # for a free replay session of the archive; the replays of others may be long


@dataclass(frozen=True, slots=True)
class Replay:
    """A running replay with its image."""

    archive: Archive
    recording: Recording
    start: int
    end: int
    image: Any

    def check(self) -> None:
        """Raise TransportError, or UnreadableBytesError for a damaged frame, if the replay ended before its end."""
        if not self.image.isClosed() and not self.archive.client.closed:
            return
        text = (
            f"the replay of recording {self.recording.id} of {self.archive.address.name} ended at position "
            f"{int(self.image.position())} of [{self.start}, {self.end})"
        )
        reason = self.archive.poll_error(REASON_TIMEOUT_S)
        _raise_damage(reason)
        raise TransportError(
            f"{text}: {reason}" if reason else text,
            remedy="Try again. The archive or its media driver stopped.",
        )


@contextmanager
def replay(archive: Archive, recording: Recording, start: int, end: int, *, timeout: float) -> Iterator[Replay]:
    """Open a replay of ``[start, end)``, both frame boundaries; close it, and stop it in the archive, at the end."""
    awaited = f"the replay of recording {recording.id} from position {start}"
    opened: tuple[Any, int | None]
    with _damage(), java_errors(f"replaying recording {recording.id} from position {start}"):
        if archive.address.replay_channel == "aeron:ipc":
            opened = _replay_ipc(archive, recording.id, start, end)
        elif "control-mode=response" in archive.address.replay_channel:
            opened = _replay_response(archive, recording.id, start, end)
        else:
            opened = _replay_udp(archive, recording.id, start, end, timeout)
    subscription, session_id = opened
    image = None
    try:
        image = _image_of(archive, subscription, session_id, timeout, awaited)
        yield Replay(archive, recording, start, end, image)
    finally:
        finished = image is not None and int(image.position()) >= end
        subscription.close()
        if not finished and session_id is not None:
            _stop(archive, session_id)


class ReplayedRange:
    """The frames of ``[start, end)``, both frame boundaries, by a replay.

    Raises UnreadableBytesError at a damaged frame, or with its cause if the archive refuses or ends the replay.

    The archive reads ahead: at a damaged frame it ends the replay without some frames before it. A second replay has
    these. A reader may keep the begin of a message between the two.
    """

    def __init__(self, archive: Archive, recording: Recording, start: int, end: int, idle_timeout: float) -> None:
        self.archive = archive
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
            opening = replay(self.archive, self._recording, start, self._stop, timeout=self._timeout)
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


def _replay_ipc(archive: Archive, recording_id: int, start: int, end: int) -> tuple[Any, int]:
    channel = "aeron:ipc"
    session_id = _start(
        archive, lambda: archive.java.startReplay(recording_id, start, end - start, channel, REPLAY_STREAM_ID)
    )
    # The Aeron session id distinguishes the replays of one machine, which share a channel and a stream id.
    subscription = archive.client.subscription(f"{channel}?session-id={_low32(session_id)}", REPLAY_STREAM_ID)
    return subscription, session_id


def _replay_udp(archive: Archive, recording_id: int, start: int, end: int, timeout: float) -> tuple[Any, int]:
    # Subscribe before the request: without a subscriber a replay sends its next setup frame 100 ms later.
    subscription = archive.client.subscription(archive.address.replay_channel, REPLAY_STREAM_ID)
    channel = wait_for(
        subscription.tryResolveChannelEndpointPort, timeout, f"a port for {archive.address.replay_channel}"
    )
    session_id = _start(
        archive, lambda: archive.java.startReplay(recording_id, start, end - start, str(channel), REPLAY_STREAM_ID)
    )
    return subscription, session_id


def _replay_response(archive: Archive, recording_id: int, start: int, end: int) -> tuple[Any, None]:
    parameters = jclass("io.aeron.archive.client.ReplayParams")().position(start).length(end - start)
    subscription = _queued(
        lambda: archive.java.replay(recording_id, archive.address.replay_channel, REPLAY_STREAM_ID, parameters)
    )
    return subscription, None


def _image_of(archive: Archive, subscription: Any, session_id: int | None, timeout: float, awaited: str) -> Any:
    """Wait for the replay's image. The archive may end the replay at a damaged frame before the image is seen."""
    deadline = Deadline(timeout, awaited)
    while True:
        if session_id is not None:
            image = subscription.imageBySessionId(_low32(session_id))
        else:
            image = subscription.imageAtIndex(0) if int(subscription.imageCount()) > 0 else None
        if image is not None:
            return image
        _raise_damage(archive.poll_error(0.0))
        deadline.idle(f"subscription {subscription.channel()} with {int(subscription.imageCount())} images")


def _start(archive: Archive, request: Any) -> int:
    return int(_queued(request))


def _queued(request: Any) -> Any:
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
