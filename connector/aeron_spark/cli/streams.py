"""``aeron-spark streams``: what archives hold, and a server's named streams: listing, making room, making them."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from aeron_spark.cli import server_streams
from aeron_spark.cli.arguments import needs_server, needs_stream, route_options, server_options, yes_option
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import confirm, json_option, needs_terminal
from aeron_spark.cli.server_streams import named, server_given
from aeron_spark.errors import OptionError
from aeron_spark.options import values

DESCRIBE: Final = "'aeron-spark streams describe' shows first what would be deleted."

recording_option = click.option(
    "--recording", "recordings", type=int, multiple=True, metavar="ID", help="Only this recording; repeatable."
)


@click.group(cls=NearestNames)
def streams() -> None:
    """List, describe, purge and delete what archives hold, or with --server the named streams of a server."""


@streams.command("list")
@route_options
@server_options
@json_option
def list_streams(as_json: bool, **way: Any) -> None:
    """List all streams, or those of --channel or --stream-id; with --server those of a server."""
    if (given := server_given(way)) is not None:
        server_streams.list_all(given, as_json)
        return
    from aeron_spark.cli import direct_streams

    direct_streams.list_all(way, as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@json_option
def describe(name: str | None, as_json: bool, **way: Any) -> None:
    """Describe one stream: by NAME (its channel's alias, or its name on a server), or by --channel and --stream-id."""
    if (given := server_given(way)) is not None:
        server_streams.describe(given, named(name), as_json)
        return
    _needs_stream(way, name)
    from aeron_spark.cli import direct_streams

    direct_streams.describe(way, name, as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@click.option("--before", metavar="POSITION|TIME", help="What lies before: a position, an ISO time, or such as -7d.")
@click.option("--keep", metavar="SIZE", help="How much of each recording to keep, such as 10GiB.")
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
            "one of --before and --keep says what goes", remedy="For example --before -7d, or --keep 10GiB."
        )
    position, before_ns = _before(before)
    kept = _kept(keep)
    if (given := server_given(way)) is not None:
        _refuse_with_server(recording=recordings, dry_run=dry_run)
        confirm(f"Purge stream {named(name)} of {given['server']}?", yes, DESCRIBE)
        server_streams.purge(given, named(name), before if position is None else position, kept, partition, as_json)
        return
    needs_server(partition=partition)
    _needs_stream(way, name)
    if not dry_run:
        needs_terminal(yes, "--dry-run shows first what would be deleted.")
    from aeron_spark.cli import direct_streams

    direct_streams.purge(way, name, position, kept, recordings, dry_run, yes, as_json, before_ns=before_ns)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@recording_option
@yes_option
@json_option
def delete(name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool, **way: Any) -> None:
    """Delete a stream's stopped recordings, with their files; with --server the stream NAME and all its rows."""
    if (given := server_given(way)) is not None:
        _refuse_with_server(recording=recordings)
        confirm(f"Delete stream {named(name)} of {given['server']}, with all its rows?", yes, DESCRIBE)
        server_streams.delete(given, named(name), as_json)
        return
    _needs_stream(way, name)
    needs_terminal(yes, DESCRIBE)
    from aeron_spark.cli import direct_streams

    direct_streams.delete(way, name, recordings, yes, as_json)


@streams.command()
@click.argument("name")
@route_options
@server_options
@click.option("--partitions", type=click.IntRange(min=1), default=1, metavar="N", help="Partitions.  [default: 1]")
@click.option(
    "--retention", metavar="SIZE|TIME",
    help="How much of each partition (10GiB), or how long (7d), is kept, or both: 10GiB,7d.  [default: everything]",
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


def _needs_stream(way: dict[str, Any], name: str | None) -> None:
    if name is None:
        named = {"channel": way["channel"], "streamId": way["stream_id"]}
        needs_stream({option: text for option, text in named.items() if text is not None})


def _refuse_with_server(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(
                f"--{name.replace('_', '-')} is for the recordings of an archive", remedy="Leave it out, or --server."
            )


def _before(text: str | None) -> tuple[int | None, int | None]:
    """Read --before: a position, or a time in ns since 1970."""
    if text is None:
        return None, None
    if text.isascii() and text.isdecimal():
        return int(text), None
    try:
        return None, values.parse_moment(text).at(time.time_ns())
    except ValueError as error:
        raise OptionError(f"--before must be a position, {error}, not {text!r}", remedy="See --help.") from None


def _kept(text: str | None) -> int | None:
    """Read --keep, in bytes."""
    try:
        return None if text is None else values.parse_size(text, 0, values.INT64_MAX)
    except ValueError as error:
        raise OptionError(f"--keep must be {error}, not {text!r}", remedy="See --help.") from None
