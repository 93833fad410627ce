"""``aeron-spark streams``: what archives hold, and a server's named streams: listing, making room, making them."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from aeron_spark.cli import server_streams
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import json_option, moment, print_json, print_table, size
from aeron_spark.cli.server_streams import named, server_given
from aeron_spark.cli.way import (
    connector_options,
    interruption,
    needs_server,
    needs_stream,
    server_option,
    spoken_warnings,
    way_options,
)
from aeron_spark.errors import OptionError
from aeron_spark.log import catalogue
from aeron_spark.log.catalogue import Cut, HeldStream
from aeron_spark.log.reach import reach
from aeron_spark.options import ReadOptions, direct_way, values

NO_STREAM: Final = {"channel": "aeron:ipc", "streamId": "0"}  # a way names a stream; its archives do not depend on it
LARGEST: Final = (1 << 63) - 1

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
recording_option = click.option(
    "--recording", "recordings", type=int, multiple=True, metavar="ID", help="Only this recording; repeatable."
)


@dataclass(frozen=True, slots=True)
class _Found:
    streams: list[HeldStream]
    idle_timeout: float


@click.group(cls=NearestNames)
def streams() -> None:
    """List, describe, purge and delete what archives hold, or with --server the named streams of a server."""


@streams.command("list")
@way_options
@server_option
@json_option
def list_streams(as_json: bool, **way: Any) -> None:
    """List all streams, or those of --channel or --stream-id; with --server those of a server."""
    if (given := server_given(way)) is not None:
        server_streams.list_all(given, as_json)
        return
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


@streams.command()
@click.argument("name", required=False)
@way_options
@server_option
@json_option
def describe(name: str | None, as_json: bool, **way: Any) -> None:
    """Describe one stream: by NAME (its channel's alias, or its name on a server), or by --channel and --stream-id."""
    if (given := server_given(way)) is not None:
        server_streams.describe(given, named(name), as_json)
        return
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
                ("payload", content["payload"]),
                *((f"  {column['name']}", column["type"]) for column in content["schema"] or ()),
                ("bytes", f"{stream.length:,} ({size(stream.length)})"),
                ("retention", "until purged ('aeron-spark streams purge')"),
            ],
            empty="",
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
                    _iso(one["began"]),
                    _iso(one["ended"]),
                    one["source"],
                )
                for one in _details(stream)
            ],
            empty="",
        )


@streams.command()
@click.argument("name", required=False)
@way_options
@server_option
@click.option("--before", metavar="POSITION|TIME", help="What lies before: a position, an ISO time, or such as -7d.")
@click.option("--keep", metavar="SIZE", help="How much of each recording to keep, such as 10g.")
@recording_option
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="With --server: only this partition.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@yes_option
@json_option
def purge(
    name: str | None,
    before: str | None,
    keep: str | None,
    recordings: tuple[int, ...],
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **way: Any,
) -> None:
    """Delete the beginnings of a stream's recordings, or of NAME's partitions; whole segments, never the last one."""
    if (before is None) == (keep is None):
        raise OptionError(
            "one of --before and --keep says what goes", remedy="For example --before -7d, or --keep 10g."
        )
    limit = _limit(before, keep)
    if (given := server_given(way)) is not None:
        _refuse_with_server(recording=recordings, dry_run=dry_run)
        _confirm(f"Purge stream {named(name)} of {given['server']}?", yes)
        server_streams.purge(given, named(name), before, keep, partition, as_json)
        return
    needs_server(partition=partition)
    with _one(way, name) as (stream, idle_timeout):
        chosen = catalogue.only(stream, recordings)
        cuts = [catalogue.cut_before(held, limit(chosen, held, idle_timeout)) for held in chosen.recordings]
        going = sum(cut.length for cut in cuts)
        if not dry_run and going:
            _confirm(f"Purge {size(going)} of stream {stream.stream_id} of {stream.channel}?", yes)
            catalogue.purge(chosen, cuts)
        _show_cuts(cuts, dry_run, as_json)


@streams.command()
@click.argument("name", required=False)
@way_options
@server_option
@recording_option
@yes_option
@json_option
def delete(name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool, **way: Any) -> None:
    """Delete a stream's stopped recordings, with their files; with --server the stream NAME and all its rows."""
    if (given := server_given(way)) is not None:
        _refuse_with_server(recording=recordings)
        _confirm(f"Delete stream {named(name)} of {given['server']}, with all its rows?", yes)
        server_streams.delete(given, named(name), as_json)
        return
    with _one(way, name) as (stream, _):
        chosen = catalogue.only(stream, recordings)
        catalogue.refuse_active(chosen)
        count = len(chosen.recordings)
        what = "1 recording" if count == 1 else f"{count} recordings"
        _confirm(f"Delete {what} ({size(chosen.length)}) of stream {stream.stream_id} of {stream.channel}?", yes)
        catalogue.delete(chosen)
        for held in chosen.recordings:
            if as_json:
                print_json({"recording": held.recording.id, "bytes": held.length, "deleted": True})
        if not as_json:
            click.echo(f"deleted {what} of stream {stream.stream_id} of {stream.channel}")


