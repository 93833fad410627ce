"""``send`` and ``receive`` through a secure server: messages of bytes, to and from the other clients."""

from __future__ import annotations

import base64
import queue
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Final

import click

from aeron_spark.cli.arguments import client_arguments
from aeron_spark.cli.formats import format_of
from aeron_spark.cli.inputs import read_input
from aeron_spark.cli.output import print_json, progress
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import AeronSparkError, DataFormatError, WaitTimeout

POLL_INTERVAL_S: Final = 0.1  # seconds between two looks at whether to stop
WAITING_MOST: Final = 10_000  # messages received and not written yet: then the server is held up


def send_through(given: Mapping[str, str], sources: tuple[str, ...], form: str | None, stopped: StopRequest) -> int:
    """Send each message of ``sources``; return how many, once the server has them all."""
    from aeron_spark.client.opening import connect

    address, options = client_arguments(given)
    sent = 0
    with connect(address, **options) as client, progress("sending", None) as advance:
        stopped.begin()
        try:
            for name in sources:
                for piece in read_input(name, format_of(name, form), True, stopped):
                    if "value" not in piece.rows.schema.names:
                        raise DataFormatError(
                            "messages are a column 'value', and rows have others",
                            remedy="Name a stream of the server with --stream: it takes rows.",
                        )
                    values = [value for value in piece.rows.column("value").to_pylist() if value is not None]
                    client.send_many(values)
                    sent += len(values)
                    advance(len(values), piece.size)
            client.send("aeron-spark sent", acknowledge=True)
        except AeronSparkError:
            if sent:
                click.echo(f"aeron-spark: {sent} messages were handed over before this:", err=True)
            raise
    return sent


def receive_through(
    given: Mapping[str, str], *, count: int | None, timeout: float | None, as_json: bool, stopped: StopRequest
) -> int:
    """Write what other clients send until ``count``, ``timeout`` seconds without a message, or a signal."""
    from aeron_spark.client.opening import connect
    from aeron_spark.server.relay import SUBSCRIBE

    address, options = client_arguments(given)
    came = _Arrivals()
    received = 0
    with connect(address, **options) as client, closing(came):
        client.on_message(bytes, came.put)
        client.on_resume(lambda connection: connection.send(SUBSCRIBE))
        client.send(SUBSCRIBE, acknowledge=True)
        last = time.monotonic()
        stopped.begin()
        while not stopped() and received != count:
            message = came.get()
            if message is None:
                if timeout is not None and time.monotonic() - last >= timeout:
                    break
                continue
            last = time.monotonic()
            received += 1
            _write(message, as_json)
    if count is not None and received < count and not stopped():
        raise WaitTimeout(
            f"{received} of {count} messages came, and no more for {timeout:g} s", remedy="Look whether anybody sends."
        )
    return received


class _Arrivals:
    """The messages that were received and not written yet: a thread of the client puts them, the main thread gets them.

    A full queue holds the client's thread up, until ``close``. Python waits at its end for that thread, so that a
    ``put`` without an end would keep the process.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue(WAITING_MOST)
        self._closed = False

    def put(self, message: bytes) -> None:
        """Keep a message, once there is room; drop it where nothing is written any more."""
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(message, timeout=POLL_INTERVAL_S)
                return

    def get(self) -> bytes | None:
        """Return the next message; None where none comes within ``POLL_INTERVAL_S`` seconds."""
        try:
            return self._queue.get(timeout=POLL_INTERVAL_S)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Hold the client's thread up no longer."""
        self._closed = True


def _write(message: bytes, as_json: bool) -> None:
    if not as_json:
        sys.stdout.buffer.write(message + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        print_json({"value": message.decode()})
    except UnicodeDecodeError:
        print_json({"valueBase64": base64.b64encode(message).decode()})
