"""``send`` on the direct route: publishes rows and messages to a channel and stream id."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.cli.inputs import are_values
from aeron_spark.cli.output import print_json
from aeron_spark.cli.row_transfer import send_files
from aeron_spark.cli.sbe_send import reader_of
from aeron_spark.cli.signals import StopRequest
from aeron_spark.direct.appender import DirectAppender
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, TransportError, WaitTimeout
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions


def send_directly(
    options: WriteOptions, sources: Sequence[str], form: str | None, as_json: bool, stopped: StopRequest
) -> bool:
    """Publish all rows of the files ``sources`` and print their number. Return False if a signal ended it early."""
    reader, payload = reader_of(options.payload, options)
    source = Source(options.writer_id or f"send-{uuid.uuid4()}")
    # Until a subscriber or an archive is connected, a signal interrupts the wait for it.
    appender = DirectAppender(options, source, connected=stopped.start_polling)
    try:
        send_files(sources, form, reader, _DirectTarget(appender, payload), stopped)
    except AeronSparkError as error:
        if not isinstance(error, TransportError | ConnectError | WaitTimeout):  # the input is wrong, the archive lives
            with suppress(AeronSparkError):
                appender.finish()
        appender.end_recordings()
        if appender.rows:
            click.echo(f"aeron-spark: {_progress_text(appender)} before this error:", err=True)
        raise
    except KeyboardInterrupt:  # only until a subscriber or an archive is connected
        appender.end_recordings()
        click.echo(f"interrupted; {_progress_text(appender)}", err=True)
        return False
    _print_result(appender, as_json)
    return True


class _DirectTarget:
    """Publishes rows with an appender. Each batch of payload ``auto`` is ``raw`` or ``arrow``, by its columns."""

    def __init__(self, appender: DirectAppender, payload: str) -> None:
        self._appender = appender
        self._payload = payload

    def write(self, rows: pa.RecordBatch) -> None:
        """Append a batch. Raises DataFormatError if its columns do not suit the payload."""
        payload = self._payload
        if payload == "auto":
            payload = "raw" if are_values(rows.schema) else "arrow"
        if payload == "arrow":
            self._appender.arrow(rows)
            self._appender.check_confirmed()
            return
        values, reserved = _values(rows, payload)
        if payload == "raw":
            self._appender.raw(values, reserved)
        else:
            self._appender.framed(values, reserved)
        self._appender.check_confirmed()

    def end_file(self) -> None:
        """Do nothing: published rows are visible."""

    def finish(self) -> None:
        """Wait until all rows are acknowledged."""
        self._appender.finish()


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


def _progress_text(appender: DirectAppender) -> str:
    """Return how many rows were sent, and how many of them are certainly recorded."""
    if appender.confirmed == appender.rows:
        return f"{appender.rows} rows were sent"
    return f"{appender.confirmed} rows are confirmed, of {appender.rows} that were sent"


def _print_result(appender: DirectAppender, as_json: bool) -> None:
    route = appender.route
    if as_json:
        target = {"channel": route.channel, "stream_id": route.stream_id}
        print_json(target | {"rows": appender.rows, "dropped": appender.dropped})
        return
    dropped = f", {appender.dropped:,} of them dropped: no subscriber was connected" if appender.dropped else ""
    rows = "1 row" if appender.rows == 1 else f"{appender.rows:,} rows"
    click.echo(f"sent {rows} to stream {route.stream_id} of {route.channel}{dropped}")
