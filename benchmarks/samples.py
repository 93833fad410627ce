"""Pure statistics of samples: median, least and most, spread, and the text that a report has of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SPREAD_LIMIT: Final = 0.20  # above it a report warns: the machine, or a program, was not steady


@dataclass(frozen=True, slots=True)
class Summary:
    """The samples of one program in one comparison; all values have the unit of the samples."""

    median: float
    least: float
    most: float

    @property
    def spread(self) -> float:
        """Return the distance from the least to the most sample, as a part of the median."""
        return (self.most - self.least) / self.median

    @property
    def is_steady(self) -> bool:
        """Return whether the spread is within the limit."""
        return self.spread <= SPREAD_LIMIT


def summarize(samples: Sequence[float]) -> Summary:
    """Return the summary of at least one positive sample.

    Raises ValueError without samples, and for a sample that is not positive: no program takes no time.
    """
    if not samples or min(samples) <= 0:
        raise ValueError(f"a summary needs samples above 0, not {list(samples)}")
    return Summary(statistics.median(samples), min(samples), max(samples))


def median_ratio(samples: Sequence[float], compared: Sequence[float]) -> float:
    """Return the median of ``samples``, divided by the median of ``compared``."""
    return statistics.median(samples) / statistics.median(compared)


def spread_warning(name: str, samples: Sequence[float]) -> str:
    """Return a warning that the samples of this program spread too far, or an empty text."""
    summary = summarize(samples)
    if summary.is_steady:
        return ""
    return (
        f"the turns of {name} spread over {summary.spread:.0%} of their median ({summary.least:.3g} to "
        f"{summary.most:.3g}), more than {SPREAD_LIMIT:.0%}"
    )
