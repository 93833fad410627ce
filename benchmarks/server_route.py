"""Measures encrypted streams through a server, compared with the direct route, plain Aeron and Spark's own minimum."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from aeron_spark.pool import POOL
from benchmarks.environment import CHANNEL, Environment
from benchmarks.latency import INTERVAL_MS, MESSAGES, micro_batches
from benchmarks.measure import Figure, measure_seconds
from benchmarks.samples import median_ratio
from benchmarks.secure_server import run_server
from benchmarks.starting import LATER_TASKS, make_task, time_in_new_process

REPLAY_PORT: Final = 21592
LENGTH: Final = 1_300
ROWS: Final = 600_000
WARM_TURNS: Final = 5  # the JVMs of four processes compile frequent code: each of these turns is faster than the last
MTU: Final = 16_384  # of the plain replay: what `mtu=auto` finds on loopback
TERM_LENGTH: Final = "2m"
REPLAY_CHANNEL: Final = f"aeron:udp?endpoint=127.0.0.1:{REPLAY_PORT}"
RECORDED_CHANNEL: Final = f"{CHANNEL}?mtu={MTU}|term-length={TERM_LENGTH}"  # a replay takes both from its recording


NewStreamOptions = Callable[..., dict[str, str]]  # creates a stream on the server, and returns the options for it


def run(env: Environment) -> Iterator[Figure]:
    """Measure reading, writing, a small micro-batch, and the first rows of a task."""
    with run_server(env, "server-route") as server:
        new_stream_options = server.new_stream_options
        count = 20_000 if env.quick else ROWS
        frame = env.spark.range(0, count, 1, 1).selectExpr(
            "id", f"cast(lpad(cast(id as string), {LENGTH}, 'x') as binary) value"
        )
        frame = frame.cache()
        assert frame.count() == count
        yield from _measure_reading(env, new_stream_options, frame, count)
        yield from _measure_writing(env, new_stream_options, frame, count)
        frame.unpersist(blocking=True)
        yield from _measure_micro_batch(env, new_stream_options)
        yield _measure_first_rows(env, new_stream_options)


def _read_seconds(env: Environment, options: dict[str, str]) -> float:
    frame: Any = env.spark.read.format("aeron").options(**options).load()
    return measure_seconds(lambda: frame.write.format("noop").mode("overwrite").save())


def _save_seconds(frame: Any, options: dict[str, str]) -> float:
    return measure_seconds(lambda: frame.write.format("aeron").options(**options).mode("append").save())


def _measure_reading(
    env: Environment, new_stream_options: NewStreamOptions, frame: Any, count: int
) -> Iterator[Figure]:
    for payload in ("raw", "arrow"):
        rows = frame.select("value") if payload == "raw" else frame
        server = {**new_stream_options(), "payload": payload}
        _save_seconds(rows, server)
        direct = {**env.stream_options(env.new_stream_id()), "payload": payload}
        _save_seconds(rows, {**direct, "record": "auto", "ack": "archive"})
        durations = env.take_turns(
            {
                "through the server": partial(_read_seconds, env, server),
                "direct": partial(_read_seconds, env, direct),
            },
            warm=WARM_TURNS,
        )
        yield _figure(f"through a server, read {payload} over IPC, {LENGTH} B", "of the direct route", count, durations)
        if payload == "raw":
            yield _measure_reading_over_udp(env, server, count)


def _measure_reading_over_udp(env: Environment, server: dict[str, str], count: int) -> Figure:
    stream = env.new_stream_id()
    options = {**server, "ipc": "never"}
    with env.plain_recording(stream, count, LENGTH, RECORDED_CHANNEL) as publish:
        publish()
    with env.java_program("replay", env.node.control_channel, stream, REPLAY_CHANNEL, stream + 100_000) as request:
        durations = env.take_turns(
            {"through the server": lambda: _read_seconds(env, options), "plain replay": lambda: float(request("go"))},
            warm=WARM_TURNS,
        )
    return _figure(
        f"through a server, read raw over loopback UDP, {LENGTH} B",
        "of a plain Aeron replay",
        count,
        durations,
    )


def _measure_writing(
    env: Environment, new_stream_options: NewStreamOptions, frame: Any, count: int
) -> Iterator[Figure]:
    server = new_stream_options(payload="arrow")
    direct = env.stream_options(env.new_stream_id(), payload="arrow", ack="archive", record="auto")
    durations = env.take_turns(
        {"through the server": lambda: _save_seconds(frame, server), "direct": lambda: _save_seconds(frame, direct)},
        warm=WARM_TURNS,
    )
    yield _figure(f"through a server, write arrow exactly once, {LENGTH} B", "of the direct sink", count, durations)


def _figure(name: str, unit: str, rows: int, durations: dict[str, list[float]]) -> Figure:
    rates = {program: [rows / seconds for seconds in samples] for program, samples in durations.items()}
    server, compared = rates.values()
    medians = ", ".join(
        f"{program} {statistics.median(samples) * LENGTH / 1e6:.0f} MB/s" for program, samples in rates.items()
    )
    return Figure(name, median_ratio(server, compared), unit, "", medians, rates)


def _measure_micro_batch(env: Environment, new_stream_options: NewStreamOptions) -> Iterator[Figure]:
    """Copy a few rows from one stream of the server to another; compare a trivial source with a discarding sink."""
    source, target = new_stream_options(payload="raw"), new_stream_options(payload="raw")
    _save_seconds(_few_rows(env), source)
    ticks = env.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", MESSAGES).load()
    feed = (
        ticks.selectExpr("cast(lpad(cast(value as string), 100, 'x') as binary) value")
        .writeStream.format("aeron").options(**source)
        .option("checkpointLocation", str(env.folder / "feed"))
        .trigger(processingTime=f"{INTERVAL_MS} milliseconds").start()
    )  # fmt: skip
    trivial = {
        "rows": str(MESSAGES), "batch": str(MESSAGES), "length": "100", "interval_ms": str(INTERVAL_MS),
    }  # fmt: skip

    def median_ms(name: str, options: dict[str, str], sink: str, sink_options: dict[str, str]) -> float:
        batches = micro_batches(env, name, options, sink=sink, sink_options=sink_options)
        return statistics.median(steps["triggerExecution"] for steps in batches)

    try:
        millis = env.take_turns(
            {
                "through the server": lambda: median_ms("aeron", source, "aeron", target),
                "minimum": lambda: median_ms("prebuilt", trivial, "discard", {}),
            }
        )
    finally:
        feed.stop()
    yield Figure(
        "through a server, micro-batch from stream to stream",
        median_ratio(millis["through the server"], millis["minimum"]),
        "times Spark's own minimum",
        "<= 1.5",
        f"{statistics.median(millis['through the server']):.0f} ms, "
        f"the minimum {statistics.median(millis['minimum']):.0f} ms",
        millis,
    )


def _measure_first_rows(env: Environment, new_stream_options: NewStreamOptions) -> Figure:
    """Measure the time to a task's first rows over the connection that an earlier task of its process has made."""
    options = new_stream_options(payload="raw")
    _save_seconds(_few_rows(env), options)
    try:
        ranges = tuple(make_task(options).stream().whole())
    finally:
        POOL.close()
    runs = [time_in_new_process(options, ranges, 3 if env.quick else LATER_TASKS) for _ in range(env.rounds)]
    millis = [1000 * seconds for run in runs for seconds in run[1:]]
    firsts = [run[0] for run in runs]
    return Figure(
        "through a server, a task over an open connection",
        statistics.median(millis),
        "ms",
        "<= 20",
        f"to its first rows, median of {len(millis)}, the longest {max(millis):.0f} ms; the first task of a process, "
        f"with JVM and handshake, {statistics.median(firsts):.2f} s",
        {"milliseconds": millis, "first seconds": firsts},
    )


def _few_rows(env: Environment) -> Any:
    return env.spark.range(0, MESSAGES, 1, 1).selectExpr("cast(lpad(cast(id as string), 100, 'x') as binary) value")
