"""``aeron-spark echo``: server and client of the aeron-guide's Echo protocols, to test NAT and firewalls."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from aeron_spark.cli.main import INTERRUPTED, SuggestingGroup
from aeron_spark.cli.output import aeron_dir_option, json_option, print_json
from aeron_spark.cli.signals import catch_stop_signals
from aeron_spark.errors import OptionError
from aeron_spark.transport.addresses import HostPort

if TYPE_CHECKING:
    from aeron_spark.aeron.client import AeronClient
    from aeron_spark.echo.conversation import EchoEvent, Report

WILDCARDS: Final = ("0.0.0.0", "::")
DRIVER_WAIT_S: Final = 10.0  # for a media driver that the user runs

protocol_option = click.option(
    "--protocol",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="Echo 1.0 or 2.0; both ends need the same.",
)


@click.group(cls=SuggestingGroup)
def echo() -> None:
    """Test whether Aeron's UDP traffic passes NAT and firewalls between two machines, without keys and encryption.

    They speak the Echo protocols of the aeron-guide, and work with its reference programs, too. Echo 1.0 cannot pass
    NAT, Echo 2.0 can. For a check with the keys of a secure server use 'aeron-spark ping'.

    \b
    On one machine, then on the other:
      aeron-spark echo server --listen 0.0.0.0:9000 --duologue-ports 9010
      aeron-spark echo client --connect server.example:9000 --count 3
    """


@echo.command()
@protocol_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    required=True,
    help="Address and UDP port at which the server receives; IPv6 as [::1]:9000.",
)
@click.option(
    "--control",
    metavar="PORT",
    type=int,
    help="Echo 2.0: UDP port at which clients subscribe to responses.  [default: the port of --listen + 1]",
)
@click.option(
    "--duologue-ports",
    metavar="PORT",
    type=int,
    help="Echo 2.0, required: first of the UDP ports of the duologues, the channel pairs of the clients; each client "
    "needs two ports.",
)
@click.option(
    "--clients",
    metavar="N",
    type=click.IntRange(min=1),
    help="Largest number of clients at a time.  [default: 8; Echo 1.0: 64]",
)
@click.option(
    "--per-address",
    metavar="N",
    type=click.IntRange(min=0),
    help="Largest number of clients of one IPv4 address or IPv6 /64 network; 0 for no limit.  [default: 3; Echo 1.0: "
    "no limit]",
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
    """Run an Echo server until SIGINT or SIGTERM. Prints a line for each client and refusal."""
    from aeron_spark.echo.conversation import serve
    from aeron_spark.echo.echo1 import Server1, Server1Settings
    from aeron_spark.echo.echo2 import Server2, Server2Settings

    address = _parse_host_port(listen, "--listen")
    limits = {name: limit for name, limit in (("clients", clients), ("per_address", per_address)) if limit is not None}
    if protocol == "1":
        _refuse_for_echo_1(**{"--control": control, "--duologue-ports": duologue_ports})
        settings1 = Server1Settings(address, **limits)
    else:
        if duologue_ports is None:
            raise OptionError("--duologue-ports is required", remedy="For example --duologue-ports 9010.")
        settings2 = Server2Settings(address, _control_port(address, control), duologue_ports, **limits)
    with catch_stop_signals() as stopped, _aeron_client(aeron_dir) as client:
        stopped.start_polling()
        report = _event_printer(as_json)
        running = Server1(client, settings1, report) if protocol == "1" else Server2(client, settings2, report)
        try:
            serve(running.poll, stopped)
        finally:
            running.close()


@echo.command(name="client")
@protocol_option
@click.option("--connect", metavar="HOST:PORT", required=True, help="The server's address: its --listen.")
@click.option(
    "--control",
    metavar="PORT",
    type=int,
    help="Echo 2.0: the server's --control port.  [default: the port of --connect + 1]",
)
@click.option(
    "--own",
    metavar="HOST:PORT",
    help="Echo 1.0: this client's address, to which the server sends; port 0 for any.  [default: the address that "
    "faces the server, any port]",
)
@click.option(
    "--count",
    "-n",
    metavar="N",
    type=click.IntRange(min=1),
    help="End after N echoes.  [default: one per --send; without --send, run until Ctrl-C]",
)
@click.option(
    "--send", "texts", metavar="TEXT", multiple=True, help="Send this text; repeatable.  [default: random numbers]"
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Time between an echo and the next text.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Longest wait for each step: connecting has several, each echo is one.",
)
@aeron_dir_option
@json_option
@click.pass_context
def client(
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
    """Connect to an Echo server, send texts, and print the time of each echo.

    If a step fails, the error names it: that shows which direction or port is blocked. With --send and without --count,
    each TEXT is sent once. Without both, the command runs until SIGINT or SIGTERM.
    """
    from aeron_spark.echo.conversation import converse, run_steps
    from aeron_spark.echo.echo1 import Client1
    from aeron_spark.echo.echo2 import Client2

    address = _parse_host_port(connect, "--connect")
    if protocol == "1":
        _refuse_for_echo_1(**{"--control": control})
        own_address = _own_address(address, own)
    elif own is not None:
        raise OptionError(
            "--own is for Echo 1.0: in Echo 2.0 the server sends to the port from which the client subscribes",
            remedy="Leave it out.",
        )
    else:
        control = _control_port(address, control)
    echo_count = count or len(texts) or None
    with catch_stop_signals() as stopped, _aeron_client(aeron_dir) as aeron:
        stopped.start_polling()
        echo_client = (
            Client1(aeron, address, own_address, step_timeout_s=timeout)
            if protocol == "1"
            else Client2(aeron, address, control or 0, step_timeout_s=timeout)
        )
        try:
            payloads = _payloads(protocol, texts, echo_count)
            finished = run_steps(converse(echo_client, payloads, interval, _event_printer(as_json)), stopped)
        finally:
            echo_client.close()
    if finished is None and echo_count is not None:
        click.echo(f"interrupted before {echo_count} echoes were received", err=True)
        ctx.exit(INTERRUPTED)


def _payloads(protocol: str, texts: tuple[str, ...], count: int | None) -> Iterator[bytes]:
    """Yield the texts in turn, or random numbers as the reference clients send them; ``count`` of them or endlessly."""
    for number in itertools.count() if count is None else range(count):
        if texts:
            yield os.fsencode(texts[number % len(texts)])
        elif protocol == "1":
            yield b"%d" % secrets.randbits(32)
        else:
            yield b"%x" % secrets.randbits(64)


def _parse_host_port(text: str, option: str, *, any_port: bool = False) -> HostPort:
    try:
        parsed = HostPort.parse(text)
    except ValueError as error:
        raise OptionError(f"{option} {text!r} {error}", remedy="Give it like 127.0.0.1:9000 or [::1]:9000.") from None
    if parsed.port == 0 and not any_port:
        raise OptionError(f"{option} {text!r} has port 0, expected 1 to 65535", remedy="Give the port.")
    return parsed


def _control_port(address: HostPort, port: int | None) -> int:
    control = address.port + 1 if port is None else port
    if not 0 < control <= 65535:
        raise OptionError(f"--control is {control}, expected a port from 1 to 65535", remedy="Give another port.")
    return control


def _refuse_for_echo_1(**flags: int | None) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise OptionError(f"{flag} is for Echo 2.0: Echo 1.0 has one port", remedy="Leave it out.")


def _own_address(server: HostPort, text: str | None) -> HostPort:
    """Return the address at which a client of Echo 1.0 receives; by default this host's that faces the server."""
    from aeron_spark.direct.archive_recordings import facing_address

    if text is None:
        return HostPort.parse(f"{facing_address(str(server))}:0")
    own = _parse_host_port(text, "--own", any_port=True)
    if own.host in WILDCARDS and own.port == 0:
        raise OptionError(f"--own {text} has neither an address nor a port", remedy="Give one of them.")
    return own


def _event_printer(as_json: bool) -> Report:
    def report(event: EchoEvent) -> None:
        if as_json:
            print_json({"event": event.name, **asdict(event)})
        else:
            click.echo(str(event))

    return report


@contextmanager
def _aeron_client(aeron_dir: str | None) -> Iterator[AeronClient]:
    """Yield an Aeron client of this machine's media driver; start a node if none runs and one belongs there."""
    from aeron_spark import node
    from aeron_spark.aeron.client import AeronClient

    with node.ensure(aeron_dir, wait_s=DRIVER_WAIT_S) as handle:
        client = AeronClient(handle.aeron_dir)
        try:
            yield client
        finally:
            client.close()
