"""``aeron-spark stat|errors|loss|backlog``: what a media driver says about itself, live or dead."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import click

from aeron_spark.aeron import counters
from aeron_spark.cli import output
from aeron_spark.cli.output import (
    aeron_dir_option,
    iso,
    json_option,
    moment,
    print_json,
    print_lines,
    print_table,
    size,
    table,
)
from aeron_spark.node import status

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


@click.command()
@aeron_dir_option
@click.option("--label", metavar="TEXT", default="", help="Only counters whose label contains this.")
@json_option
def stat(aeron_dir: str | None, label: str, as_json: bool) -> None:
    """Show the media driver's counters."""
    directory = _directory(aeron_dir)
    driver = counters.read_driver(directory)
    found = [counter for counter in counters.read_counters(directory) if label in counter.label]
    if as_json:
        for counter in found:
            print_json(counter)
        return
    title = f"process {driver.pid} since {moment(driver.started)}, heartbeat {_age(driver)}, CnC {driver.cnc_version}"
    rows = [(str(counter.id), counter.value, counter.label) for counter in found]
    print_table(title, ("id#", "value#", "label"), rows, empty="no such counters")


@click.command()
@aeron_dir_option
@json_option
def errors(aeron_dir: str | None, as_json: bool) -> None:
    """Show the media driver's distinct errors."""
    found = counters.read_errors(_directory(aeron_dir))
    if as_json:
        for error in found:
            print_json(asdict(error) | {"first": iso(error.first), "last": iso(error.last)})
        return
    rows = [(error.observations, moment(error.first), moment(error.last), error.text) for error in found]
    print_table("distinct errors", ("times#", "first", "last", "error"), rows, empty="no errors")


@click.command()
@aeron_dir_option
@json_option
def loss(aeron_dir: str | None, as_json: bool) -> None:
    """Show what did not arrive at first, by stream."""
    found = counters.read_losses(_directory(aeron_dir))
    if as_json:
        for lost in found:
            print_json(asdict(lost) | {"first": iso(lost.first), "last": iso(lost.last)})
        return
    rows = [
        (x.observations, x.bytes, moment(x.first), moment(x.last), x.channel, str(x.stream_id), x.source) for x in found
    ]
    columns = ("times#", "bytes#", "first", "last", "channel", "stream", "source")
    print_table("losses", columns, rows, empty="nothing was lost")


@click.command()
@aeron_dir_option
@json_option
def backlog(aeron_dir: str | None, as_json: bool) -> None:
    """Show how far each subscriber is behind, by stream and session."""
    found = counters.read_backlog(_directory(aeron_dir))
    if as_json:
        for stream in found:
            print_json(stream)
        return
    rows = [
        (
            stream.channel,
            str(stream.stream_id),
            str(stream.session_id),
            stream.publisher_position,
            stream.receiver_position,
            len(stream.subscribers),
            stream.behind,
        )
        for stream in found
    ]
    columns = ("channel", "stream", "session", "published#", "received#", "subscribers#", "behind#")
    print_table("backlog in bytes", columns, rows, empty="no streams")


def _directory(aeron_dir: str | None) -> str:
    """Return where the driver really is: the default directory may have fallen back to disk."""
    return status(aeron_dir).aeron_dir


def _age(driver: counters.DriverInfo) -> str:
    if driver.heartbeat_age == float("inf"):
        return "ended"
    return f"{driver.heartbeat_age:.1f} s ago" + ("" if driver.alive else " (dead)")


SYSTEM_TYPE: Final = 0  # of a counter that is the driver's own, not a stream's

WATCHED: Final = ("Bytes sent", "Bytes received", "NAK", "Retransmit", "Loss", "Errors", "flow control", "exceeded")

FRAME_LINES: Final = 5  # of a table: its title, its head, and the lines around them

COLUMNS: Final = ("channel", "stream", "session", "published", "a second", "received", "a second", "readers#", "behind")


@dataclass(frozen=True, slots=True)
class Sample:
    """What a driver said at one moment: ``at`` in seconds of the monotonic clock, counters by label.

    ``time`` is in seconds since the epoch.
    """

    at: float
    driver: counters.DriverInfo
    totals: Mapping[str, int]
    streams: Sequence[counters.StreamBacklog]
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """A driver's own counter: what it is, and what was added a second since the last look."""

    counter: str
    total: int
    per_second: float


@dataclass(frozen=True, slots=True)
class StreamRate:
    """One session of a stream: positions and bytes a second; None where this driver has no such end or no speed yet."""

    channel: str
    stream_id: int
    session_id: int
    published: int | None
    published_per_second: float | None
    received: int | None
    received_per_second: float | None
    subscribers: int
    behind: int


@dataclass(frozen=True, slots=True)
class View:
    """What moved between two looks; ``time`` is that of the second one, in seconds since the epoch."""

    time: float
    pid: int
    alive: bool
    seconds: float
    counters: tuple[Rate, ...]
    streams: tuple[StreamRate, ...]


