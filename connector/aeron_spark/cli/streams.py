"""``aeron-spark streams``: manages streams in archives, and with --server the named streams of a server."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from aeron_spark import units
from aeron_spark.cli import server_purge, server_streams, stream_changes
from aeron_spark.cli.arguments import (
    refuse_stream_options,
    require_stream,
    route_options,
    server_options,
    yes_option,
)
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import confirm, json_option, require_terminal
from aeron_spark.cli.server_streams import options_with_server, require_name
from aeron_spark.errors import OptionError
from aeron_spark.options import values

PREVIEW_HINT: Final = "'aeron-spark streams describe' shows the stream without deleting it."

recording_option = click.option(
    "--recording", "recordings", type=int, multiple=True, metavar="ID",
    help="Direct route: only the recording with this id; repeatable.  [default: all recordings of the stream]",
)  # fmt: skip


@click.group(cls=SuggestingGroup)
def streams() -> None:
    """Manage streams: those recorded in archives, or with --server the named streams of a server.

    \b
    On the direct route, a stream is the recordings of one channel and stream id:
      aeron-spark streams list
      aeron-spark streams describe --channel aeron:ipc --stream-id 1001
    On a server, a stream has a name and partitions:
      aeron-spark streams create flights --partitions 4 --server feeds.example:20121
    """


@streams.command("list")
@route_options
@server_options
@json_option
def list_streams(as_json: bool, **route_flags: Any) -> None:
    """List the streams of an archive, or with --server those of a server.

    --channel and --stream-id restrict the list to streams with that channel or stream id.
    """
    if (options := options_with_server(route_flags)) is not None:
        server_streams.list_all(options, as_json)
        return
    from aeron_spark.cli import direct_streams

    direct_streams.list_all(route_flags, as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@json_option
def describe(name: str | None, as_json: bool, **route_flags: Any) -> None:
    """Describe a stream: payload, columns, size, retention, recordings or partitions.

    NAME is the stream's name on a server, or on the direct route the alias of its channel. A stream without an alias is
    named by --channel and --stream-id.
    """
    if (options := options_with_server(route_flags)) is not None:
        server_streams.describe(options, require_name(name), as_json)
        return
    _require_stream(route_flags, name)
    from aeron_spark.cli import direct_streams

    direct_streams.describe(route_flags, name, as_json)


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@click.option(
    "--before", metavar="POSITION|TIME",
    help="Delete the rows before this position in bytes, or before this time: ISO in UTC, or relative such as -7d.",
)  # fmt: skip
@click.option("--keep", metavar="SIZE", help="Keep this much at the end of each recording or partition, such as 10GiB.")
@recording_option
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N",
    help="With --server: only this partition.  [default: all partitions]",
)  # fmt: skip
@click.option(
    "--wait", "wait_text", is_flag=False, flag_value="2min", metavar="[DURATION]",
    help="With --server: wait until the space is freed, except that of segments with readable rows; an error if this "
    "takes longer.  [default without a duration: 2min]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Direct route: only show what would be deleted.")
@yes_option
@json_option
def purge(
    name: str | None,
    before: str | None,
    keep: str | None,
    recordings: tuple[int, ...],
    partition: int | None,
    wait_text: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **route_flags: Any,
) -> None:
    """Delete the oldest rows of a stream, to free disk space. NAME is as for 'streams describe'.

    On a server, the transactions before the position or time become unreadable at once, and the command says which of
    their files are deleted now, which later, and why. The transaction with the position stays.

    On the direct route, rows are deleted in whole segments (files), so up to one segment more is kept. The last segment
    always stays.

    \b
    For example:
      aeron-spark streams purge --channel aeron:ipc --stream-id 1001 --before -7d --dry-run
      aeron-spark streams purge flights --keep 10GiB --server feeds.example:20121
    """
    if (before is None) == (keep is None):
        raise OptionError("one of --before and --keep is required", remedy="For example --before -7d, or --keep 10GiB.")
    position, before_ns = _parse_before(before)
    keep_bytes = _parse_keep(keep)
    if (options := options_with_server(route_flags)) is not None:
        _refuse_with_server(recording=recordings, dry_run=dry_run)
        name = require_name(name)
        confirm(f"Purge stream {name} of {options['server']}?", yes, PREVIEW_HINT)
        server_purge.purge(
            options, name, before if position is None else position, keep_bytes, partition, _parse_wait(wait_text),
            as_json,
        )  # fmt: skip
        return
    refuse_stream_options(partition=partition, wait=wait_text)
    _require_stream(route_flags, name)
    if not dry_run:
        require_terminal(yes, "--dry-run shows what would be deleted.")
    from aeron_spark.cli import direct_streams

    direct_streams.purge(
        route_flags, name, position, keep_bytes, recordings, dry_run, yes, as_json, before_ns=before_ns
    )  # fmt: skip


@streams.command()
@click.argument("name", required=False)
@route_options
@server_options
@recording_option
@yes_option
@json_option
def delete(name: str | None, recordings: tuple[int, ...], yes: bool, as_json: bool, **route_flags: Any) -> None:
    """Delete a stream with all its rows. NAME is as for 'streams describe'.

    On the direct route, the stream's stopped recordings and their files are deleted; an active one is refused.
    """
    if (options := options_with_server(route_flags)) is not None:
        _refuse_with_server(recording=recordings)
        name = require_name(name)
        confirm(f"Delete stream {name} of {options['server']}, with all its rows?", yes, PREVIEW_HINT)
        server_streams.delete(options, name, as_json)
        return
    _require_stream(route_flags, name)
    require_terminal(yes, PREVIEW_HINT)
    from aeron_spark.cli import direct_streams

    direct_streams.delete(route_flags, name, recordings, yes, as_json)


@streams.command()
@click.argument("name")
@route_options
@server_options
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, metavar="N",
    help="Number of partitions; it cannot be changed later.  [default: 1]",
)  # fmt: skip
@click.option(
    "--retention", metavar="SIZE|TIME",
    help="Delete the oldest rows of a partition beyond this size (10GiB) or age (7d), or both (10GiB,7d).  [default: "
    "keep all rows]",
)  # fmt: skip
@click.option(
    "--segment", metavar="SIZE",
    help="Size of the files in which space is freed: a power of two from 1MiB to 1GiB. A raw value has at most an "
    "eighth of it.  [default: an eighth of the retention by size, from 1MiB to 16MiB; 16MiB without one]",
)  # fmt: skip
@stream_changes.policy_option
@click.option(
    "--schema", "schema_file", metavar="FILE",
    help="Give the stream the columns of this Parquet or Arrow file.  [default: those of the first transaction]",
)  # fmt: skip
@click.option("--if-not-exists", is_flag=True, help="Succeed without a change if a stream has this name.")
@json_option
def create(
    name: str, partitions: int, retention: str | None, segment: str | None, schema_policy: str | None,
    schema_file: str | None, if_not_exists: bool, as_json: bool, **route_flags: Any,
) -> None:  # fmt: skip
    """Create the durable stream NAME on a server; needs --server. The schema policy is strict by default.

    \b
    For example:
      aeron-spark streams create flights --partitions 4 --retention 7d --server feeds.example:20121
    """
    options = options_with_server(route_flags)
    if options is None:
        raise OptionError(
            f"stream {name!r} cannot be created without a server: only servers have named streams",
            remedy="Add --server HOST:PORT. On the direct route, 'aeron-spark send --record --channel aeron:ipc "
            "--stream-id 1001' starts a stream.",
        )
    server_streams.create(
        options, name, partitions, retention, segment, schema_policy or "strict", schema_file, if_not_exists, as_json
    )


for command in (
    stream_changes.alter, stream_changes.rename, stream_changes.end, stream_changes.reopen, stream_changes.writers,
    stream_changes.leases,
):  # fmt: skip
    streams.add_command(command)


def _require_stream(route_flags: dict[str, Any], name: str | None) -> None:
    if name is None:
        stream = {"channel": route_flags["channel"], "streamId": route_flags["stream_id"]}
        require_stream({option: text for option, text in stream.items() if text is not None})


def _refuse_with_server(**flags: object) -> None:
    for name, value in flags.items():
        if value:
            raise OptionError(
                f"--{name.replace('_', '-')} is for the direct route, without a server",
                remedy="Leave out this option or --server.",
            )


def _parse_before(text: str | None) -> tuple[int | None, int | None]:
    """Parse --before. Return a position in bytes, or a time in ns since 1970; the other is None."""
    if text is None:
        return None, None
    if text.isascii() and text.isdecimal():
        return int(text), None
    try:
        return None, values.parse_moment(text).at(time.time_ns())
    except ValueError as error:
        raise OptionError(
            f"--before is {text!r}, expected a position, {error}", remedy="Give a position, or a time such as -7d."
        ) from None


def _parse_wait(text: str | None) -> float:
    """Parse --wait. Return seconds; 0 without the option."""
    try:
        return 0.0 if text is None else units.parse_duration_ns(text) / units.NANOS
    except ValueError as error:
        raise OptionError(f"--wait is {text!r}, expected {error}", remedy="Give a duration such as 2min.") from None


def _parse_keep(text: str | None) -> int | None:
    """Parse --keep. Return bytes."""
    try:
        return None if text is None else units.parse_size(text, 0, units.INT64_MAX)
    except ValueError as error:
        raise OptionError(f"--keep is {text!r}, expected {error}", remedy="Give a size such as 10GiB.") from None
