"""``aeron-spark send`` and ``receive``: files or standard input to a stream, and a stream to a file, without Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from aeron_spark.cli.arguments import (
    read_route_flags,
    route_options,
    sbe_flags,
    sbe_schema_option,
    server_options,
    stream_option,
    streams_of_options,
)
from aeron_spark.cli.formats import FORMATS, STANDARD_INPUT, check_file, format_of
from aeron_spark.cli.main import INTERRUPTED
from aeron_spark.cli.output import json_option, print_json, print_summary
from aeron_spark.cli.sbe import check_row_format
from aeron_spark.cli.signals import running
from aeron_spark.errors import OptionError, WaitTimeout
from aeron_spark.log.facade import Reading, count_text, refuse_stream_flags


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
    "--commit-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --stream: commit after every N rows and after each file.  [default: each file is one transaction]",
)
@click.option(
    "--writer-id",
    metavar="ID",
    help="Name of the writer in the rows' metadata. With --stream, a newer run with the same ID fences an older one.  "
    "[default: a new id for this run]",
)
@click.option(
    "--evolve-schema",
    is_flag=True,
    help="With --stream: add the file's new columns to the stream's schema; needs the grant 'manage'.",
)
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
        route_flags,
        writerId=writer_id,
        payload=payload,
        ack=ack,
        record="auto" if record else None,
        evolveSchema="true" if evolve_schema else None,
        **sbe_flags(route_flags),
    )
    for name in files:
        check_file(name)
    sources = files or (STANDARD_INPUT,)
    if payload == "sbe":
        for name in sources:
            check_row_format(name, form)
    if "server" in options and "stream" not in options:
        _relay_messages(ctx, options, sources, form, commit_rows, as_json)
        return
    target = streams_of_options(options).writer(commit_rows)
    with running(options) as stopped:
        from aeron_spark.cli.rows import send_files
        from aeron_spark.cli.sbe_rows import reader_of

        reader, read_payload = reader_of(target.payload, target.sbe)
        with target.opened(read_payload, stopped, partial(click.echo, err=True)):
            send_files(sources, form, reader, target, stopped)
        if not target.interrupted:
            print_summary(target.summary(), as_json)
        if target.interrupted or stopped():
            ctx.exit(INTERRUPTED)


def _relay_messages(
    ctx: click.Context,
    options: dict[str, str],
    sources: tuple[str, ...],
    form: str | None,
    commit_rows: int | None,
    as_json: bool,
) -> None:
    refuse_stream_flags(
        commit_rows=commit_rows,
        evolve_schema=options.get("evolveSchema"),
        writer_id=options.get("writerId"),
        payload=options.get("payload"),
    )
    from aeron_spark.client.named_streams import check_connection, split_server

    check_connection(*split_server(options))
    with running(options) as stopped:
        from aeron_spark.cli.rows import send_messages

        sent = send_messages(options, sources, form, stopped)
        interrupted = stopped()
    if as_json:
        print_json({"server": options["server"], "messages": sent})
    else:
        click.echo(f"sent {count_text(sent, 'message')} through {options['server']}")
    if interrupted:
        ctx.exit(INTERRUPTED)


@click.command()
@route_options
@click.option(
    "--cluster",
    type=click.Choice(["log"]),
    help="Direct route: read the log of an Aeron Cluster, in place of --channel and --stream-id. --aeron-dir is the "
    "directory of the media driver of a member or of a ClusterBackup node.",
)
@click.option(
    "--payload",
    type=click.Choice(["auto", "raw", "framed", "arrow", "sbe"]),
    help="Direct route: the format of the recorded messages. raw: bytes as they are. framed, arrow: as 'send "
    "--payload' stores them. auto: framed or arrow if the first message has their format, else raw.  [default: auto] "
    "On both routes: sbe: rows with the columns of SBE messages.",
)
@sbe_schema_option
@click.option(
    "--sbe-message",
    metavar="NAMES",
    help="With --payload sbe: messages by name or template id, separated by commas, or '*'.  [default: the schema's "
    "only message]",
)
@click.option(
    "--start",
    metavar="WHERE",
    help="Where to start: earliest, latest, a position in bytes, a time such as -10min or '2026-11-23 18:30' (UTC), or "
    """JSON of positions such as '{"0": 4096}'.  [default: earliest; with --follow latest]""",
)
@click.option(
    "--follow", "-f", is_flag=True, help="Wait for further rows at the end of the stream, until Ctrl-C (exit code 0)."
)
@click.option("--count", "-n", type=click.IntRange(min=1), metavar="N", help="End after N rows or messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --follow, or with --server and no --stream: end after SECONDS without a row or message.  [default: wait "
    "without limit]",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write to FILE, which appears when it is complete.  [default: standard output]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of the output.  [default: by the suffix of --output (.parquet, .arrow, .csv, .jsonl), else text]",
)
@click.option(
    "--metadata",
    is_flag=True,
    help="Add each row's position, time and writer as columns _aeron_…; for the payloads framed and arrow.",
)
@server_options
@stream_option
@json_option
@click.pass_context
def receive(
    ctx: click.Context,
    /,
    payload: str | None,
    start: str | None,
    follow: bool,
    count: int | None,
    timeout: float | None,
    output: str | None,
    form: str | None,
    metadata: bool,
    as_json: bool,
    **route_flags: Any,
) -> None:
    """Write the rows of a recorded stream, and with --follow its further rows. For scripts and tests, without Spark.

    A message is a line of text with its bytes unchanged; a row is a line of JSON. With --server and without --stream,
    receive the messages that other clients send from now on.

    \b
    From the recordings of an Aeron channel:
      aeron-spark receive --channel aeron:ipc --stream-id 1001 --follow --json
    From a durable stream of a server, into a file:
      aeron-spark receive --server feeds.example:20121 --stream flights --output flights.parquet
    The messages of clients in the log of an Aeron Cluster:
      aeron-spark receive --cluster log --aeron-dir /dev/shm/aeron-backup --payload sbe --sbe-schema orders.xml
    Columns of SBE messages; --option sets the other options of payload=sbe, such as sbeMode=PERMISSIVE:
      aeron-spark receive --channel aeron:ipc --stream-id 1001 --payload sbe --sbe-schema market.xml --sbe-message Trade
    """
    if timeout is not None and not follow and (route_flags["server"] is None or route_flags["stream"] is not None):
        raise OptionError(
            "--timeout needs --follow: without it, receive ends at the end of the stream",
            remedy="Add --follow, or leave --timeout out.",
        )
    options = read_route_flags(route_flags, payload=payload, **sbe_flags(route_flags))
    if "server" in options and "stream" not in options:
        reason = "without --stream, receive prints the messages that clients send from now on"
        _refuse_flags(reason, payload=payload, start=start, output=output, format=form, metadata=metadata or None)
        _receive_messages(options, count, timeout, as_json)
        return
    output_format = _output_format(as_json, output, form)
    if not follow and start is not None and start.lower() == "latest":
        raise OptionError("--start latest without --follow receives nothing", remedy="Add --follow.")
    source = streams_of_options(options).reader(Reading(start, follow, timeout, metadata))
    from aeron_spark.cli.outputs import open_output

    with open_output(output, output_format) as out, running(options) as stopped:
        from aeron_spark.cli.rows import receive_rows

        rows, interrupted = receive_rows(source, out, count, stopped)
    _check_end(ctx, rows, count, timeout, follow and stopped.is_polled, interrupted)


def _check_end(
    ctx: click.Context, rows: int, count: int | None, timeout: float | None, follow: bool, interrupted: bool
) -> None:
    """Exit with 130 if a signal ended the command early; raise WaitTimeout if fewer than ``count`` rows came."""
    if interrupted and not follow:
        click.echo(f"interrupted; {rows} rows were received", err=True)
        ctx.exit(INTERRUPTED)
    if count is not None and follow and rows < count and not interrupted:
        raise WaitTimeout(
            f"received {rows} of {count} rows, then no further row within {timeout:g} s",
            remedy="Check that a program publishes to the stream, or give a longer --timeout.",
        )


def _output_format(as_json: bool, output: str | None, form: str | None) -> str:
    if as_json and form not in (None, "json"):
        raise OptionError(f"--json and --format {form} contradict each other", remedy="Give one of them.")
    out_format = "json" if as_json else format_of(output or "", form)
    if output is None and out_format in ("parquet", "arrow"):
        raise OptionError(f"format {out_format} needs a file", remedy="Name one with --output.")
    return out_format


def _receive_messages(options: dict[str, str], count: int | None, timeout: float | None, as_json: bool) -> None:
    from aeron_spark.client.named_streams import check_connection, split_server

    check_connection(*split_server(options))
    with running(options) as stopped:
        from aeron_spark.cli.rows import receive_messages

        receive_messages(options, count=count, timeout=timeout, as_json=as_json, stopped=stopped)


def _refuse_flags(reason: str, **flags: object) -> None:
    for name, value in flags.items():
        if value is not None:
            raise OptionError(f"--{name} cannot be used here: {reason}", remedy="Leave it out.")
