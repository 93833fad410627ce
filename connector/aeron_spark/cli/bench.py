"""``aeron-spark ping`` and ``bench``: measure a round trip, and a server under the load of many clients."""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import EndpointCommand, client_command, endpoint_flags, read_client_flags
from aeron_spark.cli.main import FAILED, INTERRUPTED, SuggestingGroup
from aeron_spark.cli.output import json_option, print_json, print_table, table_options
from aeron_spark.cli.signals import catch_stop_signals, operation
from aeron_spark.options import ClientOptions

if TYPE_CHECKING:
    from aeron_spark.client.load import LoadReport, Spread
    from aeron_spark.protocol.access import PeerStore


@click.command(cls=EndpointCommand)
@client_command
@click.option("--count", "-n", type=click.IntRange(min=1), default=4, show_default=True, help="Number of pings.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two pings.",
)
@endpoint_flags(ClientOptions)
@json_option
@click.pass_context
def ping(ctx: click.Context, /, address: str | None, count: int, interval: float, as_json: bool, **flags: Any) -> None:
    """Connect to the secure server at HOST:PORT and measure the round trip. Tests address, firewall and keys.

    The connection is a full one, with handshake and encryption. The output has the fingerprint of the server's key.

    \b
    For example:
      aeron-spark ping feeds.example:20121
    """
    from aeron_spark.client.client import connect
    from aeron_spark.protocol.keypair import fingerprint

    server, options = read_client_flags(address, flags)
    with catch_stop_signals() as stopped, operation():
        start = time.perf_counter()
        with connect(server, **options) as client:
            connect_s = time.perf_counter() - start
            connection = client.connection
            server_key = fingerprint(client.server_key)
            transport = "ipc" if connection.is_ipc else "udp"
            if as_json:
                print_json(
                    {
                        "event": "connect",
                        "seconds": connect_s,
                        "server_key": server_key,
                        "id": connection.id_text,
                        "transport": transport,
                        "remote_key_changed": connection.remote_key_changed,
                    }
                )
            else:
                click.echo(f"connected to {server} over {transport} in {connect_s * 1e3:.1f} ms, {server_key}")
            round_trips_s: list[float] = []
            with suppress(KeyboardInterrupt):  # a signal ends the pings; the summary follows
                for number in range(count):
                    if number:
                        time.sleep(interval)
                    round_trips_s.append(client.ping())
                    if as_json:
                        print_json({"event": "ping", "number": number + 1, "seconds": round_trips_s[-1]})
                    else:
                        click.echo(f"ping {number + 1}: {round_trips_s[-1] * 1e3:.3f} ms")
        if not as_json and round_trips_s:
            shortest, median, longest = (f(round_trips_s) * 1e3 for f in (min, statistics.median, max))
            times = f"shortest {shortest:.3f} ms, median {median:.3f} ms, longest {longest:.3f} ms"
            click.echo(f"{len(round_trips_s)} pings: {times}")
        if stopped():
            ctx.exit(INTERRUPTED)


@click.group(cls=SuggestingGroup)
def bench() -> None:
    """Measure a secure server under load. For operators who size a server; do not use it on one in production."""


@bench.command(cls=EndpointCommand)
@client_command
@click.option(
    "--clients", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Number of clients."
)
@click.option(
    "--messages",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of messages that each client sends.",
)
@click.option(
    "--size", type=click.IntRange(min=0), default=200, show_default=True, metavar="BYTES", help="Size of a message."
)
@click.option(
    "--hold",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for which the clients stay connected after their messages; each sends a ping per second.",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="Number of clients that connect at the same time.",
)
@endpoint_flags(ClientOptions)
@table_options
@click.pass_context
def load(
    ctx: click.Context,
    /,
    address: str | None,
    clients: int,
    messages: int,
    size: int,
    hold: float,
    at_once: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """Connect many clients to a server, send messages, and report times and throughput.

    All clients run in this process and have its address, so the server's limits per address apply. Each client has a
    new key; with --identity all share that key, and the server's limit per key applies. The exit code is 1 if a client
    failed.

    \b
    For example, 100 clients with 1,000 messages each, which then stay for 30 s:
      aeron-spark bench load feeds.example:20121 --clients 100 --messages 1000 --hold 30
    """
    from aeron_spark.client.client import Client
    from aeron_spark.client.load import LoadPlan, run_load

    plan = LoadPlan(clients, messages, size, hold, at_once)
    server, options = read_client_flags(address, flags)
    parsed = ClientOptions.parse(server, options)
    with catch_stop_signals() as stopped, _progress_bars() as advance:
        stopped.start_polling()
        report = run_load(lambda number: Client.to(server, store=_store(parsed), **options), plan, stopped, advance)
        interrupted = stopped()
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if interrupted:
        ctx.exit(INTERRUPTED)
    if report.failures:
        ctx.exit(FAILED)


def _store(options: ClientOptions) -> PeerStore | None:
    """Return the user's known servers with a new key, or None (the user's own store) if an identity is given."""
    from aeron_spark import node
    from aeron_spark.keys.stores import FilePeerStore, KeyPaths
    from aeron_spark.protocol.keypair import new_keypair

    if options.identity is not None:
        return None
    key_paths = KeyPaths.below(node.config_home(os.environ))
    if options.known_servers:
        key_paths = replace(key_paths, known_servers=Path(options.known_servers))
    return FilePeerStore(key_paths, new_keypair(secrets.token_bytes))


def _print_report(report: LoadReport) -> None:
    rows: list[tuple[object, ...]] = [
        ("clients connected", f"{report.connected:,} of {report.clients:,}"),
        ("time to connect", _spread_text(report.connect)),
        ("round trip", _spread_text(report.ping)),
    ]
    if report.messages:
        rows.append(("messages delivered", f"{report.messages:,} of {report.size:,} B"))
        rows.append(("messages per second", f"{report.messages_per_second:,.0f}"))
    rows.append(("total seconds", f"{report.seconds:.1f}"))
    print_table("load", ("measure", "result"), rows, empty="")
    for failure in report.failures:
        click.echo(f"{failure.count} clients failed with {failure.error}; the first error: {failure.first}", err=True)


def _spread_text(spread: Spread | None) -> str | None:
    if spread is None:
        return None
    return f"median {spread.median * 1e3:.2f} ms, p99 {spread.p99 * 1e3:.2f} ms, longest {spread.longest * 1e3:.2f} ms"


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows a progress bar for each phase of the load, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda phase, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def advance(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done)

        yield advance
