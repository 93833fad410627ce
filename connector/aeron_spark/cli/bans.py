"""``aeron-spark bans``: shows, adds and removes the bans of this machine's server, over its admin socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from aeron_spark.cli.admin_client import admin_options, ask, duration_seconds, socket_path
from aeron_spark.cli.connections import counted
from aeron_spark.cli.main import SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options, time_cell
from aeron_spark.errors import OptionError
from aeron_spark.protocol.sources import Network
from aeron_spark.texts import escape_text, format_time

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=SuggestingGroup)
def bans() -> None:
    """Show, add and remove the bans of keys and addresses of this machine's server.

    The server keeps the bans in bans.json of its folder of streams. A banned client is refused with 'banned' and does
    not try again by itself. A ban of addresses does not apply to clients over shared memory.
    """


def _subject_options(command: _Command) -> _Command:
    for option in (
        click.option("--address", metavar="NET", help="An address or network, such as 192.0.2.7 or 2001:db8::/64."),
        click.option("--key", metavar="KEY", help="A public key, its fingerprint or its name."),
    ):
        command = option(command)
    return command


@bans.command("list")
@admin_options
@table_options
def list_bans(config: Path | None, streams_dir: Path | None, admin_socket: Path | None, as_json: bool) -> None:
    """List the bans that have not expired."""
    found = ask(socket_path(config, streams_dir, admin_socket), "bans.list")["bans"]
    if as_json:
        for one in found:
            print_json(_printed(one))
        return
    rows = [
        (_subject(one), one.get("key"), format_time(one["since"]), time_cell(one["until"]), _reason(one))
        for one in found
    ]
    columns = ("banned", "key", "since", "until", "reason")
    print_table("bans", columns, rows, empty="no bans", optional=("key", "since", "reason"))


@bans.command()
@_subject_options
@click.option("--for", "duration", metavar="DURATION", help="How long, such as 1h.  [default: until it is removed]")
@click.option("--reason", metavar="TEXT", help="The reason for operators; clients do not receive it.")
@admin_options
@json_option
def add(
    key: str | None,
    address: str | None,
    duration: str | None,
    reason: str | None,
    config: Path | None,
    streams_dir: Path | None,
    admin_socket: Path | None,
    as_json: bool,
) -> None:
    """Ban a key or addresses, and end their connections. A ban of the same replaces the earlier one.

    \b
    For example:
      aeron-spark bans add --address 192.0.2.0/24 --for 1h --reason flood
    """
    arguments = {
        **_subject_arguments(key, address), "reason": reason,
        "seconds": None if duration is None else duration_seconds("--for", duration),
    }  # fmt: skip
    result = ask(socket_path(config, streams_dir, admin_socket), "bans.add", arguments)
    ban, ended = result["ban"], result["connections"]
    if as_json:
        print_json({**_printed(ban), "count": len(ended)})
        return
    until = "until it is removed" if ban["until"] is None else f"until {format_time(ban['until'])}"
    click.echo(f"banned {_subject(ban)} {until}; ended {counted(len(ended), 'connection')}")


@bans.command()
@_subject_options
@admin_options
@json_option
def remove(
    key: str | None,
    address: str | None,
    config: Path | None,
    streams_dir: Path | None,
    admin_socket: Path | None,
    as_json: bool,
) -> None:
    """Remove the ban of a key, or of exactly these addresses. Exit code 1 if there is none."""
    path = socket_path(config, streams_dir, admin_socket)
    ban = ask(path, "bans.remove", _subject_arguments(key, address))["ban"]
    if as_json:
        print_json(_printed(ban))
    else:
        click.echo(f"removed the ban of {_subject(ban)}")


def _subject_arguments(key: str | None, address: str | None) -> dict[str, str | None]:
    if (key is None) == (address is None):
        raise OptionError("a ban is of a key or of addresses", remedy="Give either --key or --address.")
    if address is not None:
        Network.parse(address)
    return {"key": key, "address": address}


def _subject(ban: Mapping[str, Any]) -> str:
    return str(ban.get("address") or ban["name"])


def _reason(ban: Mapping[str, Any]) -> str | None:
    return escape_text(ban["reason"]) or None


def _printed(ban: Mapping[str, Any]) -> dict[str, Any]:
    until = ban["until"]
    return {**ban, "since": format_time(ban["since"]), "until": None if until is None else format_time(until)}
