"""``send`` on the direct route: publishes rows and messages to a channel and stream id."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.cli.formats import format_of, total_size
from aeron_spark.cli.inputs import Input, are_values, read_input
from aeron_spark.cli.output import print_json, progress
from aeron_spark.cli.signals import StopRequest
from aeron_spark.direct.appender import DirectAppender
from aeron_spark.errors import AeronSparkError, DataFormatError
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions


def send_directly(
    options: WriteOptions, sources: Sequence[str], form: str | None, as_json: bool, stopped: StopRequest
) -> bool:
    """Publish all rows of the files ``sources`` and print their number. Return False if a signal ended it early."""
    source = Source(options.writer_id or f"send-{uuid.uuid4()}")
    # Until a subscriber or an archive is connected, a signal interrupts the wait for it.
    appender = DirectAppender(options, source, connected=stopped.start_polling)
    values = {"auto": None, "arrow": False}.get(options.payload, True)
    try:
        with progress("sending", total_size(sources)) as advance:
            for name in sources:
                for batch in read_input(name, format_of(name, form), values, stopped):
                    _append(appender, batch, options.payload)
                    advance(batch.rows.num_rows, batch.size)
            appender.finish()
    except AeronSparkError:
        if appender.rows:
            click.echo(f"aeron-spark: {appender.rows} rows were sent before this error:", err=True)
        raise
    except KeyboardInterrupt:
        click.echo(f"interrupted; {appender.rows} rows were sent", err=True)
        return False
    _print_result(appender, as_json)
    return True


def _append(appender: DirectAppender, batch: Input, payload: str) -> None:
    """Append a batch of input. Raises DataFormatError if its columns do not suit the payload."""
    rows = batch.rows
    if payload == "auto":
        payload = "raw" if are_values(rows.schema) else "arrow"
    if payload == "arrow":
        appender.arrow(rows)
        return
    if "value" not in rows.schema.names:
        columns = ", ".join(rows.schema.names) or "no column"
        raise DataFormatError(
            f"payload {payload} needs a column 'value', but the input has {columns}",
            remedy="Send all columns with --payload arrow.",
        )
    try:
        values = rows.column("value").cast(pa.binary())
    except pa.ArrowNotImplementedError as error:
        raise DataFormatError(
            f"column 'value' has type {rows.column('value').type}, expected binary or string",
            remedy="Send it with --payload arrow.",
        ) from error
    reserved: pa.Array[Any] | None = None
    if "reservedValue" in rows.schema.names:
        numbers: Any = rows.column("reservedValue").cast(pa.int64())
        reserved = pc.fill_null(numbers, 0)
    if payload == "raw":
        appender.raw(values, reserved)
    else:
        appender.framed(values, reserved)


def _print_result(appender: DirectAppender, as_json: bool) -> None:
    route = appender.route
    if as_json:
        target = {"channel": route.channel, "stream_id": route.stream_id}
        print_json(target | {"rows": appender.rows, "dropped": appender.dropped})
        return
    dropped = f", {appender.dropped:,} of them dropped: no subscriber was connected" if appender.dropped else ""
    rows = "1 row" if appender.rows == 1 else f"{appender.rows:,} rows"
    click.echo(f"sent {rows} to stream {route.stream_id} of {route.channel}{dropped}")
