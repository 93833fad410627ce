"""``aeron-spark ping``: connects to a secure server, shows its key, and measures the round trip."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from typing import Any

import click

from aeron_spark.cli.arguments import EndpointCommand, client_command, endpoint_flags, read_client_flags
from aeron_spark.cli.main import INTERRUPTED
from aeron_spark.cli.output import json_option, print_json
from aeron_spark.cli.signals import catch_stop_signals, operation
from aeron_spark.options import ClientOptions


@click.command(cls=EndpointCommand)
@client_command
@click.option("--count", "-n", type=click.IntRange(min=1), default=4, show_default=True, help="Number of pings.")
@click.option(
    "--interval", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS",
    help="Time between two pings.",
)  # fmt: skip
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
    from aeron_spark.client.opening import connect
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
