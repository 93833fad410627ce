"""``top --server``: rates between two samples of a server, and their display."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from aeron_spark.cli.main import main
from aeron_spark.cli.server_top import ServerSample, ServerView, render_view, view_of
from aeron_spark.server.operator import AdminSocket, OperatorService

Report = Mapping[str, Any]


def connection(name: str, received: int, sent: int = 0, **changes: object) -> dict[str, Any]:
    return {
        "id": f"id-{name}", "name": name, "key": "aeron-spark:x", "tag": "tag", "address": "192.0.2.7", "port": 4000,
        "since": 5.0, "state": "connected", "idle_seconds": 0.25, "round_trip_seconds": 0.002, "calls": 1,
        "waiting_bytes": 1024, "unacknowledged_bytes": 1024, "streams": ["orders"], "bulk_links": 1,
        "received_bytes": received, "sent_bytes": sent, **changes,
    }  # fmt: skip


def stream(name: str, committed: int) -> dict[str, Any]:
    return {"name": name, "state": "ok", "partitions": 4, "kept_bytes": 2048, "committed_bytes": committed}


def view(before: list[Report], after: list[Report], *streams: tuple[Report, Report]) -> ServerView:
    return view_of(
        ServerSample(10.0, 100.0, before, [one for one, _ in streams]),
        ServerSample(12.0, 102.0, after, [one for _, one in streams]),
    )


def lines_of(seen: ServerView, width: int, height: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(render_view(seen, ConsoleDimensions(width, height)))
    return captured.get().splitlines()


def test_rates_are_per_second_and_the_busiest_connection_and_stream_come_first() -> None:
    seen = view(
        [connection("slow", 100), connection("fast", 0, 0)],
        [connection("slow", 300), connection("fast", 0, 9000), connection("new", 10**9)],
        (stream("quiet", 7), stream("quiet", 7)), (stream("busy", 0), stream("busy", 500)),
    )  # fmt: skip
    assert [(one["name"], one["received_per_second"], one["sent_per_second"]) for one in seen.connections] == [
        ("fast", 0.0, 4500.0), ("slow", 100.0, 0.0), ("new", None, None),
    ]  # fmt: skip
    assert [(one["name"], one["committed_per_second"]) for one in seen.streams] == [("busy", 250.0), ("quiet", 0.0)]
    assert seen.time == 102.0


def test_an_id_that_another_connection_has_now_gives_no_rate() -> None:
    seen = view([connection("desk", 9000, since=1.0)], [connection("desk", 10, since=2.0)])
    assert seen.connections[0]["received_per_second"] is None


def test_the_display_has_both_tables() -> None:
    seen = view(
        [connection("desk-7", 0)], [connection("desk-7", 4096, state="paused")], (stream("s", 0), stream("s", 1 << 20))
    )
    text = "\n".join(lines_of(seen, 200, 40))
    for part in ("1 connections, 1 paused", "192.0.2.7:4000", "2.0 KiB", "orders", "1 streams", "512.0 KiB"):
        assert part in text


@pytest.mark.parametrize("streams", [0, 1, 100])
@pytest.mark.parametrize("height", [20, 24, 50])
def test_the_display_fits_the_height_of_the_screen(streams: int, height: int) -> None:
    reports = [connection(str(number), number) for number in range(100)]
    pairs = [(stream(str(number), 0), stream(str(number), number)) for number in range(streams)]
    lines = lines_of(view(reports, reports, *pairs), 120, height)
    assert len(lines) <= height
    assert any(line.endswith("more, with less traffic") for line in lines)


def test_the_command_prints_lines_and_objects_with_the_values_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = iter(range(0, 10**6, 1000))
    commands = {
        "connections.list": lambda _: {"connections": [connection("desk-7", next(counts), tag="\x1b")]},
        "streams.list": lambda _: {"streams": [stream("o\nrders", next(counts))]},
    }
    reported: list[BaseException] = []
    admin = AdminSocket(tmp_path / "admin.sock", OperatorService(commands, reported.append).respond, reported.append)
    arguments = ["top", "--server", "--count", "2", "--every", "0.1", "--streams-dir", str(tmp_path)]
    try:
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main([*arguments, "--json"]) == 0
        objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    finally:
        admin.close()
    assert reported == []
    assert [line.split("\t")[0] for line in lines] == ["connection", "stream"] * 2
    cells = lines[0].split("\t")
    assert cells[2:7] == ["id-desk-7", "desk-7", "\\u001b", "192.0.2.7:4000", "connected"]
    assert 0 < int(cells[11]) <= 20_000
    assert lines[1].split("\t")[2:5] == ["o\\u000arders", "ok", "4"]
    first, second = objects
    assert first["time"] < second["time"]
    assert 0 < second["connections"][0]["received_per_second"] <= 20_000
    assert second["connections"][0]["since"] == "1970-01-01T00:00:05.000Z"
    assert second["streams"][0]["name"] == "o\nrders"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("top --server --aeron-dir /dev/shm/x", "--aeron-dir is for the counters of a media driver"),
        ("top --streams-dir /srv/streams", "this command watches a media driver. Add --server."),
        ("top --server localhost:20121", "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_refused(line: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert problem in capsys.readouterr().err
