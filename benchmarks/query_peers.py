"""Compares whole queries with AvailableNow, from their start to their end: large ones, and small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from benchmarks.comparison import MEGABYTE, Program, compare
from benchmarks.corpora import CORPORA, Corpus
from benchmarks.datasets import drain_stream, kafka_options, prebuilt_options, produce_corpus, record_corpus
from benchmarks.environment import Environment
from benchmarks.kafka.broker import Broker, run_broker
from benchmarks.kafka.settings import DEFAULT, TUNED_READING, settings_text
from benchmarks.measure import Figure

CEILING, TUNED = "trivial Python source", "Kafka, tuned"
SMALL_ROWS: Final = 300_000  # where the start of a query is most of it
QUERIES: Final[tuple[tuple[Corpus, Mapping[str, str]], ...]] = (
    (CORPORA["3,800 B"].of_rows(SMALL_ROWS), {CEILING: ">= 0.95", TUNED: ">= 1.0"}),
    (CORPORA["180 B"].of_rows(SMALL_ROWS), {}),
    (CORPORA["180 B"].of_rows(4_000_000), {TUNED: ">= 1.2"}),
    (CORPORA["180 B"].of_rows(20_000_000), {TUNED: ">= 1.6"}),
    (CORPORA["1,300 B"].of_rows(2_000_000), {}),  # 2.6 GB
)


def run(env: Environment) -> Iterator[Figure]:
    """Measure each query with the connector, Kafka, and a Python source that makes nothing."""
    with run_broker(env.folder / "kafka-query") as broker:
        for corpus, bars in QUERIES[:2] if env.quick else QUERIES:  # the quick forms of the others are the same
            yield from _figures(env, broker, corpus.quick() if env.quick else corpus, corpus, bars)


def _figures(
    env: Environment, broker: Broker, small: Corpus, corpus: Corpus, bars: Mapping[str, str]
) -> Iterator[Figure]:
    topic = f"query-{env.new_stream_id()}"
    produce_corpus(env, broker, small, topic)
    recorded = env.stream_options(record_corpus(env, small), payload="raw", startingOffsets="earliest")
    cases = {
        "aeron-spark": ("aeron", recorded, "payload=raw, defaults"),
        "Kafka": ("kafka", kafka_options(broker, topic, DEFAULT), settings_text(DEFAULT)),
        TUNED: ("kafka", kafka_options(broker, topic, TUNED_READING), settings_text(TUNED_READING)),
        CEILING: ("prebuilt", prebuilt_options(small), "one batch of 1 MiB, again and again"),
    }
    programs = [
        Program(name, partial(drain_stream, env, source, options, small.rows), settings, bars.get(name, ""))
        for name, (source, options, settings) in cases.items()
    ]
    title = f"whole AvailableNow query of {corpus.rows:,} rows of {corpus.name}"
    yield from compare(env, title, programs, small.rows * small.mean_length / MEGABYTE).figures()
    broker.delete_topic(env.spark, topic)
