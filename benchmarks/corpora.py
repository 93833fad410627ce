"""The rows that all compared programs read and write: their sizes, and their values as Spark and Python make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

QUICK_BYTES: Final = 2_000_000
QUICK_NAMES: Final = ("180 B", "40-700 B", "60 kB")  # the quick form has these corpora alone
# Knuth's multiplicative hash: lengths look random, and are the same in Spark, in Python and in each run
FACTOR: Final = 2_654_435_761
SHIFT: Final = 16


@dataclass(frozen=True, slots=True)
class Corpus:
    """``rows`` values of ``shortest`` to ``longest`` bytes. Row N has the text of N, padded with ``x`` on its left."""

    name: str
    shortest: int
    longest: int
    rows: int

    @property
    def mean_length(self) -> float:
        """Return about how many bytes a value has."""
        return (self.shortest + self.longest) / 2

    def length(self, row: int) -> int:
        """Return the bytes of a row's value."""
        return self.shortest + (row * FACTOR >> SHIFT) % (self.longest - self.shortest + 1)

    def value(self, row: int) -> bytes:
        """Return a row's value; longer numbers than the value are cut, as in Spark."""
        length = self.length(row)
        return str(row).rjust(length, "x")[:length].encode()

    def expression(self) -> str:
        """Return the same value as an SQL expression of the column ``id``."""
        span = self.longest - self.shortest + 1
        length = f"{self.shortest} + pmod(shiftright(id * {FACTOR}L, {SHIFT}), {span}L)" if span > 1 else self.shortest
        return f"cast(lpad(cast(id as string), cast({length} as int), 'x') as binary) value"

    def quick(self) -> Corpus:
        """Return the corpus with few rows."""
        return replace(self, rows=max(1, min(self.rows, int(QUICK_BYTES / self.mean_length))))

    def of_rows(self, rows: int) -> Corpus:
        """Return the corpus with another number of rows."""
        return replace(self, rows=rows)


CORPORA: Final = {
    corpus.name: corpus
    for corpus in (
        Corpus("100 B", 100, 100, 6_000_000),
        Corpus("180 B", 180, 180, 4_000_000),
        Corpus("40-700 B", 40, 700, 3_000_000),
        Corpus("1,000 B", 1_000, 1_000, 1_200_000),
        Corpus("1,300 B", 1_300, 1_300, 1_000_000),
        Corpus("3,800 B", 3_800, 3_800, 400_000),
        Corpus("24 kB", 24_000, 24_000, 60_000),
        Corpus("60 kB", 60_000, 60_000, 24_000),
    )
}


def chosen_names(names: Iterable[str], *, quick: bool) -> list[str]:
    """Return the names of the corpora that a run of this form has: all of ``names``, or some."""
    return [name for name in names if not quick or name in QUICK_NAMES]
