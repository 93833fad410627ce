"""``send`` and ``receive`` to and from a server's named streams: rows and messages, by transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from aeron_spark.cli.arguments import stream_arguments
from aeron_spark.cli.formats import format_of, total_size
from aeron_spark.cli.inputs import are_values, read_input
from aeron_spark.cli.output import progress
from aeron_spark.cli.outputs import Output
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import AeronSparkError
from aeron_spark.log.follow import RAW

if TYPE_CHECKING:
    from aeron_spark.client.opening import Client
    from aeron_spark.stream_client.reader import StreamReader
    from aeron_spark.stream_client.writer import StreamWriter

POLL_INTERVAL_S: Final = 0.1  # seconds between two looks at whether to stop


@dataclass(slots=True)
class Sent:
    """What was committed."""

    rows: int = 0
    transactions: int = 0


def send_rows(
    given: Mapping[str, str], sources: tuple[str, ...], form: str | None, commit_rows: int | None,
    stopped: StopRequest,
) -> Sent:  # fmt: skip
    """Write each of ``sources`` as a transaction, or every ``commit_rows`` rows; return what was committed.

    What was read and not committed when ``stopped`` says so, or when something fails, is dropped.
    """
    from aeron_spark.client.opening import connect

    address, stream, options = stream_arguments(given)
    payload, writer_id = options.pop("payload", "auto"), options.pop("writerId", None)
    values = {"auto": None, "arrow": False}.get(payload, True)
    sent = Sent()
    with connect(address, **options) as client, progress("sending", total_size(sources)) as advance:
        client.stream(stream)  # a wrong name is said before anything is read
        stopped.begin()
        sending = _Sending(client, stream, payload, writer_id, commit_rows, sent)
        try:
            for name in sources:
                for piece in read_input(name, format_of(name, form), values, stopped):
                    sending.write(piece.rows)
                    advance(piece.rows.num_rows, piece.size)
                if stopped():
                    break
                sending.commit()
        except AeronSparkError:
            sending.report()
            raise
        finally:
            sending.close()
    return sent


class _Sending:
    """A writer that is made for what comes first, and commits every so many rows."""

    def __init__(
        self, client: Client, stream: str, payload: str, writer_id: str | None, commit_rows: int | None, sent: Sent
    ) -> None:
        self._client = client
        self._stream = stream
        self._payload = payload
        self._writer_id = writer_id
        self._commit_rows = commit_rows
        self._sent = sent
        self._open = 0  # rows that are not committed
        self._out: StreamWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        out = self._out = self._out or self._writer(rows)
        while rows.num_rows:
            room = rows.num_rows if self._commit_rows is None else self._commit_rows - self._open
            part, rows = rows.slice(0, room), rows.slice(room)
            out.write(part)
            self._open += part.num_rows
            if self._open == self._commit_rows:
                self.commit()

    def commit(self) -> None:
        if self._out is not None and self._open:
            self._out.commit()
            self._sent.rows += self._open
            self._sent.transactions += 1
            self._open = 0

    def report(self) -> None:
        """Say, after an error, what is committed."""
        left = self._resolve()
        if self._sent.rows:
            click.echo(f"aeron-spark: {self._sent.rows} rows are committed, in spite of this:", err=True)
        if left:
            click.echo(
                f"aeron-spark: the server does not say what became of {left} more rows: they may be in the stream",
                err=True,
            )

    def _resolve(self) -> int:
        """After an error, drop what is not committed; return how many rows may be in the stream all the same."""
        if self._out is None or not self._open:
            return 0
        before, left = self._out.last, self._open
        try:
            self._out.abort()
        except AeronSparkError:
            if self._out.last == before:
                return left
            self._sent.rows += left
            self._sent.transactions += 1
        self._open = 0
        return 0

    def close(self) -> None:
        if self._out is not None:
            self._out.close()

    def _writer(self, rows: pa.RecordBatch) -> StreamWriter:
        payload = self._payload
        if payload == "auto":
            held = self._client.stream(self._stream).content
            payload = (held or "framed") if are_values(rows.schema) else "arrow"
        return self._client.writer(self._stream, writer_id=self._writer_id, payload=payload)


@dataclass(slots=True)
class ReceivedRows:
    """What came, and whether a signal ended it."""

    rows: int = 0
    interrupted: bool = False


def receive_rows(
    given: Mapping[str, str], out: Output, *, start: Any, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, stopped: StopRequest,
) -> ReceivedRows:  # fmt: skip
    """Write what is committed, and with ``follow`` what comes, until ``count`` rows came, or ``timeout`` is over."""
    from aeron_spark.client.opening import connect

    address, stream, options = stream_arguments(given)
    came = ReceivedRows()
    schema: pa.Schema = RAW
    with connect(address, **options) as client, progress("receiving", None) as advance:
        try:
            reader = client.reader(stream, start=start, follow=follow, metadata=metadata, timeout=timeout)
            stopped.begin()
            with _stopping(reader, stopped):
                for batch in reader:
                    part = batch if count is None else batch.slice(0, count - came.rows)
                    out.write(reader.payload, part)
                    came.rows += part.num_rows
                    advance(part.num_rows, part.nbytes)
                    if came.rows == count or stopped():
                        break
            schema = reader.schema or RAW
        finally:
            out.close(schema)
    came.interrupted = stopped()
    return came


@contextmanager
def _stopping(reader: StreamReader, stopped: Callable[[], bool]) -> Iterator[None]:
    """Stop a reader that waits when a signal came."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(POLL_INTERVAL_S):
            if stopped():
                reader.stop()
                return

    looking = threading.Thread(target=look, name="aeron-spark-signals", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
