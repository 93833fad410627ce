"""``aeron-spark server [HOST:PORT]`` runs a secure server; ``server check`` checks its configuration and machine."""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from aeron_spark.cli.arguments import EndpointCommand, endpoint_flags, merged_server_options
from aeron_spark.cli.main import FAILED, WRONG_COMMAND_LINE
from aeron_spark.cli.output import json_option, print_json
from aeron_spark.cli.signals import StopRequest, catch_stop_signals
from aeron_spark.errors import AeronSparkError, OptionError, RefusedError
from aeron_spark.options import ServerOptions
from aeron_spark.process import FreePages, return_large_buffers
from aeron_spark.texts import format_time

if TYPE_CHECKING:
    from aeron_spark.server.command_server import CommandServer
    from aeron_spark.server.preflight import Finding


@click.command(cls=EndpointCommand)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--config", metavar="FILE", type=click.Path(path_type=Path), help="The server's TOML file.")
@endpoint_flags(ServerOptions, hidden=True)
@json_option
def check(address: str | None, config: Path | None, as_json: bool, **flags: Any) -> int:
    """Check a server's configuration and this machine. Starts nothing and changes nothing.

    Takes the same command line as 'aeron-spark server', with all its options.

    Prints one finding a line: ok, warning or error, and what to do. The exit code is 0, or 2 if a finding is an error:
    a server with this configuration would not start.

    \b
    For example, before an upgrade or a restart:
      aeron-spark server check --config /etc/aeron-spark/server.toml
    """
    findings = findings_of(address, config, flags)
    for one in findings:
        if as_json:
            print_json(one)
        else:
            click.echo(f"{one.level}: {one.subject}: {one.what}{f'. {one.remedy}' if one.remedy else ''}")
    return WRONG_COMMAND_LINE if any(one.level == "error" for one in findings) else 0


def findings_of(address: str | None, config: Path | None, flags: dict[str, Any]) -> Sequence[Finding]:
    """Return the findings about a server's command line and configuration file."""
    from aeron_spark.keys.key_files import read_shared_secret
    from aeron_spark.server.preflight import Finding, Preflight

    try:
        parsed = ServerOptions.parse(*merged_server_options(address, config, flags))
        read_shared_secret(parsed.shared_secret_file)
    except AeronSparkError as error:
        return [Finding("error", "options", error.what, error.remedy)]
    is_given = address is not None or any(value is not None for value in flags.values())
    sources = [*(["the command line"] if is_given else []), *([str(config)] if config is not None else [])]
    read = f"{' and '.join(sources)} can be used" if sources else "the defaults are used"
    return [Finding("ok", "options", read), *Preflight(parsed).findings()]


COMMAND_NAMES: Final = ("backup", "check", "reload", "restore", "status", "verify")
CUT_OFF_TIMEOUT_S: Final = 5.0  # for the end of a server whose work was cut off
NODE_USE_TIMEOUT_S: Final = 3.0  # for the media driver to notice that this process does not use it any more
# Each thread that computes delays the event loop by this time; with Python's 5 ms, eight threads of one client's calls
# delayed the pings of others by 40 ms.
SWITCH_INTERVAL_S: Final = 0.0005
POLL_INTERVAL_S: Final = 0.1  # interval at which the main thread checks for a signal


class HangUps:
    """Whether SIGHUP was received. Takes no lock: the interrupted thread may hold it."""

    def __init__(self) -> None:
        self._is_received = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self._is_received = True

    def take(self) -> bool:
        """Return whether the signal was received since the last call."""
        was_received, self._is_received = self._is_received, False
        return was_received


