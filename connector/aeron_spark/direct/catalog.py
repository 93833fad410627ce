"""What archives hold, stream by stream: to list it, to look into it, and to make room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aeron_spark.aeron.archive import Archive, ArchiveAddress, Recording, archive_of
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archives import StreamAddress
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.log.api import StreamContent
from aeron_spark.log.inspection import content_of, framed_times, position_at
from aeron_spark.transport.channel import ChannelUri, same_stream
from aeron_spark.transport.recording_start import without_start


@dataclass(frozen=True, slots=True)
class CataloguedRecording:
    """A recording, and how far it reaches now."""

    recording: Recording
    end: int

    @property
    def active(self) -> bool:
        """Whether it is still being recorded."""
        return self.recording.stop_position is None

    @property
    def length(self) -> int:
        """Bytes of the log that are there."""
        return self.end - self.recording.start_position

    @property
    def segments(self) -> int:
        """Files that hold it."""
        origin = segment_base(self.recording, self.recording.start_position)
        return -(-(self.end - origin) // self.recording.segment_length)


@dataclass(frozen=True, slots=True)
class CataloguedStream:
    """The recordings of one stream in one archive, in the order of their ids; times in milliseconds since the epoch."""

    archive: ArchiveAddress
    channel: str
    stream_id: int
    recordings: tuple[CataloguedRecording, ...]

    @property
    def length(self) -> int:
        """Bytes of the log that are there."""
        return sum(held.length for held in self.recordings)

    @property
    def active(self) -> int:
        """How many of its recordings still grow."""
        return sum(held.active for held in self.recordings)

    @property
    def oldest(self) -> int:
        """When the first recording began."""
        return min(held.recording.start_timestamp for held in self.recordings)

    @property
    def newest(self) -> int | None:
        """When the last recording stopped, or None while one grows."""
        stops = [held.recording.stop_timestamp for held in self.recordings]
        return None if None in stops else max(stop for stop in stops if stop is not None)

    def named(self, name: str) -> bool:
        """Whether a recording was made under this ``alias`` of its channel."""
        return any(alias_of(held.recording.original_channel) == name for held in self.recordings)


@dataclass(frozen=True, slots=True)
class PurgeRange:
    """What a purge takes from one recording: whole segments, from its beginning."""

    recording_id: int
    start: int
    new_start: int
    segments: int

    @property
    def length(self) -> int:
        """Bytes of the log that go."""
        return self.new_start - self.start


def catalogued_streams(
    archives: Iterable[ArchiveAddress], channel: str | None = None, stream_id: int | None = None
) -> list[CataloguedStream]:
    """Return what the archives hold, of one channel or stream id where given."""
    wanted = None if channel is None else ChannelUri.parse(channel)
    found: list[CataloguedStream] = []
    for address in archives:
        archive = archive_of(address)
        groups: list[tuple[ChannelUri, int, list[CataloguedRecording]]] = []
        for recording in archive.recordings(stream_id):
            parsed = ChannelUri.parse(without_start(recording.channel), foreign=True)
            if wanted is not None and not same_stream(wanted, parsed):
                continue
            held = _held(archive, recording)
            for known, known_id, recordings in groups:
                if known_id == recording.stream_id and same_stream(known, parsed):
                    recordings.append(held)
                    break
            else:
                groups.append((parsed, recording.stream_id, [held]))
        found += [CataloguedStream(address, str(known), number, tuple(held)) for known, number, held in groups]
    return sorted(found, key=lambda stream: (stream.archive.name, stream.channel, stream.stream_id))


def alias_of(channel: str) -> str | None:
    """Return the name a channel gives itself."""
    return ChannelUri.parse(without_start(channel), foreign=True).get("alias")


def content_of_stream(stream: CataloguedStream, idle_timeout: float) -> StreamContent | None:
    """Return what the messages of a stream are, or None where there is none yet."""
    log = _log(stream, idle_timeout)
    return content_of(log, log.states())


def segment_base(recording: Recording, position: int) -> int:
    """Return where the segment of ``position`` begins; the first one begins with the term of the recording's start."""
    origin = recording.start_position - recording.start_position % recording.term_length
    return origin + (position - origin) // recording.segment_length * recording.segment_length


