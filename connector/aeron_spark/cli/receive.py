"""``aeron-spark receive``: writes a stream to standard output or a file, without Spark."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from aeron_spark.cli.arguments import (
    check_connection_options,
    read_route_flags,
    route_options,
    sbe_flags,
    sbe_schema_option,
    server_options,
    stream_option,
)
from aeron_spark.cli.formats import FORMATS, format_of
from aeron_spark.cli.main import INTERRUPTED
from aeron_spark.cli.output import json_option, print_warnings
from aeron_spark.cli.signals import catch_sigint, catch_stop_signals, operation
from aeron_spark.errors import OptionError, WaitTimeout
from aeron_spark.log.facade import refuse_stream_flags, require_channel
from aeron_spark.options import ReadOptions, SbeOptions, values
from aeron_spark.options.declaration import Where
from aeron_spark.options.sbe_options import split_sbe_options

EDGES: Final = ("earliest", "latest")


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
    "--start", metavar="WHERE",
    help="Where to start: earliest, latest, a position in bytes, a time such as -10min or '2026-11-23 18:30' (UTC), or "
    """JSON of positions such as '{"0": 4096}'.  [default: earliest; with --follow latest]""",
)  # fmt: skip
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
    if "server" in options and "stream" in options:
        if payload != "sbe":
            _refuse_flags("the server knows the payload of its stream", payload=payload)
        output_format = _output_format(as_json, output, form)
        _receive_from_stream(ctx, options, start, follow, count, timeout, metadata, output, output_format)
        return
    refuse_stream_flags(stream=options.get("stream"))
    if "server" in options:
        reason = "without --stream, receive prints the messages that clients send from now on"
        _refuse_flags(reason, payload=payload, start=start, output=output, format=form, metadata=metadata or None)
        _receive_messages(options, count, timeout, as_json)
        return
    output_format = _output_format(as_json, output, form)
    _receive_recordings(ctx, options, start, follow, count, timeout, metadata, output, output_format)


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
    check_connection_options(options)
    with catch_stop_signals() as stopped, operation():
        from aeron_spark.cli.server_messages import receive_through

        receive_through(options, count=count, timeout=timeout, as_json=as_json, stopped=stopped)


def _receive_recordings(
    ctx: click.Context, options: dict[str, str], start: str | None, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, output: str | None, form: str,
) -> None:  # fmt: skip
    require_channel(options)
    position, start_options = _start_in_recordings(start, follow)
    metadata_options = {"includeMetadata": "true"} if metadata else {}
    read_options = ReadOptions.parse(options | start_options | metadata_options, streaming=follow)
    from aeron_spark.cli.outputs import open_output

    with open_output(output, form) as out, catch_sigint() as stopped, print_warnings(), operation():
        from aeron_spark.cli.direct_receive import receive_directly

        received = receive_directly(
            read_options, out, follow=follow, count=count, timeout=timeout, position=position, stopped=stopped
        )
    is_following = follow and stopped.is_polled
    _check_end(ctx, received.rows, count, timeout, is_following, received.interrupted)


def _receive_from_stream(
    ctx: click.Context, options: dict[str, str], start: str | None, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, output: str | None, form: str,
) -> None:  # fmt: skip
    start_at = _start_in_stream(start, follow)
    sbe = None
    if options.get("payload") == "sbe":
        options, sbe_options = split_sbe_options(options)
        sbe = SbeOptions.parse_alone(sbe_options, Where.READ_BATCH)
    check_connection_options(options)
    from aeron_spark.cli.outputs import open_output

    with open_output(output, form) as out, catch_stop_signals() as stopped, operation():
        from aeron_spark.cli.server_rows import receive_rows

        received = receive_rows(
            options, out, start=start_at, follow=follow, count=count, timeout=timeout, metadata=metadata, sbe=sbe,
            stopped=stopped,
        )  # fmt: skip
    _check_end(ctx, received.rows, count, timeout, follow, received.interrupted)


def _refuse_flags(reason: str, **flags: object) -> None:
    for name, value in flags.items():
        if value is not None:
            raise OptionError(f"--{name} cannot be used here: {reason}", remedy="Leave it out.")


def _start_in_recordings(text: str | None, follow: bool) -> tuple[int | None, dict[str, str]]:
    """Parse --start on the direct route. Return a position in every recording, and the read options for the start."""
    if text is None:
        return None, {}
    if text.isdecimal() and text.isascii():
        return int(text), {} if follow else {"startPosition": text}
    _refuse_latest(text, follow)
    if text.lower() in EDGES or text.startswith("{"):
        return None, {"startingOffsets": text}
    _check_time(text)
    return None, {"startingTimestamp": text}


def _start_in_stream(text: str | None, follow: bool) -> Any:
    """Parse --start for a server's stream: an edge, a time, positions as JSON, or the position in partition 0."""
    if text is None:
        return "latest" if follow else "earliest"
    if text.isascii() and text.isdecimal():
        return {0: int(text)}
    _refuse_latest(text, follow)
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            raise OptionError(
                f"--start {text!r} is not JSON of positions by partition",
                remedy="""Write it like --start '{"0": 4096}'.""",
            ) from None
    if text.lower() not in EDGES:
        _check_time(text)
    return text


def _refuse_latest(text: str, follow: bool) -> None:
    if text.lower() == "latest" and not follow:
        raise OptionError("--start latest without --follow receives nothing", remedy="Add --follow.")


def _check_time(text: str) -> None:
    try:
        values.parse_moment(text)
    except ValueError as error:
        raise OptionError(
            f"--start is {text!r}, expected earliest, latest, a position or {error}",
            remedy="'aeron-spark receive --help' has examples.",
        ) from None
