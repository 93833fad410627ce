"""``aeron-spark server``: run a secure endpoint until it is told to stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final

import click

from aeron_spark.cli.arguments import given_options, refuse_twice, table_options
from aeron_spark.cli.output import iso, json_option, print_json
from aeron_spark.cli.signals import stopping
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, SetupError
from aeron_spark.options import ServerOptions
from aeron_spark.options.reader import read_toml

POLL_INTERVAL_S: Final = 0.1  # seconds between two looks at whether to stop


@click.command()
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="A TOML file of these options.")
@table_options(ServerOptions)
@json_option
@click.pass_context
def server(
    ctx: click.Context,
    /,
    address: str | None,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a secure endpoint on HOST:PORT (default 0.0.0.0:20121) until SIGINT or SIGTERM.

    Clients that send messages of bytes ('aeron-spark send --server') reach those that receive them
    ('aeron-spark receive --server').
    """
    from aeron_spark.server.program import Server
    from aeron_spark.server.relay import Relay

    options = given_options(given)
    if config is not None:
        configured = _configuration(config)
        refuse_twice(options, configured, str(config))
        address = address or configured.pop("address", None)
        options |= configured
    with stopping() as stopped:
        serving = Server(address or "", **options)
        said = _StatusPrinter(as_json)
        said.listen(serving)
        relay = Relay(serving)
        try:
            serving.start()
            stopped.begin()
            said.listening(serving)
            while not stopped() and not serving.closed:
                time.sleep(POLL_INTERVAL_S)
        finally:
            serving.close()
        said.event("stopped", passed_on=relay.forwarded, missed=relay.missed)


def _configuration(path: Path) -> dict[str, Any]:
    """Read a file of options. Raises OptionError for one that cannot be read or is not right: both are exit code 2."""
    try:
        return read_toml(path)
    except (SetupError, DataFormatError) as error:
        raise OptionError(error.what, remedy=error.remedy) from None


class _StatusPrinter:
    """Says what happens, one line each; that it listens before who has come, however soon that was."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._early: list[tuple[str, dict[str, Any]]] | None = []

    def listening(self, serving: Any) -> None:
        key = self.key(serving.public_key)
        with self._lock:
            for place in serving.addresses:
                self.event("listening", address=place, key=key, aeron_dir=serving.aeron_dir)
            early, self._early = self._early or [], None
            for name, values in early:
                self.event(name, **values)

    def event(self, name: str, **values: Any) -> None:
        if self._as_json:
            print_json({"event": name, "time": iso(time.time()), **values})
        else:
            click.echo(f"{name} " + " ".join(f"{key}={value}" for key, value in values.items()))

    def listen(self, serving: Any) -> None:
        for name in ("connect", "resume", "disconnect"):
            getattr(serving, f"on_{name}")(lambda connection, name=name: self._connection(name, connection))
        serving.on_error(self._error)

    def _connection(self, name: str, connection: Any) -> None:
        values = {
            "id": connection.id, "tag": connection.tag, "key": self.key(connection.key),
            "transport": "ipc" if connection.is_ipc else "udp", "remote_address": connection.remote_address,
            "remote_port": connection.remote_port,
        }  # fmt: skip
        with self._lock:
            if self._early is None:
                self.event(name, **values)
            else:
                self._early.append((name, values))

    def _error(self, connection: Any, error: BaseException) -> None:
        what, remedy = (
            (error.what, error.remedy)
            if isinstance(error, AeronSparkError)
            else (f"{type(error).__name__}: {error}", "")
        )
        number = None if connection is None else connection.id
        self.event("error", id=number, kind=type(error).__name__, what=what, remedy=remedy)

    @staticmethod
    def key(key: bytes) -> str:
        from aeron_spark.protocol.keypair import fingerprint

        return fingerprint(key)
