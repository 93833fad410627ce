"""Rows that commands send to and receive from a named stream of a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from aeron_spark.client import client as opening
from aeron_spark.errors import AeronSparkError, OptionError
from aeron_spark.log.decoding import are_values
from aeron_spark.log.facade import Reading, StopSignal, Summary, check_start_time, count_text
from aeron_spark.log.follow import RAW
from aeron_spark.options import SbeFormatOptions, SbeOptions, values
from aeron_spark.stream_client.reader import StreamReader
from aeron_spark.stream_client.writer import StreamWriter

POLL_INTERVAL_S: Final = 0.1  # interval at which a thread checks for a signal


class ServerTarget:
    """Writes rows to a stream: each file is a transaction, and every ``commit_rows`` rows. The first set the payload.

    ``given`` are the options of a writer. After a signal or an error, rows that are read but not committed are dropped.
    """

    interrupted = False

    def __init__(
        self,
        server: tuple[str, Mapping[str, Any]],
        stream: str,
        given: Mapping[str, str],
        commit_rows: int | None,
        sbe: SbeFormatOptions | None,
    ) -> None:
        self.payload = given.get("payload", "auto") if sbe is None else "sbe"
        self.sbe = sbe
        self._server = server
        self._stream = stream
        self._writer_id = given.get("writerId")
        self._evolve_schema = _parse_flag("evolveSchema", given.get("evolveSchema", "false"))
        self._commit_rows = commit_rows
        self._rows = self._transactions = 0  # committed
        self._uncommitted_rows = 0
        self._writer: StreamWriter | None = None

    @contextmanager
    def opened(self, payload: str, stopped: StopSignal, note: Callable[[str], object]) -> Iterator[None]:
        """Write the rows of the block; after an error ``note`` is called with what is committed, and what may be."""
        address, options = self._server
        with opening.connect(address, **options) as client:
            client.stream(self._stream)  # raises for an unknown name, before input is read
            stopped.start_polling()
            self._client, self._written_payload = client, payload
            try:
                yield
            except AeronSparkError:
                for line in self._outcome():
                    note(f"aeron-spark: {line}")
                raise
            finally:
                if self._writer is not None:
                    self._writer.close()

    def write(self, rows: pa.RecordBatch) -> None:
        """Write a batch, and commit when the transaction has ``commit_rows`` rows."""
        writer = self._writer = self._writer or self._open_writer(rows)
        while rows.num_rows:
            room = rows.num_rows if self._commit_rows is None else self._commit_rows - self._uncommitted_rows
            part, rows = rows.slice(0, room), rows.slice(room)
            writer.write(part)
            self._uncommitted_rows += part.num_rows
            if self._uncommitted_rows == self._commit_rows:
                self.end_file()

    def end_file(self) -> None:
        """Commit the rows that are not committed."""
        if self._writer is not None and self._uncommitted_rows:
            self._writer.commit()
            self._count_committed()

    def finish(self) -> None:
        """Do nothing: committed rows are acknowledged, and after a signal the other rows are dropped."""

    def _outcome(self) -> list[str]:
        """Abort the open transaction after an error. Return how many rows are committed, and how many may be."""
        unknown = self._abort_transaction()
        lines = [f"{self._rows} rows are committed in spite of this error:"] if self._rows else []
        if unknown:
            lines.append(
                f"the server did not respond whether {unknown} more rows are committed; read the stream before you "
                "send them again"
            )
        return lines

    def summary(self) -> Summary:
        """Return how many rows were committed, in how many transactions."""
        address, _ = self._server
        sent = {"server": address, "stream": self._stream, "rows": self._rows, "transactions": self._transactions}
        counted = f"{count_text(self._rows, 'row')} in {count_text(self._transactions, 'transaction')}"
        return Summary([sent], sentences=[f"sent {counted} to stream {self._stream} of {address}"])

    def _abort_transaction(self) -> int:
        """Abort the open transaction. Return how many of its rows may be committed nevertheless."""
        if self._writer is None or not self._uncommitted_rows:
            return 0
        last_before = self._writer.last
        try:
            self._writer.abort()
        except AeronSparkError:
            if self._writer.last == last_before:
                return self._uncommitted_rows
            self._count_committed()
        self._uncommitted_rows = 0
        return 0

    def _count_committed(self) -> None:
        self._rows += self._uncommitted_rows
        self._transactions += 1
        self._uncommitted_rows = 0

    def _open_writer(self, rows: pa.RecordBatch) -> StreamWriter:
        payload = self._written_payload
        if payload == "auto":
            stream_payload = self._client.stream(self._stream).content
            payload = (stream_payload or "framed") if are_values(rows.schema) else "arrow"
        return self._client.writer(
            self._stream, writer_id=self._writer_id, payload=payload, evolve_schema=self._evolve_schema
        )


class ServerSource:
    """Receives the committed rows of a stream, and as ``wanted`` says the further ones."""

    def __init__(
        self, server: tuple[str, Mapping[str, Any]], stream: str, wanted: Reading, sbe: SbeOptions | None
    ) -> None:
        self.sbe = sbe
        self.has_metadata = wanted.metadata
        self.interrupted = False
        self._server = server
        self._stream = stream
        self._wanted = wanted
        self._start = _start_of(wanted)
        self._reader: StreamReader | None = None

    @contextmanager
    def opened(self, stopped: StopSignal) -> Iterator[Iterator[tuple[str, pa.RecordBatch]]]:
        """Yield the batches with their payloads, until a signal comes."""
        address, options = self._server
        wanted = self._wanted
        with opening.connect(address, **options) as client:
            reader = self._reader = client.reader(
                self._stream,
                start=self._start,
                follow=wanted.follow,
                metadata=wanted.metadata or self.sbe is not None,
                timeout=wanted.timeout,
            )
            stopped.start_polling()
            with _stop_at_signal(reader, stopped):
                yield ((reader.payload, batch) for batch in reader)
        self.interrupted = stopped()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return (self._reader and self._reader.schema) or RAW


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


def _start_of(wanted: Reading) -> Any:
    """Return the start of a reader: an edge, a time, or positions by partition."""
    text = wanted.start
    if text is None:
        return "latest" if wanted.follow else "earliest"
    if wanted.position is not None:
        return {0: wanted.position}
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            raise OptionError(
                f"--start {text!r} is not JSON of positions by partition",
                remedy="""Write it like --start '{"0": 4096}'.""",
            ) from None
    if not wanted.is_edge:
        check_start_time(text)
    return text


def _parse_flag(name: str, text: str) -> bool:
    try:
        return values.parse_flag(text)
    except ValueError as error:
        raise OptionError(f"option {name!r} must be {error}, not {text!r}", remedy="Correct it.") from None
