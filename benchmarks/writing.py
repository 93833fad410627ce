"""How fast the ``arrow`` sink is: against a writer that throws away, and against plain Java that has it recorded."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import DataFrame

from benchmarks.measure import Figure, ratio, seconds
from benchmarks.stage import CHANNEL, Stage

SIZES: Final = ((100, 3_000_000), (1_300, 300_000))  # bytes of a row's value, rows


def run(stage: Stage) -> Iterator[Figure]:
    """Measure both kinds of acknowledgement, with a cached DataFrame of one partition."""
    for length, rows in SIZES:
        count = 20_000 if stage.quick else rows
        frame = _cached(stage, count, length)
        try:
            yield from _driver(stage, frame, count, length)
            yield from _archive(stage, frame, count, length)
        finally:
            frame.unpersist(blocking=True)


def _cached(stage: Stage, rows: int, length: int) -> DataFrame:
    value = f"cast(lpad(cast(id as string), {length}, 'x') as binary) value"
    frame = stage.spark.range(0, rows, 1, 1).selectExpr("id", value).cache()
    assert frame.count() == rows
    return frame


def _driver(stage: Stage, frame: DataFrame, rows: int, length: int) -> Iterator[Figure]:
    stream = stage.new_stream()
    own = stage.options(stream, payload="arrow", ack="driver", record="never")
    cases = {"aeron": _save(frame, "aeron", own), "discarding writer": _save(frame, "discard", {})}
    with stage.java("subscribe", CHANNEL, stream):
        taken = stage.turns(cases, warm=2)
    yield _figure(f"arrow sink, ack=driver, {length} B", ">= 0.7", rows, length, taken)


def _archive(stage: Stage, frame: DataFrame, rows: int, length: int) -> Iterator[Figure]:
    stream, plain = stage.new_stream(), stage.new_stream()
    own = stage.options(stream, payload="arrow", ack="archive", record="auto")
    save = _save(frame, "aeron", own)
    save()
    found = stage.batch(stream).selectExpr("count(*)", "sum(length(value))").first()
    assert found is not None
    messages, size = found
    discard = _save(frame, "discard", {})
    with stage.plain_recording(plain, messages, size // messages) as publish:
        taken = stage.turns({"aeron": save, "plain recorded publication": publish, "discarding writer": discard})
    discarded = {"aeron": taken["aeron"], "discarding writer": taken.pop("discarding writer")}
    yield _figure(f"arrow sink, ack=archive, {length} B", ">= 0.8", rows, length, taken)
    yield _figure(f"the same, beside what Spark hands over at all, {length} B", "", rows, length, discarded)


def _save(frame: DataFrame, sink: str, options: dict[str, str]) -> Callable[[], float]:
    return lambda: seconds(lambda: frame.write.format(sink).options(**options).mode("append").save())


def _figure(name: str, target: str, rows: int, length: int, taken: dict[str, list[float]]) -> Figure:
    rates = {who: [rows / one for one in times] for who, times in taken.items()}
    own, peer = rates
    speed = statistics.median(rates[own])
    other = statistics.median(rates[peer])
    detail = f"{speed / 1e6:.2f} Mrows/s, {speed * length / 1e6:.0f} MB/s; the other {other / 1e6:.2f} Mrows/s"
    return Figure(name, ratio(rates[own], rates[peer]), f"of a {peer}", target, detail, rates)
