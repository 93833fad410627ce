"""How long a micro-batch of a few messages takes, compared with one of a trivial Python stream source."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks.measure import Figure, ratio
from benchmarks.stage import CHANNEL, Stage
from spark_jobs.session import begin

EVERY: Final = 200  # milliseconds between messages, longer than a micro-batch takes
MESSAGES: Final = 3
BATCHES: Final = 20  # measured of each query
WARM: Final = 5  # the first ones of each query, not measured
TIMEOUT: Final = 120.0  # seconds for a query to have had them
STEPS: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def run(stage: Stage) -> Iterator[Figure]:
    """Run one query of each in turns, while another program publishes to a recorded stream."""
    stream = stage.new_stream()
    own = stage.options(stream, payload="raw", record="auto")
    tick = {"rows": str(MESSAGES), "batch": str(MESSAGES), "length": "100", "every": str(EVERY)}
    batches: dict[str, list[Mapping[str, float]]] = {"aeron": [], "trivial": []}

    def median_of(source: str, name: str, options: Mapping[str, str]) -> float:
        found = micro_batches(stage, source, options)
        batches[name] += found
        return statistics.median(one["triggerExecution"] for one in found)

    with stage.java("tick", CHANNEL, stream, EVERY, MESSAGES):
        taken = stage.turns(
            {
                "aeron": lambda: median_of("aeron", "aeron", own),
                "trivial": lambda: median_of("prebuilt", "trivial", tick),
            }
        )
    yield Figure(
        "micro-batch of a few messages",
        ratio(taken["aeron"], taken["trivial"]),
        "times a trivial source's",
        "<= 1.25",
        f"{statistics.median(taken['aeron']):.0f} ms, of which {_steps(batches['aeron'])}; the trivial source "
        f"{statistics.median(taken['trivial']):.0f} ms: {_steps(batches['trivial'])}",
        taken,
    )


def micro_batches(
    stage: Stage, source: str, options: Mapping[str, str], *, sink: str = "noop", sunk: Mapping[str, str] | None = None
) -> list[Mapping[str, float]]:
    """Run a query until it has had enough micro-batches with rows; return the milliseconds of each of their steps.

    ``sink`` takes the column ``value`` with the options ``sunk``, unless it is Spark's own that takes all.
    """
    warm, wanted = (1, 2) if stage.quick else (WARM, BATCHES)
    rows = stage.spark.readStream.format(source).options(**options).load()
    checkpoint = str(stage.work / f"checkpoint-{stage.new_stream()}")
    rows = rows if sink == "noop" else rows.select("value")
    writer = rows.writeStream.format(sink).options(**dict(sunk or {})).option("checkpointLocation", checkpoint)
    query = begin(writer.start)
    try:
        deadline = time.monotonic() + TIMEOUT
        while len(found := _with_rows(query)) < warm + wanted:
            if query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{source} gave {len(found)} micro-batches: {query.exception() or query.status}")
            time.sleep(EVERY / 1000)
    finally:
        query.stop()
    return found[warm : warm + wanted]


def _with_rows(query: Any) -> list[Mapping[str, float]]:
    return [dict(progress.durationMs) for progress in query.recentProgress if progress.numInputRows]


def _steps(batches: list[Mapping[str, float]]) -> str:
    return ", ".join(f"{step} {statistics.median(one.get(step, 0) for one in batches):.0f}" for step in STEPS)
