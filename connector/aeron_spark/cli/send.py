"""``aeron-spark send``: sends standard input or files to a stream, without Spark."""

from __future__ import annotations

from typing import Any

import click

from aeron_spark.cli.arguments import (
    check_connection_options,
    parse_flag_option,
    read_route_flags,
    route_options,
    sbe_flags,
    sbe_schema_option,
    server_options,
    stream_option,
)
from aeron_spark.cli.formats import FORMATS, STANDARD_INPUT, check_file, check_row_format
from aeron_spark.cli.main import INTERRUPTED
from aeron_spark.cli.output import json_option, print_json, print_warnings
from aeron_spark.cli.signals import catch_sigint, catch_stop_signals, operation
from aeron_spark.log.facade import refuse_stream_flags, require_channel
from aeron_spark.options import SbeFormatOptions, WriteOptions
from aeron_spark.options.declaration import Where
from aeron_spark.options.sbe_options import split_sbe_options


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@route_options
@click.option(
    "--payload",
    type=click.Choice(["auto", "raw", "framed", "arrow", "sbe"]),
    help="How rows are stored. raw: the bytes of column 'value', unchanged. framed: the same bytes of any size, with "
    "time and writer. arrow: all columns. sbe: each row as an SBE message. auto: arrow for rows; for messages raw, or "
    "in a server's stream framed or the payload that the stream already has.  [default: auto]",
)
@sbe_schema_option
@click.option(
    "--sbe-message",
    metavar="NAME",
    help="With --payload sbe: the message by name or template id.  [default: the schema's only message]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the input.  [default: by the file's suffix, else text; with --payload sbe json]",
)
@click.option(
    "--ack",
    type=click.Choice(["auto", "archive", "driver"]),
    help="Direct route: when a row counts as sent. archive: when it is recorded. driver: when the media driver has "
    "taken it. auto: archive if the stream is recorded, else driver.  [default: auto]",
)
@click.option("--record", is_flag=True, help="Direct route: let the archive record the stream if it does not yet.")
@server_options
@stream_option
@click.option(
    "--commit-rows", type=click.IntRange(min=1), metavar="N",
    help="With --stream: commit after every N rows and after each file.  [default: each file is one transaction]",
)  # fmt: skip
@click.option(
    "--writer-id",
    metavar="ID",
    help="Name of the writer in the rows' metadata. With --stream, a newer run with the same ID fences an older one.  "
    "[default: a new id for this run]",
)
@click.option(
    "--evolve-schema", is_flag=True,
    help="With --stream: add the file's new columns to the stream's schema; needs the grant 'manage'.",
)  # fmt: skip
@json_option
@click.pass_context
def send(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    commit_rows: int | None,
    writer_id: str | None,
    evolve_schema: bool,
    payload: str | None,
    form: str | None,
    ack: str | None,
    record: bool,
    as_json: bool,
    **route_flags: Any,
) -> None:
    """Send files, or standard input without a FILE, to a stream. For scripts and tests, without Spark.

    A line of text is one message. A line of JSON, or a row of a CSV, Parquet or Arrow file, is one row. If its columns
    are only 'value' (or 'valueBase64') and 'reservedValue', it is one message.

    \b
    Directly to an Aeron channel, recorded by this machine's archive:
      aeron-spark send flights.csv --channel aeron:ipc --stream-id 1001 --record
    To a durable stream of a server, one transaction per file:
      aeron-spark send flights.csv --server feeds.example:20121 --stream flights
    To the clients that receive from a server now:
      echo hello | aeron-spark send --server feeds.example:20121
    As SBE messages; the columns have the names of the message's fields, as 'aeron-spark sbe describe' prints them:
      aeron-spark send trades.jsonl --channel aeron:ipc --stream-id 1001 --payload sbe --sbe-schema market.xml --record
    """
    options = read_route_flags(
        route_flags, writerId=writer_id, payload=payload, ack=ack, record="auto" if record else None,
        evolveSchema="true" if evolve_schema else None, **sbe_flags(route_flags),
    )  # fmt: skip
    for name in files:
        check_file(name)
    if payload == "sbe":
        for name in files or (STANDARD_INPUT,):
            check_row_format(name, form)
    if "server" in options and "stream" in options:
        _send_to_stream(ctx, options, files, form, commit_rows, as_json)
        return
    refuse_stream_flags(
        stream=options.get("stream"), commit_rows=commit_rows, evolve_schema=options.get("evolveSchema")
    )
    if "server" in options:
        refuse_stream_flags(writer_id=options.get("writerId"), payload=options.get("payload"))
        _relay_messages(ctx, options, files, form, as_json)
        return
    require_channel(options)
    write_options = WriteOptions.parse(options, streaming=False)
    with catch_sigint() as stopped, print_warnings(), operation():
        from aeron_spark.cli.direct_send import send_directly

        is_complete = send_directly(write_options, files or (STANDARD_INPUT,), form, as_json, stopped)
        if not is_complete or stopped():
            ctx.exit(INTERRUPTED)


def _relay_messages(
    ctx: click.Context, options: dict[str, str], files: tuple[str, ...], form: str | None, as_json: bool
) -> None:
    check_connection_options(options)
    with catch_stop_signals() as stopped, operation():
        from aeron_spark.cli.server_messages import send_through

        sent = send_through(options, files or (STANDARD_INPUT,), form, stopped)
        interrupted = stopped()
    if as_json:
        print_json({"server": options["server"], "messages": sent})
    else:
        click.echo(f"sent {'1 message' if sent == 1 else f'{sent:,} messages'} through {options['server']}")
    if interrupted:
        ctx.exit(INTERRUPTED)


def _send_to_stream(
    ctx: click.Context, options: dict[str, str], files: tuple[str, ...], form: str | None, commit_rows: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    sbe = None
    if options.get("payload") == "sbe":
        options, sbe_options = split_sbe_options(options)
        options["payload"] = "sbe"
        sbe = SbeFormatOptions.parse_alone(sbe_options, Where.WRITE_BATCH)
    check_connection_options(options)
    parse_flag_option(options, "evolveSchema")
    with catch_stop_signals() as stopped, operation():
        from aeron_spark.cli.server_rows import send_rows

        sent = send_rows(options, files or (STANDARD_INPUT,), form, commit_rows, sbe, stopped)
        interrupted = stopped()
    if as_json:
        target = {"server": options["server"], "stream": options["stream"]}
        print_json(target | {"rows": sent.rows, "transactions": sent.transactions})
    else:
        rows = "1 row" if sent.rows == 1 else f"{sent.rows:,} rows"
        transactions = "1 transaction" if sent.transactions == 1 else f"{sent.transactions:,} transactions"
        click.echo(f"sent {rows} in {transactions} to stream {options['stream']} of {options['server']}")
    if interrupted:
        ctx.exit(INTERRUPTED)
