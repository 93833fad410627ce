"""Streams of the direct route for commands: the recordings of archives by stream, their content, purge and deletion."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress
from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import CataloguedRecording, StreamAddress, archives_of
from aeron_spark.direct.session_recordings import with_end
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.log.api import StreamContent
from aeron_spark.log.facade import (
    PREVIEW,
    Cells,
    Confirmation,
    NewStream,
    Purge,
    Reading,
    Running,
    Summary,
    Table,
    cells_of,
    check_stream_name,
    column_cells,
    columns_of,
    properties,
    refuse_stream_flags,
    require_channel,
)
from aeron_spark.log.inspection import content_of, framed_times, messages_between, position_at
from aeron_spark.log.overlaps import Overlaps, repeated_bytes
from aeron_spark.options import ReadOptions, WriteOptions, direct_route
from aeron_spark.texts import format_time, rounded_size
from aeron_spark.transport.channel import ChannelUri, same_stream, without_start

if TYPE_CHECKING:
    from aeron_spark.direct.command_rows import DirectSource, DirectTarget
    from aeron_spark.log.query import OpenLog

# Read options need a stream; the archives, which are all that is read here, do not depend on it.
ANY_STREAM: Final = {"channel": "aeron:ipc", "streamId": "0"}
# Columns that a narrow terminal does not show, the first ones first.
STREAM_OPTIONAL: Final = ("oldest", "archive", "newest", "active#", "recordings#")
RECORDING_OPTIONAL: Final = ("source", "segment length#", "began", "segments#", "ended", "session#", "start#")


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

    @property
    def label(self) -> str:
        """The stream in sentences."""
        return f"stream {self.stream_id} of {self.channel}"

    def named(self, name: str) -> bool:
        """Whether a recording has this ``alias`` in its channel."""
        return any(_alias_of(one.recording.original_channel) == name for one in self.recordings)


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


class DirectStreams:
    """The streams that the archives of ``options`` have, those with its ``channel`` and ``streamId`` if it has them."""

    def __init__(self, options: Mapping[str, str], running: Running, open_log: OpenLog) -> None:
        self._options = options
        self._running = running
        self._open_log = open_log

    def list(self) -> Summary:
        """Return a row for each stream."""
        with self._found() as (streams, _):
            rows = [_row(stream) for stream in streams]
            return Summary(
                [_json(stream) for stream in streams],
                [Table("streams", rows, empty="no streams", optional=STREAM_OPTIONAL)],
            )

    def describe(self, name: str | None) -> Summary:
        """Return the properties, columns and recordings of one stream, by its alias or channel and stream id."""
        self._check_named(name)
        with self._found_one(name) as (stream, idle_timeout):
            content = _content_of_stream(stream, idle_timeout)
            repeated = repeated_bytes_of(stream, idle_timeout)
        payload, schema = (None, None) if content is None else (content.payload, content.schema)
        table = properties(
            stream.label,
            ("archive", stream.archive.name),
            ("channel", stream.channel),
            ("stream id", str(stream.stream_id)),
            ("payload", payload),
            *column_cells(schema),
            ("bytes", f"{stream.length:,} ({rounded_size(stream.length)})"),
            *([("in two recordings", f"{repeated:,} bytes, which are read once")] if repeated else []),
            ("retention", "until purged ('aeron-spark streams purge')"),
        )
        more = {
            "payload": payload,
            "schema": columns_of(schema),
            "repeated_bytes": repeated,
            "retention": None,
            "details": [_recording_json(one) for one in stream.recordings],
        }
        recordings = Table(
            "recordings", [_recording_row(one) for one in stream.recordings], "recording", optional=RECORDING_OPTIONAL
        )
        return Summary([_json(stream) | more], [table, recordings])

    def create(self, name: str, wanted: NewStream) -> NoReturn:
        """Raise OptionError: a stream of this route begins with its recording."""
        raise OptionError(
            f"stream {name!r} cannot be created without a server: only servers have named streams",
            remedy="Add --server HOST:PORT. On the direct route, 'aeron-spark send --record --channel aeron:ipc "
            "--stream-id 1001' starts a stream.",
        )

    def named(self, name: str) -> NoReturn:
        """Raise OptionError: streams of this route have no names."""
        check_stream_name(name)
        raise OptionError(
            f"no server is given for stream {name!r}: only servers have named streams",
            remedy="Add --server HOST:PORT. 'aeron-spark streams list' shows the streams of the direct route.",
        )

    def purge(self, name: str | None, wanted: Purge, confirmation: Confirmation) -> Summary:
        """Delete whole segments at the beginning of a stream's recordings, or with ``dry_run`` say which."""
        refuse_stream_flags(partition=wanted.partition, wait=wanted.wait)
        self._check_named(name)
        if not wanted.dry_run:
            confirmation.check("--dry-run shows what would be deleted.")
        with self._found_one(name) as (stream, idle_timeout):
            chosen = _only(stream, wanted.recordings)
            ranges = [
                _purge_range_before(one, _position_limit(chosen, one, wanted, idle_timeout))
                for one in chosen.recordings
            ]
            size = sum(one.length for one in ranges)
            if not wanted.dry_run and size:
                confirmation.ask(f"Purge {rounded_size(size)} of {stream.label}?")
                archive = archive_of(stream.archive)
                for one in ranges:
                    if one.segments:  # the archive refuses to delete a segment that a replay reads
                        archive.purge_segments(one.recording_id, one.new_start)
        objects = [_range_json(one) | {"purged": not wanted.dry_run and one.segments > 0} for one in ranges]
        title = "would be purged" if wanted.dry_run else "purged"
        return Summary(objects, [Table(title, [_range_row(one) for one in ranges])])

    def delete(self, name: str | None, recordings: Sequence[int], confirmation: Confirmation) -> Summary:
        """Delete the stopped recordings of a stream, or those with the ids ``recordings``."""
        self._check_named(name)
        confirmation.check(PREVIEW)
        with self._found_one(name) as (stream, _):
            chosen = _only(stream, recordings)
            _refuse_active(chosen)
            count = len(chosen.recordings)
            counted = "1 recording" if count == 1 else f"{count} recordings"
            confirmation.ask(f"Delete {counted} ({rounded_size(chosen.length)}) of {stream.label}?")
            archive = archive_of(stream.archive)
            for one in chosen.recordings:
                archive.delete(one.recording.id)
        objects = [{"recording": one.recording.id, "bytes": one.length, "deleted": True} for one in chosen.recordings]
        return Summary(objects, sentences=[f"deleted {counted} of {stream.label}"])

    def writer(self, commit_rows: int | None) -> DirectTarget:
        """Return what publishes to the stream of the options. Rows are visible at once: ``commit_rows`` is refused."""
        from aeron_spark.direct.command_rows import DirectTarget  # the commands about streams do not load it

        given = self._options.get
        refuse_stream_flags(stream=given("stream"), commit_rows=commit_rows, evolve_schema=given("evolveSchema"))
        require_channel(self._options)
        return DirectTarget(WriteOptions.parse(self._options, streaming=False))

    def reader(self, wanted: Reading) -> DirectSource:
        """Return what receives the stream of the options."""
        from aeron_spark.direct.command_rows import source_of

        refuse_stream_flags(stream=self._options.get("stream"))
        require_channel(self._options)
        return source_of(self._options, wanted, self._open_log)

    @contextmanager
    def _found(self) -> Iterator[tuple[Sequence[CataloguedStream], float]]:
        """Yield the streams, and how long a read of one may wait for data, in seconds."""
        options = ReadOptions.parse(ANY_STREAM | dict(self._options), streaming=False)
        with self._running():
            route = direct_route(options.route)
            yield (
                catalogued_streams(
                    archives_of(route).archives,
                    self._options.get("channel"),
                    route.stream_id if "streamId" in self._options else None,
                ),
                options.idle_timeout,
            )

    @contextmanager
    def _found_one(self, name: str | None) -> Iterator[tuple[CataloguedStream, float]]:
        """Yield the only matching stream, and the timeout. Raises OptionError if none or several match."""
        with self._found() as (found, idle_timeout):
            streams = [stream for stream in found if name is None or stream.named(name)]
            if not streams:
                raise self._unknown(name, found)
            if len(streams) > 1:
                matches = "; ".join(f"{one.channel} stream {one.stream_id} in {one.archive.name}" for one in streams)
                raise OptionError(
                    f"{len(streams)} streams match: {matches}",
                    remedy="Name one of them with --channel, --stream-id and --archive.",
                )
            yield streams[0], idle_timeout

    def _check_named(self, name: str | None) -> None:
        if name is None:
            require_channel(self._options)

    def _unknown(self, name: str | None, found: Sequence[CataloguedStream]) -> OptionError:
        if name is None:
            return OptionError(
                f"stream {self._options['streamId']} of {self._options['channel']} has no recording",
                remedy="'aeron-spark streams list' shows the recorded streams.",
            )
        aliases = {_alias_of(one.recording.original_channel) for stream in found for one in stream.recordings}
        nearest = difflib.get_close_matches(name, [alias for alias in aliases if alias], n=1)
        remedy = (
            f"Did you mean {nearest[0]!r}?"
            if nearest
            else "Name the stream by --channel and --stream-id, as 'aeron-spark streams list' shows them."
        )
        return OptionError(f"no recorded channel has the alias {name!r}", remedy=remedy)


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


