"""``aeron-spark streams`` on the direct route: what archives hold, by channel and stream id."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from aeron_spark.cli.arguments import connector_options
from aeron_spark.cli.output import confirm, iso, moment, print_json, print_table, size, spoken_warnings
from aeron_spark.cli.signals import interruption, operation
from aeron_spark.direct import catalog
from aeron_spark.direct.archives import archives_of
from aeron_spark.direct.catalog import CataloguedStream, PurgeRange
from aeron_spark.errors import OptionError
from aeron_spark.options import ReadOptions, direct_route
from aeron_spark.transport.recording_start import without_start

NO_STREAM: Final = {"channel": "aeron:ipc", "streamId": "0"}  # a way names a stream; its archives do not depend on it


@dataclass(frozen=True, slots=True)
class _FoundStreams:
    streams: list[CataloguedStream]
    idle_timeout: float


def list_all(way: dict[str, Any], as_json: bool) -> None:
    """Print which streams there are."""
    with _found(way) as found:
        rows = found.streams
        if as_json:
            for stream in rows:
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
                    _time(stream.oldest),
                    "now" if stream.newest is None else _time(stream.newest),
                )
                for stream in rows
            ],
            empty="no streams",
        )


def describe(way: dict[str, Any], name: str | None, as_json: bool) -> None:
    """Print all about one stream."""
    with _one(way, name) as (stream, idle_timeout):
        content = _content(stream, idle_timeout)
        if as_json:
            print_json(_summary(stream) | content | {"retention": None, "details": _details(stream)})
            return
        print_table(
            f"stream {stream.stream_id} of {stream.channel}",
            ("what", "value"),
            [
                ("archive", stream.archive.name),
                ("channel", stream.channel),
                ("stream id", str(stream.stream_id)),
                ("payload", content["payload"]),
                *((f"column {column['name']}", column["type"]) for column in content["schema"] or ()),
                ("bytes", f"{stream.length:,} ({size(stream.length)})"),
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
                    str(one["id"]),
                    str(one["session_id"]),
                    one["start"],
                    one["end"],
                    "active" if one["active"] else "stopped",
                    one["segments"],
                    one["segment_length"],
                    one["began"],
                    one["ended"],
                    one["source"],
                )
                for one in _details(stream)
            ],
            empty="",
            kind="recording",
        )


def purge(
    way: dict[str, Any], name: str | None, before: int | None, keep: int | None, recordings: tuple[int, ...],
    dry_run: bool, yes: bool, as_json: bool, *, before_ns: int | None = None,
) -> None:  # fmt: skip
    """Delete the beginnings of a stream's recordings: before a position or a time (ns), or all but ``keep`` bytes."""

    def limit(stream: CataloguedStream, held: catalog.CataloguedRecording, idle: float) -> int:
        if before_ns is not None:
            return catalog.position_before_time(stream, held, before_ns, idle)
        return before if before is not None else held.end - (keep or 0)

    with _one(way, name) as (stream, idle_timeout):
        chosen = catalog.only(stream, recordings)
        cuts = [catalog.purge_range_before(held, limit(chosen, held, idle_timeout)) for held in chosen.recordings]
        going = sum(cut.length for cut in cuts)
        if not dry_run and going:
            confirm(f"Purge {size(going)} of stream {stream.stream_id} of {stream.channel}?", yes)
            catalog.purge(chosen, cuts)
        _show_cuts(cuts, dry_run, as_json)


