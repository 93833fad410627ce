"""Lists the recordings of archives by stream, reads their content, and purges and deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import CataloguedRecording, segment_base
from aeron_spark.direct.archives import StreamAddress
from aeron_spark.direct.session_recordings import with_end
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.log.api import StreamContent
from aeron_spark.log.inspection import content_of, framed_times, messages_between, position_at
from aeron_spark.log.overlaps import Overlaps
from aeron_spark.log.overlaps import repeated_bytes as count_repeated
from aeron_spark.transport.channel import ChannelUri, same_stream
from aeron_spark.transport.recording_start import without_start


@dataclass(frozen=True, slots=True)
class CataloguedStream:
    """The recordings of one stream in one archive, ordered by id; times in milliseconds since 1970."""

    archive: ArchiveAddress
    channel: str
    stream_id: int
    recordings: tuple[CataloguedRecording, ...]

    @property
    def length(self) -> int:
        """Recorded bytes of the log."""
        return sum(one.length for one in self.recordings)

    @property
    def active(self) -> int:
        """Number of active recordings."""
        return sum(one.active for one in self.recordings)

    @property
    def oldest(self) -> int:
        """Start of the first recording."""
        return min(one.recording.start_timestamp for one in self.recordings)

    @property
    def newest(self) -> int | None:
        """Stop of the last recording, or None while one is active."""
        stops = [one.recording.stop_timestamp for one in self.recordings]
        return None if None in stops else max(stop for stop in stops if stop is not None)

    def named(self, name: str) -> bool:
        """Whether a recording has this ``alias`` in its channel."""
        return any(alias_of(one.recording.original_channel) == name for one in self.recordings)


@dataclass(frozen=True, slots=True)
class PurgeRange:
    """The segments that a purge deletes from the start of one recording."""

    recording_id: int
    start: int
    new_start: int
    segments: int

    @property
    def length(self) -> int:
        """Deleted bytes of the log."""
        return self.new_start - self.start


def catalogued_streams(
    archives: Iterable[ArchiveAddress], channel: str | None = None, stream_id: int | None = None
) -> list[CataloguedStream]:
    """Return the streams of the archives; only those of ``channel`` and ``stream_id`` if given."""
    wanted = None if channel is None else ChannelUri.parse(channel)
    found: list[CataloguedStream] = []
    for address in archives:
        archive = archive_of(address)
        groups: list[tuple[ChannelUri, int, list[CataloguedRecording]]] = []
        for recording in archive.recordings(stream_id):
            parsed = ChannelUri.parse(without_start(recording.channel), foreign=True)
            if wanted is not None and not same_stream(wanted, parsed):
                continue
            entry = with_end(archive, recording)
            for known, known_id, recordings in groups:
                if known_id == recording.stream_id and same_stream(known, parsed):
                    recordings.append(entry)
                    break
            else:
                groups.append((parsed, recording.stream_id, [entry]))
        found += [CataloguedStream(address, str(known), number, tuple(entries)) for known, number, entries in groups]
    return sorted(found, key=lambda stream: (stream.archive.name, stream.channel, stream.stream_id))


def alias_of(channel: str) -> str | None:
    """Return the alias of a channel, or None."""
    return ChannelUri.parse(without_start(channel), foreign=True).get("alias")


def content_of_stream(stream: CataloguedStream, idle_timeout: float) -> StreamContent | None:
    """Return the content of a stream, or None without messages."""
    log = _log(stream, idle_timeout)
    return content_of(log, log.states())


def repeated_bytes(stream: CataloguedStream, idle_timeout: float) -> int:
    """Return how many bytes of a stream are in more than one recording; a reader reads them once."""
    log = _log(stream, idle_timeout)
    states = log.states()
    return count_repeated(
        states, Overlaps(states, log, lambda state, begin, end: messages_between(log, state, begin, end))
    )


def purge_range_before(entry: CataloguedRecording, position: int) -> PurgeRange:
    """Return the range that a purge before ``position`` deletes: complete segments, and never the last one."""
    recording = entry.recording
    base = segment_base(recording, max(recording.start_position, min(position, entry.end)))
    if base >= entry.end > recording.start_position:  # an archive keeps the last segment with data
        base -= recording.segment_length
    first = segment_base(recording, recording.start_position)
    if base <= recording.start_position:
        return PurgeRange(recording.id, recording.start_position, recording.start_position, 0)
    return PurgeRange(recording.id, recording.start_position, base, (base - first) // recording.segment_length)


def position_before_time(
    stream: CataloguedStream, entry: CataloguedRecording, time_ns: int, idle_timeout: float
) -> int:
    """Return the position up to which all messages of a recording were published before ``time_ns``.

    Raises OptionError for messages without publish times, unless the recording stopped before that time.
    """
    stopped = entry.recording.stop_timestamp
    if stopped is not None and stopped * 1_000_000 < time_ns:
        return entry.end
    if entry.recording.start_timestamp * 1_000_000 >= time_ns:
        return entry.recording.start_position
    content = content_of_stream(stream, idle_timeout)
    if content is None:
        return entry.recording.start_position
    if content.payload == "raw":
        raise OptionError(
            f"recording {entry.recording.id} continues after that time, and its raw messages carry no publish times",
            remedy="Give a position (--before 67108864), or the bytes to keep (--keep 1GiB).",
        )
    log = ArchiveLog(_address(stream, idle_timeout), framed=True)
    state = next(one for one in log.states() if one.recording_id == entry.recording.id)
    return position_at(log, state, time_ns, framed_times)


def purge(stream: CataloguedStream, ranges: Sequence[PurgeRange]) -> None:
    """Delete the segments of ``ranges``. The archive refuses to delete a segment that a replay reads."""
    archive = archive_of(stream.archive)
    for one in ranges:
        if one.segments:
            archive.purge_segments(one.recording_id, one.new_start)


def refuse_active(stream: CataloguedStream) -> None:
    """Raise RefusedError if a recording of ``stream`` is active, which an archive cannot delete."""
    active = [str(one.recording.id) for one in stream.recordings if one.active]
    if active:
        raise RefusedError(
            f"recording {', '.join(active)} of stream {stream.stream_id} of {stream.channel} is still being recorded",
            remedy="Stop its publisher first, or choose stopped recordings with --recording.",
        )


def delete(stream: CataloguedStream) -> None:
    """Delete the recordings of ``stream`` and their files. Raises RefusedError if one is active."""
    refuse_active(stream)
    archive = archive_of(stream.archive)
    for one in stream.recordings:
        archive.delete(one.recording.id)


def only(stream: CataloguedStream, recording_ids: Sequence[int]) -> CataloguedStream:
    """Return ``stream`` with only these recordings. Raises OptionError for a recording that it does not have."""
    known = {one.recording.id for one in stream.recordings}
    for recording_id in recording_ids:
        if recording_id not in known:
            raise OptionError(
                f"stream {stream.stream_id} of {stream.channel} has no recording {recording_id}",
                remedy=f"Choose from {', '.join(str(one) for one in sorted(known))}.",
            )
    if not recording_ids:
        return stream
    return replace(stream, recordings=tuple(one for one in stream.recordings if one.recording.id in recording_ids))


def _address(stream: CataloguedStream, idle_timeout: float) -> StreamAddress:
    return StreamAddress(stream.channel, stream.stream_id, (stream.archive,), idle_timeout)


def _log(stream: CataloguedStream, idle_timeout: float) -> ArchiveLog:
    return ArchiveLog(_address(stream, idle_timeout))
