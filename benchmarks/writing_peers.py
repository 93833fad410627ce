"""Compares writing with Spark's Kafka sink, a writer that drops, and a plain recorded publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.checks import Totals
from benchmarks.comparison import MEGABYTE, Program, compare
from benchmarks.corpora import CORPORA, chosen_names
from benchmarks.environment import Environment
from benchmarks.kafka.broker import Broker, run_broker
from benchmarks.kafka.settings import DEFAULT, EXACTLY_ONCE_WRITING, TUNED_WRITING, settings_text
from benchmarks.measure import Figure
from benchmarks.sinks import Sink, cached_frame

SIZES: Final = ("180 B", "1,300 B", "3,800 B")
BYTES: Final = 500e6  # of a turn; the turns of one size stay on disk until its end
OWN: Final = "aeron-spark"
TUNED, PLAIN, DROPPING = "Kafka, tuned, acks=1", "plain Java recorded publication", "Python writer that drops"
# Spark's JVM and its Python worker then work at the same time, also on long rows. Kafka's sink has no Python worker.
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": "1m"}
BARS: Final[Mapping[str, Mapping[str, str]]] = {
    "180 B": {TUNED: ">= 2.3", PLAIN: ">= 0.9"},
    "3,800 B": {TUNED: ">= 1.6", PLAIN: ">= 0.9"},
}


def run(env: Environment) -> Iterator[Figure]:
    """Write DataFrames of one partition that are in Spark's memory."""
    for number, name in enumerate(chosen_names(SIZES, quick=env.quick)):
        corpus = CORPORA[name].of_rows(int(BYTES / CORPORA[name].mean_length))
        with (
            env.on_another_node(f"writing-{number}") as own,
            run_broker(env.folder / f"kafka-writing-{number}") as broker,
            cached_frame(env, corpus.quick() if env.quick else corpus) as (frame, expected),
        ):
            yield from _figures(own, broker, name, frame, expected)


def _figures(env: Environment, broker: Broker, name: str, frame: Any, expected: Totals) -> Iterator[Figure]:
    own = _own_sink(env, f"{OWN}, tuned", SMALL_BATCHES)
    sinks = [
        own, _own_sink(env, OWN, {}), *_kafka_sinks(env, broker),
        Sink(DROPPING, "discard", {}, f"takes Arrow batches, writes nothing; {settings_text(SMALL_BATCHES)}",
             spark=SMALL_BATCHES),
    ]  # fmt: skip
    own.save(frame)
    messages, size = _messages(env, own)
    bars = BARS.get(name, {})
    programs = [Program(sink.name, partial(sink.save, frame), sink.settings, bars.get(sink.name, "")) for sink in sinks]
    with env.plain_recording(env.new_stream_id(), messages, size // messages) as publish:
        settings = f"{messages} messages of {size // messages} bytes, as the connector's"
        programs.append(Program(PLAIN, publish, settings, bars.get(PLAIN, "")))
        title = f"write of {name} rows, one task"
        yield from compare(env, title, programs, expected.size / MEGABYTE).figures()
    for sink in sinks:
        sink.check(env, expected)


def _own_sink(env: Environment, name: str, spark: Mapping[str, str]) -> Sink:
    stream = env.stream_options(env.new_stream_id(), payload="arrow")
    settings = f"payload=arrow, ack=archive, {settings_text(spark)}"
    return Sink(name, "aeron", {**stream, "ack": "archive", "record": "auto"}, settings, "aeron", stream, spark)


def _kafka_sinks(env: Environment, broker: Broker) -> Iterator[Sink]:
    cases = {
        "Kafka": DEFAULT, TUNED: TUNED_WRITING, "Kafka, tuned, acks=all, idempotent": EXACTLY_ONCE_WRITING,
    }  # fmt: skip
    for name, settings in cases.items():
        topic = f"write-{env.new_stream_id()}"
        broker.create_topic(env.spark, topic)
        options = broker.options(tls=False)
        reading = {**options, "subscribe": topic, "startingOffsets": "earliest"}
        yield Sink(
            name, "kafka", {**options, **settings, "topic": topic}, settings_text(settings), "kafka", reading
        )  # fmt: skip


def _messages(env: Environment, sink: Sink) -> tuple[int, int]:
    """Return how many Aeron messages the connector made of one save, and their bytes."""
    raw = env.spark.read.format("aeron").options(**{**sink.reading, "payload": "raw"}).load()
    row = raw.selectExpr("count(*)", "sum(length(value))").first()
    assert row is not None
    return int(row[0]), int(row[1])
