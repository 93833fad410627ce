"""``aeron-spark streams`` on the direct route: the recordings of archives, grouped by channel and stream id."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from aeron_spark.cli.arguments import connector_options
from aeron_spark.cli.output import confirm, format_size, format_time, print_json, print_table, print_warnings, time_cell
from aeron_spark.cli.signals import catch_sigint, operation
from aeron_spark.direct import catalog
from aeron_spark.direct.archive_recordings import CataloguedRecording
from aeron_spark.direct.archives import archives_of
from aeron_spark.direct.catalog import CataloguedStream, PurgeRange
from aeron_spark.errors import OptionError
from aeron_spark.options import ReadOptions, direct_route
from aeron_spark.transport.recording_start import without_start

# Read options need a stream; the archives, which are all that is read here, do not depend on it.
ANY_STREAM: Final = {"channel": "aeron:ipc", "streamId": "0"}


@dataclass(frozen=True, slots=True)
class _FoundStreams:
    """Streams of the catalogs, and how long a read of one may wait for data, in seconds."""

    streams: list[CataloguedStream]
    idle_timeout: float


def list_all(route_flags: dict[str, Any], as_json: bool) -> None:
    """Print a line for each stream."""
    with _find_streams(route_flags) as found:
        if as_json:
            for stream in found.streams:
                print_json(_summary(stream))
            return
        print_table(
            "streams",
            ("archive", "channel", "stream", "recordings#", "active#", "bytes#", "oldest", "newest"),
            [
                (
                    stream.archive.name,
                    stream.channel,
                    str(stream.stream_id),
                    len(stream.recordings),
                    stream.active,
                    stream.length,
                    _time_cell(stream.oldest),
                    "now" if stream.newest is None else _time_cell(stream.newest),
                )
                for stream in found.streams
            ],
            empty="no streams",
        )


def describe(route_flags: dict[str, Any], name: str | None, as_json: bool) -> None:
    """Print the properties, columns and recordings of one stream."""
    with _find_stream(route_flags, name) as (stream, idle_timeout):
        content = _content(stream, idle_timeout)
        repeated = catalog.repeated_bytes(stream, idle_timeout)
        if as_json:
            more = {"repeated_bytes": repeated, "retention": None, "details": _details(stream)}
            print_json(_summary(stream) | content | more)
            return
        print_table(
            f"stream {stream.stream_id} of {stream.channel}",
            ("property", "value"),
            [
                ("archive", stream.archive.name),
                ("channel", stream.channel),
                ("stream id", str(stream.stream_id)),
                ("payload", content["payload"]),
                *((f"column {column['name']}", column["type"]) for column in content["schema"] or ()),
                ("bytes", f"{stream.length:,} ({format_size(stream.length)})"),
                *([("in two recordings", f"{repeated:,} bytes, which are read once")] if repeated else []),
                ("retention", "until purged ('aeron-spark streams purge')"),
            ],
            empty="",
            kind="stream",
        )
        print_table(
            "recordings",
            ("id#", "session#", "start#", "end#", "state", "segments#", "segment length#", "began", "ended", "source"),
            [
                (
                    str(details["id"]),
                    str(details["session_id"]),
                    details["start"],
                    details["end"],
                    "active" if details["active"] else "stopped",
                    details["segments"],
                    details["segment_length"],
                    details["began"],
                    details["ended"],
                    details["source"],
                )
                for details in _details(stream)
            ],
            empty="",
            kind="recording",
        )


def purge(
    route_flags: dict[str, Any], name: str | None, before: int | None, keep: int | None, recordings: tuple[int, ...],
    dry_run: bool, yes: bool, as_json: bool, *, before_ns: int | None = None,
) -> None:  # fmt: skip
    """Delete whole segments at the beginning of a stream's recordings.

    They end before a position in bytes, before a time (``before_ns``, since 1970), or before the last ``keep`` bytes.
    """

    def position_limit(stream: CataloguedStream, recording: CataloguedRecording, idle_timeout: float) -> int:
        if before_ns is not None:
            return catalog.position_before_time(stream, recording, before_ns, idle_timeout)
        return before if before is not None else recording.end - (keep or 0)

    with _find_stream(route_flags, name) as (stream, idle_timeout):
        chosen = catalog.only(stream, recordings)
        ranges = [
            catalog.purge_range_before(recording, position_limit(chosen, recording, idle_timeout))
            for recording in chosen.recordings
        ]
        purge_bytes = sum(purge_range.length for purge_range in ranges)
        if not dry_run and purge_bytes:
            confirm(f"Purge {format_size(purge_bytes)} of stream {stream.stream_id} of {stream.channel}?", yes)
            catalog.purge(chosen, ranges)
        _print_ranges(ranges, dry_run, as_json)


def delete(
    route_flags: dict[str, Any], name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool
) -> None:
    """Delete the stopped recordings of a stream, or those with the ids ``recordings``."""
    with _find_stream(route_flags, name) as (stream, _):
        chosen = catalog.only(stream, recordings)
        catalog.refuse_active(chosen)
        count = len(chosen.recordings)
        counted = "1 recording" if count == 1 else f"{count} recordings"
        stream_text = f"stream {stream.stream_id} of {stream.channel}"
        confirm(f"Delete {counted} ({format_size(chosen.length)}) of {stream_text}?", yes)
        catalog.delete(chosen)
        for recording in chosen.recordings:
            if as_json:
                print_json({"recording": recording.recording.id, "bytes": recording.length, "deleted": True})
        if not as_json:
            click.echo(f"deleted {counted} of {stream_text}")


@contextmanager
def _find_streams(route_flags: dict[str, Any]) -> Iterator[_FoundStreams]:
    """Yield the streams that the archives have, or those with --channel and --stream-id."""
    options = connector_options(
        route_flags["extra"],
        channel=route_flags["channel"],
        streamId=route_flags["stream_id"],
        archive=route_flags["archive"],
        aeronDir=route_flags["aeron_dir"],
    )
    read_options = ReadOptions.parse(ANY_STREAM | options, streaming=False)
    with catch_sigint(), print_warnings(), operation():
        route = direct_route(read_options.route)
        archives = archives_of(route).archives
        streams = catalog.catalogued_streams(
            archives, options.get("channel"), route.stream_id if "streamId" in options else None
        )
        yield _FoundStreams(streams, read_options.idle_timeout)


@contextmanager
def _find_stream(route_flags: dict[str, Any], name: str | None = None) -> Iterator[tuple[CataloguedStream, float]]:
    """Yield the only matching stream and the idle timeout. Raises OptionError if none or several match."""
    with _find_streams(route_flags) as found:
        streams = [stream for stream in found.streams if name is None or stream.named(name)]
        if not streams:
            raise _unknown_stream(route_flags, name, found.streams)
        if len(streams) > 1:
            matches = "; ".join(f"{one.channel} stream {one.stream_id} in {one.archive.name}" for one in streams)
            raise OptionError(
                f"{len(streams)} streams match: {matches}",
                remedy="Name one of them with --channel, --stream-id and --archive.",
            )
        yield streams[0], found.idle_timeout


def _unknown_stream(route_flags: dict[str, Any], name: str | None, streams: list[CataloguedStream]) -> OptionError:
    if name is None:
        return OptionError(
            f"stream {route_flags['stream_id']} of {route_flags['channel']} has no recording",
            remedy="'aeron-spark streams list' shows the recorded streams.",
        )
    known = {
        catalog.alias_of(recording.recording.original_channel) for stream in streams for recording in stream.recordings
    }
    nearest = difflib.get_close_matches(name, [alias for alias in known if alias], n=1)
    remedy = (
        f"Did you mean {nearest[0]!r}?"
        if nearest
        else "Name the stream by --channel and --stream-id, as 'aeron-spark streams list' shows them."
    )
    return OptionError(f"no recorded channel has the alias {name!r}", remedy=remedy)


def _print_ranges(ranges: list[PurgeRange], dry_run: bool, as_json: bool) -> None:
    if as_json:
        for purge_range in ranges:
            print_json(
                {
                    "recording": purge_range.recording_id,
                    "start": purge_range.start,
                    "new_start": purge_range.new_start,
                    "segments": purge_range.segments,
                    "bytes": purge_range.length,
                    "purged": not dry_run and purge_range.segments > 0,
                }
            )
        return
    rows = [
        (
            str(purge_range.recording_id),
            purge_range.start,
            purge_range.new_start,
            purge_range.segments,
            purge_range.length,
        )
        for purge_range in ranges
    ]
    title = "would be purged" if dry_run else "purged"
    print_table(title, ("recording#", "start#", "new start#", "segments#", "bytes#"), rows, empty="nothing to purge")


def _summary(stream: CataloguedStream) -> dict[str, Any]:
    return {
        "archive": stream.archive.name,
        "channel": stream.channel,
        "stream_id": stream.stream_id,
        "recordings": len(stream.recordings),
        "active": stream.active,
        "bytes": stream.length,
        "oldest": _iso_time(stream.oldest),
        "newest": _iso_time(stream.newest),
    }


def _details(stream: CataloguedStream) -> list[dict[str, Any]]:
    return [
        {
            "id": recording.recording.id,
            "session_id": recording.recording.session_id,
            "channel": without_start(recording.recording.original_channel),
            "source": recording.recording.source,
            "start": recording.recording.start_position,
            "end": recording.end,
            "active": recording.active,
            "segments": recording.segments,
            "segment_length": recording.recording.segment_length,
            "term_length": recording.recording.term_length,
            "mtu": recording.recording.mtu,
            "began": _iso_time(recording.recording.start_timestamp),
            "ended": _iso_time(recording.recording.stop_timestamp),
        }
        for recording in stream.recordings
    ]


def _content(stream: CataloguedStream, idle_timeout: float) -> dict[str, Any]:
    content = catalog.content_of_stream(stream, idle_timeout)
    if content is None:
        return {"payload": None, "schema": None}
    if content.schema is None:
        return {"payload": content.payload, "schema": None}
    columns = [{"name": one.name, "type": str(one.type), "nullable": one.nullable} for one in content.schema]
    return {"payload": content.payload, "schema": columns}


def _time_cell(milliseconds: int) -> str:
    return time_cell(milliseconds / 1000)


def _iso_time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_time(milliseconds / 1000)
