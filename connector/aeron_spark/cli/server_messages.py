"""``send`` and ``receive`` through a server without a stream: the server relays messages between its clients."""

from __future__ import annotations

import base64
import queue
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Final

import click

from aeron_spark.cli.formats import format_of
from aeron_spark.cli.inputs import read_input
from aeron_spark.cli.output import print_json, progress
from aeron_spark.cli.signals import StopRequest
from aeron_spark.client.named_streams import split_server
from aeron_spark.errors import AeronSparkError, DataFormatError, WaitTimeout

POLL_INTERVAL_S: Final = 0.1  # interval at which a wait checks for a signal
QUEUE_LIMIT: Final = 10_000  # messages that wait to be written; further ones cause back-pressure to the server


def send_through(options: Mapping[str, str], sources: tuple[str, ...], form: str | None, stopped: StopRequest) -> int:
    """Send each message of the files ``sources``. Return their number when the server has acknowledged them all."""
    from aeron_spark.client.opening import connect

    address, connection_options = split_server(options)
    sent = 0
    with connect(address, **connection_options) as client, progress("sending", None) as advance:
        stopped.start_polling()
        try:
            for name in sources:
                for batch in read_input(name, format_of(name, form), True, stopped):
                    if "value" not in batch.rows.schema.names:
                        columns = ", ".join(batch.rows.schema.names) or "no column"
                        raise DataFormatError(
                            f"messages need a column 'value', but the input has {columns}",
                            remedy="Send rows to a named stream of the server: add --stream NAME.",
                        )
                    values = [value for value in batch.rows.column("value").to_pylist() if value is not None]
                    if values:
                        client.send_many(values[:-1])
                        client.send(values[-1], acknowledge=True)  # confirms those before it, too
                    sent += len(values)
                    advance(len(values), batch.size)
        except AeronSparkError:
            if sent:
                click.echo(f"aeron-spark: {sent} messages were confirmed before this error:", err=True)
            raise
    return sent


def receive_through(
    options: Mapping[str, str], *, count: int | None, timeout: float | None, as_json: bool, stopped: StopRequest
) -> int:
    """Write the messages that other clients send. Return their number.

    Ends after ``count`` messages, after ``timeout`` seconds without a message, or at a signal. Raises WaitTimeout if
    the time is over before ``count`` messages came.
    """
    from aeron_spark.client.opening import connect
    from aeron_spark.server.relay import SERVICE

    address, connection_options = split_server(options)
    messages = _MessageQueue()
    received = 0
    with connect(address, **connection_options) as client, closing(messages):
        client.on_message(bytes, messages.put)
        client.on_resume(lambda connection: connection.remote(SERVICE).subscribe())
        client.remote(SERVICE).subscribe()
        last_message_at = time.monotonic()
        stopped.start_polling()
        while not stopped() and received != count:
            message = messages.get()
            if message is None:
                if timeout is not None and time.monotonic() - last_message_at >= timeout:
                    break
                continue
            last_message_at = time.monotonic()
            received += 1
            _write(message, as_json)
    if count is not None and received < count and not stopped():
        raise WaitTimeout(
            f"received {received} of {count} messages, then no further message within {timeout:g} s",
            remedy="Check that another client sends, or give a longer --timeout.",
        )
    return received


class _MessageQueue:
    """Received messages that are not written yet. A thread of the client puts them, the main thread gets them.

    While the queue is full, ``put`` blocks the client's thread, at most until ``close``. The interpreter waits for that
    thread at its exit, so an endless ``put`` would keep the process alive.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[bytes] = queue.Queue(QUEUE_LIMIT)
        self._closed = False

    def put(self, message: bytes) -> None:
        """Add a message when the queue has room; drop it if the queue is closed."""
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(message, timeout=POLL_INTERVAL_S)
                return

    def get(self) -> bytes | None:
        """Return the next message, or None if none comes within ``POLL_INTERVAL_S`` seconds."""
        try:
            return self._queue.get(timeout=POLL_INTERVAL_S)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Unblock the client's thread: ``put`` drops messages from now on."""
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
