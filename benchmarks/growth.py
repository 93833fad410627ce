"""Measures what more recordings of a stream cost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.datasets import drain, drain_stream
from benchmarks.environment import CHANNEL, Environment
from benchmarks.measure import Figure, median_figure

COUNTS: Final = (1, 10, 100, 1_000)
QUICK_COUNTS: Final = (1, 3)
ROWS: Final = 1_000_000  # of all recordings of a stream together
LENGTH: Final = 180  # bytes of a row
QUICK_ROWS: Final = 3_000


def run(env: Environment) -> Iterator[Figure]:
    """Read the same rows from more and more recordings."""
    counts, rows = (QUICK_COUNTS, QUICK_ROWS) if env.quick else (COUNTS, ROWS)
    streams = {count: _recorded(env, count, rows // count) for count in counts}
    reads = {str(count): partial(_read, env, streams[count]) for count in counts}
    queries = {str(count): partial(_query, env, streams[count], rows // count * count) for count in counts}
    for name, cases in {"batch read": reads, "whole AvailableNow query": queries}.items():
        for count, seconds in env.take_turns(cases).items():
            noun = "recording" if count == "1" else "recordings"
            yield median_figure(f"{name} of {rows:,} rows of {LENGTH} B in {int(count):,} {noun}", seconds, "s")


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
