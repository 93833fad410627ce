"""``aeron-spark server [HOST:PORT]``: runs a secure server until SIGINT or SIGTERM."""

from __future__ import annotations

import difflib
import threading
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
from aeron_spark.errors import AeronSparkError, OptionError
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
    relays messages: those of 'aeron-spark send --server' to all clients that run 'aeron-spark receive --server'. It
    prints a line for its start and for each connection and error.

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
    with catch_stop_signals() as stopped:
        running = Server(address or "", **options)
        printer = _StatusPrinter(as_json)
        printer.listen(running)
        relay = Relay(running)
        try:
            running.start()
            stopped.start_polling()
            printer.print_listening(running)
            while not stopped() and not running.closed:
                time.sleep(POLL_INTERVAL_S)
        finally:
            running.close()
        printer.print_event("stopped", passed_on=relay.forwarded, missed=relay.missed)


def _refuse_command_name(address: str | None) -> None:
    """Raise OptionError for an address that is, or resembles, the name of another command of the server."""
    nearest = difflib.get_close_matches(address or "", COMMAND_NAMES, n=1, cutoff=0.7)
    if nearest:
        raise OptionError(
            f"{address!r} is not an address",
            remedy=f"Did you mean 'aeron-spark server {nearest[0]}'? An address is HOST:PORT.",
        )


class _StatusPrinter:
    """Prints one line for each event of a server. Its threads call this object while they serve.

    Events of connections that come before ``print_listening`` are printed after it: programs wait for "listening".
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._early_events: list[tuple[str, dict[str, Any]]] | None = []  # None: "listening" is printed

    def listen(self, server: Any) -> None:
        """Register this printer for the connections and errors of a server."""
        for name in ("connect", "resume", "disconnect"):
            getattr(server, f"on_{name}")(lambda connection, name=name: self._on_connection(name, connection))
        server.on_error(self._on_error)

    def print_listening(self, server: Any) -> None:
        """Print a line for each address, then the events that came before."""
        key = self._fingerprint(server.public_key)
        with self._lock:
            for address in server.addresses:
                self.print_event("listening", address=address, key=key, aeron_dir=server.aeron_dir)
            early_events, self._early_events = self._early_events or [], None
            for name, values in early_events:
                self.print_event(name, **values)

    def print_event(self, name: str, **values: Any) -> None:
        if self._as_json:
            print_json({"event": name, "time": format_time(time.time()), **values})
        else:
            click.echo(f"{name} " + " ".join(f"{key}={value}" for key, value in values.items()))

    def _on_connection(self, event: str, connection: Any) -> None:
        values = {
            "id": connection.id, "tag": connection.tag, "key": self._fingerprint(connection.key),
            "transport": "ipc" if connection.is_ipc else "udp", "remote_address": connection.remote_address,
            "remote_port": connection.remote_port,
        }  # fmt: skip
        with self._lock:
            if self._early_events is None:
                self.print_event(event, **values)
            else:
                self._early_events.append((event, values))

    def _on_error(self, connection: Any, error: BaseException) -> None:
        what, remedy = (
            (error.what, error.remedy)
            if isinstance(error, AeronSparkError)
            else (f"{type(error).__name__}: {error}", "")
        )
        connection_id = None if connection is None else connection.id
        self.print_event("error", id=connection_id, kind=type(error).__name__, what=what, remedy=remedy)

    @staticmethod
    def _fingerprint(key: bytes) -> str:
        from aeron_spark.protocol.keypair import fingerprint

        return fingerprint(key)
