"""Compares ``payload=sbe`` with ``payload=raw``, ``from_sbe`` and Kafka, and measures the decoder alone.

``from_sbe`` decodes in a vectorised Python function, as a pandas UDF does; it decodes the values of Kafka, too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

import aeron_spark
from aeron_spark.aeron.jvm import classpath
from aeron_spark.aeron.row_sources import BATCH_BYTES
from benchmarks.comparison import MEGABYTE, Comparison, Program, compare
from benchmarks.datasets import drain, kafka_options
from benchmarks.environment import JAVA_COMMAND, JAVA_SOURCE, Environment
from benchmarks.kafka.broker import run_broker
from benchmarks.kafka.settings import TUNED_READING, TUNED_WRITING, settings_text
from benchmarks.measure import ROOT, Figure
from benchmarks.trades import FRAME_BYTES, MESSAGE_BYTES, SCHEMA_XML, trade_batches, trade_messages

MESSAGES: Final = 4_000_000
QUICK_MESSAGES: Final = 20_000
TWO_COLUMNS: Final = ("symbol", "price")
TWO_COLUMNS_SCHEMA: Final = "symbol STRING, price DECIMAL(19,8)"
TOTALS: Final = ("count(*)", "sum(tradeId)", "sum(price)", "sum(sequence)")
CEILING: Final = "prebuilt batches of the columns"
DECODED: Final = 1 << 14  # messages of a call of the decoder
CALLS, WARM_CALLS = 300, 1_500  # some seconds each: the JVM compiles the loops in the background
TIMEOUT_S: Final = 300.0
MILLIONS_OF_ONE_CORE: Final = "million messages a second of one core"
TRADE_ID_FIELD: Final = 6
REFERENCE: Final = "sbe-tool's on-the-fly decoder"
REFERENCE_SOURCE: Final = JAVA_SOURCE.with_name("OtfDecoder.java")
REFERENCE_JARS: Final = ROOT / "jars" / "target" / "peers" / "sbe-tool"
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
        batch = _prebuilt_batch(env, stream)
        for columns in ((), TWO_COLUMNS):
            yield from _figures(env, messages, stream, consume, batch, columns)
    yield from _decoder_figures(env)


def _own_frame(env: Environment, stream: Mapping[str, str], columns: tuple[str, ...], **more: str | int) -> Any:
    sbe = {"payload": "sbe", "sbeSchema": SCHEMA_XML, "sbeMessage": "Trade", **more}
    reader = env.spark.read.format("aeron").options(**stream, **sbe)
    return (reader.schema(TWO_COLUMNS_SCHEMA) if columns else reader).load()


def _prebuilt_batch(env: Environment, stream: Mapping[str, str]) -> str:
    """Write as many decoded rows as a batch of the connector has to an Arrow file; return its path."""
    path = env.folder / "trades.arrow"
    # Not limit(): Spark would close the connection with a worker that still writes, which prints an error at its end.
    end = BATCH_BYTES // MESSAGE_BYTES * FRAME_BYTES
    rows = _own_frame(env, stream, (), endPosition=end).toArrow()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    return str(path)


def _prebuilt_frame(env: Environment, batch: str, messages: int, columns: tuple[str, ...], schema: StructType) -> Any:
    reader = env.spark.read.format("prebuilt_file").option("file", batch).option("rows", messages)
    return reader.schema(TWO_COLUMNS_SCHEMA if columns else schema).load()


def _raw_reader(env: Environment, stream: Mapping[str, str]) -> Any:
    return env.spark.read.format("aeron").options(**stream, payload="raw")


def _function_frame(env: Environment, stream: Mapping[str, str]) -> Any:
    return _decoded(_raw_reader(env, stream).schema("value BINARY").load(), ())


def _kafka_frame(env: Environment, consume: Mapping[str, str], columns: tuple[str, ...]) -> Any:
    return _decoded(env.spark.read.format("kafka").options(**consume).load(), columns)


def _decoded(values: Any, columns: tuple[str, ...]) -> Any:
    """Return the columns, all if none are named, that ``from_sbe`` decodes of the column ``value``."""
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
    env: Environment, messages: int, stream: Mapping[str, str], consume: Mapping[str, str], batch: str,
    columns: tuple[str, ...],
) -> Iterator[Figure]:  # fmt: skip
    schema = _own_frame(env, stream, ()).schema
    tuned = settings_text(TUNED_READING)
    if columns:
        others = [
            Program("all 12 columns", lambda: drain(_own_frame(env, stream, ())), "payload=sbe, defaults", ">= 1.5")
        ]
    else:
        others = [
            Program("payload=raw", lambda: drain(_raw_reader(env, stream).load()), "payload=raw, all columns", ">= 1"),
            Program("from_sbe", lambda: drain(_function_frame(env, stream)), "payload=raw, value; from_sbe", ">= 3"),
        ]
    programs = [
        Program("aeron-spark", lambda: drain(_own_frame(env, stream, columns)), "payload=sbe, defaults"),
        *others,
        Program(
            CEILING,
            lambda: drain(_prebuilt_frame(env, batch, messages, columns, schema)),
            "decoded rows, again and again",
        ),
        Program(
            "Kafka, tuned, with from_sbe",
            lambda: drain(_kafka_frame(env, consume, columns)),
            f"{tuned}; from_sbe",
        ),
    ]
    what = "two of 12 columns" if columns else "12 columns"
    title = f"SBE messages of {MESSAGE_BYTES} bytes as {what}, one task"
    yield from compare(env, title, programs, messages * MESSAGE_BYTES / MEGABYTE).figures()


def _decoder_figures(env: Environment) -> Iterator[Figure]:
    """Measure the decoder alone, in a new process without Spark, and sbe-tool's decoder after it."""
    for columns in ((), TWO_COLUMNS):
        output = _run([sys.executable, "-c", PROGRAM, json.dumps(columns), str(env.rounds)])
        rates = json.loads(output.splitlines()[-1])
        what = "two of 12 columns" if columns else "12 columns"
        yield Figure(
            f"decoder alone, SBE messages of {MESSAGE_BYTES} bytes as {what}",
            statistics.median(rates),
            MILLIONS_OF_ONE_CORE,
            "" if columns else ">= 10",
            f"median of {len(rates)}, {min(rates):.3g} to {max(rates):.3g}; {DECODED} messages a call",
            {"millions a second": rates},
        )
        if not columns:
            both = {"aeron-spark": rates, REFERENCE: time_reference(env.folder, env.rounds)}
            settings = dict.fromkeys(both, f"{DECODED} messages a call, one thread")
            name = f"decoder alone, SBE messages of {MESSAGE_BYTES} bytes as {what}"
            yield from Comparison(name, MILLIONS_OF_ONE_CORE, both, settings).figures()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True, cwd=ROOT)
    return done.stdout


