"""``aeron-spark bench``: what a secure server bears."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aeron_spark.cli.arguments import INTERRUPTED, client_command, client_given, table_options
from aeron_spark.cli.main import FAILED, NearestNames
from aeron_spark.cli.output import json_option, print_json, print_table
from aeron_spark.cli.signals import stopping
from aeron_spark.options import ClientOptions

if TYPE_CHECKING:
    from aeron_spark.client.load import LoadReport, Spread
    from aeron_spark.protocol.access import PeerStore


@click.group(cls=NearestNames)
def bench() -> None:
    """Put a load on a secure server, and see how it fares."""


@bench.command()
@client_command
@click.option("--clients", type=click.IntRange(min=1), default=10, show_default=True, help="How many clients.")
@click.option(
    "--messages", type=click.IntRange(min=0), default=0, show_default=True, help="Messages that each client sends."
)
@click.option("--size", type=click.IntRange(min=0), default=200, show_default=True, help="Bytes of a message.")
@click.option(
    "--hold", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="SECONDS",
    help="How long they stay, each with a ping a second.",
)  # fmt: skip
@click.option(
    "--at-once", type=click.IntRange(min=1), default=8, show_default=True, help="How many connect at the same time."
)
@table_options(ClientOptions)
@json_option
@click.pass_context
def load(
    ctx: click.Context, /, address: str | None, clients: int, messages: int, size: int, hold: float, at_once: int,
    as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Open many clients to the server at HOST:PORT, with handshake and encryption; let them send, stay, and leave.

    All of them are in this process, and from this address: the server's limits for one address apply. Each has a key
    of its own, made for it, unless --identity names one for all: a server has a limit for one key, too.
    """
    from aeron_spark.client.load import LoadPlan, run_load
    from aeron_spark.client.opening import Client

    plan = LoadPlan(clients, messages, size, hold, at_once)
    server, options = client_given(address, given)
    checked = ClientOptions.parse(server, options)
    with stopping() as stopped, _bars() as advance:
        stopped.begin()
        report = run_load(lambda number: Client.to(server, store=_store(checked), **options), plan, stopped, advance)
        interrupted = stopped()
    if as_json:
        print_json(report)
    else:
        _show(report)
    if interrupted:
        ctx.exit(INTERRUPTED)
    if report.failures:
        ctx.exit(FAILED)


def _store(given: ClientOptions) -> PeerStore | None:
    """The user's own known servers, beside a key that nobody had before; None for the usual where a key is named."""
    from aeron_spark import node
    from aeron_spark.keys.stores import FilePeerStore, KeyPaths
    from aeron_spark.protocol.keypair import new_keypair

    if given.identity is not None:
        return None
    places = KeyPaths.below(node.config_home(os.environ))
    if given.known_servers:
        places = replace(places, known_servers=Path(given.known_servers))
    return FilePeerStore(places, new_keypair(secrets.token_bytes))


def _show(report: LoadReport) -> None:
    rows: list[tuple[object, ...]] = [
        ("clients connected", f"{report.connected:,} of {report.clients:,}"),
        ("connecting", _times(report.connect)),
        ("round trip", _times(report.ping)),
    ]
    if report.messages:
        rows.append(("messages delivered", f"{report.messages:,} of {report.size:,} B"))
        rows.append(("messages a second", f"{report.messages_per_second:,.0f}"))
    rows.append(("seconds in all", f"{report.seconds:.1f}"))
    print_table("Load", ("what", "result"), rows, empty="")
    for failure in report.failures:
        click.echo(f"{failure.count} x {failure.error}: {failure.first}", err=True)


def _times(spread: Spread | None) -> str | None:
    if spread is None:
        return None
    return f"median {spread.median * 1e3:.2f} ms, p99 {spread.p99 * 1e3:.2f} ms, longest {spread.longest * 1e3:.2f} ms"


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows a bar for each thing that is done, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield advance