def _alias_of(channel: str) -> str | None:
    return ChannelUri.parse(without_start(channel), foreign=True).get("alias")


def _content_of_stream(stream: CataloguedStream, idle_timeout: float) -> StreamContent | None:
    """Return the content of a stream, or None without messages."""
    log = _log(stream, idle_timeout)
    return content_of(log, log.states())


def repeated_bytes_of(stream: CataloguedStream, idle_timeout: float) -> int:
    """Return how many bytes of a stream are in more than one recording; a reader reads them once."""
    log = _log(stream, idle_timeout)
    states = log.states()
    return repeated_bytes(
        states, Overlaps(states, log, lambda state, begin, end: messages_between(log, state, begin, end))
    )


def _purge_range_before(entry: CataloguedRecording, position: int) -> PurgeRange:
    """Return the range that a purge before ``position`` deletes: complete segments, and never the last one."""
    recording = entry.recording
    base = recording.segment_base(max(recording.start_position, min(position, entry.end)))
    if base >= entry.end > recording.start_position:  # an archive keeps the last segment with data
        base -= recording.segment_length
    first = recording.segment_base(recording.start_position)
    if base <= recording.start_position:
        return PurgeRange(recording.id, recording.start_position, recording.start_position, 0)
    return PurgeRange(recording.id, recording.start_position, base, (base - first) // recording.segment_length)


def _position_before_time(
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
    content = _content_of_stream(stream, idle_timeout)
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


def _refuse_active(stream: CataloguedStream) -> None:
    """Raise RefusedError if a recording of ``stream`` is active, which an archive cannot delete."""
    active = [str(one.recording.id) for one in stream.recordings if one.active]
    if active:
        raise RefusedError(
            f"recording {', '.join(active)} of {stream.label} is still being recorded",
            remedy="Stop its publisher first, or choose stopped recordings with --recording.",
        )


def _only(stream: CataloguedStream, recording_ids: Sequence[int]) -> CataloguedStream:
    """Return ``stream`` with only these recordings. Raises OptionError for a recording that it does not have."""
    known = {one.recording.id for one in stream.recordings}
    for recording_id in recording_ids:
        if recording_id not in known:
            raise OptionError(
                f"{stream.label} has no recording {recording_id}",
                remedy=f"Choose from {', '.join(str(one) for one in sorted(known))}.",
            )
    if not recording_ids:
        return stream
    return replace(stream, recordings=tuple(one for one in stream.recordings if one.recording.id in recording_ids))


def _address(stream: CataloguedStream, idle_timeout: float) -> StreamAddress:
    return StreamAddress(stream.channel, stream.stream_id, (stream.archive,), idle_timeout)


def _log(stream: CataloguedStream, idle_timeout: float) -> ArchiveLog:
    return ArchiveLog(_address(stream, idle_timeout))


def _position_limit(
    stream: CataloguedStream, recording: CataloguedRecording, wanted: Purge, idle_timeout: float
) -> int:
    if wanted.time_ns is not None:
        return _position_before_time(stream, recording, wanted.time_ns, idle_timeout)
    return wanted.position if wanted.position is not None else recording.end - (wanted.keep or 0)


def _row(stream: CataloguedStream) -> Cells:
    found = _json(stream)
    return {
        **cells_of(found, "archive", "channel"),
        "stream": str(stream.stream_id),
        **cells_of(found, "recordings#", "active#", "bytes#", "oldest"),
        "newest": found["newest"] or "now",
    }


def _json(stream: CataloguedStream) -> dict[str, Any]:
    return {
        "archive": stream.archive.name,
        "channel": stream.channel,
        "stream_id": stream.stream_id,
        "recordings": len(stream.recordings),
        "active": stream.active,
        "bytes": stream.length,
        "oldest": _time(stream.oldest),
        "newest": _time(stream.newest),
    }


def _recording_row(one: CataloguedRecording) -> Cells:
    found = _recording_json(one)
    return {
        "id#": str(one.recording.id),
        "session#": str(one.recording.session_id),
        **cells_of(found, "start#", "end#"),
        "state": "active" if one.active else "stopped",
        **cells_of(found, "segments#", "segment length#", "began", "ended", "source"),
    }


def _recording_json(one: CataloguedRecording) -> dict[str, Any]:
    recording = one.recording
    return {
        "id": recording.id,
        "session_id": recording.session_id,
        "channel": without_start(recording.original_channel),
        "source": recording.source,
        "start": recording.start_position,
        "end": one.end,
        "active": one.active,
        "segments": one.segments,
        "segment_length": recording.segment_length,
        "term_length": recording.term_length,
        "mtu": recording.mtu,
        "began": _time(recording.start_timestamp),
        "ended": _time(recording.stop_timestamp),
    }


def _range_row(one: PurgeRange) -> Cells:
    found = _range_json(one)
    return {"recording#": str(one.recording_id), **cells_of(found, "start#", "new start#", "segments#", "bytes#")}


def _range_json(one: PurgeRange) -> dict[str, Any]:
    return {
        "recording": one.recording_id,
        "start": one.start,
        "new_start": one.new_start,
        "segments": one.segments,
        "bytes": one.length,
    }


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_time(milliseconds / 1000)
