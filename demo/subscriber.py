"""Starts Aeron's sample program ``io.aeron.samples.BasicSubscriber`` and parses its output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aeron_spark.aeron.jvm import classpath, find_library
from demo.flights import Day
from demo.processes import Process

MESSAGE: Final = re.compile(r"Message to stream \d+ from session .*? <<(.*)>>$")


def start(aeron_dir: str, channel: str, stream_id: int, output: Path) -> Process:
    """Start the subscriber, a plain Aeron program."""
    return Process(
        "the plain Aeron subscriber",
        [
            Path(find_library()).parents[2] / "bin" / "java",  # the same Java as for the other processes
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xmx64m",
            f"-Daeron.dir={aeron_dir}",
            f"-Daeron.sample.channel={channel}",
            f"-Daeron.sample.streamId={stream_id}",
            "-cp",
            next(jar for jar in classpath() if Path(jar).name.startswith("aeron-all")),
            "io.aeron.samples.BasicSubscriber",
        ],
        output,
    )


def messages(lines: Iterable[str]) -> list[str]:
    """Return the messages in the lines that the subscriber printed."""
    return [found[1] for line in lines if (found := MESSAGE.search(line))]


def latest_days(received: Iterable[str]) -> dict[str, Day]:
    """Return the newest result of each day: the one with most flights, because their number only increases."""
    days: dict[str, Day] = {}
    for message in received:
        row = json.loads(message)
        day = Day(row["flights"], row["departed"], row["delay"])
        days[row["day"]] = max(day, days.get(row["day"], day))
    return days