def purge_range_before(held: CataloguedRecording, position: int) -> PurgeRange:
    """Return what goes when everything before ``position`` may go: only whole segments do, and never the last one."""
    recording = held.recording
    base = segment_base(recording, max(recording.start_position, min(position, held.end)))
    if base >= held.end > recording.start_position:  # an archive keeps a segment where there is data
        base -= recording.segment_length
    first = segment_base(recording, recording.start_position)
    if base <= recording.start_position:
        return PurgeRange(recording.id, recording.start_position, recording.start_position, 0)
    return PurgeRange(recording.id, recording.start_position, base, (base - first) // recording.segment_length)


def position_before_time(stream: CataloguedStream, held: CataloguedRecording, time_ns: int, idle_timeout: float) -> int:
    """Return the position before which everything in a recording was published before ``time_ns``.

    Raises OptionError where its messages carry no times and it did not end before that one.
    """
    stopped = held.recording.stop_timestamp
    if stopped is not None and stopped * 1_000_000 < time_ns:
        return held.end
    if held.recording.start_timestamp * 1_000_000 >= time_ns:
        return held.recording.start_position
    content = content_of_stream(stream, idle_timeout)
    if content is None:
        return held.recording.start_position
    if content.payload == "raw":
        raise OptionError(
            f"recording {held.recording.id} goes on after that time, and its raw messages carry no publish times",
            remedy="Give a position (--before 67108864), or the bytes to keep (--keep 1GiB).",
        )
    log = ArchiveLog(_address(stream, idle_timeout), framed=True)
    state = next(one for one in log.states() if one.recording_id == held.recording.id)
    return position_at(log, state, time_ns, framed_times)


def purge(stream: CataloguedStream, cuts: Sequence[PurgeRange]) -> None:
    """Delete the segments of ``cuts``; a replay that reads there makes the archive refuse."""
    archive = archive_of(stream.archive)
    for cut in cuts:
        if cut.segments:
            archive.purge_segments(cut.recording_id, cut.new_start)


def refuse_active(stream: CataloguedStream) -> None:
    """Raise RefusedError where a recording of ``stream`` still grows and cannot be deleted."""
    growing = [str(held.recording.id) for held in stream.recordings if held.active]
    if growing:
        raise RefusedError(
            f"recording {', '.join(growing)} of stream {stream.stream_id} of {stream.channel} is still being recorded",
            remedy="Stop its publisher first, or choose stopped ones with --recording.",
        )


def delete(stream: CataloguedStream) -> None:
    """Delete the recordings of ``stream`` and their files, if none of them grows."""
    refuse_active(stream)
    archive = archive_of(stream.archive)
    for held in stream.recordings:
        archive.delete(held.recording.id)


def only(stream: CataloguedStream, recording_ids: Sequence[int]) -> CataloguedStream:
    """Return ``stream`` with these recordings alone; raise OptionError where it has no such one."""
    known = {held.recording.id for held in stream.recordings}
    for wanted in recording_ids:
        if wanted not in known:
            raise OptionError(
                f"stream {stream.stream_id} of {stream.channel} has no recording {wanted}",
                remedy=f"It has {', '.join(str(one) for one in sorted(known))}.",
            )
    if not recording_ids:
        return stream
    return replace(stream, recordings=tuple(held for held in stream.recordings if held.recording.id in recording_ids))


def _held(archive: Archive, recording: Recording) -> CataloguedRecording:
    stop = recording.stop_position
    return CataloguedRecording(recording, archive.position(recording.id) if stop is None else stop)


def _address(stream: CataloguedStream, idle_timeout: float) -> StreamAddress:
    return StreamAddress(stream.channel, stream.stream_id, (stream.archive,), idle_timeout)


def _log(stream: CataloguedStream, idle_timeout: float) -> ArchiveLog:
    return ArchiveLog(_address(stream, idle_timeout))
