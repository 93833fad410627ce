"""``aeron-spark ping``: is a secure endpoint there, who is it, and how far away?"""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from typing import Any

import click

from aeron_spark.cli.arguments import INTERRUPTED, client_command, client_given, table_options
from aeron_spark.cli.output import json_option, print_json
from aeron_spark.cli.signals import operation, stopping
from aeron_spark.options import ClientOptions


@click.command()
@client_command
@click.option("--count", "-n", type=click.IntRange(min=1), default=4, show_default=True, help="How many pings.")
@click.option(
    "--interval", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS", help="Between two."
)
@table_options(ClientOptions)
@json_option
@click.pass_context
def ping(ctx: click.Context, /, address: str | None, count: int, interval: float, as_json: bool, **given: Any) -> None:
    """Connect to the server at HOST:PORT, with handshake and encryption, and measure the round trip to it."""
    from aeron_spark.client.opening import connect
    from aeron_spark.protocol.keypair import fingerprint

    server, options = client_given(address, given)
    with stopping() as stopped, operation():
        begun = time.perf_counter()
        with connect(server, **options) as client:
            took = time.perf_counter() - begun
            connection = client.connection
            transport = "ipc" if connection.is_ipc else "udp"
            if as_json:
                said = {"seconds": took, "server_key": fingerprint(client.server_key), "id": connection.id}
                changed = connection.remote_key_changed
                print_json({"event": "connect", **said, "transport": transport, "remote_key_changed": changed})
            else:
                click.echo(
                    f"connected to {server} over {transport} in {took * 1e3:.1f} ms, {fingerprint(client.server_key)}"
                )
            trips: list[float] = []
            with suppress(KeyboardInterrupt):  # the pings that were answered are summed up
                for number in range(count):
                    if number:
                        time.sleep(interval)
                    trips.append(client.ping())
                    if as_json:
                        print_json({"event": "ping", "number": number + 1, "seconds": trips[-1]})
                    else:
                        click.echo(f"ping {number + 1}: {trips[-1] * 1e3:.3f} ms")
        if not as_json and trips:
            shortest, median, longest = (f(trips) * 1e3 for f in (min, statistics.median, max))
            click.echo(
                f"{len(trips)} pings: shortest {shortest:.3f} ms, median {median:.3f} ms, longest {longest:.3f} ms"
            )
        if stopped():
            ctx.exit(INTERRUPTED)
