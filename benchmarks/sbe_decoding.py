"""Compares ``payload=sbe`` with Kafka whose values ``from_sbe`` decodes, and measures the decoder alone."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

import aeron_spark
from benchmarks.comparison import MEGABYTE, Program, compare
from benchmarks.datasets import drain, kafka_options
from benchmarks.environment import Environment
from benchmarks.kafka.broker import run_broker
from benchmarks.kafka.settings import TUNED_READING, TUNED_WRITING, settings_text
from benchmarks.measure import ROOT, Figure
from benchmarks.trades import MESSAGE_BYTES, SCHEMA_XML, trade_batches, trade_messages

MESSAGES: Final = 4_000_000
QUICK_MESSAGES: Final = 20_000
TWO_COLUMNS: Final = ("symbol", "price")
TWO_COLUMNS_SCHEMA: Final = "symbol STRING, price DECIMAL(19,8)"
TOTALS: Final = ("count(*)", "sum(tradeId)", "sum(price)", "sum(sequence)")
DECODED: Final = 1 << 14  # messages of a call of the decoder
CALLS, WARM_CALLS = 60, 30
TIMEOUT_S: Final = 300.0
PROGRAM: Final = """
import json, sys
from benchmarks.sbe_decoding import time_decoder
print(json.dumps(time_decoder(json.loads(sys.argv[1]), int(sys.argv[2]))))
"""


class DecodingMismatchError(RuntimeError):
    """A program decoded other values than those that were written."""


def run(env: Environment) -> Iterator[Figure]:
    """Decode all columns, and two of them, in Spark; then without Spark."""
    messages = QUICK_MESSAGES if env.quick else MESSAGES
    with run_broker(env.folder / "kafka-sbe") as broker:
        written = env.spark.range(0, messages, 1, 1).mapInArrow(trade_batches, "value binary")
        topic = f"sbe-{env.new_stream_id()}"
        broker.create_topic(env.spark, topic)
        produce = {**broker.options(tls=False), **TUNED_WRITING, "topic": topic}
        written.write.format("kafka").options(**produce).save()
        stream = env.stream_options(env.new_stream_id())
        record = {**stream, "payload": "raw", "record": "auto", "ack": "archive"}
        written.write.format("aeron").options(**record).mode("append").save()
        consume = kafka_options(broker, topic, TUNED_READING)
        _check(env, messages, stream, consume)
        for columns in ((), TWO_COLUMNS):
            yield from _figures(env, messages, stream, consume, columns)
    yield from _decoder_figures(env)


def _own_frame(env: Environment, stream: Mapping[str, str], columns: tuple[str, ...]) -> Any:
    reader = env.spark.read.format("aeron").options(**stream, payload="sbe", sbeSchema=SCHEMA_XML, sbeMessage="Trade")
    return (reader.schema(TWO_COLUMNS_SCHEMA) if columns else reader).load()


def _kafka_frame(env: Environment, consume: Mapping[str, str], columns: tuple[str, ...]) -> Any:
    values = env.spark.read.format("kafka").options(**consume).load()
    decoded = values.select(aeron_spark.from_sbe("value", SCHEMA_XML, "Trade").alias("trade"))
    return decoded.select(*(f"trade.{name}" for name in columns or ("*",)))


def _check(env: Environment, messages: int, stream: Mapping[str, str], consume: Mapping[str, str]) -> None:
    """Raise DecodingMismatchError unless both programs decode the values that were written."""
    prices = sum(id * 2_654_435_761 % 10**12 for id in range(messages))
    ids = messages * (messages - 1) // 2
    expected = (messages, ids, prices, ids)
    for name, frame in (("aeron-spark", _own_frame(env, stream, ())), ("Kafka", _kafka_frame(env, consume, ()))):
        row = frame.selectExpr(*TOTALS).first()
        found = (int(row[0]), int(row[1]), int(row[2].scaleb(8)), int(row[3]))
        if found != expected:
            raise DecodingMismatchError(f"{name} decoded {found} ({', '.join(TOTALS)}), expected {expected}")


def _figures(
    env: Environment, messages: int, stream: Mapping[str, str], consume: Mapping[str, str], columns: tuple[str, ...]
) -> Iterator[Figure]:
    tuned = settings_text(TUNED_READING)
    programs = [
        Program("aeron-spark", partial(_drain_own, env, stream, columns), "payload=sbe, defaults"),
        Program("Kafka, tuned, with from_sbe", partial(_drain_kafka, env, consume, columns), f"{tuned}; from_sbe"),
    ]
    what = "two of 12 columns" if columns else "12 columns"
    title = f"SBE messages of {MESSAGE_BYTES} bytes as {what}, one task"
    yield from compare(env, title, programs, messages * MESSAGE_BYTES / MEGABYTE).figures()


def _drain_own(env: Environment, stream: Mapping[str, str], columns: tuple[str, ...]) -> float:
    return drain(_own_frame(env, stream, columns))


def _drain_kafka(env: Environment, consume: Mapping[str, str], columns: tuple[str, ...]) -> float:
    return drain(_kafka_frame(env, consume, columns))


def _decoder_figures(env: Environment) -> Iterator[Figure]:
    """Measure the decoder alone, in a new process without Spark."""
    for columns in ((), TWO_COLUMNS):
        completed = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(columns), str(env.rounds)],
            stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True, cwd=ROOT,
        )  # fmt: skip
        rates = json.loads(completed.stdout.splitlines()[-1])
        what = "two of 12 columns" if columns else "12 columns"
        yield Figure(
            f"decoder alone, SBE messages of {MESSAGE_BYTES} bytes as {what}",
            statistics.median(rates),
            "million messages a second of one core",
            "",
            f"median of {len(rates)}, {min(rates):.3g} to {max(rates):.3g}; {DECODED} messages a call",
            {"millions a second": rates},
        )


def time_decoder(columns: list[str], rounds: int) -> list[float]:
    """Return the decoded messages of each round, in millions a second of this thread's processor time."""
    import pyarrow as pa

    from aeron_spark.aeron.sbe_decoder import SbeDecoder
    from aeron_spark.sbe.compiler import load_schema
    from aeron_spark.sbe.settings import SbeSettings
    from aeron_spark.sbe.table import MessageColumns

    found = MessageColumns(load_schema(SCHEMA_XML), SbeSettings())
    chosen = pa.schema([field for field in found.arrow_schema if field.name in columns]) if columns else None
    decoder = SbeDecoder(found.table(chosen))
    values = trade_messages(np.arange(DECODED))

    def decode(calls: int) -> float:
        started = time.thread_time()
        for _ in range(calls):
            if sum(rows.rows for rows in decoder.decode(values, str)) != DECODED:
                raise DecodingMismatchError("the decoder left messages out")
        return time.thread_time() - started

    decode(WARM_CALLS)
    return [CALLS * DECODED / decode(CALLS) / 1e6 for _ in range(rounds)]
