"""Starts, lists, stops and deletes recordings of the direct route."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive import Archive, RecordingSubscription, archive_of
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.log.api import EMBEDDED
from aeron_spark.node import aeron_dir_argument
from aeron_spark.transport.channel import (
    ChannelUri,
    RecordingStart,
    same_stream,
    server_stream,
    start_of,
    without_start,
)
from aeron_spark.waiting import wait_for

MAX_SIMILAR_STREAMS: Final = 5  # that an error names
STOP_TIMEOUT_S: Final = 10.0  # for the end of a recording after its subscription was stopped
SESSION_ID: Final = "session-id"
STOP_REMEDY: Final = "Stop the server, which records its streams while it runs."
DELETE_REMEDY: Final = (
    "Delete the complete stream through the server: 'aeron-spark streams delete {} --server HOST:PORT'."
)


class RecordingWarning(UserWarning):
    """A recording was started: earlier messages are not recorded, and the recording continues after this process."""


def check_recordable(address: StreamAddress, record: str) -> None:
    """Raise OptionError if the option ``record`` forbids to record a stream, or its archive cannot receive it."""
    if record == "never":
        raise OptionError(
            f"stream {address.stream_id} of {address.channel} has no recording, and option 'record' is 'never'",
            remedy="Let its publisher record it, or set option 'record' to 'auto', which records it from now on.",
        )
    check_receivable(address)


def warn_of_recording(address: StreamAddress, *, was_recorded: bool) -> None:
    """Warn that the recording of a stream was started: the messages before it are lost."""
    state = "was no longer recorded" if was_recorded else "was not recorded"
    lost = "messages since its last recording" if was_recorded else "earlier messages"
    warnings.warn(
        f"stream {address.stream_id} of {address.channel} {state}; {lost}, if any, are lost. The archive "
        f"{address.archives[0].name} records it from now on, until '{stop_command(address)}' ends that"
        f"{_ending_with_node(address)}",
        RecordingWarning,
        stacklevel=2,
    )


def stop_command(address: StreamAddress) -> str:
    """Return the command line that ends the recording of a stream."""
    stream = f"--channel {shlex.quote(address.channel)} --stream-id {address.stream_id}"
    return f"aeron-spark recordings stop {stream}{_archive_arguments(address.archives[0])}"


def _ending_with_node(address: StreamAddress) -> str:
    """Return a text if the recording subscription ends with this machine's node: over IPC it does not keep the node."""
    if address.archives[0].name != EMBEDDED or ChannelUri.parse(address.channel).media != "ipc":
        return ""
    return ", or this machine's node stops, because no program and no publisher uses it"


def _archive_arguments(archive: ArchiveAddress) -> str:
    """Return the arguments that a printed command line needs to reach the archive."""
    argument = "" if archive.name == EMBEDDED else f" --archive {shlex.quote(archive.control_channel)}"
    return f"{argument}{aeron_dir_argument(archive.aeron_dir)}"