class RunCommand(EndpointCommand):
    """The command that runs a server. It has no name: usage and errors say ``aeron-spark server``."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if parent is not None:
            info_name, parent = parent.info_name, parent.parent
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=RunCommand)
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML file with options, spelled as in docs/options.md, such as maxConnections = 100. Its 'bind' is the "
    "address. An option may not be in FILE and on the command line.",
)
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
) -> int:
    """Run a secure server on HOST:PORT (default 0.0.0.0:20121) until SIGINT or SIGTERM.

    Clients write and read its durable streams ('aeron-spark streams create' makes one). Without a stream, the server
    relays messages: those of 'aeron-spark send --server' to all clients that run 'aeron-spark receive --server'.

    Standard output has one line for each address on which the server listens. Standard error has the log: one line for
    each event, which docs/events.md lists.

    SIGHUP and 'aeron-spark server reload' reload the configuration and the clients file. SIGTERM and SIGINT let the
    running commits and calls finish first, for --drain-timeout at most; a second signal ends the server at once. The
    exit code is 0, or 1 if work was cut off.

    \b
    For example, for the clients whose keys a file authorises:
      aeron-spark server 0.0.0.0:20121 --authorized-keys /etc/aeron-spark/authorized_keys
    """
    from aeron_spark.server.command_server import CommandServer

    _refuse_command_name(address)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return_large_buffers()
    given_address = address
    address, options = merged_server_options(address, config, flags)
    with catch_stop_signals() as stopped, _hang_up_requests() as hang_ups:
        is_complete = True
        try:
            running = CommandServer(
                address,
                options,
                config,
                lambda: ServerOptions.parse(*merged_server_options(given_address, config, flags)),
            )
            is_complete = _serve(running, stopped, hang_ups, as_json=as_json)
        except KeyboardInterrupt:
            is_starting = not stopped.is_polled
            if stopped.number != signal.SIGTERM or not is_starting:
                raise
    if not is_complete:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILED)  # the end of the process would wait for the threads of the work that was cut off
    return 0


def _serve(running: CommandServer, stopped: StopRequest, hang_ups: HangUps, *, as_json: bool) -> bool:
    """Serve until a signal, and end the server. Return whether its work was finished.

    A signal during the start raises KeyboardInterrupt, after the end of the server.
    """
    manager = running.service_manager
    is_complete = True
    try:
        manager.start()  # here, because a signal after its first report must have the report of the end
        running.start()
        stopped.start_polling()
        _print_listening(running, as_json=as_json)
        _await_end(running, stopped, hang_ups)
        manager.report_stopping()
        is_complete = _drain(running)
    except KeyboardInterrupt:
        manager.report_stopping()
        raise
    finally:
        _close(running, is_complete=is_complete)
        manager.close()
        _stop_node(running)
    return is_complete


def _close(running: CommandServer, *, is_complete: bool) -> None:
    """Close the server. A part of it that waits for work that was cut off is abandoned after some seconds."""
    if is_complete:
        running.close()
        return
    closing = threading.Thread(target=running.close, name="aeron-spark-close", daemon=True)
    closing.start()
    closing.join(CUT_OFF_TIMEOUT_S)


def _await_end(running: CommandServer, stopped: StopRequest, hang_ups: HangUps) -> None:
    """Wait for a signal to end, or until the server is closed. SIGHUP reloads."""
    free_pages = FreePages()
    while not stopped() and not running.closed:
        free_pages.return_if_due()
        running.report_ready_once()
        if hang_ups.take():
            running.try_reload()
        time.sleep(POLL_INTERVAL_S)


@contextmanager
def _hang_up_requests() -> Iterator[HangUps]:
    """Yield an object that is set at SIGHUP."""
    requests = HangUps()
    before = signal.signal(signal.SIGHUP, requests.handle)
    try:
        yield requests
    finally:
        signal.signal(signal.SIGHUP, before)


def _drain(running: CommandServer) -> bool:
    """Let the server finish its work; a second signal ends that. Return whether the work was finished."""
    try:
        return running.drain()
    except KeyboardInterrupt:
        return not running.unfinished_work


def _stop_node(running: CommandServer) -> None:
    """Stop the media driver if this server has started it, unless another process uses it."""
    from aeron_spark import node
    from aeron_spark.aeron.client import close_client

    if not running.is_node_started_here:
        return
    close_client(running.aeron_dir)
    try:
        node.stop(running.aeron_dir, timeout=NODE_USE_TIMEOUT_S)
    except RefusedError:  # it stops after its last user
        pass
    except AeronSparkError as error:
        click.echo(f"aeron-spark: warning: {error}", err=True)


def _refuse_command_name(address: str | None) -> None:
    """Raise OptionError for an address that resembles the name of another command of the server."""
    nearest = difflib.get_close_matches(address or "", COMMAND_NAMES, n=1, cutoff=0.7)
    if nearest:
        raise OptionError(
            f"{address!r} is not an address",
            remedy=f"Did you mean 'aeron-spark server {nearest[0]}'? An address is HOST:PORT.",
        )


def _print_listening(running: CommandServer, *, as_json: bool) -> None:
    """Print a line for each address: programs that start a server wait for it."""
    from aeron_spark.protocol.keypair import fingerprint

    for address in running.addresses:
        values = {"address": address, "key": fingerprint(running.public_key), "aeron_dir": running.aeron_dir}
        if as_json:
            print_json({"event": "listening", "time": format_time(time.time()), **values})
        else:
            click.echo("listening " + " ".join(f"{name}={value}" for name, value in values.items()))
