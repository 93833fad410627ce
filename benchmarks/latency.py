"""Measures a micro-batch of a few messages, compared with one of a trivial Python stream source."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aeron_spark.jobs.session import begin
from benchmarks.environment import CHANNEL, Environment
from benchmarks.measure import Figure
from benchmarks.samples import median_ratio

INTERVAL_MS: Final = 200  # between messages, longer than a micro-batch takes
MESSAGES: Final = 3
BATCHES: Final = 20  # measured of each query
WARM_BATCHES: Final = 5  # the first ones of each query, not measured
TIMEOUT_S: Final = 120.0  # for a query to have run these micro-batches
STEPS: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def run(env: Environment) -> Iterator[Figure]:
    """Run a query of each source in turns, while another program publishes to a recorded stream."""
    stream = env.new_stream_id()
    aeron_options = env.stream_options(stream, payload="raw", record="auto")
    trivial_options = {
        "rows": str(MESSAGES), "batch": str(MESSAGES), "length": "100", "interval_ms": str(INTERVAL_MS),
    }  # fmt: skip
    batches: dict[str, list[Mapping[str, float]]] = {"aeron": [], "trivial": []}

    def median_ms(source: str, name: str, options: Mapping[str, str]) -> float:
        run_batches = micro_batches(env, source, options)
        batches[name] += run_batches
        return statistics.median(steps["triggerExecution"] for steps in run_batches)

    with env.java_program("tick", CHANNEL, stream, INTERVAL_MS, MESSAGES):
        millis = env.take_turns(
            {
                "aeron": lambda: median_ms("aeron", "aeron", aeron_options),
                "trivial": lambda: median_ms("prebuilt", "trivial", trivial_options),
            }
        )
    yield Figure(
        "micro-batch of a few messages",
        median_ratio(millis["aeron"], millis["trivial"]),
        "times a trivial source's",
        "<= 1.02",
        f"{statistics.median(millis['aeron']):.0f} ms, of which {_median_steps(batches['aeron'])}; the trivial source "
        f"{statistics.median(millis['trivial']):.0f} ms: {_median_steps(batches['trivial'])}",
        millis,
    )


def micro_batches(
    env: Environment,
    source: str,
    options: Mapping[str, str],
    *,
    sink: str = "noop",
    sink_options: Mapping[str, str] | None = None,
) -> list[Mapping[str, float]]:
    """Run a query until it has had enough micro-batches with rows; return the milliseconds of each of their steps.

    ``noop``, Spark's own sink, takes all columns; any other ``sink`` takes the column ``value``.
    """
    warm, measured = (1, 2) if env.quick else (WARM_BATCHES, BATCHES)
    rows = env.spark.readStream.format(source).options(**options).load()
    checkpoint = str(env.folder / f"checkpoint-{env.new_stream_id()}")
    rows = rows if sink == "noop" else rows.select("value")
    writer = rows.writeStream.format(sink).options(**dict(sink_options or {})).option("checkpointLocation", checkpoint)
    query = begin(writer.start)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while len(batches := _batches_with_rows(query)) < warm + measured:
            if query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the query of {source} ran {len(batches)} micro-batches with rows, expected {warm + measured} "
                    f"within {TIMEOUT_S:g} s: {query.exception() or query.status}"
                )
            time.sleep(INTERVAL_MS / 1000)
    finally:
        query.stop()
    return batches[warm : warm + measured]


def _batches_with_rows(query: Any) -> list[Mapping[str, float]]:
    return [dict(progress.durationMs) for progress in query.recentProgress if progress.numInputRows]


def _median_steps(batches: list[Mapping[str, float]]) -> str:
    return ", ".join(f"{step} {statistics.median(steps.get(step, 0) for steps in batches):.0f}" for step in STEPS)
