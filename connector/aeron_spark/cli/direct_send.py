"""``send`` on the direct route: rows and messages to a channel and stream id."""

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
    """Send all rows of ``sources``, and print how many; False where a signal ended it before it was done."""
    source = Source(options.writer_id or f"send-{uuid.uuid4()}")
    appender = DirectAppender(
        options, source, connected=stopped.begin
    )  # the first rows wait for a subscriber or an archive
    values = {"auto": None, "arrow": False}.get(options.payload, True)
    try:
        with progress("sending", total_size(sources)) as advance:
            for name in sources:
                for piece in read_input(name, format_of(name, form), values, stopped):
                    _append(appender, piece, options.payload)
                    advance(piece.rows.num_rows, piece.size)
            appender.finish()
    except AeronSparkError:
        if appender.rows:
            click.echo(f"aeron-spark: {appender.rows} rows were handed over before this:", err=True)
        raise
    except KeyboardInterrupt:
        click.echo(f"interrupted; {appender.rows} rows were handed over", err=True)
        return False
    _report(appender, as_json)
    return True


def _append(appender: DirectAppender, piece: Input, payload: str) -> None:
    rows = piece.rows
    if payload == "auto":
        payload = "raw" if are_values(rows.schema) else "arrow"
    if payload == "arrow":
        appender.arrow(rows)
        return
    if "value" not in rows.schema.names:
        raise DataFormatError(
            f"payload {payload} needs a column 'value', and there are {', '.join(rows.schema.names) or 'none'}",
            remedy="Send all columns with --payload arrow.",
        )
    try:
        values = rows.column("value").cast(pa.binary())
    except pa.ArrowNotImplementedError as error:
        raise DataFormatError(
            f"the column 'value' is {rows.column('value').type} and not binary", remedy="Send it with --payload arrow."
        ) from error
    reserved: pa.Array[Any] | None = None
    if "reservedValue" in rows.schema.names:
        numbers: Any = rows.column("reservedValue").cast(pa.int64())
        reserved = pc.fill_null(numbers, 0)
    if payload == "raw":
        appender.raw(values, reserved)
    else:
        appender.framed(values, reserved)


def _report(appender: DirectAppender, as_json: bool) -> None:
    way = appender.way
    if as_json:
        said = {"channel": way.channel, "stream_id": way.stream_id, "rows": appender.rows, "dropped": appender.dropped}
        print_json(said)
        return
    dropped = f", {appender.dropped:,} of them dropped: no subscriber was connected" if appender.dropped else ""
    rows = "1 row" if appender.rows == 1 else f"{appender.rows:,} rows"
    click.echo(f"sent {rows} to stream {way.stream_id} of {way.channel}{dropped}")
