"""A DataFrame that programs append to their sinks in turns, and the check that each sink then has all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.checks import Totals, check, totals_of_frame
from benchmarks.corpora import Corpus
from benchmarks.datasets import corpus_frame, save
from benchmarks.environment import Environment


@dataclass
class Sink:
    """A sink of one program. ``source`` and ``reading`` read what it wrote; without them nothing is checked.

    ``spark`` are settings of the Spark session while it writes.
    """

    name: str
    format: str
    options: Mapping[str, str]
    settings: str
    source: str = ""
    reading: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    saved: int = 0

    def save(self, frame: Any) -> float:
        """Append a DataFrame, and return the seconds."""
        for name, value in self.spark.items():
            frame.sparkSession.conf.set(name, value)
        try:
            seconds = save(frame, self.format, self.options)
        finally:
            for name in self.spark:
                frame.sparkSession.conf.unset(name)
        self.saved += 1
        return seconds

    def check(self, env: Environment, expected: Totals) -> None:
        """Raise DataMismatchError unless the sink has the rows once for each time that they were saved."""
        if self.source:
            written = env.spark.read.format(self.source).options(**self.reading).load()
            check(self.name, totals_of_frame(written), expected.times(self.saved))


@contextmanager
def cached_frame(env: Environment, corpus: Corpus) -> Iterator[tuple[Any, Totals]]:
    """Yield the rows of a corpus as a DataFrame in Spark's memory, and their totals."""
    frame = corpus_frame(env, corpus).cache()
    try:
        yield frame, totals_of_frame(frame)
    finally:
        frame.unpersist(blocking=True)
