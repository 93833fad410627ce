"""``aeron-spark stat|errors|loss|backlog|top``: shows counters, errors and loss of a media driver, also an ended one.

These commands read the files of the media driver. They need no JVM.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from aeron_spark.aeron import counters
from aeron_spark.cli.admin_client import admin_options, socket_path
from aeron_spark.cli.output import (
    aeron_dir_option,
    compare_samples,
    make_table,
    print_json,
    print_lines,
    print_table,
    show_views,
    table_options,
    time_cell,
)
from aeron_spark.cli.server_top import show_server
from aeron_spark.errors import OptionError
from aeron_spark.node import status
from aeron_spark.texts import format_time, rounded_size

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, Group, RenderableType


@click.command()
@aeron_dir_option
@click.option(
    "--label",
    metavar="TEXT",
    default="",
    help="Only counters whose label contains TEXT, with the same case.  [default: all counters]",
)
@table_options
def stat(aeron_dir: str | None, label: str, as_json: bool) -> None:
    """Show the counters of the media driver: id, value and label. Also those of one that has ended.

    \b
    For example:
      aeron-spark stat --label Bytes
    """
    directory = _driver_directory(aeron_dir)
    driver = counters.read_driver(directory)
    found = [counter for counter in counters.read_counters(directory) if label in counter.label]
    if as_json:
        for counter in found:
            print_json(counter)
        return
    title = (
        f"process {driver.pid} since {time_cell(driver.started)}, heartbeat {_age(driver)}, CnC {driver.cnc_version}"
    )
    rows = [(str(counter.id), counter.value, counter.label) for counter in found]
    print_table(title, ("id#", "value#", "label"), rows, empty="no counter has such a label")


@click.command()
@aeron_dir_option
@table_options
def errors(aeron_dir: str | None, as_json: bool) -> None:
    """Show the errors in the media driver's log: how often, first and last time, text.

    The log also has errors of the archive that runs with the media driver. It outlives the driver.
    """
    found = counters.read_errors(_driver_directory(aeron_dir))
    if as_json:
        for error in found:
            print_json(asdict(error) | {"first": format_time(error.first), "last": format_time(error.last)})
        return
    rows = [(error.observations, time_cell(error.first), time_cell(error.last), error.text) for error in found]
    print_table("distinct errors", ("times#", "first", "last", "error"), rows, empty="no errors", optional=("first",))


@click.command()
@aeron_dir_option
@table_options
def loss(aeron_dir: str | None, as_json: bool) -> None:
    """Show the packet loss that this media driver saw as a receiver, by stream and sender.

    Aeron sends lost data again on a reliable channel: loss costs time there, but no data.
    """
    found = counters.read_losses(_driver_directory(aeron_dir))
    if as_json:
        for lost in found:
            print_json(asdict(lost) | {"first": format_time(lost.first), "last": format_time(lost.last)})
        return
    rows = [
        (
            lost.observations,
            lost.bytes,
            time_cell(lost.first),
            time_cell(lost.last),
            lost.channel,
            str(lost.stream_id),
            lost.source,
        )
        for lost in found
    ]
    columns = ("times#", "bytes#", "first", "last", "channel", "stream", "source")
    print_table("losses", columns, rows, empty="no loss", optional=("first", "times#", "last"))


@click.command()
@aeron_dir_option
@table_options
def backlog(aeron_dir: str | None, as_json: bool) -> None:
    """Show how many bytes the slowest subscriber is behind, for each stream and Aeron session.

    With --json, each line has the positions of all subscribers.
    """
    found = counters.read_backlog(_driver_directory(aeron_dir))
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
    optional = ("subscribers#", "session", "received#", "published#")
    print_table("backlog in bytes", columns, rows, empty="no streams", optional=optional)


def _driver_directory(aeron_dir: str | None) -> str:
    """Return the driver's actual directory: without space in shared memory, the node uses a folder on disk."""
    return status(aeron_dir).aeron_dir


def _age(driver: counters.DriverInfo) -> str:
    if driver.heartbeat_age == float("inf"):
        return "ended"
    return f"{driver.heartbeat_age:.1f} s ago" + ("" if driver.alive else " (dead)")


SYSTEM_TYPE: Final = 0  # type of the counters of the driver itself, not of a stream

WATCHED: Final = ("Bytes sent", "Bytes received", "NAK", "Retransmit", "Loss", "Errors", "flow control", "exceeded")

TABLE_BORDER_LINES: Final = 5  # title, header and border lines of a table

