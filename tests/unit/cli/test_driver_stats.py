"""``top``: rates between two samples of a media driver, and their display."""

from __future__ import annotations

import io

from rich.console import Console, ConsoleDimensions

from aeron_spark.aeron.counters import DriverInfo, StreamBacklog, SubscriberBacklog
from aeron_spark.cli.driver_stats import Rate, Sample, View, rates_between, render_view

DRIVER = DriverInfo(4711, 0.0, 0.1, "/dev/shm/x", "0.2.0")


def stream(stream_id: int, published: int | None, received: int | None = None, behind: int = 0) -> StreamBacklog:
    reader = (SubscriberBacklog(1, 0, behind),)
    return StreamBacklog("aeron:ipc", stream_id, 7, published, None, None, received, received, reader)


def test_rates_are_per_second() -> None:
    before = Sample(10.0, DRIVER, {"Bytes sent": 1000}, [stream(1, 100, 50), stream(2, None, 0)])
    after = Sample(12.0, DRIVER, {"Bytes sent": 5000, "Errors": 3}, [stream(1, 300, 60), stream(2, None, 64)])
    seen = rates_between(before, after)
    assert seen.seconds == 2.0
    assert seen.counters == (Rate("Bytes sent", 5000, 2000.0), Rate("Errors", 3, 0.0))
    assert [(x.stream_id, x.published_per_second, x.received_per_second) for x in seen.streams] == [
        (1, 100.0, 5.0),
        (2, None, 32.0),
    ]


def test_a_new_stream_has_no_rate_and_the_largest_backlog_comes_first() -> None:
    before = Sample(0.0, DRIVER, {}, [stream(1, 0)])
    seen = rates_between(before, Sample(1.0, DRIVER, {}, [stream(1, 9_999), stream(2, 500, behind=10)]))
    assert [(x.stream_id, x.behind, x.published_per_second) for x in seen.streams] == [(2, 10, None), (1, 0, 9_999.0)]


def test_the_display_has_streams_and_counters_that_are_not_0() -> None:
    before = Sample(0.0, DRIVER, {"Bytes sent": 0, "Errors": 0}, [stream(1001, 0)])
    seen = rates_between(before, Sample(1.0, DRIVER, {"Bytes sent": 4096, "Errors": 0}, [stream(1001, 2048)]))
    text = "\n".join(lines_of(seen, 200))
    assert "media driver of process 4711" in text
    assert "4,096" in text
    assert "2.0 KiB" in text
    assert "Errors" not in text  # its value is 0


def test_the_display_fits_the_height_of_the_screen() -> None:
    before = Sample(0.0, DRIVER, {"Bytes sent": 0}, [])
    seen = rates_between(
        before, Sample(1.0, DRIVER, {"Bytes sent": 1}, [stream(number, number) for number in range(100)])
    )
    lines = lines_of(seen, 80, 24)
    assert len(lines) <= 24
    assert lines[-1].startswith("and 88 more")


def lines_of(seen: View, width: int, height: int = 50) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(render_view(seen, ConsoleDimensions(width, height)))
    return captured.get().splitlines()