def delete(way: dict[str, Any], name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete stopped recordings of a stream."""
    with _one(way, name) as (stream, _):
        chosen = catalog.only(stream, recordings)
        catalog.refuse_active(chosen)
        count = len(chosen.recordings)
        what = "1 recording" if count == 1 else f"{count} recordings"
        confirm(f"Delete {what} ({size(chosen.length)}) of stream {stream.stream_id} of {stream.channel}?", yes)
        catalog.delete(chosen)
        for held in chosen.recordings:
            if as_json:
                print_json({"recording": held.recording.id, "bytes": held.length, "deleted": True})
        if not as_json:
            click.echo(f"deleted {what} of stream {stream.stream_id} of {stream.channel}")


@contextmanager
def _found(way: dict[str, Any]) -> Iterator[_FoundStreams]:
    given = connector_options(
        way["more"],
        channel=way["channel"],
        streamId=way["stream_id"],
        archive=way["archive"],
        aeronDir=way["aeron_dir"],
    )
    options = ReadOptions.parse(NO_STREAM | given, streaming=False)
    with interruption(), spoken_warnings(), operation():
        way_there = direct_route(options.route)
        archives = archives_of(way_there).archives
        found = catalog.catalogued_streams(
            archives, given.get("channel"), way_there.stream_id if "streamId" in given else None
        )
        yield _FoundStreams(found, options.idle_timeout)


@contextmanager
def _one(way: dict[str, Any], name: str | None = None) -> Iterator[tuple[CataloguedStream, float]]:
    with _found(way) as found:
        streams = [stream for stream in found.streams if name is None or stream.named(name)]
        if not streams:
            raise _no_such(way, name, found.streams)
        if len(streams) > 1:
            places = "; ".join(f"{one.channel} stream {one.stream_id} in {one.archive.name}" for one in streams)
            raise OptionError(
                f"several streams are meant: {places}", remedy="Say more with --channel, --stream-id, --archive."
            )
        yield streams[0], found.idle_timeout


def _no_such(way: dict[str, Any], name: str | None, streams: list[CataloguedStream]) -> OptionError:
    if name is None:
        return OptionError(
            f"there is no recording of stream {way['stream_id']} of {way['channel']}",
            remedy="See 'aeron-spark streams list'.",
        )
    known = {catalog.alias_of(held.recording.original_channel) for stream in streams for held in stream.recordings}
    near = difflib.get_close_matches(name, [one for one in known if one], n=1)
    remedy = (
        f"Did you mean {near[0]!r}?"
        if near
        else "See 'aeron-spark streams list', and name it by channel and stream id."
    )
    return OptionError(f"no stream has the name {name!r} (the alias of its channel)", remedy=remedy)


def _show_cuts(cuts: list[PurgeRange], dry_run: bool, as_json: bool) -> None:
    if as_json:
        for cut in cuts:
            print_json(
                {
                    "recording": cut.recording_id,
                    "start": cut.start,
                    "new_start": cut.new_start,
                    "segments": cut.segments,
                    "bytes": cut.length,
                    "purged": not dry_run and cut.segments > 0,
                }
            )
        return
    rows = [(str(cut.recording_id), cut.start, cut.new_start, cut.segments, cut.length) for cut in cuts]
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
        "oldest": _iso(stream.oldest),
        "newest": _iso(stream.newest),
    }


def _details(stream: CataloguedStream) -> list[dict[str, Any]]:
    return [
        {
            "id": held.recording.id,
            "session_id": held.recording.session_id,
            "channel": without_start(held.recording.original_channel),
            "source": held.recording.source,
            "start": held.recording.start_position,
            "end": held.end,
            "active": held.active,
            "segments": held.segments,
            "segment_length": held.recording.segment_length,
            "term_length": held.recording.term_length,
            "mtu": held.recording.mtu,
            "began": _iso(held.recording.start_timestamp),
            "ended": _iso(held.recording.stop_timestamp),
        }
        for held in stream.recordings
    ]


def _content(stream: CataloguedStream, idle_timeout: float) -> dict[str, Any]:
    content = catalog.content_of_stream(stream, idle_timeout)
    if content is None:
        return {"payload": None, "schema": None}
    if content.schema is None:
        return {"payload": content.payload, "schema": None}
    columns = [{"name": one.name, "type": str(one.type), "nullable": one.nullable} for one in content.schema]
    return {"payload": content.payload, "schema": columns}


def _time(milliseconds: int) -> str:
    return moment(milliseconds / 1000)


def _iso(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else iso(milliseconds / 1000)
