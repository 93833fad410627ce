"""``aeron-spark recordings``: lists, stops and deletes the recordings of archives on the direct route."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import connector_options, route_options, yes_option
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import (
    Prompt,
    json_option,
    print_json,
    print_table,
    print_warnings,
    table_options,
    time_cell,
)
from aeron_spark.cli.signals import catch_sigint, operation
from aeron_spark.errors import OptionError
from aeron_spark.texts import format_time, rounded_size

if TYPE_CHECKING:
    from aeron_spark.aeron.recording import ArchiveAddress
    from aeron_spark.direct.recordings import ListedRecording

COLUMNS = (
    *("archive", "id#", "channel", "stream#", "session#", "start#", "end#", "state", "standing", "began", "ended"),
    "started by",
)
# Columns that a narrow terminal does not show, the first ones first.
OPTIONAL = ("started by", "began", "standing", "ended", "archive", "session#", "start#")

ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(min=0))


@click.group(cls=SuggestingGroup)
def recordings() -> None:
    """List, stop and delete recordings in archives, such as those that a streaming query started.

    A recording ends with its publisher. A standing recording request records every later publisher of the stream, too,
    until 'recordings stop' ends it or the node stops. A standing request for an IPC channel does not keep the node
    running.

    These are the recordings of the direct route. For the named streams of a server, use 'aeron-spark streams'.
    """


@recordings.command("list")
@route_options
@table_options
def list_all(as_json: bool, **route_flags: Any) -> None:
    """List recordings: their positions, state, times, and the program that started them.

    --channel and --stream-id restrict the list. A standing request without a publisher so far has no id, and its state
    is 'waiting'. This command starts no recording.

    \b
    For example:
      aeron-spark recordings list --channel aeron:ipc
    """
    with _archives(route_flags) as (archives, channel, stream_id):
        from aeron_spark.direct.recordings import list_recordings

        listed = list_recordings(archives, channel, stream_id)
        if as_json:
            for recording in listed:
                print_json(_summary(recording))
            return
        print_table("recordings", COLUMNS, map(_row, listed), empty="no recordings", optional=OPTIONAL)


@recordings.command()
@ids_argument
@route_options
@json_option
def stop(ids: tuple[int, ...], as_json: bool, **route_flags: Any) -> None:
    """Stop recordings by their IDs, or by --channel and --stream-id. The recorded messages stay.

    A standing request that started such a recording ends, too, with all recordings that it started.

    \b
    For example:
      aeron-spark recordings stop 7
      aeron-spark recordings stop --channel aeron:ipc --stream-id 1001
    """
    by_stream = route_flags["channel"] is not None or route_flags["stream_id"] is not None
    if by_stream == bool(ids):
        raise OptionError(
            "recordings are named both by IDs and by a stream" if ids else "recordings to stop are not named",
            remedy="Give either IDs, or --channel and --stream-id; 'aeron-spark recordings list' shows them.",
        )
    if by_stream and (route_flags["channel"] is None or route_flags["stream_id"] is None):
        missing = "--channel" if route_flags["channel"] is None else "--stream-id"
        raise OptionError(
            f"{missing} is missing: a channel and a stream id name a stream",
            remedy="Give both, such as --channel aeron:ipc --stream-id 1001.",
        )
    with _archives(route_flags) as (archives, channel, stream_id):
        from aeron_spark.direct.recordings import stop_recordings

        stopped = stop_recordings(_single_archive(archives, ids), ids, channel=channel, stream_id=stream_id)
    for recording in stopped:
        if as_json:
            print_json(_summary(recording) | {"stopped": True})
        else:
            position = "" if recording.id is None else f" at position {recording.end}"
            click.echo(f"stopped {recording.label}{position}")
    if not stopped and not as_json:
        click.echo("nothing was stopped: the recording has ended already", err=True)


@recordings.command()
@ids_argument
@route_options
@yes_option
@json_option
def delete(ids: tuple[int, ...], yes: bool, as_json: bool, **route_flags: Any) -> None:
    """Delete the stopped recordings with these IDs, and their files.

    \b
    For example:
      aeron-spark recordings delete 7 9
    """
    if route_flags["channel"] is not None or route_flags["stream_id"] is not None:
        raise OptionError(
            "--channel and --stream-id cannot be used here: recordings are deleted by their IDs",
            remedy="Give IDs, or use 'aeron-spark streams delete' for all stopped recordings of a stream.",
        )
    if not ids:
        raise OptionError(
            "recordings to delete are not named", remedy="Give IDs; 'aeron-spark recordings list' shows them."
        )
    prompt = Prompt(yes)
    prompt.check("'aeron-spark recordings list' shows the recordings.")
    with _archives(route_flags) as (archives, _, _):
        from aeron_spark.direct.recordings import delete_recordings, list_recordings

        archives = _single_archive(archives, ids)
        known = [recording for recording in list_recordings(archives) if recording.id in ids]
        if known:
            prompt.ask(f"Delete {', '.join(_label_and_size(recording) for recording in known)}?")
        for recording in delete_recordings(archives, ids):
            if as_json:
                print_json(_summary(recording) | {"deleted": True})
            else:
                click.echo(f"deleted {_label_and_size(recording)}")


@contextmanager
def _archives(route_flags: dict[str, Any]) -> Iterator[tuple[tuple[ArchiveAddress, ...], str | None, int | None]]:
    """Yield the archives, and the channel and stream id of the command line or None."""
    from aeron_spark.options import ReadOptions, direct_route

    options = connector_options(
        route_flags["extra"],
        channel=route_flags["channel"],
        streamId=route_flags["stream_id"],
        archive=route_flags["archive"],
        aeronDir=route_flags["aeron_dir"],
    )
    # Read options need a stream; the archives, which are all that is used here, do not depend on it.
    any_stream = {"channel": "aeron:ipc", "streamId": "0"}
    route = direct_route(ReadOptions.parse(any_stream | options, streaming=False).route)
    with catch_sigint(), print_warnings(), operation():
        from aeron_spark.direct.archive_recordings import archives_of

        yield archives_of(route).archives, options.get("channel"), route.stream_id if "streamId" in options else None


def _single_archive(archives: tuple[ArchiveAddress, ...], ids: tuple[int, ...]) -> tuple[ArchiveAddress, ...]:
    """Return the archives. Raises OptionError for ids with several archives: each has its own ids."""
    if ids and len(archives) > 1:
        raise OptionError(
            f"recording IDs are ambiguous: {len(archives)} archives are named, and each counts from 0",
            remedy="Name one archive with --archive.",
        )
    return archives


def _label_and_size(recording: ListedRecording) -> str:
    return f"{recording.label} ({rounded_size((recording.end or 0) - (recording.start or 0))})"


def _state(recording: ListedRecording) -> str:
    if recording.id is None:
        return "waiting"
    return "active" if recording.active else "stopped"


def _row(recording: ListedRecording) -> tuple[object, ...]:
    return (
        recording.archive,
        None if recording.id is None else str(recording.id),
        recording.channel,
        str(recording.stream_id),
        None if recording.session_id is None else str(recording.session_id),
        recording.start,
        recording.end,
        _state(recording),
        recording.standing,
        time_cell(None if recording.began_ms is None else recording.began_ms / 1000),
        time_cell(None if recording.ended_ms is None else recording.ended_ms / 1000),
        _started(recording),
    )


def _started(recording: ListedRecording) -> str | None:
    if recording.started is None:
        return None
    query = f", query {recording.started.query}" if recording.started.query else ""
    return f"{recording.started.by}{query}, at {format_time(recording.started.at_ms / 1000)}"


def _summary(recording: ListedRecording) -> dict[str, object]:
    started = recording.started
    return {
        "archive": recording.archive,
        "id": recording.id,
        "channel": recording.channel,
        "stream_id": recording.stream_id,
        "session_id": recording.session_id,
        "start": recording.start,
        "end": recording.end,
        "state": _state(recording),
        "active": recording.active,
        "standing": recording.standing,
        "began": None if recording.began_ms is None else format_time(recording.began_ms / 1000),
        "ended": None if recording.ended_ms is None else format_time(recording.ended_ms / 1000),
        "started": {"at": format_time(started.at_ms / 1000), "by": started.by, "query": started.query}
        if started
        else None,
    }
