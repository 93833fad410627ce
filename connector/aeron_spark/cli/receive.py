"""``aeron-spark receive``: from a stream to standard output or a file, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click
import pyarrow as pa

from aeron_spark.cli.inputs import FORMATS, format_of
from aeron_spark.cli.output import json_option
from aeron_spark.cli.outputs import Output, opened
from aeron_spark.cli.progress import progress
from aeron_spark.cli.through import receive_through
from aeron_spark.cli.through_streams import receive_rows
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
from aeron_spark.errors import OptionError, WaitTimeout
from aeron_spark.log.columns import VALUE
from aeron_spark.log.tail import RAW, Tail
from aeron_spark.opening import log_of
from aeron_spark.options import ReadOptions

POLL: Final = 0.02  # seconds between two looks at a stream where nothing is new


@click.command()
@way_options
@click.option("--payload", type=click.Choice(["auto", "raw", "framed", "arrow"]), help="What the messages are.")
@click.option(
    "--start", metavar="WHERE",
    help="earliest, latest, a position, with --stream also a time.  [default: latest with --follow]",
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
@server_option
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
    position, starting = _start(start, follow) if way["stream"] is None else (None, None)
    given = way_given(
        way,
        payload=payload,
        startingOffsets=starting,
        startPosition=str(position) if position is not None and not follow else None,
        includeMetadata="true" if metadata else None,
    )
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
    options = ReadOptions.parse(given, streaming=follow)
    wanted = _wanted_format(as_json, output, form)
    with interruption() as stopped, spoken_warnings(), opened(output, wanted) as out:
        run = _Run(out, count, timeout, stopped)
        try:
            run.receive(Tail(options, log_of, run.idle), follow=follow, position=position)
        except KeyboardInterrupt:
            run.interrupted = True
        finally:
            out.close(run.schema)
    if run.interrupted and not follow:
        click.echo(f"interrupted; {run.rows} rows were received", err=True)
        ctx.exit(INTERRUPTED)
    if count is not None and follow and run.rows < count and not run.interrupted:
        raise _too_few(run.rows, count, timeout)


def _wanted_format(as_json: bool, output: str | None, form: str | None) -> str:
    if as_json and form not in (None, "json"):
        raise OptionError(f"--json and --format {form} contradict", remedy="Give one of them.")
    wanted = "json" if as_json else format_of(output or "", form)
    if output is None and wanted in ("parquet", "arrow"):
        raise OptionError(f"{wanted} is written to a file", remedy="Name one with --output.")
    return wanted


def _through_server(given: dict[str, str], count: int | None, timeout: float | None, as_json: bool) -> None:
    with stopping() as stopped:
        receive_through(given, count=count, timeout=timeout, as_json=as_json, stopped=stopped)


def _from_stream(
    ctx: click.Context, given: dict[str, str], start: str | None, follow: bool, count: int | None,
    timeout: float | None, metadata: bool, output: str | None, form: str,
) -> None:  # fmt: skip
    if start is not None and start.lower() == "latest" and not follow:
        raise OptionError("--start latest without --follow would receive nothing", remedy="Add --follow.")
    of_direct = ("startingOffsets", "startPosition", "includeMetadata")  # said by arguments here
    given = {name: text for name, text in given.items() if name not in of_direct}
    with stopping() as stopped, opened(output, form) as out:
        came = receive_rows(
            given, out, start=start, follow=follow, count=count, timeout=timeout, metadata=metadata, stopped=stopped
        )
    if came.interrupted and not follow:
        click.echo(f"interrupted; {came.rows} rows were received", err=True)
        ctx.exit(INTERRUPTED)
    if count is not None and follow and came.rows < count and not came.interrupted:
        raise _too_few(came.rows, count, timeout)


def _refuse_with_server(why: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"--{name} is of no use here: {why}", remedy="Leave it out.")


def _too_few(rows: int, count: int, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(
        f"{rows} of {count} rows came, and no more for {timeout:g} s", remedy="Look whether anybody publishes."
    )


class _Run:
    """One receiving: what came, and when to end."""

    def __init__(self, out: Output, count: int | None, timeout: float | None, stopped: Callable[[], bool]) -> None:
        self.rows = 0
        self.interrupted = False
        self.schema: pa.Schema = RAW
        self._out = out
        self._count = count
        self._timeout = timeout
        self._stopped = stopped
        self._last = time.monotonic()

    def receive(self, tail: Tail, *, follow: bool, position: int | None) -> None:
        """Write all batches that are wanted."""
        with progress("receiving", None) as advance:
            for received in tail.batches(follow=follow, position=position):
                batch = received.batch
                if self._count is not None:
                    batch = batch.slice(0, self._count - self.rows)
                self._out.write(received.payload, batch)
                self.rows += batch.num_rows
                advance(batch.num_rows, batch.nbytes)
                self._last = time.monotonic()
                if self._stopped():
                    self.interrupted = True
                if self.interrupted or self.rows == self._count:
                    return
        if tail.content is not None and tail.content.payload != "raw":
            self.schema = tail.content.schema or VALUE

    def idle(self) -> bool:
        """Wait a little for more; False when it is time to end."""
        if self._stopped():
            self.interrupted = True
            return False
        if self._timeout is not None and time.monotonic() - self._last >= self._timeout:
            return False
        time.sleep(POLL)
        return True


def _start(text: str | None, follow: bool) -> tuple[int | None, str | None]:
    """Return a position to begin at, or what ``startingOffsets`` is."""
    if text is None:
        return None, None
    if text.isdecimal() and text.isascii():
        return int(text), None
    if text.lower() == "latest" and not follow:
        raise OptionError("--start latest without --follow would receive nothing", remedy="Add --follow.")
    return None, text
