"""Replays ranges of recordings; waits if the archive's limit of concurrent replays is reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import jpype

from aeron_spark.aeron.archive import MAX_REPLAYS, Archive
from aeron_spark.aeron.client import image_of
from aeron_spark.aeron.exceptions import archive_error_code, describe, java_errors
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import Recording
from aeron_spark.errors import DataFormatError, TransportError
from aeron_spark.waiting import Deadline, wait_for

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
        """Raise TransportError, or DataFormatError for a wrong checksum, if the replay ended before its end."""
        if not self.image.isClosed() and not self.archive.client.closed:
            return
        text = (
            f"the replay of recording {self.recording.id} of {self.archive.address.name} ended at position "
            f"{int(self.image.position())} of [{self.start}, {self.end})"
        )
        reason = self.archive.poll_error(REASON_TIMEOUT_S)
        if "checksum" in reason:
            raise DataFormatError(
                f"{text}, because the recording was changed on the archive's disk: {reason}",
                remedy="Restore the archive's files from a copy, or read from a later position.",
            )
        raise TransportError(
            f"{text}: {reason}" if reason else text,
            remedy="Try again. The archive or its media driver stopped.",
        )


@contextmanager
def replay(archive: Archive, recording: Recording, start: int, end: int, *, timeout: float) -> Iterator[Replay]:
    """Open a replay of ``[start, end)``, both frame boundaries; close it, and stop it in the archive, at the end."""
    awaited = f"the replay of recording {recording.id} from position {start}"
    opened: tuple[Any, int | None]
    with java_errors(f"replaying recording {recording.id} from position {start}"):
        if archive.address.replay_channel == "aeron:ipc":
            opened = _replay_ipc(archive, recording.id, start, end)
        elif "control-mode=response" in archive.address.replay_channel:
            opened = _replay_response(archive, recording.id, start, end)
        else:
            opened = _replay_udp(archive, recording.id, start, end, timeout)
    subscription, session_id = opened
    image = None
    try:
        image = (
            image_of(subscription, _low32(session_id), timeout, awaited)
            if session_id is not None
            else _only_image(subscription, timeout, awaited)
        )
        yield Replay(archive, recording, start, end, image)
    finally:
        finished = image is not None and int(image.position()) >= end
        subscription.close()
        if not finished and session_id is not None:
            _stop(archive, session_id)


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


def _only_image(subscription: Any, timeout: float, awaited: str) -> Any:
    wait_for(lambda: int(subscription.imageCount()) > 0, timeout, awaited)
    return subscription.imageAtIndex(0)


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
