"""``aeron-spark recordings``: the direct route's recordings: which there are, who started them, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import connector_options, route_options, yes_option
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import (
    confirm,
    iso,
    json_option,
    moment,
    needs_terminal,
    print_json,
    print_table,
    size,
    spoken_warnings,
)
from aeron_spark.cli.signals import interruption, operation
from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    from aeron_spark.aeron.archive import ArchiveAddress
    from aeron_spark.direct.recordings import ListedRecording

COLUMNS = (
    *("archive", "id#", "channel", "stream#", "session#", "start#", "end#", "state", "standing", "began", "ended"),
    "started by",
)

ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(min=0))


@click.group(cls=NearestNames)
def recordings() -> None:
    """List, stop and delete the direct route's recordings.

    A recording goes on until its publisher ends. A standing one records each further publisher of its stream, until it
    is stopped here, or the node stops: a request that waits for a publisher over IPC does not keep the node. The
    recordings of a server's named streams are not among them: see 'aeron-spark streams'.
    """


@recordings.command("list")
@route_options
@json_option
def list_all(as_json: bool, **way: Any) -> None:
    """List all recordings, or those of --channel or --stream-id; starts none.

    A standing subscription that has met no publisher yet is listed without an id, and is 'waiting'.
    """
    with _archives(way) as (archives, channel, stream_id):
        from aeron_spark.direct.recordings import list_recordings

        found = list_recordings(archives, channel, stream_id)
        if as_json:
            for one in found:
                print_json(_summary(one))
            return
        print_table("recordings", COLUMNS, map(_row, found), empty="no recordings")


@recordings.command()
@ids_argument
@route_options
@json_option
def stop(ids: tuple[int, ...], as_json: bool, **way: Any) -> None:
    """Stop the recordings of these IDs, or of --channel and --stream-id, and the standing request that started them.

    What is recorded stays. All recordings that the same request has started end with it.
    """
    by_stream = way["channel"] is not None or way["stream_id"] is not None
    if by_stream == bool(ids):
        raise OptionError(
            "recordings are named twice, by ids and by a stream" if ids else "no recording is named",
            remedy="Give IDs, or --channel and --stream-id; 'aeron-spark recordings list' shows them.",
        )
    if by_stream and (way["channel"] is None or way["stream_id"] is None):
        raise OptionError(
            "a stream is a channel and a stream id, and one of them is missing",
            remedy="Give both, such as --channel aeron:ipc --stream-id 1001.",
        )
    with _archives(way) as (archives, channel, stream_id):
        from aeron_spark.direct.recordings import stop_recordings

        ended = stop_recordings(_one_archive(archives, ids), ids, channel=channel, stream_id=stream_id)
    for one in ended:
        if as_json:
            print_json(_summary(one) | {"stopped": True})
        else:
            at = "" if one.id is None else f" at position {one.end}"
            click.echo(f"stopped {one.label}{at}")
    if not ended and not as_json:
        click.echo("nothing to stop: it had ended before", err=True)


@recordings.command()
@ids_argument
@route_options
@yes_option
@json_option
def delete(ids: tuple[int, ...], yes: bool, as_json: bool, **way: Any) -> None:
    """Delete the stopped recordings of these IDs, with their files."""
    if way["channel"] is not None or way["stream_id"] is not None:
        raise OptionError(
            "recordings are deleted by their ids",
            remedy="Give IDs; 'aeron-spark streams delete' deletes all stopped ones of a stream.",
        )
    if not ids:
        raise OptionError("no recording is named", remedy="Give IDs; 'aeron-spark recordings list' shows them.")
    needs_terminal(yes, "'aeron-spark recordings list' shows first what would be deleted.")
    with _archives(way) as (archives, _, _):
        from aeron_spark.direct.recordings import delete_recordings, list_recordings

        archives = _one_archive(archives, ids)
        known = [one for one in list_recordings(archives) if one.id in ids]
        if known:
            confirm(f"Delete {', '.join(_sized(one) for one in known)}?", yes)
        for one in delete_recordings(archives, ids):
            if as_json:
                print_json(_summary(one) | {"deleted": True})
            else:
                click.echo(f"deleted {_sized(one)}")


@contextmanager
def _archives(way: dict[str, Any]) -> Iterator[tuple[tuple[ArchiveAddress, ...], str | None, int | None]]:
    """Give the archives, and the channel and stream id where they are named."""
    from aeron_spark.options import ReadOptions, direct_route

    given = connector_options(
        way["more"],
        channel=way["channel"],
        streamId=way["stream_id"],
        archive=way["archive"],
        aeronDir=way["aeron_dir"],
    )
    no_stream = {"channel": "aeron:ipc", "streamId": "0"}  # options name a stream; its archives do not depend on it
    parsed = direct_route(ReadOptions.parse(no_stream | given, streaming=False).route)
    with interruption(), spoken_warnings(), operation():
        from aeron_spark.direct.archives import archives_of

        yield archives_of(parsed).archives, given.get("channel"), parsed.stream_id if "streamId" in given else None


def _one_archive(archives: tuple[ArchiveAddress, ...], ids: tuple[int, ...]) -> tuple[ArchiveAddress, ...]:
    """Return the archives; raise OptionError where ids could mean recordings of several."""
    if ids and len(archives) > 1:
        raise OptionError("each archive counts its recordings from 0, and several are named", remedy="Name one.")
    return archives


def _sized(one: ListedRecording) -> str:
    return f"{one.label} ({size((one.end or 0) - (one.start or 0))})"


def _state(one: ListedRecording) -> str:
    if one.id is None:
        return "waiting"
    return "active" if one.active else "stopped"


def _row(one: ListedRecording) -> tuple[object, ...]:
    return (
        one.archive,
        None if one.id is None else str(one.id),
        one.channel,
        str(one.stream_id),
        None if one.session_id is None else str(one.session_id),
        one.start,
        one.end,
        _state(one),
        one.standing,
        moment(None if one.began_ms is None else one.began_ms / 1000),
        moment(None if one.ended_ms is None else one.ended_ms / 1000),
        _started(one),
    )


def _started(one: ListedRecording) -> str | None:
    if one.started is None:
        return None
    query = f", query {one.started.query}" if one.started.query else ""
    return f"{one.started.by}{query}, at {iso(one.started.at_ms / 1000)}"


def _summary(one: ListedRecording) -> dict[str, object]:
    started = one.started
    return {
        "archive": one.archive,
        "id": one.id,
        "channel": one.channel,
        "stream_id": one.stream_id,
        "session_id": one.session_id,
        "start": one.start,
        "end": one.end,
        "state": _state(one),
        "active": one.active,
        "standing": one.standing,
        "began": None if one.began_ms is None else iso(one.began_ms / 1000),
        "ended": None if one.ended_ms is None else iso(one.ended_ms / 1000),
        "started": {"at": iso(started.at_ms / 1000), "by": started.by, "query": started.query} if started else None,
    }