COUNTER_COLUMNS: Final = ("counter", "total#", "a second#")
STREAM_COLUMNS: Final = (
    "channel", "stream", "session", "published#", "published a second#", "received#", "received a second#", "readers#",
    "behind#",
)  # fmt: skip
# Columns that a narrow terminal does not show, the first ones first.
OPTIONAL: Final = ("session", "published#", "received#", "readers#", "received a second#", "published a second#")


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters and positions of a driver at one time.

    ``at`` is in seconds of the monotonic clock, ``time`` in seconds since 1970. ``totals`` has the driver's own
    counters by label.
    """

    at: float
    driver: counters.DriverInfo
    totals: Mapping[str, int]
    streams: Sequence[counters.StreamBacklog]
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """A counter of the driver itself, and its increase per second since the previous sample."""

    counter: str
    total: int
    per_second: float


@dataclass(frozen=True, slots=True)
class StreamRate:
    """Positions and rates, in bytes per second, of one Aeron session of a stream.

    A position is None if this driver has no publisher or no receiver of the session, a rate also in the first sample.
    """

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
    """The changes between two samples; ``time`` is that of the second one, in seconds since 1970."""

    time: float
    pid: int
    alive: bool
    seconds: float
    counters: tuple[Rate, ...]
    streams: tuple[StreamRate, ...]


@click.command()
@aeron_dir_option
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    help="Time between two updates.",
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="End after N updates.  [default: run until Ctrl-C]")
@click.option("--server", "of_server", is_flag=True, help="Watch this machine's server in place of a media driver.")
@admin_options
@table_options
def top(
    aeron_dir: str | None,
    every: float,
    count: int | None,
    of_server: bool,
    config: Path | None,
    streams_dir: Path | None,
    admin_socket: Path | None,
    as_json: bool,
) -> None:
    """Watch a media driver: its counters and streams, those with the largest backlog first, then by throughput.

    With --server: the connections and streams of this machine's server, the busiest first. Rates are in bytes a second.

    To a pipe or a file, each update prints a line for each stream, and for each connection or each counter that is not
    0, with the time.
    """
    places = (config, streams_dir, admin_socket)
    if of_server:
        if aeron_dir is not None:
            raise OptionError("--aeron-dir is for the counters of a media driver", remedy="Leave out --aeron-dir.")
        show_server(socket_path(*places), every, count, as_json)
        return
    if places != (None, None, None):
        raise OptionError(
            "--config, --streams-dir and --admin-socket find a server, and this command watches a media driver",
            remedy="Add --server.",
        )
    directory = status(aeron_dir).aeron_dir
    show_views(
        compare_samples(lambda: read_sample(directory), rates_between, every, count),
        as_json,
        print_object=lambda view: print_json(asdict(view) | {"time": format_time(view.time)}),
        print_rows=_print_lines,
        headers={"counter": ("time", *COUNTER_COLUMNS), "stream": ("time", *STREAM_COLUMNS)},
        render=render_view,
    )


def _print_lines(view: View) -> None:
    at = format_time(view.time)
    print_lines(
        ((at, rate.counter, rate.total, round(rate.per_second)) for rate in view.counters if rate.total), "counter"
    )
    print_lines(
        (
            (
                at,
                stream.channel,
                stream.stream_id,
                stream.session_id,
                stream.published,
                None if stream.published_per_second is None else round(stream.published_per_second),
                stream.received,
                None if stream.received_per_second is None else round(stream.received_per_second),
                stream.subscribers,
                stream.behind,
            )
            for stream in view.streams
        ),
        "stream",
    )


def read_sample(directory: str) -> Sample:
    """Read the files of the driver in ``directory``, also of an ended one. Raises ConnectError if there are none."""
    totals = {
        counter.label: counter.value
        for counter in counters.read_counters(directory)
        if counter.type_id == SYSTEM_TYPE and any(word in counter.label for word in WATCHED)
    }
    driver, streams = counters.read_driver(directory), counters.read_backlog(directory)
    return Sample(time.monotonic(), driver, totals, streams, time.time())


def rates_between(before: Sample, after: Sample) -> View:
    """Return the rates between two samples. A stream that only the second one has gets no rates."""
    seconds = after.at - before.at
    earlier_streams = {(one.channel, one.stream_id, one.session_id): one for one in before.streams}

    def rate(earlier: int | None, later: int | None) -> float | None:
        return None if earlier is None or later is None else (later - earlier) / seconds

    streams = []
    for stream in after.streams:
        earlier = earlier_streams.get((stream.channel, stream.stream_id, stream.session_id))
        streams.append(
            StreamRate(
                stream.channel,
                stream.stream_id,
                stream.session_id,
                stream.publisher_position,
                rate(earlier.publisher_position if earlier else None, stream.publisher_position),
                stream.receiver_position,
                rate(earlier.receiver_position if earlier else None, stream.receiver_position),
                len(stream.subscribers),
                stream.behind,
            )
        )
    streams.sort(key=lambda one: (-one.behind, -(one.published_per_second or 0) - (one.received_per_second or 0)))
    rates = [
        Rate(name, total, (total - before.totals.get(name, total)) / seconds) for name, total in after.totals.items()
    ]
    return View(after.time, after.driver.pid, after.driver.alive, seconds, tuple(rates), tuple(streams))


def render_view(view: View, screen: ConsoleDimensions) -> Group:
    """Return the view as tables: the driver's counters that are not 0, and as many streams as fit the screen.

    A line gives the number of the others.
    """
    from rich.console import Group
    from rich.text import Text

    title = f"media driver of process {view.pid}{'' if view.alive else ' (dead)'}"
    driver_rows = [(rate.counter, rate.total, f"{rate.per_second:,.0f}") for rate in view.counters if rate.total]
    stream_rows = [
        (
            stream.channel,
            str(stream.stream_id),
            str(stream.session_id),
            _bytes(stream.published),
            _bytes(stream.published_per_second),
            _bytes(stream.received),
            _bytes(stream.received_per_second),
            stream.subscribers,
            rounded_size(stream.behind),
        )
        for stream in view.streams
    ]
    room = max(1, screen.height - len(driver_rows) - 2 * TABLE_BORDER_LINES - 1)
    width = screen.width
    parts: list[RenderableType] = [make_table(title, COUNTER_COLUMNS, driver_rows, width=width)]
    if stream_rows:
        parts.append(make_table("streams", STREAM_COLUMNS, stream_rows[:room], width=width, optional=OPTIONAL))
    else:
        parts.append(Text("no streams"))
    if len(stream_rows) > room:
        parts.append(Text(f"and {len(stream_rows) - room} more, with a smaller backlog"))
    return Group(*parts)


def _bytes(count: float | None) -> str:
    return "-" if count is None else rounded_size(int(count))
