"""``send`` and ``receive`` through a server: write a named stream in transactions, and read it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from aeron_spark.cli.arguments import parse_flag_option, split_server_and_stream
from aeron_spark.cli.inputs import are_values
from aeron_spark.cli.outputs import Output, ReceivedRows
from aeron_spark.cli.row_transfer import RowReceiver, send_files
from aeron_spark.cli.sbe_receive import SbeReceiver
from aeron_spark.cli.sbe_send import reader_of
from aeron_spark.cli.signals import StopRequest
from aeron_spark.errors import AeronSparkError
from aeron_spark.log.follow import RAW

if TYPE_CHECKING:
    from aeron_spark.client.client import Client
    from aeron_spark.options import SbeFormatOptions, SbeOptions
    from aeron_spark.stream_client.reader import StreamReader
    from aeron_spark.stream_client.writer import StreamWriter

POLL_INTERVAL_S: Final = 0.1  # interval at which a thread checks for a signal


@dataclass(slots=True)
class CommittedRows:
    """The numbers of rows and transactions that ``send`` committed."""

    rows: int = 0
    transactions: int = 0


def send_rows(
    options: Mapping[str, str], sources: tuple[str, ...], form: str | None, commit_rows: int | None,
    sbe: SbeFormatOptions | None, stopped: StopRequest,
) -> CommittedRows:  # fmt: skip
    """Write each of the files ``sources`` as one transaction, or commit after every ``commit_rows`` rows, too.

    ``sbe`` encodes the rows as SBE messages, if given.
    After a signal or an error, rows that are read but not committed are dropped.
    """
    from aeron_spark.client.opening import connect

    address, stream, connection_options = split_server_and_stream(options)
    given_payload, writer_id = connection_options.pop("payload", "auto"), connection_options.pop("writerId", None)
    reader, payload = reader_of(given_payload, sbe)
    evolve_schema = parse_flag_option(connection_options, "evolveSchema")
    connection_options.pop("evolveSchema", None)
    committed = CommittedRows()
    with connect(address, **connection_options) as client:
        client.stream(stream)  # raises for an unknown name, before input is read
        stopped.start_polling()
        sender = _RowSender(client, stream, payload, writer_id, evolve_schema, commit_rows, committed)
        try:
            send_files(sources, form, reader, sender, stopped)
        except AeronSparkError:
            sender.print_committed()
            raise
        finally:
            sender.close()
    return committed


class _RowSender:
    """Writes rows to a stream; commits after each file and every ``commit_rows`` rows. The first set the payload."""

    def __init__(
        self, client: Client, stream: str, payload: str, writer_id: str | None, evolve_schema: bool,
        commit_rows: int | None, committed: CommittedRows,
    ) -> None:  # fmt: skip
        self._client = client
        self._stream = stream
        self._payload = payload
        self._writer_id = writer_id
        self._evolve_schema = evolve_schema
        self._commit_rows = commit_rows
        self._committed = committed
        self._uncommitted_rows = 0
        self._writer: StreamWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Write a batch, and commit when the transaction has ``commit_rows`` rows."""
        writer = self._writer = self._writer or self._open_writer(rows)
        while rows.num_rows:
            room = rows.num_rows if self._commit_rows is None else self._commit_rows - self._uncommitted_rows
            part, rows = rows.slice(0, room), rows.slice(room)
            writer.write(part)
            self._uncommitted_rows += part.num_rows
            if self._uncommitted_rows == self._commit_rows:
                self._commit()

    def end_file(self) -> None:
        """Commit the rows that are not committed."""
        self._commit()

    def _commit(self) -> None:
        if self._writer is not None and self._uncommitted_rows:
            self._writer.commit()
            self._committed.rows += self._uncommitted_rows
            self._committed.transactions += 1
            self._uncommitted_rows = 0

    def finish(self) -> None:
        """Do nothing: committed rows are acknowledged, and after a signal the other rows are dropped."""

    def print_committed(self) -> None:
        """Print, after an error, how many rows are committed, and how many may be."""
        unknown = self._abort_transaction()
        if self._committed.rows:
            click.echo(f"aeron-spark: {self._committed.rows} rows are committed in spite of this error:", err=True)
        if unknown:
            click.echo(
                f"aeron-spark: the server did not respond whether {unknown} more rows are committed; read the stream "
                "before you send them again",
                err=True,
            )

    def _abort_transaction(self) -> int:
        """Abort the open transaction after an error. Return how many of its rows may be committed nevertheless."""
        if self._writer is None or not self._uncommitted_rows:
            return 0
        last_before, rows = self._writer.last, self._uncommitted_rows
        try:
            self._writer.abort()
        except AeronSparkError:
            if self._writer.last == last_before:
                return rows
            self._committed.rows += rows
            self._committed.transactions += 1
        self._uncommitted_rows = 0
        return 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open_writer(self, rows: pa.RecordBatch) -> StreamWriter:
        payload = self._payload
        if payload == "auto":
            stream_payload = self._client.stream(self._stream).content
            payload = (stream_payload or "framed") if are_values(rows.schema) else "arrow"
        return self._client.writer(
            self._stream, writer_id=self._writer_id, payload=payload, evolve_schema=self._evolve_schema
        )


def receive_rows(
    options: Mapping[str, str], out: Output, *, start: Any, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, sbe: SbeOptions | None, stopped: StopRequest,
) -> ReceivedRows:  # fmt: skip
    """Write the committed rows of a stream to ``out``, at most ``count``; ``sbe`` decodes their values, if given.

    With ``follow``, wait for further rows until ``timeout`` seconds pass without one, or a signal comes.
    """
    from aeron_spark.client.opening import connect

    address, stream, connection_options = split_server_and_stream(options)
    receiver = RowReceiver(out, count, stopped)
    decoder = None if sbe is None else SbeReceiver(sbe, metadata=metadata)
    schema: pa.Schema = RAW if decoder is None else decoder.schema
    with connect(address, **connection_options) as client:
        try:
            reader = client.reader(
                stream, start=start, follow=follow, metadata=metadata or decoder is not None, timeout=timeout
            )
            stopped.start_polling()
            with _stop_at_signal(reader, stopped):
                batches = ((reader.payload, batch) for batch in reader)
                receiver.write_all(batches if decoder is None else decoder.decoded(batches))
            if decoder is None:
                schema = reader.schema or RAW
        finally:
            out.close(schema)
    return ReceivedRows(receiver.rows, stopped())


@contextmanager
def _stop_at_signal(reader: StreamReader, stopped: Callable[[], bool]) -> Iterator[None]:
    """Run a thread that stops the reader, also while it waits for rows, after ``stopped`` returns True."""
    ended = threading.Event()

    def stop_reader() -> None:
        while not ended.wait(POLL_INTERVAL_S):
            if stopped():
                reader.stop()
                return

    thread = threading.Thread(target=stop_reader, name="aeron-spark-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
