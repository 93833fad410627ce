"""``aeron-spark send``: from standard input or files to a stream, without Spark."""

from __future__ import annotations

import uuid
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from aeron_spark.cli.inputs import (
    FORMATS,
    STANDARD_INPUT,
    Input,
    are_values,
    check_file,
    format_of,
    read_input,
    total_size,
)
from aeron_spark.cli.output import json_option, print_json
from aeron_spark.cli.progress import progress
from aeron_spark.cli.through import send_through
from aeron_spark.cli.through_streams import send_rows
from aeron_spark.cli.way import (
    INTERRUPTED,
    interruption,
    needs_server,
    needs_stream,
    server_option,
    spoken_warnings,
    stopping,
    stream_option,
    way_given,
    way_options,
)
from aeron_spark.errors import AeronSparkError, DataFormatError
from aeron_spark.log.appender import Appender, Source
from aeron_spark.options import WriteOptions


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@way_options
@click.option("--payload", type=click.Choice(["auto", "raw", "framed", "arrow"]), help="As what rows are sent.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What the input is.  [default: by a file's ending]")
@click.option("--ack", type=click.Choice(["auto", "archive", "driver"]), help="When a row counts as sent.")
@click.option("--record", is_flag=True, help="Have the stream recorded, unless it is.")
@server_option
@stream_option
@click.option(
    "--commit-rows", type=click.IntRange(min=1), metavar="N",
    help="With --stream: commit every N rows, too.  [default: each file is one transaction]",
)  # fmt: skip
@click.option("--writer-id", metavar="ID", help="With --stream: whose transactions these are.  [default: nobody's]")
@json_option
@click.pass_context
def send(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    commit_rows: int | None,
    writer_id: str | None,
    payload: str | None,
    form: str | None,
    ack: str | None,
    record: bool,
    as_json: bool,
    **way: Any,
) -> None:
    """Send lines, JSON lines, or files of CSV, Parquet or Arrow; without a FILE, standard input.

    A line of text is a message. A line of JSON, and a row of a file, is a row (--payload arrow), or a message where it
    holds nothing but 'value' (or 'valueBase64') and 'reservedValue'.
    """
    given = way_given(way, writerId=writer_id, payload=payload, ack=ack, record="auto" if record else None)
    if "server" in given and "stream" in given:
        _to_stream(ctx, given, files, form, commit_rows, as_json)
        return
    needs_server(stream=given.get("stream"), commit_rows=commit_rows)
    if "server" in given:
        needs_server(writer_id=given.get("writerId"))
        _through_server(given, files, form, as_json)
        return
    needs_stream(given)
    options = WriteOptions.parse(given, streaming=False)
    for name in files:
        check_file(name)
    with interruption() as stopped, spoken_warnings():
        appender = Appender(options, Source(options.writer_id or f"send-{uuid.uuid4()}"))
        values = {"auto": None, "arrow": False}.get(options.payload, True)
        sources = files or (STANDARD_INPUT,)
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
            ctx.exit(INTERRUPTED)
        _report(appender, as_json)
        if stopped():
            ctx.exit(INTERRUPTED)


def _through_server(given: dict[str, str], files: tuple[str, ...], form: str | None, as_json: bool) -> None:
    for name in files:
        check_file(name)
    with stopping() as stopped:
        sent = send_through(given, files or (STANDARD_INPUT,), form, stopped)
    if as_json:
        print_json({"server": given["server"], "messages": sent})
    else:
        click.echo(f"sent {'1 message' if sent == 1 else f'{sent:,} messages'} through {given['server']}")


def _to_stream(
    ctx: click.Context, given: dict[str, str], files: tuple[str, ...], form: str | None, commit_rows: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    for name in files:
        check_file(name)
    with stopping() as stopped:
        sent = send_rows(given, files or (STANDARD_INPUT,), form, commit_rows, stopped)
        interrupted = stopped()
    if as_json:
        said = {"server": given["server"], "stream": given["stream"]}
        print_json(said | {"rows": sent.rows, "transactions": sent.transactions})
    else:
        rows = "1 row" if sent.rows == 1 else f"{sent.rows:,} rows"
        times = "1 transaction" if sent.transactions == 1 else f"{sent.transactions:,} transactions"
        click.echo(f"sent {rows} in {times} to stream {given['stream']} of {given['server']}")
    if interrupted:
        ctx.exit(INTERRUPTED)


def _append(appender: Appender, piece: Input, payload: str) -> None:
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


def _report(appender: Appender, as_json: bool) -> None:
    way = appender.way
    if as_json:
        said = {"channel": way.channel, "stream_id": way.stream_id, "rows": appender.rows, "dropped": appender.dropped}
        print_json(said)
        return
    dropped = f", {appender.dropped:,} of them dropped: nobody was connected" if appender.dropped else ""
    rows = "1 row" if appender.rows == 1 else f"{appender.rows:,} rows"
    click.echo(f"sent {rows} to stream {way.stream_id} of {way.channel}{dropped}")
