"""Measures what more recordings of a stream, and more readers of a server, cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.datasets import drain, drain_stream
from benchmarks.environment import CHANNEL, Environment
from benchmarks.measure import Figure
from benchmarks.programs import run_program
from benchmarks.samples import spread_warning
from benchmarks.secure_server import run_server

COUNTS: Final = (1, 10, 100)  # readers; recordings have one more count
RECORDINGS: Final = (*COUNTS, 1_000)
QUICK_COUNTS: Final = (1, 3)
ROWS: Final = 1_000_000  # of all recordings of a stream together
LENGTH: Final = 180  # bytes of a row
READ_ROWS: Final = 100_000  # of the stream that each reader reads
QUICK_ROWS: Final = 3_000


def run(env: Environment) -> Iterator[Figure]:
    """Read the same rows from more and more recordings, and with more and more readers at once."""
    yield from _recordings(env)
    yield from _readers(env)


def _recordings(env: Environment) -> Iterator[Figure]:
    counts, rows = (QUICK_COUNTS, QUICK_ROWS) if env.quick else (RECORDINGS, ROWS)
    streams = {count: _recorded(env, count, rows // count) for count in counts}
    reads = {str(count): partial(_read, env, streams[count]) for count in counts}
    queries = {str(count): partial(_query, env, streams[count], rows // count * count) for count in counts}
    for name, cases in {"batch read": reads, "whole AvailableNow query": queries}.items():
        for count, seconds in env.take_turns(cases).items():
            noun = "recording" if count == "1" else "recordings"
            yield _figure(f"{name} of {rows:,} rows of {LENGTH} B in {int(count):,} {noun}", seconds, "s")


def _read(env: Environment, stream: int) -> float:
    return drain(env.read_batch(stream))


def _query(env: Environment, stream: int, rows: int) -> float:
    options = env.stream_options(stream, payload="raw", startingOffsets="earliest")
    return drain_stream(env, "aeron", options, rows)


def _recorded(env: Environment, recordings: int, messages: int) -> int:
    """Return a stream with so many recordings of as many messages each."""
    stream = env.new_stream_id()
    arguments = ("recordings", env.node.control_channel, CHANNEL, stream, messages, LENGTH)
    with env.java_program(*arguments) as request:
        for _ in range(recordings):
            request("go")
    return stream


def _readers(env: Environment) -> Iterator[Figure]:
    counts, rows = (QUICK_COUNTS, QUICK_ROWS) if env.quick else (COUNTS, READ_ROWS)
    with run_server(env, "growth") as server:
        stream = server.new_stream()
        frame = env.spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {LENGTH}) AS value")
        frame.write.format("aeron").options(**server.options(stream)).mode("append").save()
        connection = server.connection
        arguments = (connection["server"], connection["serverKey"], connection["identity"], connection["aeronDir"])
        with run_program("benchmarks.growth_readers", *arguments) as request:

            def read(count: int) -> float:
                found, seconds = request(f"{stream} {count}").split()
                if int(found) != count * rows:
                    raise RuntimeError(f"{count} readers read {found} rows, expected {count * rows}")
                return count * rows * LENGTH / float(seconds) / 1e6

            rates = env.take_turns({str(count): partial(read, count) for count in counts})
        for count, samples in rates.items():
            noun = "reader" if count == "1" else "readers, each with a connection,"
            yield _figure(f"{count} {noun} of a stream at one server, over loopback UDP", samples, "MB/s in all")


def _figure(name: str, samples: list[float], unit: str) -> Figure:
    detail = f"median of {len(samples)}, {min(samples):.3g} to {max(samples):.3g}"
    warning = spread_warning("this case", samples)
    return Figure(
        name, statistics.median(samples), unit, detail="; ".join(filter(None, (detail, warning))),
        samples={unit: samples},
    )  # fmt: skip
