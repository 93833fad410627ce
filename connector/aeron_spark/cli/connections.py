"""``aeron-spark connections``: shows and ends the connections of this machine's server, over its admin socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.cli.admin_client import admin_options, ask, duration_seconds, socket_path
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options, time_cell
from aeron_spark.errors import OptionError
from aeron_spark.protocol.sources import Network
from aeron_spark.texts import escape_text, format_time

NONE_FOUND: Final = 1
SHOWN_STREAMS: Final = 3  # names of streams in a row

COLUMNS: Final = (
    "id", "name", "tag", "address", "state", "since", "idle s#", "round trip ms#", "calls#", "bytes waiting#",
    "streams", "bulk links#", "bytes in#", "bytes out#",
)  # fmt: skip
# Columns that a narrow terminal does not show, the first ones first.
OPTIONAL: Final = (
    "since", "bulk links#", "calls#", "bytes out#", "bytes in#", "round trip ms#", "streams", "tag", "idle s#",
    "bytes waiting#",
)  # fmt: skip


@click.group(cls=SuggestingGroup)
def connections() -> None:
    """Show the connections of this machine's server, and end them.

    A client that lost its connection less than two minutes ago is in the state "disconnected": it may resume its
    session.
    """


@connections.command("list")
@admin_options
@table_options
def list_connections(config: Path | None, streams_dir: Path | None, admin_socket: Path | None, as_json: bool) -> None:
    """List the connections, with the names of their clients' keys and what they do.

    "bytes waiting" were received and wait to be processed, or are not acknowledged by the client yet. "streams" are
    those that the client used in the last minute. A connection is "paused" while its client sends faster than the
    server processes messages and calls, or while it holds too much memory, and "throttled" while its key has used up a
    rate.
    """
    found = ask(socket_path(config, streams_dir, admin_socket), "connections.list")["connections"]
    if as_json:
        for one in found:
            print_json(printed(one))
        return
    print_table("connections", COLUMNS, [row(one) for one in found], empty="no connections", optional=OPTIONAL)


@connections.command()
@click.argument("connection_id", metavar="ID")
@admin_options
@table_options
def describe(
    connection_id: str, config: Path | None, streams_dir: Path | None, admin_socket: Path | None, as_json: bool
) -> None:
    """Show everything about the connection ID, which 'connections list' shows."""
    path = socket_path(config, streams_dir, admin_socket)
    found = printed(ask(path, "connections.describe", {"id": connection_id}))
    if as_json:
        print_json(found)
        return
    rows = [(name.replace("_", " "), _value(value)) for name, value in found.items()]
    print_table(f"connection {found['id']}", ("property", "value"), rows, empty="")


@connections.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--name", metavar="NAME", help="Only connections of the key with this name.")
@click.option("--key", metavar="KEY", help="Only connections of this key: a public key, its fingerprint or its name.")
@click.option("--tag", metavar="PATTERN", help="Only connections with this tag; * stands for any characters.")
@click.option("--address", metavar="NET", help="Only connections from this address or network, such as 10.0.0.0/8.")
@click.option("--ban", metavar="DURATION", help="Also ban the keys of these connections, such as for 1h.")
@click.option("--reason", metavar="TEXT", help="Reason of --ban for operators; clients do not receive it.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and print what would be done.")
@admin_options
@json_option
def kick(
    ids: Sequence[str],
    name: str | None,
    key: str | None,
    tag: str | None,
    address: str | None,
    ban: str | None,
    reason: str | None,
    dry_run: bool,
    config: Path | None,
    streams_dir: Path | None,
    admin_socket: Path | None,
    as_json: bool,
) -> int:
    """End connections with their sessions: those that meet all conditions. Exit code 1 if there is none.

    The clients get the reason 'kicked', and connect again after a pause of up to five seconds. With --ban they get
    'banned', and stop.

    \b
    For example:
      aeron-spark connections kick --name desk-7 --ban 1h --reason "leaked key"
    """
    if address is not None:
        Network.parse(address)
    if reason is not None and ban is None:
        raise OptionError("--reason is the reason of --ban, which is absent", remedy="Add --ban, or leave it out.")
    if not (ids or any(one is not None for one in (name, key, tag, address))):
        raise OptionError("no connection is named", remedy="Give IDs, or one of --name, --key, --tag and --address.")
    arguments = {
        "ids": list(ids), "name": name, "key": key, "tag": tag, "address": address, "dry_run": dry_run,
        "ban_seconds": None if ban is None else duration_seconds("--ban", ban), "reason": reason,
    }  # fmt: skip
    result = ask(socket_path(config, streams_dir, admin_socket), "connections.kick", arguments)
    found, bans = result["connections"], result["bans"]
    if as_json:
        print_json(
            {
                "count": len(found),
                "dry_run": dry_run,
                "connections": [printed(one) for one in found],
                "banned": [one["name"] for one in bans],
                "until": time_cell(bans[0]["until"]) if bans else None,
            }
        )
    elif not found:
        click.echo("no connection meets the conditions", err=True)
    else:
        click.echo(_kicked_text(found, bans, dry_run=dry_run))
    return 0 if found else NONE_FOUND


def _kicked_text(found: Sequence[Mapping[str, Any]], bans: Sequence[Mapping[str, Any]], *, dry_run: bool) -> str:
    names = ", ".join(f"{one['id']} ({one['name']})" for one in found)
    text = f"{'would end' if dry_run else 'ended'} {counted(len(found), 'connection')}: {names}"
    if not bans:
        return text
    banned = ", ".join(one["name"] for one in bans)
    return f"{text}\nbanned {counted(len(bans), 'key')} until {time_cell(bans[0]['until'])}: {banned}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{count} {noun}{'s' * (count != 1)}"


def printed(connection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server's report of a connection, with its time as text."""
    return {**connection, "since": format_time(connection["since"])}


def address_text(connection: Mapping[str, Any]) -> str:
    """Return the address and port of a client; ``ipc`` over shared memory."""
    address, port = connection["address"], connection["port"]
    if not address:
        return "ipc"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def row(one: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the cells of a connection's row."""
    round_trip_s = one["round_trip_seconds"]
    return (
        one["id"], one["name"], escape_text(one["tag"]), address_text(one), one["state"], format_time(one["since"]),
        f"{one['idle_seconds']:.1f}", None if round_trip_s is None else f"{round_trip_s * 1000:.1f}", one["calls"],
        one["waiting_bytes"] + one["unacknowledged_bytes"], streams_text(one["streams"]), one["bulk_links"],
        one["received_bytes"], one["sent_bytes"],
    )  # fmt: skip


def streams_text(names: Sequence[str]) -> str | None:
    """Return the first names of streams, and how many there are besides; None without any."""
    shown = ", ".join(map(escape_text, names[:SHOWN_STREAMS]))
    hidden = len(names) - SHOWN_STREAMS
    return f"{shown} and {hidden} more" if hidden > 0 else shown or None


def _value(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(escape_text(str(one)) for one in value) or None
    if isinstance(value, str):
        return escape_text(value)
    return round(value, 6) if isinstance(value, float) else value
