"""Measures more and more readers of one server, each with a connection, over loopback UDP."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.environment import Environment
from benchmarks.measure import Figure, median_figure
from benchmarks.programs import run_program
from benchmarks.secure_server import run_server

COUNTS: Final = (1, 10, 40, 100)
QUICK_COUNTS: Final = (1, 3)
LENGTH: Final = 180  # bytes of a row
ROWS: Final = 100_000  # that each reader reads
QUICK_ROWS: Final = 3_000


def run(env: Environment) -> Iterator[Figure]:
    """Read the same stream with more and more readers at once, all in one process."""
    counts, rows = (QUICK_COUNTS, QUICK_ROWS) if env.quick else (COUNTS, ROWS)
    with run_server(env, "readers") as server:
        stream = server.new_stream()
        frame = env.spark.range(0, rows, 1, 1).selectExpr(f"repeat('x', {LENGTH}) AS value")
        frame.write.format("aeron").options(**server.options(stream)).mode("append").save()
        connection = server.connection
        arguments = (connection["server"], connection["serverKey"], connection["identity"], connection["aeronDir"])
        with run_program("benchmarks.reading_program", *arguments) as request:

            def read(count: int) -> float:
                found, seconds = request(f"{stream} {count}").split()
                if int(found) != count * rows:
                    raise RuntimeError(f"{count} readers read {found} rows, expected {count * rows}")
                return count * rows * LENGTH / float(seconds) / 1e6

            rates = env.take_turns({str(count): partial(read, count) for count in counts})
    for count, samples in rates.items():
        noun = "reader" if count == "1" else "readers, each with a connection,"
        yield median_figure(f"{count} {noun} of a stream at one server, over loopback UDP", samples, "MB/s in all")
