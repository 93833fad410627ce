"""``aeron-spark top --server``: watches the connections and streams of this machine's server, over its admin socket."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.cli.admin_client import ask
from aeron_spark.cli.connections import address_text, printed, streams_text
from aeron_spark.cli.output import compare_samples, make_table, print_json, print_lines, show_views
from aeron_spark.texts import escape_text, format_time, rounded_size

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, Group, RenderableType

CONNECTION_COLUMNS: Final = (
    "id", "name", "address", "state", "idle s#", "round trip ms#", "calls#", "waiting#", "in a second#",
    "out a second#", "streams",
)  # fmt: skip
STREAM_COLUMNS: Final = ("stream", "state", "partitions#", "kept#", "written a second#")
# Columns that a narrow terminal does not show, the first ones first.
OPTIONAL: Final = ("calls#", "round trip ms#", "streams", "idle s#", "id", "waiting#")
STREAM_OPTIONAL: Final = ("partitions#", "kept#")
LINE_COLUMNS: Final = {
    "connection": (
        "time", "id", "name", "tag", "address", "state", "idle s", "round trip ms", "calls", "bytes waiting",
        "in a second", "out a second", "streams",
    ),
    "stream": ("time", "stream", "state", "partitions", "kept", "written", "written a second"),
}  # fmt: skip
TABLE_BORDER_LINES: Final = 5  # title, header and border lines of a table
STREAMS_DIVISOR: Final = 3  # streams take at most a third of the screen

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerSample:
    """The reports of a server at one time. ``at`` is in monotonic seconds, ``time`` in seconds since 1970."""

    at: float
    time: float
    connections: Sequence[Report]
    streams: Sequence[Report]


@dataclass(frozen=True, slots=True)
class ServerView:
    """The reports of the second of two samples, with rates in bytes per second.

    Connections and streams that only the second sample has have rates of None. The busiest come first.
    """

    time: float
    connections: tuple[Report, ...]
    streams: tuple[Report, ...]


def show_server(path: Path, interval_s: float, count: int | None, as_json: bool) -> None:
    """Show the server at an admin socket every ``interval_s`` seconds, ``count`` times or until Ctrl-C."""
    views = compare_samples(lambda: _read_sample(path), view_of, interval_s, count)
    show_views(
        views, as_json, print_object=_print_object, print_rows=_print_rows, headers=LINE_COLUMNS, render=render_view
    )


def view_of(before: ServerSample, after: ServerSample) -> ServerView:
    """Return what has changed between two samples."""
    seconds = max(after.at - before.at, 1e-9)

    def rate(earlier: Report | None, later: Report, counter: str) -> float | None:
        return None if earlier is None else (later[counter] - earlier[counter]) / seconds

    earlier_connections = {(one["id"], one["since"]): one for one in before.connections}
    connections = []
    for one in after.connections:
        earlier = earlier_connections.get((one["id"], one["since"]))
        rates = {
            f"{direction}_per_second": rate(earlier, one, f"{direction}_bytes") for direction in ("received", "sent")
        }
        connections.append({**one, **rates})
    earlier_streams = {one["name"]: one for one in before.streams}
    streams = [
        {**one, "committed_per_second": rate(earlier_streams.get(one["name"]), one, "committed_bytes")}
        for one in after.streams
    ]
    connections.sort(key=lambda one: -(one["received_per_second"] or 0) - (one["sent_per_second"] or 0))
    streams.sort(key=lambda one: -(one["committed_per_second"] or 0))
    return ServerView(after.time, tuple(connections), tuple(streams))


def render_view(view: ServerView, screen: ConsoleDimensions) -> Group:
    """Return the view as two tables that fit the screen."""
    from rich.console import Group
    from rich.text import Text

    stream_room = min(len(view.streams), max(1, screen.height // STREAMS_DIVISOR - TABLE_BORDER_LINES - 1))
    used = TABLE_BORDER_LINES + stream_room + 1 if view.streams else 1
    connection_room = max(1, screen.height - used - TABLE_BORDER_LINES - 2)
    paused = sum(one["state"] == "paused" for one in view.connections)
    title = f"{len(view.connections)} connections, {paused} paused, at {format_time(view.time)}"
    rows = map(_connection_cells, view.connections[:connection_room])
    width = screen.width
    parts: list[RenderableType] = [make_table(title, CONNECTION_COLUMNS, rows, width=width, optional=OPTIONAL)]
    parts += _hidden(len(view.connections) - connection_room)
    if not view.streams:
        return Group(*parts, Text("no streams"))
    title = f"{len(view.streams)} streams"
    rows = map(_stream_cells, view.streams[:stream_room])
    parts.append(make_table(title, STREAM_COLUMNS, rows, width=width, optional=STREAM_OPTIONAL))
    return Group(*parts, *_hidden(len(view.streams) - stream_room))


def _read_sample(path: Path) -> ServerSample:
    connections, streams = ask(path, "connections.list")["connections"], ask(path, "streams.list")["streams"]
    return ServerSample(time.monotonic(), time.time(), connections, streams)


def _print_object(view: ServerView) -> None:
    connections = [printed(one) for one in view.connections]
    print_json({"time": format_time(view.time), "connections": connections, "streams": view.streams})


def _print_rows(view: ServerView) -> None:
    at = format_time(view.time)
    print_lines(
        (
            (
                at,
                one["id"],
                one["name"],
                escape_text(one["tag"]),
                address_text(one),
                one["state"],
                f"{one['idle_seconds']:.1f}",
                _milliseconds(one["round_trip_seconds"]),
                one["calls"],
                one["waiting_bytes"] + one["unacknowledged_bytes"],
                _rounded(one["received_per_second"]),
                _rounded(one["sent_per_second"]),
                streams_text(one["streams"]),
            )
            for one in view.connections
        ),
        "connection",
    )
    print_lines(
        (
            (
                at,
                escape_text(one["name"]),
                one["state"],
                one["partitions"],
                one["kept_bytes"],
                one["committed_bytes"],
                _rounded(one["committed_per_second"]),
            )
            for one in view.streams
        ),
        "stream",
    )


def _connection_cells(one: Report) -> tuple[object, ...]:
    return (
        one["id"], one["name"], address_text(one), one["state"], f"{one['idle_seconds']:.1f}",
        _milliseconds(one["round_trip_seconds"]), one["calls"],
        rounded_size(one["waiting_bytes"] + one["unacknowledged_bytes"]), _size(one["received_per_second"]),
        _size(one["sent_per_second"]), streams_text(one["streams"]),
    )  # fmt: skip


def _stream_cells(one: Report) -> tuple[object, ...]:
    return (
        escape_text(one["name"]), one["state"], one["partitions"], rounded_size(one["kept_bytes"]),
        _size(one["committed_per_second"]),
    )  # fmt: skip


def _hidden(count: int) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"and {count} more, with less traffic")] if count > 0 else []


def _milliseconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1000:.1f}"


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _size(rate: float | None) -> str:
    return "-" if rate is None else rounded_size(round(rate))
