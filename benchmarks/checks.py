"""Checks that a program delivered the rows of its corpus: their number, their bytes and a checksum."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.corpora import Corpus

# the sum of the rows' CRC-32: programs with several partitions have no common order of rows
TOTALS: Final = ("count(*)", "sum(length(value))", "sum(crc32(value))")


class DataMismatchError(RuntimeError):
    """A program delivered other rows than those of the corpus, so its figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The number of rows, the bytes of their values, and the sum of the values' CRC-32."""

    rows: int
    size: int
    checksum: int

    def times(self, count: int) -> Totals:
        """Return the totals of rows that were written ``count`` times."""
        return Totals(self.rows * count, self.size * count, self.checksum * count)


def totals_of_values(values: Iterable[bytes]) -> Totals:
    """Return the totals of values in memory."""
    rows = size = checksum = 0
    for value in values:
        rows, size, checksum = rows + 1, size + len(value), checksum + zlib.crc32(value)
    return Totals(rows, size, checksum)


def totals_of_corpus(corpus: Corpus) -> Totals:
    """Return the totals that each program must deliver."""
    return totals_of_values(corpus.value(row) for row in range(corpus.rows))


def totals_of_frame(frame: Any) -> Totals:
    """Return the totals of a DataFrame with the column ``value``."""
    row = frame.selectExpr(*TOTALS).first()
    return Totals(*(int(total or 0) for total in row))


def check(program: str, found: Totals, expected: Totals) -> None:
    """Raise DataMismatchError if a program delivered other totals than expected."""
    if found != expected:
        raise DataMismatchError(f"{program} delivered {found}, expected {expected}")
