"""Flags of the secure endpoint's commands, made of the option table: a name there is a flag here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from aeron_spark.cli.way import connector_options, more_option
from aeron_spark.errors import OptionError
from aeron_spark.options.row import Where
from aeron_spark.options.table import TABLE

_F = TypeVar("_F", bound=Callable[..., Any])


def flag_of(name: str) -> str:
    """``maxConnections`` -> ``--max-connections``."""
    return "--" + re.sub(r"(?=[A-Z])", "-", name).lower()


def table_options(where: Where) -> Callable[[_F], _F]:
    """Add a flag for each option of the table that may be given there; the texts arrive under their own names."""

    def add(command: _F) -> _F:
        for row in reversed([row for row in TABLE if where in row.where]):
            default = row.shown_default or row.default_in(where)
            text = re.sub(r"`([^`]*)`", r"\1", row.meaning)
            command = click.option(
                flag_of(row.name),
                row.name,
                metavar="|".join(row.choices) if row.choices else row.kind.name.replace("_", "-"),
                help=f"{text}  [default: {re.sub('`', '', default)}]" if default is not None else text,
            )(command)
        return command

    return add


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given."""
    return {name: value for name, value in values.items() if value is not None}


def client_command(command: _F) -> _F:
    """Add what names the server of a client's command: HOST:PORT or --server; and --option."""
    command = click.argument("address", metavar="[HOST:PORT]", required=False)(command)
    for option in (more_option, click.option("--server", metavar="HOST:PORT", help="The server; or as HOST:PORT.")):
        command = option(command)
    return command


def client_given(address: str | None, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the server's address, and the options of the connection; raise OptionError for wrong ones.

    Nothing is started before they are right.
    """
    from aeron_spark.client.options import client_options

    server, more = given.pop("server"), given.pop("more")
    if address is not None and server is not None:
        raise OptionError(f"the server is given twice, as {address} and --server {server}", remedy="Give it once.")
    found = address or server
    if not found:
        raise OptionError("no server is named", remedy="Give its address, such as --server feeds.example:20121.")
    options = connector_options(more, **given)
    client_options(found, options)
    return found, dict(options)


def refuse_twice(first: dict[str, Any], second: dict[str, Any], where: str) -> None:
    """Raise OptionError for what both give."""
    both = sorted({name.lower() for name in first} & {name.lower() for name in second})
    if both:
        raise OptionError(f"{both[0]!r} is given by a flag and in {where}", remedy="Give it once.")
