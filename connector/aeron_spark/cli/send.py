"""``aeron-spark send``: from standard input or files to a stream, without Spark."""

from __future__ import annotations

from typing import Any

import click

from aeron_spark.cli.arguments import (
    INTERRUPTED,
    check_client,
    needs_server,
    needs_stream,
    route_given,
    route_options,
    server_options,
    stream_option,
)
from aeron_spark.cli.formats import FORMATS, STANDARD_INPUT, check_file
from aeron_spark.cli.output import json_option, print_json, spoken_warnings
from aeron_spark.cli.signals import interruption, operation, stopping
from aeron_spark.options import WriteOptions


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@route_options
@click.option("--payload", type=click.Choice(["auto", "raw", "framed", "arrow"]), help="As what rows are sent.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="What the input is.  [default: by a file's ending]")
@click.option("--ack", type=click.Choice(["auto", "archive", "driver"]), help="When a row counts as sent.")
@click.option("--record", is_flag=True, help="Have the stream recorded, unless it is.")
@server_options
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
    given = route_given(way, writerId=writer_id, payload=payload, ack=ack, record="auto" if record else None)
    if "server" in given and "stream" in given:
        _to_stream(ctx, given, files, form, commit_rows, as_json)
        return
    needs_server(stream=given.get("stream"), commit_rows=commit_rows)
    if "server" in given:
        needs_server(writer_id=given.get("writerId"))
        _through_server(ctx, given, files, form, as_json)
        return
    needs_stream(given)
    options = WriteOptions.parse(given, streaming=False)
    for name in files:
        check_file(name)
    with interruption() as stopped, spoken_warnings(), operation():
        from aeron_spark.cli.direct_send import send_directly

        whole = send_directly(options, files or (STANDARD_INPUT,), form, as_json, stopped)
        if not whole or stopped():
            ctx.exit(INTERRUPTED)


def _through_server(
    ctx: click.Context, given: dict[str, str], files: tuple[str, ...], form: str | None, as_json: bool
) -> None:
    for name in files:
        check_file(name)
    check_client(given)
    with stopping() as stopped, operation():
        from aeron_spark.cli.server_messages import send_through

        sent = send_through(given, files or (STANDARD_INPUT,), form, stopped)
        interrupted = stopped()
    if as_json:
        print_json({"server": given["server"], "messages": sent})
    else:
        click.echo(f"sent {'1 message' if sent == 1 else f'{sent:,} messages'} through {given['server']}")
    if interrupted:
        ctx.exit(INTERRUPTED)


def _to_stream(
    ctx: click.Context, given: dict[str, str], files: tuple[str, ...], form: str | None, commit_rows: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    for name in files:
        check_file(name)
    check_client(given)
    with stopping() as stopped, operation():
        from aeron_spark.cli.server_rows import send_rows

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
