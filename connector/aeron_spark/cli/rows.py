"""The loops of ``send`` and ``receive`` over rows, and over the messages that a server relays between its clients."""

from __future__ import annotations

import base64
import queue
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.cli.formats import display_name, format_of, total_size
from aeron_spark.cli.inputs import Input, InputReader, read_input
from aeron_spark.cli.output import print_json, progress
from aeron_spark.cli.outputs import VALUE, Output
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import TOO_LONG, AeronSparkError, DataFormatError, WaitTimeout

if TYPE_CHECKING:
    from aeron_spark.client.command_rows import ServerSource, ServerTarget
    from aeron_spark.direct.command_rows import DirectSource, DirectTarget

POLL_INTERVAL_S: Final = 0.1  # interval at which a wait checks for a signal
QUEUE_LIMIT: Final = 10_000  # messages that wait to be written; further ones cause back-pressure to the server


def send_files(
    sources: Sequence[str],
    form: str | None,
    reader: InputReader,
    target: DirectTarget | ServerTarget,
    stopped: StopRequest,
) -> None:
    """Write the rows of the files ``sources`` to ``target``.

    After a signal, it reads no further input, and the target does not get the end of the file; it still waits until the
    rows are acknowledged.
    """
    longest = _LongestValue()
    with progress("sending", total_size(sources)) as advance, longest.in_errors():
        for name in sources:
            rows = 0
            for batch in reader.read(name, form, stopped):
                longest.note(batch, name, rows)
                target.write(batch.rows)
                rows += batch.rows.num_rows
                advance(batch.rows.num_rows, batch.size)
            if stopped():
                break
            target.end_file()
            longest.reset()
        target.finish()


class _LongestValue:
    """The longest value of a file, which is the one of an error about a value that is too long."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the values of a file."""
        self._bytes = -1
        self._place = ""

    def note(self, batch: Input, name: str, first_row: int) -> None:
        """Note the values of a batch of the file ``name``, whose first row has the number ``first_row``, from 0."""
        if VALUE not in batch.rows.schema.names:
            return
        values: Any = batch.rows.column(VALUE)
        if not any(one(values.type) for one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string)):
            return
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py()
        if longest is not None and longest > self._bytes:
            index = pc.index(lengths, longest).as_py()
            self._bytes = longest
            place = f"row {first_row + index + 1}" if batch.line_of is None else f"line {batch.line_of(index)}"
            self._place = f"{place} of {display_name(name)}"

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Add the line of the longest value to an error of the block about a value that is too long."""
        try:
            yield
        except AeronSparkError as error:
            if error.reason != TOO_LONG or not self._place:
                raise
            raise error.with_what(f"{self._place}: {error.what}") from error


def receive_rows(
    source: DirectSource | ServerSource, out: Output, count: int | None, stopped: StopRequest
) -> tuple[int, bool]:
    """Write what ``source`` receives to ``out``, at most ``count`` rows, until a signal comes.

    Return the number of rows, and whether a signal ended it.
    """
    from aeron_spark.cli.sbe_rows import SbeReceiver  # send does not load what decodes rows
    from aeron_spark.log.follow import RAW

    sbe = None if source.sbe is None else SbeReceiver(source.sbe, metadata=source.has_metadata)
    schema: pa.Schema = RAW if sbe is None else sbe.schema
    rows = 0
    interrupted = False
    try:
        with source.opened(stopped) as batches, progress("receiving", None) as advance:
            for payload, batch in batches if sbe is None else sbe.decoded(batches):
                part = batch if count is None else batch.slice(0, count - rows)
                out.write(payload, part)
                rows += part.num_rows
                advance(part.num_rows, part.nbytes)
                interrupted = stopped()
                if interrupted or rows == count:
                    break
            if sbe is None:
                schema = source.schema
    finally:
        out.close(schema)
    return rows, interrupted or source.interrupted


def send_messages(options: Mapping[str, str], sources: tuple[str, ...], form: str | None, stopped: StopRequest) -> int:
    """Send each message of the files ``sources``. Return their number when the server has acknowledged them all."""
    from aeron_spark.client import client as opening
    from aeron_spark.client.named_streams import split_server

    address, connection_options = split_server(options)
    sent = 0
    with opening.connect(address, **connection_options) as client, progress("sending", None) as advance:
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


def receive_messages(
    options: Mapping[str, str], *, count: int | None, timeout: float | None, as_json: bool, stopped: StopRequest
) -> int:
    """Write the messages that other clients send. Return their number.

    Ends after ``count`` messages, after ``timeout`` seconds without a message, or at a signal. Raises WaitTimeout if
    the time is over before ``count`` messages came.
    """
    from aeron_spark.client import client as opening
    from aeron_spark.client.named_streams import split_server
    from aeron_spark.server.relay import SERVICE

    address, connection_options = split_server(options)
    messages = _MessageQueue()
    received = 0
    with opening.connect(address, **connection_options) as client, closing(messages):
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
