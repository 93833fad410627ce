"""``aeron-spark echo``: the two text protocols of the aeron-guide, to try a path through NAT and firewalls."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from aeron_spark.cli.arguments import INTERRUPTED
from aeron_spark.cli.main import NearestNames
from aeron_spark.cli.output import aeron_dir_option, json_option, print_json
from aeron_spark.cli.signals import stopping
from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import HostPort

if TYPE_CHECKING:
    from aeron_spark.aeron.client import Client
    from aeron_spark.echo.reports import EchoEvent, Report

WILDCARDS: Final = ("0.0.0.0", "::")

protocol_option = click.option(
    "--protocol", type=click.Choice(["1", "2"]), default="2", show_default=True, help="Echo 1.0 or 2.0."
)


@click.group(cls=NearestNames)
def echo() -> None:
    """Serve Echo 1.0 or 2.0, or ask such a server: does Aeron get through from here to there, and back?

    The reference servers and clients of the aeron-guide can be at the other end.
    """


@echo.command()
@protocol_option
@click.option("--listen", metavar="HOST:PORT", required=True, help="Where clients send to; IPv6 as [::1]:9000.")
@click.option("--control", metavar="PORT", type=int, help="2.0: where answers are published.  [default: PORT + 1]")
@click.option("--duologue-ports", metavar="PORT", type=int, help="2.0: the first of two ports for each client.")
@click.option("--clients", metavar="N", type=click.IntRange(min=1), help="Clients at a time.  [default: 8; 1.0: 64]")
@click.option(
    "--per-address",
    metavar="N",
    type=click.IntRange(min=0),
    help="Clients of one IPv4 address or IPv6 /64; 0 is no limit.  [default: 3; 1.0: no limit]",
)
@aeron_dir_option
@json_option
def server(
    protocol: str,
    listen: str,
    control: int | None,
    duologue_ports: int | None,
    clients: int | None,
    per_address: int | None,
    aeron_dir: str | None,
    as_json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM, and say who comes and goes."""
    from aeron_spark.echo.conversation import serve
    from aeron_spark.echo.echo1 import Server1, Server1Settings
    from aeron_spark.echo.echo2 import Server2, Server2Settings

    address = _endpoint(listen, "--listen")
    limits = {name: given for name, given in (("clients", clients), ("per_address", per_address)) if given is not None}
    if protocol == "1":
        _refuse_for_1(**{"--control": control, "--duologue-ports": duologue_ports})
        settings1 = Server1Settings(address, **limits)
    else:
        if duologue_ports is None:
            raise OptionError("--duologue-ports is required", remedy="For example --duologue-ports 9010.")
        settings2 = Server2Settings(address, _control(address, control), duologue_ports, **limits)
    with stopping() as stopped, _client(aeron_dir) as client:
        stopped.begin()
        report = _reporter(as_json)
        running = Server1(client, settings1, report) if protocol == "1" else Server2(client, settings2, report)
        try:
            serve(running, stopped)
        finally:
            running.close()


@echo.command(name="client")
@protocol_option
@click.option("--connect", metavar="HOST:PORT", required=True, help="Where the server listens.")
@click.option("--control", metavar="PORT", type=int, help="2.0: where it publishes answers.  [default: PORT + 1]")
@click.option("--own", metavar="HOST:PORT", help="1.0: where the server shall send to.  [default: any port here]")
@click.option("--count", "-n", metavar="N", type=click.IntRange(min=1), help="End after so many echoes.")
@click.option("--send", "texts", metavar="TEXT", multiple=True, help="Send this, and not random texts; repeatable.")
@click.option(
    "--interval", metavar="SECONDS", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Between two."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="For each step.",
)
@aeron_dir_option
@json_option
@click.pass_context
def ask(
    ctx: click.Context,
    protocol: str,
    connect: str,
    control: int | None,
    own: str | None,
    count: int | None,
    texts: tuple[str, ...],
    interval: float,
    timeout: float,
    aeron_dir: str | None,
    as_json: bool,
) -> None:
    """Connect, send a text each second, and see each come back.

    With --send and without --count each TEXT is sent once; without both it ends at SIGINT or SIGTERM.
    """
    from aeron_spark.echo.conversation import conversation, drive
    from aeron_spark.echo.echo1 import Client1
    from aeron_spark.echo.echo2 import Client2

    address = _endpoint(connect, "--connect")
    if protocol == "1":
        _refuse_for_1(**{"--control": control})
        here = _own(address, own)
    elif own is not None:
        raise OptionError("--own is for Echo 1.0: a client of 2.0 has no port of its own", remedy="Leave it out.")
    else:
        control = _control(address, control)
    wanted = count or len(texts) or None
    with stopping() as stopped, _client(aeron_dir) as aeron:
        stopped.begin()
        asking = (
            Client1(aeron, address, here, step_seconds=timeout)
            if protocol == "1"
            else Client2(aeron, address, control or 0, step_seconds=timeout)
        )
        try:
            talk = conversation(asking, _payloads(protocol, texts, wanted), interval, _reporter(as_json))
            done = drive(talk, stopped)
        finally:
            asking.close()
    if done is None and wanted is not None:
        click.echo(f"interrupted before {wanted} echoes had come", err=True)
        ctx.exit(INTERRUPTED)


def _payloads(protocol: str, texts: tuple[str, ...], count: int | None) -> Iterator[bytes]:
    """What is sent: the texts in turn, or what the reference clients send."""
    for number in itertools.count() if count is None else range(count):
        if texts:
            yield os.fsencode(texts[number % len(texts)])
        elif protocol == "1":
            yield b"%d" % secrets.randbits(32)
        else:
            yield b"%x" % secrets.randbits(64)


def _endpoint(text: str, option: str, *, any_port: bool = False) -> HostPort:
    try:
        found = HostPort.parse(text)
    except ValueError as error:
        raise OptionError(f"{option} {text!r} {error}", remedy="For example 127.0.0.1:9000, or [::1]:9000.") from None
    if found.port == 0 and not any_port:
        raise OptionError(f"{option} {text!r} has the port 0", remedy="Name one of 1 to 65535.")
    return found


def _control(address: HostPort, port: int | None) -> int:
    found = address.port + 1 if port is None else port
    if not 0 < found <= 65535:
        raise OptionError(f"--control {found} is no port", remedy="Name one of 1 to 65535.")
    return found


def _refuse_for_1(**given: int | None) -> None:
    for option, value in given.items():
        if value is not None:
            raise OptionError(f"{option} is for Echo 2.0: 1.0 has one port", remedy="Leave it out.")


def _own(server: HostPort, given: str | None) -> HostPort:
    """Where a client of Echo 1.0 listens: on the way to the server, unless it was told."""
    from aeron_spark.direct.archives import facing_address

    if given is None:
        return HostPort.parse(f"{facing_address(str(server))}:0")
    own = _endpoint(given, "--own", any_port=True)
    if own.host in WILDCARDS and own.port == 0:
        raise OptionError(f"--own {given} names neither an address nor a port", remedy="Name one of them.")
    return own


def _reporter(as_json: bool) -> Report:
    def report(event: EchoEvent) -> None:
        if as_json:
            print_json({"event": event.name, **asdict(event)})
        else:
            click.echo(str(event))

    return report


@contextmanager
def _client(aeron_dir: str | None) -> Iterator[Client]:
    """An Aeron client of this machine's media driver, started where there is none."""
    from aeron_spark import node
    from aeron_spark.aeron.client import Client

    with node.ensure(aeron_dir) as handle:
        client = Client(handle.aeron_dir)
        try:
            yield client
        finally:
            client.close()
