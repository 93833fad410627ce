"""Rows that commands send to and receive from a channel and stream id."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.direct.writing import DirectAppender
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, TransportError, WaitTimeout
from aeron_spark.log.api import Log
from aeron_spark.log.decoding import VALUE_COLUMN, are_values
from aeron_spark.log.facade import Reading, StopSignal, Summary, check_start_time, count_text
from aeron_spark.log.follow import RAW, Follower
from aeron_spark.log.query import OpenLog
from aeron_spark.log.restarts import RestartableLog, restartable
from aeron_spark.log.writing import Source
from aeron_spark.options import ReadOptions, WriteOptions

POLL_INTERVAL_S: Final = 0.02  # interval between two checks for new messages


class DirectTarget:
    """Publishes rows with ``options``. Each batch of payload ``auto`` is ``raw`` or ``arrow``, by its columns."""

    def __init__(self, options: WriteOptions) -> None:
        self.payload: str = options.payload
        self.sbe = options
        self.interrupted = False

    @contextmanager
    def opened(self, payload: str, stopped: StopSignal, note: Callable[[str], object]) -> Iterator[None]:
        """Publish the rows of the block; after an error ``note`` is called with what was sent before it.

        Until a subscriber or an archive is connected, a signal interrupts the wait for it, which ends the block.
        """
        self._payload = payload
        source = Source(self.sbe.writer_id or f"send-{uuid.uuid4()}")
        appender = self._appender = DirectAppender(self.sbe, source, connected=stopped.start_polling)
        try:
            yield
        except AeronSparkError as error:
            if not isinstance(error, TransportError | ConnectError | WaitTimeout):  # the input is wrong
                with suppress(AeronSparkError):
                    appender.finish()
            appender.end_recordings()
            if appender.rows:
                note(f"aeron-spark: {self._progress} before this error:")
            raise
        except KeyboardInterrupt:
            appender.end_recordings()
            note(f"interrupted; {self._progress}")
            self.interrupted = True

    def write(self, rows: pa.RecordBatch) -> None:
        """Publish a batch. Raises DataFormatError if its columns do not suit the payload."""
        payload = self._payload
        if payload == "auto":
            payload = "raw" if are_values(rows.schema) else "arrow"
        if payload == "arrow":
            self._appender.arrow(rows)
        else:
            append_values = self._appender.raw if payload == "raw" else self._appender.framed
            append_values(*_values(rows, payload))
        self._appender.check_confirmed()

    def end_file(self) -> None:
        """Do nothing: published rows are visible."""

    def finish(self) -> None:
        """Wait until all rows are acknowledged."""
        self._appender.finish()

    def summary(self) -> Summary:
        """Return how many rows were sent, and dropped."""
        route, rows, dropped = self._appender.route, self._appender.rows, self._appender.dropped
        sent = {"channel": route.channel, "stream_id": route.stream_id, "rows": rows, "dropped": dropped}
        lost = f", {dropped:,} of them dropped: no subscriber was connected" if dropped else ""
        return Summary([sent], sentences=[f"sent {count_text(rows, 'row')} to {route.label}{lost}"])

    @property
    def _progress(self) -> str:
        """How many rows were sent, and how many of them are certainly recorded."""
        confirmed, rows = self._appender.confirmed, self._appender.rows
        if confirmed == rows:
            return f"{rows} rows were sent"
        return f"{confirmed} rows are confirmed, of {rows} that were sent"


def _values(rows: pa.RecordBatch, payload: str) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
    if "value" not in rows.schema.names:
        columns = ", ".join(rows.schema.names) or "no column"
        raise DataFormatError(
            f"payload {payload} needs a column 'value', but the input has {columns}",
            remedy="Send all columns with --payload arrow.",
        )
    try:
        values: pa.Array[Any] = rows.column("value").cast(pa.binary())
    except pa.ArrowNotImplementedError as error:
        raise DataFormatError(
            f"column 'value' has type {rows.column('value').type}, expected binary or string",
            remedy="Send it with --payload arrow.",
        ) from error
    if "reservedValue" not in rows.schema.names:
        return values, None
    numbers: Any = rows.column("reservedValue").cast(pa.int64())
    return values, pc.fill_null(numbers, 0)


class DirectSource:
    """Receives the recorded messages of a stream, and with ``follow`` the further ones; ``position`` is the start.

    Waits out a restart of an archive that has answered, for ``archiveTimeout``.
    """

    def __init__(
        self,
        options: ReadOptions,
        open_log: OpenLog,
        *,
        follow: bool = False,
        timeout: float | None = None,
        position: int | None = None,
    ) -> None:
        self.sbe = options if options.payload == "sbe" else None
        self.has_metadata = options.include_metadata
        self.interrupted = False
        if self.sbe is not None:  # the values that SBE messages are, as the stream has them
            options = replace(options, payload="auto", given_sbe=(), cluster_events=False)
        self._options = options
        self._follow = follow
        self._position = position
        self._timeout = timeout
        self._open_log = open_log
        self._logs: dict[bool, RestartableLog] = {}  # by whether they count groups

    @contextmanager
    def opened(self, stopped: StopSignal) -> Iterator[Iterator[tuple[str, pa.RecordBatch]]]:
        """Yield the batches with their payloads. A signal that nothing polls for yet ends the block."""
        self._stopped = stopped
        self._last_row_at = time.monotonic()
        self._follower = Follower(self._options, self._restartable_log, self._wait_for_rows)
        try:
            yield self._batches()
        except KeyboardInterrupt:
            self.interrupted = True

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        content = self._follower.content
        return RAW if content is None or content.payload == "raw" else content.schema or VALUE_COLUMN

    def _batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for received in self._follower.batches(follow=self._follow, position=self._position):
            self._stopped.start_polling()
            yield received.payload, received.batch
            self._last_row_at = time.monotonic()  # after the output has taken the batch

    def _restartable_log(self, options: ReadOptions, framed: bool) -> Log:
        """Return a log that waits out a restart of an archive; the first one only if it has answered."""
        found = self._logs.get(framed)
        if found is None:
            found = self._logs[framed] = restartable(
                lambda: self._open_log(options, framed), options.route, is_running=bool(self._logs), sleep=self._sleep
            )
        found.renew()
        return found

    def _sleep(self, seconds: float) -> None:
        """Sleep while an archive is away. Raises KeyboardInterrupt after a signal."""
        if self._stopped():
            raise KeyboardInterrupt
        time.sleep(seconds)

    def _wait_for_rows(self) -> bool:
        """Wait one poll interval for new rows. Return False if the command has to end instead."""
        self._stopped.start_polling()
        if self._stopped():
            self.interrupted = True
            return False
        if self._timeout is not None and time.monotonic() - self._last_row_at >= self._timeout:
            return False
        time.sleep(POLL_INTERVAL_S)
        return True


def source_of(options: Mapping[str, str], wanted: Reading, open_log: OpenLog) -> DirectSource:
    """Return what receives the stream of ``options``. Raises OptionError for a wrong one, and for a wrong start."""
    position, start = _start_of(wanted)
    metadata = {"includeMetadata": "true"} if wanted.metadata else {}
    read_options = ReadOptions.parse(dict(options) | start | metadata, streaming=wanted.follow)
    return DirectSource(read_options, open_log, follow=wanted.follow, timeout=wanted.timeout, position=position)


def _start_of(wanted: Reading) -> tuple[int | None, dict[str, str]]:
    """Return a position in every recording, and the read options for the start."""
    text = wanted.start
    if text is None:
        return None, {}
    if wanted.position is not None:
        return wanted.position, {} if wanted.follow else {"startPosition": text}
    if wanted.is_edge or text.startswith("{"):
        return None, {"startingOffsets": text}
    check_start_time(text)
    return None, {"startingTimestamp": text}
