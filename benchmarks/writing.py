"""Measures the ``arrow`` sink, compared with a writer that discards its batches and a plain recorded publication."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import DataFrame

from benchmarks.environment import CHANNEL, Environment
from benchmarks.measure import Figure, measure_seconds
from benchmarks.samples import median_ratio

SIZES: Final = ((100, 3_000_000), (1_300, 300_000))  # bytes of a row's value, rows


def run(env: Environment) -> Iterator[Figure]:
    """Measure the sink with ``ack=driver`` and ``ack=archive``, with a cached DataFrame of one partition."""
    for length, rows in SIZES:
        count = 20_000 if env.quick else rows
        frame = _cached_frame(env, count, length)
        try:
            yield from _measure_ack_driver(env, frame, count, length)
            yield from _measure_ack_archive(env, frame, count, length)
        finally:
            frame.unpersist(blocking=True)


def _cached_frame(env: Environment, rows: int, length: int) -> DataFrame:
    value = f"cast(lpad(cast(id as string), {length}, 'x') as binary) value"
    frame = env.spark.range(0, rows, 1, 1).selectExpr("id", value).cache()
    assert frame.count() == rows
    return frame


def _measure_ack_driver(env: Environment, frame: DataFrame, rows: int, length: int) -> Iterator[Figure]:
    stream = env.new_stream_id()
    options = env.stream_options(stream, payload="arrow", ack="driver", record="never")
    cases = {"aeron": _saver(frame, "aeron", options), "discarding writer": _saver(frame, "discard", {})}
    with env.java_program("subscribe", CHANNEL, stream):
        durations = env.take_turns(cases, warm=2)
    yield _figure(f"arrow sink, ack=driver, {length} B", ">= 0.7", rows, length, durations)


def _measure_ack_archive(env: Environment, frame: DataFrame, rows: int, length: int) -> Iterator[Figure]:
    stream, plain = env.new_stream_id(), env.new_stream_id()
    save = _saver(frame, "aeron", env.stream_options(stream, payload="arrow", ack="archive", record="auto"))
    save()
    totals = env.read_batch(stream).selectExpr("count(*)", "sum(length(value))").first()
    assert totals is not None
    messages, size = totals
    discard = _saver(frame, "discard", {})
    with env.plain_recording(plain, messages, size // messages) as publish:
        durations = env.take_turns({"aeron": save, "plain recorded publication": publish, "discarding writer": discard})
    discarding = {"aeron": durations["aeron"], "discarding writer": durations.pop("discarding writer")}
    yield _figure(f"arrow sink, ack=archive, {length} B", "", rows, length, durations)
    yield _figure(f"arrow sink, ack=archive, against a discarding writer, {length} B", "", rows, length, discarding)


def _saver(frame: DataFrame, sink: str, options: dict[str, str]) -> Callable[[], float]:
    return lambda: measure_seconds(lambda: frame.write.format(sink).options(**options).mode("append").save())


def _figure(name: str, target: str, rows: int, length: int, durations: dict[str, list[float]]) -> Figure:
    rates = {program: [rows / seconds for seconds in samples] for program, samples in durations.items()}
    sink, compared = rates
    speed, compared_speed = (statistics.median(samples) for samples in rates.values())
    detail = (
        f"{speed / 1e6:.2f} Mrows/s, {speed * length / 1e6:.0f} MB/s; the {compared} {compared_speed / 1e6:.2f} Mrows/s"
    )
    return Figure(name, median_ratio(rates[sink], rates[compared]), f"of a {compared}", target, detail, rates)