def time_reference(folder: Path, rounds: int, jars: Path = REFERENCE_JARS) -> list[float]:
    """Return what :func:`time_decoder` returns, of sbe-tool's on-the-fly decoder, which writes 12 columns, too.

    Raises RuntimeError if sbe-tool is not in ``jars``, and DecodingMismatchError if it reads other values.
    """
    if not any(jars.glob("sbe-tool-*.jar")):
        raise RuntimeError(f"sbe-tool is not in {jars}: run the benchmarks with `make bench`, which fetches it")
    schema, messages = folder / "trades.xml", folder / "trades.bin"
    schema.write_text(SCHEMA_XML)
    messages.write_bytes(b"".join(message or b"" for message in trade_messages(np.arange(DECODED)).to_pylist()))
    path = os.pathsep.join([*classpath(), f"{jars}/*"])
    numbers = [MESSAGE_BYTES, TRADE_ID_FIELD, WARM_CALLS, CALLS, rounds]
    command = [*JAVA_COMMAND, "-cp", path, str(REFERENCE_SOURCE), str(schema), str(messages), *map(str, numbers)]
    total, *rates = _run(command).split()
    if int(total) != DECODED * (DECODED - 1) // 2:
        raise DecodingMismatchError(f"sbe-tool decoded {total} as the sum of the trade ids")
    return [float(rate) for rate in rates]


def time_decoder(columns: list[str], rounds: int) -> list[float]:
    """Return the decoded messages of each round, in millions a second of this thread's processor time."""
    from aeron_spark.aeron.sbe_decoder import SbeDecoder
    from aeron_spark.sbe.schema import load_schema
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
