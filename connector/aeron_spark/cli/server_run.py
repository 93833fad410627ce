"""``aeron-spark server [HOST:PORT]``: runs a secure server until SIGINT or SIGTERM."""

from __future__ import annotations

import difflib
import time
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.cli.arguments import (
    EndpointCommand,
    endpoint_flags,
    present_options,
    read_configuration,
    refuse_duplicates,
)
from aeron_spark.cli.output import format_time, json_option, print_json
from aeron_spark.cli.signals import catch_stop_signals
from aeron_spark.errors import OptionError
from aeron_spark.options import ServerOptions

COMMAND_NAMES: Final = ("backup", "check", "reload", "restore", "status", "verify")  # no host has such a name here
POLL_INTERVAL_S: Final = 0.1  # interval at which the main thread checks for a signal


class RunCommand(EndpointCommand):
    """The command of the group ``server`` that has no name of its own: usage and errors say ``aeron-spark server``."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if parent is not None:
            info_name, parent = parent.info_name, parent.parent
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=RunCommand)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path),
    help="TOML file with options, spelled as in docs/options.md, such as maxConnections = 100. Its 'bind' is the "
    "address. An option may not be in FILE and on the command line.",
)  # fmt: skip
@endpoint_flags(ServerOptions)
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    address: str | None,
    config: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run a secure server on HOST:PORT (default 0.0.0.0:20121) until SIGINT or SIGTERM.

    Clients write and read its durable streams ('aeron-spark streams create' makes one). Without a stream, the server
    relays messages: those of 'aeron-spark send --server' to all clients that run 'aeron-spark receive --server'.

    Standard output has one line for each address on which the server listens. Standard error has the log: one line for
    each event, which docs/events.md lists.

    \b
    For example, for the clients whose keys a file authorises:
      aeron-spark server 0.0.0.0:20121 --authorized-keys /etc/aeron-spark/clients
    """
    from aeron_spark.server.relay import Relay
    from aeron_spark.server.server import Server

    _refuse_command_name(address)
    options = present_options(flags)
    if config is not None:
        file_options = read_configuration(config)
        refuse_duplicates(options, file_options, str(config))
        address = address or file_options.pop("address", None)
        options |= file_options
    if not any(name.replace("_", "").lower() == "logformat" for name in options):
        options["logformat"] = "text"
    with catch_stop_signals() as stopped:
        running = Server(address or "", **options)
        Relay(running)
        try:
            running.start()
            stopped.start_polling()
            _print_listening(running, as_json=as_json)
            while not stopped() and not running.closed:
                time.sleep(POLL_INTERVAL_S)
        finally:
            running.close()


def _refuse_command_name(address: str | None) -> None:
    """Raise OptionError for an address that is, or resembles, the name of another command of the server."""
    nearest = difflib.get_close_matches(address or "", COMMAND_NAMES, n=1, cutoff=0.7)
    if nearest:
        raise OptionError(
            f"{address!r} is not an address",
            remedy=f"Did you mean 'aeron-spark server {nearest[0]}'? An address is HOST:PORT.",
        )


def _print_listening(running: Any, *, as_json: bool) -> None:
    """Print a line for each address: programs that start a server wait for it."""
    from aeron_spark.protocol.keypair import fingerprint

    for address in running.addresses:
        values = {"address": address, "key": fingerprint(running.public_key), "aeron_dir": running.aeron_dir}
        if as_json:
            print_json({"event": "listening", "time": format_time(time.time()), **values})
        else:
            click.echo("listening " + " ".join(f"{name}={value}" for name, value in values.items()))
