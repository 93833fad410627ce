"""Compares reading with Spark's Kafka source, Arrow Flight, and the highest rate at which Spark reads from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.checks import Totals, check, totals_of_frame
from benchmarks.comparison import MEGABYTE, Program, compare
from benchmarks.corpora import CORPORA, chosen_names
from benchmarks.datasets import (
    corpus_frame,
    drain,
    kafka_options,
    load,
    prebuilt_options,
    produce_corpus,
    record_corpus,
    serve_flight,
)
from benchmarks.environment import Environment
from benchmarks.kafka.broker import run_broker
from benchmarks.kafka.settings import DEFAULT, TUNED_READING, settings_text
from benchmarks.measure import Figure

OWN: Final = "aeron-spark"
CEILING, TUNED = "prebuilt batches", "Kafka, tuned"
# the bars of the design page, for all columns and for the value alone
BARS: Final[Mapping[tuple[str, bool], Mapping[str, str]]] = {
    ("180 B", False): {CEILING: ">= 0.95", TUNED: ">= 1.9"},
    ("40-700 B", False): {CEILING: ">= 0.95", TUNED: ">= 2.3"},
    ("3,800 B", False): {CEILING: ">= 0.95", TUNED: ">= 1.7"},
    ("180 B", True): {TUNED: ">= 2.5"},
    ("40-700 B", True): {TUNED: ">= 2.8"},
    ("3,800 B", True): {TUNED: ">= 1.8"},
}


@dataclass(frozen=True, slots=True)
class Source:
    """A source with its options; ``settings`` is their text in the report."""

    name: str
    format: str
    options: Mapping[str, str]
    settings: str

    def frame(self, env: Environment, *, value_only: bool) -> Any:
        """Return all rows of the corpus."""
        return load(env, self.format, self.options, value_only=value_only)


def run(env: Environment) -> Iterator[Figure]:
    """Read each corpus from each program, with all columns and with the value alone."""
    with run_broker(env.folder / "kafka-reading") as broker:
        for corpus in [CORPORA[name] for name in chosen_names(CORPORA, quick=env.quick)]:
            small = corpus.quick() if env.quick else corpus
            topic = f"read-{env.new_stream_id()}"
            produce_corpus(env, broker, small, topic)
            recorded = env.stream_options(record_corpus(env, small), payload="raw")
            expected = totals_of_frame(corpus_frame(env, small))
            with serve_flight(small) as flight:
                sources = [
                    Source(OWN, "aeron", recorded, "payload=raw, defaults"),
                    Source("Kafka", "kafka", kafka_options(broker, topic, DEFAULT), settings_text(DEFAULT)),
                    Source(TUNED, "kafka", kafka_options(broker, topic, TUNED_READING), settings_text(TUNED_READING)),
                    Source("Arrow Flight", "flight", flight, "prebuilt in the server's memory, TCP, not durable"),
                    Source(CEILING, "prebuilt", prebuilt_options(small), "one batch of 1 MiB, again and again"),
                ]
                check_sources(env, sources, expected)
                for value_only in (False, True):
                    yield from _figures(env, corpus.name, sources, expected, value_only=value_only)
            broker.delete_topic(env.spark, topic)


def check_sources(env: Environment, sources: list[Source], expected: Totals) -> None:
    """Raise DataMismatchError if a source has other rows; of the repeated batch only the number of rows is compared."""
    for source in sources:
        for value_only in (False, True):
            found = totals_of_frame(source.frame(env, value_only=value_only))
            if source.name == CEILING:
                found = Totals(found.rows, expected.size, expected.checksum)
            check(source.name, found, expected)


def _figures(
    env: Environment, name: str, sources: list[Source], expected: Totals, *, value_only: bool
) -> Iterator[Figure]:
    bars = BARS.get((name, value_only), {})
    programs = [
        Program(
            source.name,
            partial(_drain, env, source, value_only=value_only),
            source.settings,
            bars.get(source.name, ""),
        )
        for source in sources
    ]
    columns = "the value alone" if value_only else "all columns"
    title = f"batch read of {name} rows, one task, {columns}"
    yield from compare(env, title, programs, expected.size / MEGABYTE).figures()


def _drain(env: Environment, source: Source, *, value_only: bool) -> float:
    return drain(source.frame(env, value_only=value_only))