def start_now(query: str = "") -> RecordingStart:
    """Return the note of a recording that this process starts now."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, in a container
        user = str(os.getuid())
    return RecordingStart(int(time.time() * 1000), f"{user}@{socket.gethostname()} {_program()}".strip(), query)


def check_receivable(address: StreamAddress) -> None:
    """Raise OptionError if the host of a stream's archive cannot receive it: unicast reaches only its own host."""
    archive = address.archives[0]
    parsed = ChannelUri.parse(address.channel)
    if archive.local:
        elsewhere = parsed.is_unicast_elsewhere([], _resolve) and not _is_this_host(parsed)
    else:
        host = ChannelUri.parse(archive.control_channel).get("endpoint") or ""
        elsewhere = parsed.is_unicast_elsewhere(_resolve(host.rpartition(":")[0].strip("[]")), _resolve)
    if elsewhere:
        raise OptionError(
            f"the archive {archive.name} cannot receive {address.channel}: it is a unicast stream to another host",
            remedy="Use the archive of that host (option 'archive'), or let the publisher use multicast or "
            "multi-destination-cast (control-mode=dynamic), which several hosts can receive.",
        )


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A recording of an archive's catalog, or a recording subscription without a publisher yet (``id`` is None).

    ``standing``: a recording subscription exists, which records each publisher until it is stopped. ``start`` and
    ``end`` are positions in bytes; times are in milliseconds since 1970.
    """

    archive: str
    id: int | None
    channel: str
    stream_id: int
    session_id: int | None
    start: int | None
    end: int | None
    active: bool
    standing: bool
    began_ms: int | None
    ended_ms: int | None
    started: RecordingStart | None

    @property
    def label(self) -> str:
        """The name of the recording in errors and results."""
        name = "the recording subscription to" if self.id is None else f"recording {self.id} of"
        return f"{name} stream {self.stream_id} of {self.channel}"


def list_recordings(
    archives: Iterable[ArchiveAddress], channel: str | None = None, stream_id: int | None = None
) -> list[ListedRecording]:
    """Return the recordings of the direct route by archive and id; only of ``channel`` and ``stream_id`` if given.

    Recordings of a server's streams are omitted: ``aeron-spark streams`` manages those.
    """
    return [entry for address in archives for entry in _entries(address, channel, stream_id)]


def stop_recordings(
    archives: Sequence[ArchiveAddress],
    recording_ids: Sequence[int] = (),
    *,
    channel: str | None = None,
    stream_id: int | None = None,
) -> list[ListedRecording]:
    """Stop recordings by id, or those of ``channel`` and ``stream_id``. Return the recordings that this call stopped.

    Also stops the recording subscription of each stream, with all its recordings: otherwise the archive would record
    the next publisher. Raises OptionError for a recording that does not exist, RefusedError for one of a server's
    stream, WaitTimeout for one that has not stopped after ``STOP_TIMEOUT_S``.
    """
    if (channel is None) != (stream_id is None):
        raise OptionError(
            "only one of channel and stream id is given, expected both or none of them", remedy="Give both."
        )
    ended = []
    for address in archives:
        archive = archive_of(address)
        known = [one for one in archive.recordings() if server_stream(one.original_channel) is None]
        standing = archive.subscriptions()
        if channel is None:
            chosen = [_recording(archive, address, number, STOP_REMEDY) for number in recording_ids]
            streams = [(one.channel, one.stream_id) for one in chosen]
        else:
            streams = [(channel, stream_id or 0)]
        for text, number in streams:
            ended += _stop_stream(archive, address, known, standing, text, number)
    if channel is not None and not ended and not list_recordings(archives, channel, stream_id):
        raise OptionError(
            no_recording(archives, channel, stream_id or 0).what,
            remedy="Correct 'channel' and 'streamId' if you mean another stream ('aeron-spark recordings list' shows "
            "the recorded streams); otherwise there is nothing to stop.",
        )
    return list(dict.fromkeys(ended))


def delete_recordings(archives: Sequence[ArchiveAddress], recording_ids: Sequence[int]) -> list[ListedRecording]:
    """Delete stopped recordings with their files, and return their last states.

    Checks all recordings first. Raises OptionError for a recording that does not exist, RefusedError for an active one
    or one of a server's stream.
    """
    deleted = []
    for address in archives:
        archive = archive_of(address)
        standing = archive.subscriptions()
        chosen = [_recording(archive, address, number, DELETE_REMEDY) for number in dict.fromkeys(recording_ids)]
        for one in chosen:
            if one.stop_position is None:
                raise RefusedError(
                    f"recording {one.id} of stream {one.stream_id} of {without_start(one.original_channel)} is still "
                    "being recorded",
                    remedy=f"Stop it first: 'aeron-spark recordings stop {one.id}{_archive_arguments(address)}'.",
                )
        for one in chosen:
            deleted.append(_entry(archive, address, one, standing))
            archive.delete(one.id)
    return deleted


def no_recording(archives: Sequence[ArchiveAddress], channel: str, stream_id: int) -> OptionError:
    """Return the error for a stream that no archive has recorded, with the recordings of similar streams."""
    wanted = ChannelUri.parse(channel)
    listed = list_recordings(archives)
    similar = [one for one in listed if one.stream_id == stream_id]  # a wrong port is the most likely mistake
    similar += [one for one in listed if one.stream_id != stream_id and _same(wanted, one.channel)]
    names = list(dict.fromkeys(f"stream {one.stream_id} of {one.channel}" for one in similar if one.id is not None))
    more = f" and {len(names) - MAX_SIMILAR_STREAMS} more" if len(names) > MAX_SIMILAR_STREAMS else ""
    alternatives = f"; it has {', '.join(names[:MAX_SIMILAR_STREAMS])}{more}" if names else ""
    return OptionError(
        f"the archive {', '.join(address.name for address in archives)} has no recording of stream {stream_id} of "
        f"{channel}{alternatives}",
        remedy="Correct 'channel' and 'streamId' ('aeron-spark recordings list' shows the recorded streams), or record "
        "the stream first: 'aeron-spark send --record', or a streaming query with record=auto.",
    )


def _stop_stream(
    archive: Archive,
    address: ArchiveAddress,
    known: Sequence[Recording],
    standing: Sequence[RecordingSubscription],
    channel: str,
    stream_id: int,
) -> list[ListedRecording]:
    """Stop the recording subscriptions of one stream, and its recordings; return those that were active."""
    wanted = ChannelUri.parse(channel, foreign=True)
    subscriptions = [one for one in standing if one.stream_id == stream_id and _same(wanted, one.channel)]
    active = [
        one for one in known if one.stop_position is None and one.stream_id == stream_id and _same(wanted, one.channel)
    ]
    for subscription in subscriptions:
        archive.stop_subscription(subscription)
    stopped = []
    for one in active:
        # An archive may record a single Aeron session without a subscription in its list.
        archive.stop_recording_by_id(one.id, STOP_TIMEOUT_S)
        last = wait_for(
            lambda one=one: _stopped(archive, one.id),  # type: ignore[misc]
            STOP_TIMEOUT_S,
            f"recording {one.id} to stop",
        )
        stopped.append(_entry(archive, address, last, ()))
    return stopped or [_without_recording(address, one) for one in subscriptions if SESSION_ID not in one.channel]


def _stopped(archive: Archive, recording_id: int) -> Recording | None:
    found = archive.recording(recording_id)
    return None if found is None or found.stop_position is None else found


def _recording(archive: Archive, address: ArchiveAddress, recording_id: int, server_remedy: str) -> Recording:
    """Return a recording of the direct route.

    Raises OptionError if it does not exist, and RefusedError for a recording of a server's stream: with the remedy
    ``server_remedy``, in which ``{}`` stands for the stream.
    """
    found = archive.recording(recording_id)
    if found is None:
        listed = [one.id for one in archive.recordings() if server_stream(one.original_channel) is None]
        ids = ", ".join(str(one) for one in listed[-20:]) or "none"
        raise OptionError(
            f"the archive {address.name} has no recording {recording_id}",
            remedy=f"Choose from its recordings ('aeron-spark recordings list' shows them): {ids}.",
        )
    stream = server_stream(found.original_channel)
    if stream is not None:
        raise RefusedError(
            f"recording {recording_id} is a partition of the server's stream {stream!r}",
            remedy=server_remedy.format(stream),
        )
    return found


def _entries(address: ArchiveAddress, channel: str | None, stream_id: int | None) -> list[ListedRecording]:
    archive = archive_of(address)
    wanted = None if channel is None else ChannelUri.parse(channel)
    standing = [
        one
        for one in archive.subscriptions(stream_id)
        if server_stream(one.channel) is None and (wanted is None or _same(wanted, one.channel))
    ]
    entries = [
        _entry(archive, address, one, standing)
        for one in archive.recordings(stream_id)
        if server_stream(one.original_channel) is None and (wanted is None or _same(wanted, one.channel))
    ]
    for one in standing:
        # A subscription to a single Aeron session ends with it, and its recording is in the catalog.
        has_recording = any(
            entry.active and entry.stream_id == one.stream_id and _same_text(entry.channel, one.channel)
            for entry in entries
        )
        if not has_recording and SESSION_ID not in one.channel:
            entries.append(_without_recording(address, one))
    return entries


def _entry(
    archive: Archive, address: ArchiveAddress, one: Recording, standing: Sequence[RecordingSubscription]
) -> ListedRecording:
    stop = one.stop_position
    return ListedRecording(
        archive=address.name,
        id=one.id,
        channel=without_start(one.original_channel),
        stream_id=one.stream_id,
        session_id=one.session_id,
        start=one.start_position,
        end=archive.position(one.id) if stop is None else stop,
        active=stop is None,
        standing=any(
            each.stream_id == one.stream_id and SESSION_ID not in each.channel and _same_text(one.channel, each.channel)
            for each in standing
        ),
        began_ms=one.start_timestamp,
        ended_ms=one.stop_timestamp,
        started=start_of(one.original_channel),
    )


def _without_recording(address: ArchiveAddress, one: RecordingSubscription) -> ListedRecording:
    return ListedRecording(
        archive=address.name,
        id=None,
        channel=without_start(one.channel),
        stream_id=one.stream_id,
        session_id=None,
        start=None,
        end=None,
        active=False,
        standing=True,
        began_ms=None,
        ended_ms=None,
        started=start_of(one.channel),
    )


def _same_text(one: str, other: str) -> bool:
    return _same(ChannelUri.parse(one, foreign=True), other)


def _same(wanted: ChannelUri, channel: str) -> bool:
    return same_stream(wanted, ChannelUri.parse(channel, foreign=True))


def _program() -> str:
    """Return the name of the program that this process belongs to; a Spark worker belongs to an ancestor's program."""
    pid = os.getpid()
    for _ in range(6):
        try:
            words = [word.decode(errors="replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
            parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return ""
        scripts = [Path(word).name for word in words[1:] if word.endswith((".py", "aeron-spark"))]
        if scripts and not any("pyspark" in word for word in words[1:3]):
            return scripts[-1]
        pid = parent
    return ""


def _is_this_host(channel: ChannelUri) -> bool:
    endpoint = channel.get("endpoint")
    if endpoint is None:
        return True
    host = endpoint.rpartition(":")[0].strip("[]")
    for address in _resolve(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return True
    return False


def _resolve(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)]
    except OSError:
        return []
