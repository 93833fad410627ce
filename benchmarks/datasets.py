"""Writes a corpus to where each compared program reads it from, and returns what reads it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from aeron_spark.aeron.row_sources import BATCH_BYTES
from aeron_spark.jobs.session import begin
from aeron_spark.wire.values import BATCH_ROWS
from benchmarks.corpora import Corpus
from benchmarks.environment import Environment
from benchmarks.kafka.broker import Broker
from benchmarks.kafka.settings import TUNED_WRITING
from benchmarks.measure import measure_seconds
from benchmarks.programs import run_program

VALUE: Final = "value BINARY"


def corpus_frame(env: Environment, corpus: Corpus) -> Any:
    """Return the rows of a corpus as a DataFrame of one partition."""
    return env.spark.range(0, corpus.rows, 1, 1).selectExpr(corpus.expression())


def record_corpus(env: Environment, corpus: Corpus) -> int:
    """Write a corpus to a new recorded stream of the node; return its stream id."""
    stream = env.new_stream_id()
    options = env.stream_options(stream, payload="raw", record="auto", ack="archive")
    corpus_frame(env, corpus).write.format("aeron").options(**options).mode("append").save()
    return stream


def produce_corpus(env: Environment, broker: Broker, corpus: Corpus, topic: str) -> None:
    """Write a corpus to a new topic with one partition."""
    broker.create_topic(env.spark, topic)
    options = {**broker.options(tls=False), **TUNED_WRITING, "topic": topic}
    corpus_frame(env, corpus).write.format("kafka").options(**options).save()


def kafka_options(broker: Broker, topic: str, settings: Mapping[str, str], *, tls: bool = False) -> dict[str, str]:
    """Return the options that read a whole topic."""
    return {**broker.options(tls=tls), **settings, "subscribe": topic, "startingOffsets": "earliest"}


def prebuilt_options(corpus: Corpus) -> dict[str, str]:
    """Return the options of prebuilt batches with as many rows and bytes as the corpus, in the connector's batches."""
    options = {"rows": corpus.rows, "batch": batch_rows(corpus), "length": corpus.shortest, "longest": corpus.longest}
    return {name: str(value) for name, value in options.items()}


def batch_rows(corpus: Corpus) -> int:
    """Return how many rows of the corpus a batch of the connector has."""
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / corpus.mean_length)))


def load(env: Environment, source: str, options: Mapping[str, str], *, value_only: bool = False) -> Any:
    """Return a batch DataFrame of a source, with all of its columns or only the value.

    Python sources get the schema, so that they do not make the other columns; Spark's Kafka source has no such choice
    and drops them in a projection.
    """
    reader = env.spark.read.format(source).options(**options)
    if not value_only:
        return reader.load()
    return reader.load().select("value") if source == "kafka" else reader.schema(VALUE).load()


def drain(frame: Any) -> float:
    """Read all rows of a batch DataFrame into ``noop``, and return the seconds."""
    return measure_seconds(lambda: frame.write.format("noop").mode("overwrite").save())


def drain_stream(env: Environment, source: str, options: Mapping[str, str], rows: int) -> float:
    """Read a source with AvailableNow into ``noop``; return the seconds from the start of the query to its end.

    Raises RuntimeError if the query read another number of rows.
    """
    checkpoint = str(env.folder / f"checkpoint-{env.new_stream_id()}")
    frame = env.spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    queries: list[Any] = []

    def run() -> None:
        queries.append(begin(writer.start))
        queries[0].awaitTermination()

    seconds = measure_seconds(run)
    found = sum(progress.numInputRows for progress in queries[0].recentProgress)
    if found != rows:
        raise RuntimeError(f"the streaming query of {source} read {found} rows, expected {rows}")
    return seconds


def save(frame: Any, sink: str, options: Mapping[str, str]) -> float:
    """Append a DataFrame to a sink, and return the seconds."""
    return measure_seconds(lambda: frame.write.format(sink).options(**options).mode("append").save())


@contextmanager
def serve_flight(corpus: Corpus) -> Iterator[dict[str, str]]:
    """Run a Flight server with the rows of a corpus; yield the options of the source ``flight``."""
    arguments = (corpus.shortest, corpus.longest, corpus.rows, batch_rows(corpus))
    with run_program("benchmarks.flight_server", *arguments) as request:
        yield {"port": request("port")}