@click.command()
@aeron_dir_option
@click.option(
    "--every", metavar="SECONDS", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Between two looks."
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="End after this many.  [default: at Ctrl-C]")
@json_option
def top(aeron_dir: str | None, every: float, count: int | None, as_json: bool) -> None:
    """Show what a media driver does, as it does it: streams by who is behind, then by speed.

    To a pipe or a file it prints a line for each counter that is not 0 and each stream, each with the time of the look.
    """
    views = _views(status(aeron_dir).aeron_dir, every, count)
    try:
        if as_json:
            for seen in views:
                print_json(asdict(seen) | {"time": iso(seen.time)})
        elif output.is_terminal():
            _show_live(views)
        else:
            for seen in views:
                _print_lines(seen)
    except KeyboardInterrupt:  # the ordinary end of a view
        pass


def _show_live(views: Iterator[View]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for seen in views:
            live.update(shown(seen, console.height), refresh=True)


def _print_lines(seen: View) -> None:
    at = iso(seen.time)
    print_lines(((at, x.counter, x.total, round(x.per_second)) for x in seen.counters if x.total), "counter")
    print_lines(
        (
            (
                at,
                x.channel,
                x.stream_id,
                x.session_id,
                x.published,
                None if x.published_per_second is None else round(x.published_per_second),
                x.received,
                None if x.received_per_second is None else round(x.received_per_second),
                x.subscribers,
                x.behind,
            )
            for x in seen.streams
        ),
        "stream",
    )


def _views(directory: str, every: float, count: int | None) -> Iterator[View]:
    """Yield what moved, each ``every`` seconds."""
    before = sample(directory)
    for _ in range(count) if count else itertools.count():
        time.sleep(every)
        after = sample(directory)
        yield view(before, after)
        before = after


def sample(directory: str) -> Sample:
    """Ask the driver in ``directory``, live or dead; raise ConnectError where none was ever there."""
    totals = {
        counter.label: counter.value
        for counter in counters.read_counters(directory)
        if counter.type_id == SYSTEM_TYPE and any(word in counter.label for word in WATCHED)
    }
    driver, streams = counters.read_driver(directory), counters.read_backlog(directory)
    return Sample(time.monotonic(), driver, totals, streams, time.time())


def view(before: Sample, after: Sample) -> View:
    """Return what moved from one look to the next; a stream that was not there before has no speed yet."""
    seconds = after.at - before.at
    known = {(x.channel, x.stream_id, x.session_id): x for x in before.streams}

    def rate(then: int | None, now: int | None) -> float | None:
        return None if then is None or now is None else (now - then) / seconds

    streams = []
    for now in after.streams:
        then = known.get((now.channel, now.stream_id, now.session_id))
        streams.append(
            StreamRate(
                now.channel,
                now.stream_id,
                now.session_id,
                now.publisher_position,
                rate(then.publisher_position if then else None, now.publisher_position),
                now.receiver_position,
                rate(then.receiver_position if then else None, now.receiver_position),
                len(now.subscribers),
                now.behind,
            )
        )
    streams.sort(key=lambda x: (-x.behind, -(x.published_per_second or 0) - (x.received_per_second or 0)))
    rates = [
        Rate(name, total, (total - before.totals.get(name, total)) / seconds) for name, total in after.totals.items()
    ]
    return View(after.time, after.driver.pid, after.driver.alive, seconds, tuple(rates), tuple(streams))


def shown(seen: View, lines: int | None = None) -> Group:
    """Return the view for a person: what the driver counts, where it is not nothing, and its streams.

    ``lines`` of a screen are not exceeded: the streams that are left out are counted.
    """
    from rich.console import Group
    from rich.text import Text

    title = f"media driver of process {seen.pid}{'' if seen.alive else ' (dead)'}"
    of_driver = [(rate.counter, rate.total, f"{rate.per_second:,.0f}") for rate in seen.counters if rate.total]
    of_streams = [
        (
            x.channel,
            str(x.stream_id),
            str(x.session_id),
            _bytes(x.published),
            _bytes(x.published_per_second),
            _bytes(x.received),
            _bytes(x.received_per_second),
            x.subscribers,
            size(x.behind),
        )
        for x in seen.streams
    ]
    room = len(of_streams) if lines is None else max(1, lines - len(of_driver) - 2 * FRAME_LINES - 1)
    parts: list[RenderableType] = [
        table(title, ("counter", "total#", "a second#"), of_driver, fold=False),
        table("streams", COLUMNS, of_streams[:room], fold=lines is None) if of_streams else Text("no streams"),
    ]
    if len(of_streams) > room:
        parts.append(Text(f"and {len(of_streams) - room} more, less behind"))
    return Group(*parts)


def _bytes(count: float | None) -> str:
    return "-" if count is None else size(int(count))
