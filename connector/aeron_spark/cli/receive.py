"""``aeron-spark receive``: from a stream to standard output or a file, without Spark."""

from __future__ import annotations

import json
from typing import Any, Final

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
from aeron_spark.cli.formats import FORMATS, format_of
from aeron_spark.cli.output import json_option, spoken_warnings
from aeron_spark.cli.signals import interruption, operation, stopping
from aeron_spark.errors import OptionError, WaitTimeout
from aeron_spark.options import ReadOptions, values

EDGES: Final = ("earliest", "latest")


@click.command()
@route_options
@click.option("--payload", type=click.Choice(["auto", "raw", "framed", "arrow"]), help="What the messages are.")
@click.option(
    "--start", metavar="WHERE",
    help="earliest, latest, a position, or a time such as -10min or '2026-11-23 18:30'.  "
    "[default: earliest; with --follow latest]",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Go on as the stream grows.")
@click.option("--count", "-n", type=click.IntRange(min=1), metavar="N", help="End after so many rows.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --follow: end after so long without a message.",
)
@click.option("--output", "-o", metavar="FILE", help="Write to a file: .parquet, .arrow, .csv, .jsonl, or text.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="How it is written.  [default: by the file's ending]"
)
@click.option("--metadata", is_flag=True, help="With framed and arrow: places, times and writers, as _aeron_… columns.")
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
    **way: Any,
) -> None:
    """Receive what is recorded of a stream, and with --follow what comes.

    A message is a line of text, its bytes untouched; a row is a line of JSON. SIGINT ends --follow, and all that came
    is written.
    """
    if timeout is not None and not follow and (way["server"] is None or way["stream"] is not None):
        raise OptionError("--timeout is for --follow: without it nothing is waited for", remedy="Leave one out.")
    given = route_given(way, payload=payload)
    if "server" in given and "stream" in given:
        _refuse_with_server("of a server's stream the server says what it holds", payload=payload)
        _from_stream(ctx, given, start, follow, count, timeout, metadata, output, _wanted_format(as_json, output, form))
        return
    needs_server(stream=given.get("stream"))
    if "server" in given:
        why = "without --stream messages are received through a server as they come"
        _refuse_with_server(why, payload=payload, start=start, output=output, format=form, metadata=metadata or None)
        _through_server(given, count, timeout, as_json)
        return
    needs_stream(given)
    position, starting = _of_recordings(start, follow)
    metadata_too = {"includeMetadata": "true"} if metadata else {}
    options = ReadOptions.parse(given | starting | metadata_too, streaming=follow)
    wanted = _wanted_format(as_json, output, form)
    from aeron_spark.cli.outputs import opened

    with opened(output, wanted) as out, interruption() as stopped, spoken_warnings(), operation():
        from aeron_spark.cli.direct_receive import receive_directly

        rows, interrupted = receive_directly(
            options, out, follow=follow, count=count, timeout=timeout, position=position, stopped=stopped
        )
    _end(ctx, rows, count, timeout, follow and stopped.begun, interrupted)


def _end(
    ctx: click.Context, rows: int, count: int | None, timeout: float | None, follow: bool, interrupted: bool
) -> None:
    """Exit with 130 where a signal came before the end, and raise WaitTimeout where too few rows came."""
    if interrupted and not follow:
        click.echo(f"interrupted; {rows} rows were received", err=True)
        ctx.exit(INTERRUPTED)
    if count is not None and follow and rows < count and not interrupted:
        raise WaitTimeout(
            f"{rows} of {count} rows came, and no more for {timeout:g} s", remedy="Look whether anybody publishes."
        )


def _wanted_format(as_json: bool, output: str | None, form: str | None) -> str:
    if as_json and form not in (None, "json"):
        raise OptionError(f"--json and --format {form} contradict", remedy="Give one of them.")
    wanted = "json" if as_json else format_of(output or "", form)
    if output is None and wanted in ("parquet", "arrow"):
        raise OptionError(f"{wanted} is written to a file", remedy="Name one with --output.")
    return wanted


def _through_server(given: dict[str, str], count: int | None, timeout: float | None, as_json: bool) -> None:
    check_client(given)
    with stopping() as stopped, operation():
        from aeron_spark.cli.server_messages import receive_through

        receive_through(given, count=count, timeout=timeout, as_json=as_json, stopped=stopped)


def _from_stream(
    ctx: click.Context, given: dict[str, str], start: str | None, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, output: str | None, form: str,
) -> None:  # fmt: skip
    where = _of_stream(start, follow)
    check_client(given)
    from aeron_spark.cli.outputs import opened

    with opened(output, form) as out, stopping() as stopped, operation():
        from aeron_spark.cli.server_rows import receive_rows

        came = receive_rows(
            given, out, start=where, follow=follow, count=count, timeout=timeout, metadata=metadata, stopped=stopped
        )
    _end(ctx, came.rows, count, timeout, follow, came.interrupted)


def _refuse_with_server(why: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"--{name} is of no use here: {why}", remedy="Leave it out.")


def _of_recordings(text: str | None, follow: bool) -> tuple[int | None, dict[str, str]]:
    """Read --start of the direct route: return a position to begin at, or the options that say where."""
    if text is None:
        return None, {}
    if text.isdecimal() and text.isascii():
        return int(text), {} if follow else {"startPosition": text}
    _refuse_latest(text, follow)
    if text.lower() in EDGES or text.startswith("{"):
        return None, {"startingOffsets": text}
    _check_time(text)
    return None, {"startingTimestamp": text}


def _of_stream(text: str | None, follow: bool) -> Any:
    """Read --start of a server's stream: an edge, a time, positions as JSON, or that of a stream's only partition."""
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
                f"--start {text!r} is no JSON of positions", remedy="""Such as --start '{"0": 4096}'."""
            ) from None
    if text.lower() not in EDGES:
        _check_time(text)
    return text


def _refuse_latest(text: str, follow: bool) -> None:
    if text.lower() == "latest" and not follow:
        raise OptionError("--start latest without --follow would receive nothing", remedy="Add --follow.")


def _check_time(text: str) -> None:
    try:
        values.parse_moment(text)
    except ValueError as error:
        raise OptionError(
            f"--start must be earliest, latest, a position or {error}, not {text!r}", remedy="See --help."
        ) from None
