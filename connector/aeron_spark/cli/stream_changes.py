"""``aeron-spark streams alter|rename|end|reopen|writers|leases``: changes named streams of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import check_stream_name, route_options, server_options
from aeron_spark.cli.output import format_size, format_time, json_option, print_json, print_table
from aeron_spark.cli.server_streams import connected, options_with_server, retention_text
from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    from aeron_spark.stream_client.admin import StreamAlteration, StreamProperties

policy_option = click.option(
    "--schema-policy", type=click.Choice(["strict", "additive"]),
    help="strict: the first transaction fixes the columns, and only writers with evolveSchema=true and the grant "
    "manage add nullable ones. additive: each writer may add nullable columns.",
)  # fmt: skip


@click.command()
@click.argument("name")
@route_options
@server_options
@click.option(
    "--retention", metavar="SIZE|TIME|none",
    help="Keep this size (10GiB) of each partition, or rows of this age (7d), or both (10GiB,7d); none: all rows.",
)  # fmt: skip
@policy_option
@click.option("--dry-run", is_flag=True, help="Change nothing; only show the change and the rows that it would remove.")
@json_option
def alter(
    name: str, retention: str | None, schema_policy: str | None, dry_run: bool, as_json: bool, **flags: Any
) -> None:
    """Change the retention or the schema policy of the stream NAME; needs --server and the grant 'manage'.

    The server applies a new retention within some seconds. --dry-run shows first how many bytes become unreadable.

    \b
    For example:
      aeron-spark streams alter flights --retention 7d --dry-run --server feeds.example:20121
    """
    options = _server_of(name, flags)
    if retention is None and schema_policy is None:
        raise OptionError("nothing to change", remedy="Give --retention, --schema-policy, or both.")
    from aeron_spark.stream_client.admin import parse_new_retention

    parse_new_retention(retention)
    with connected(options) as client:
        found = client.alter_stream(name, retention=retention, schema_policy=schema_policy, dry_run=dry_run)
    _print_alteration(name, found, dry_run, as_json)


def _print_alteration(name: str, found: StreamAlteration, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "name": name, "dry_run": dry_run, "before": _properties(found.before),
                "after": _properties(found.after), "unreadable_bytes": list(found.unreadable_bytes),
            }
        )  # fmt: skip
        return
    before, after = found.before, found.after
    texts = [retention_text(one.retention_bytes, one.retention_seconds) for one in (before, after)]
    click.echo(f"stream {name}{' (dry run, nothing is changed)' if dry_run else ''}")
    click.echo(f"retention: {' → '.join(dict.fromkeys(texts))}")
    click.echo(f"schema policy: {' → '.join(dict.fromkeys((before.schema_policy, after.schema_policy)))}")
    total = sum(found.unreadable_bytes)
    verb = "would be" if dry_run else "become"
    click.echo(f"rows that {verb} unreadable now: {format_size(total)} of {len(found.unreadable_bytes)} partitions")
    for partition, size in enumerate(found.unreadable_bytes):
        if size:
            click.echo(f"  partition {partition}: {size:,} bytes")


def _properties(found: StreamProperties) -> dict[str, Any]:
    return {
        "retention_bytes": found.retention_bytes or None, "retention_seconds": found.retention_seconds or None,
        "schema_policy": found.schema_policy,
    }  # fmt: skip


@click.command()
@click.argument("name")
@click.argument("new_name")
@route_options
@server_options
@json_option
def rename(name: str, new_name: str, as_json: bool, **flags: Any) -> None:
    """Rename the stream NAME to NEW_NAME; needs --server, the grant 'manage' on NAME and 'create' on NEW_NAME.

    Running readers, writers and queries fail with the new name in their errors; started again with it, they continue
    where they were. The old name gives this error until another stream gets it.
    """
    options = _server_of(name, flags)
    check_stream_name(new_name)
    with connected(options) as client:
        client.rename_stream(name, new_name)
    if as_json:
        print_json({"name": new_name, "former_name": name})
    else:
        click.echo(f"renamed stream {name} to {new_name}")


@click.command()
@click.argument("name")
@route_options
@server_options
@json_option
def end(name: str, as_json: bool, **flags: Any) -> None:
    """End the stream NAME: it takes no more rows; needs --server and the grant 'manage'.

    Its rows stay readable. Readers that follow it end after its last row, and Spark queries wait. 'streams reopen'
    undoes it.
    """
    options = _server_of(name, flags)
    with connected(options) as client:
        ended = client.end_stream(name).ended
    at = None if ended is None else format_time(ended.timestamp())
    if as_json:
        print_json({"name": name, "state": "ended", "ended": at})
    else:
        click.echo(f"stream {name} has ended at {at}")


@click.command()
@click.argument("name")
@route_options
@server_options
@json_option
def reopen(name: str, as_json: bool, **flags: Any) -> None:
    """Let the stream NAME take rows again, after 'streams end'; needs --server and the grant 'manage'."""
    options = _server_of(name, flags)
    with connected(options) as client:
        state = client.reopen_stream(name).state
    if as_json:
        print_json({"name": name, "state": state})
    else:
        click.echo(f"stream {name} takes rows")


@click.command()
@click.argument("name")
@click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release")
@click.argument("writer_id", required=False, metavar="ID]")
@route_options
@server_options
@json_option
def writers(name: str, action: str | None, writer_id: str | None, as_json: bool, **flags: Any) -> None:
    """List the writer ids of the stream NAME, or release ID from its key; needs --server and the grant 'manage'.

    An id belongs to the first key that writes under it. After 'release', the next key that writes under it owns it,
    and continues its transaction numbers.
    """
    options = _server_of(name, flags)
    if action is not None:
        released = _require_id(writer_id, "writers", "desk-7")
        with connected(options) as client:
            client.release_writer(name, released)
        _print_released(name, "writer", released, as_json)
        return
    with connected(options) as client:
        found = client.stream_writers(name)
    if as_json:
        for one in found:
            print_json(
                {
                    "writer": one.id, "last": one.last, "changed": format_time(one.changed.timestamp()),
                    "owner": one.owner or None, "single_use": one.single_use,
                }
            )  # fmt: skip
        return
    print_table(
        f"writers of {name}",
        ("writer", "last transaction#", "changed", "owner", "single use"),
        [
            (
                one.id, one.last if one.last >= 0 else "none", format_time(one.changed.timestamp()),
                one.owner or "no key", "yes" if one.single_use else "no",
            )
            for one in found
        ],
        empty="no writers",
    )  # fmt: skip


@click.command()
@click.argument("name")
@click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release")
@click.argument("reader", required=False, metavar="READER]")
@route_options
@server_options
@json_option
def leases(name: str, action: str | None, reader: str | None, as_json: bool, **flags: Any) -> None:
    """List the leases of the readers of the stream NAME, or end those of READER; needs --server and the grant 'manage'.

    A lease delays the deletion of rows that its reader has not read. A reader that still runs takes another lease
    within 15 s.
    """
    options = _server_of(name, flags)
    if action is not None:
        released = _require_id(reader, "leases", "3f0c9a")
        with connected(options) as client:
            client.release_lease(name, released)
        _print_released(name, "reader", released, as_json)
        return
    with connected(options) as client:
        found = client.stream_leases(name)
    if as_json:
        for one in found:
            print_json(
                {"reader": one.reader, "owner": one.owner, "positions": one.positions, "seconds": round(one.seconds, 1)}
            )
        return
    print_table(
        f"leases of {name}",
        ("reader", "owner", "expires in s#", "positions"),
        [
            (
                one.reader, one.owner or "the server", round(one.seconds),
                ", ".join(f"{partition}: {position}" for partition, position in sorted(one.positions.items())),
            )
            for one in found
        ],
        empty="no leases",
    )  # fmt: skip


def _print_released(name: str, kind: str, released: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, kind: released, "released": True})
    else:
        click.echo(f"released {kind} {released} of stream {name}")


def _require_id(value: str | None, command: str, example: str) -> str:
    if value is None:
        raise OptionError(
            "the id to release is missing", remedy=f"For example 'streams {command} NAME release {example}'."
        )
    return value


def _server_of(name: str, flags: dict[str, Any]) -> dict[str, str]:
    """Return the connector's options. Raises OptionError for an invalid name, or without a server."""
    check_stream_name(name)
    options = options_with_server(flags)
    if options is None:
        raise OptionError(
            f"stream {name!r} cannot be changed without a server: only servers have named streams",
            remedy="Add --server HOST:PORT.",
        )
    return options