@streams.command()
@click.argument("name")
@way_options
@server_option
@click.option("--partitions", type=click.IntRange(min=1), default=1, metavar="N", help="Partitions.  [default: 1]")
@click.option(
    "--retention", metavar="SIZE|TIME",
    help="How much of each partition (10g), or how long (7d), is kept, or both: 10g,7d.  [default: everything]",
)  # fmt: skip
@json_option
def create(name: str, partitions: int, retention: str | None, as_json: bool, **way: Any) -> None:
    """Create the stream NAME on a server."""
    given = server_given(way)
    if given is None:
        raise OptionError(
            f"stream {name!r} cannot be created without a server: named streams live on one",
            remedy="Give --server. The direct way needs no creating: 'aeron-spark send --record --channel aeron:ipc "
            "--stream-id 1001'.",
        )
    server_streams.create(given, name, partitions, retention, as_json)


def _refuse_with_server(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(
                f"--{name.replace('_', '-')} is for the recordings of an archive", remedy="Leave it out, or --server."
            )


@contextmanager
def _found(way: dict[str, Any]) -> Iterator[_Found]:
    given = connector_options(
        way["more"],
        channel=way["channel"],
        streamId=way["stream_id"],
        archive=way["archive"],
        aeronDir=way["aeron_dir"],
    )
    options = ReadOptions.parse(NO_STREAM | given, streaming=False)
    with interruption(), spoken_warnings():
        way_there = direct_way(options.way)
        archives = reach(way_there).archives
        found = catalogue.held_streams(
            archives, given.get("channel"), way_there.stream_id if "streamId" in given else None
        )
        yield _Found(found, options.idle_timeout_s)


@contextmanager
def _one(way: dict[str, Any], name: str | None = None) -> Iterator[tuple[HeldStream, float]]:
    if name is None:
        named = {"channel": way["channel"], "streamId": way["stream_id"]}
        needs_stream({option: text for option, text in named.items() if text is not None})
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


def _no_such(way: dict[str, Any], name: str | None, streams: list[HeldStream]) -> OptionError:
    if name is None:
        return OptionError(
            f"there is no recording of stream {way['stream_id']} of {way['channel']}",
            remedy="See 'aeron-spark streams list'.",
        )
    known = {catalogue.alias_of(held.recording.original_channel) for stream in streams for held in stream.recordings}
    near = difflib.get_close_matches(name, [one for one in known if one], n=1)
    remedy = (
        f"Did you mean {near[0]!r}?"
        if near
        else "See 'aeron-spark streams list', and name it by channel and stream id."
    )
    return OptionError(f"no stream has the name {name!r} (the alias of its channel)", remedy=remedy)


def _limit(before: str | None, keep: str | None) -> Callable[[HeldStream, catalogue.Held, float], int]:
    """Return how far each recording may be purged."""
    try:
        if keep is not None:
            kept = values.size(keep, 0, LARGEST)
            return lambda stream, held, idle: held.end - kept
        assert before is not None
        if before.isascii() and before.isdecimal():
            position = int(before)
            return lambda stream, held, idle: position
        time_ns = values.moment(before).at(time.time_ns())
    except ValueError as error:
        option, text = ("--keep", keep) if keep is not None else ("--before", before)
        extra = "a position, " if keep is None else ""
        raise OptionError(f"{option} must be {extra}{error}, not {text!r}", remedy="See --help.") from None
    return lambda stream, held, idle: catalogue.position_before_time(stream, held, time_ns, idle)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(
            "nobody is there to confirm it", remedy="Give --yes, or look first with --dry-run or describe."
        )
    click.confirm(question, abort=True, err=True)


def _show_cuts(cuts: list[Cut], dry_run: bool, as_json: bool) -> None:
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


def _summary(stream: HeldStream) -> dict[str, Any]:
    return {
        "archive": stream.archive.name,
        "channel": stream.channel,
        "stream_id": stream.stream_id,
        "recordings": len(stream.recordings),
        "active": stream.active,
        "bytes": stream.length,
        "oldest": stream.oldest / 1000,
        "newest": None if stream.newest is None else stream.newest / 1000,
    }


def _details(stream: HeldStream) -> list[dict[str, Any]]:
    return [
        {
            "id": held.recording.id,
            "session_id": held.recording.session_id,
            "channel": held.recording.original_channel,
            "source": held.recording.source,
            "start": held.recording.start_position,
            "end": held.end,
            "active": held.active,
            "segments": held.segments,
            "segment_length": held.recording.segment_length,
            "term_length": held.recording.term_length,
            "mtu": held.recording.mtu,
            "began": held.recording.start_timestamp / 1000,
            "ended": None if held.recording.stop_timestamp is None else held.recording.stop_timestamp / 1000,
        }
        for held in stream.recordings
    ]


def _content(stream: HeldStream, idle_timeout: float) -> dict[str, Any]:
    content = catalogue.content_held(stream, idle_timeout)
    if content is None:
        return {"payload": None, "schema": None}
    if content.schema is None:
        return {"payload": content.payload, "schema": None}
    columns = [{"name": one.name, "type": str(one.type), "nullable": one.nullable} for one in content.schema]
    return {"payload": content.payload, "schema": columns}


def _time(milliseconds: int) -> str:
    return moment(milliseconds / 1000)


def _iso(seconds: float | None) -> str:
    return moment(seconds)
