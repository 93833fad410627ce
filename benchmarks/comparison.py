"""A comparison: one workload, the programs that do it in turns, and the bars that the connector shall reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.measure import Figure
from benchmarks.samples import median_ratio, spread_warning, summarize

MEGABYTE = 1e6


class Turns(Protocol):
    """Runs programs in turns; see :meth:`benchmarks.environment.Environment.take_turns`."""

    def take_turns(self, cases: Mapping[str, Callable[[], float]], *, warm: int = 1) -> dict[str, list[float]]:
        """Return the results of each program."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a comparison. ``run`` does the whole workload and returns the seconds that it took.

    ``bar`` is the ratio, connector to this program, that the connector shall reach (``>= 1.9``), or empty.
    """

    name: str
    run: Callable[[], float]
    settings: str
    bar: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rates of all programs, in ``unit``; the first one is the connector's."""

    name: str
    unit: str
    rates: Mapping[str, list[float]]
    settings: Mapping[str, str]
    bars: Mapping[str, str] = field(default_factory=dict)

    def figures(self) -> Iterator[Figure]:
        """Yield the ratio of the connector to each other program, with the samples of both."""
        own, *others = self.rates
        for other in others:
            rates = {name: self.rates[name] for name in (own, other)}
            warnings = [text for name, samples in rates.items() if (text := spread_warning(name, samples))]
            yield Figure(
                f"{self.name}, against {other}",
                median_ratio(rates[own], rates[other]),
                f"of {other}",
                self.bars.get(other, ""),
                "; ".join([*(self._rate(name) for name in rates), *warnings]),
                rates,
                group=self.name,
                rate_unit=self.unit,
                settings={name: self.settings[name] for name in rates},
            )

    def _rate(self, name: str) -> str:
        summary = summarize(self.rates[name])
        return f"{name} {summary.median:.4g} {self.unit} ({summary.least:.4g} to {summary.most:.4g})"


def compare(
    turns: Turns, name: str, programs: Sequence[Program], amount: float, unit: str = "MB/s", *, warm: int = 2
) -> Comparison:
    """Run the programs in turns; their rates are ``amount`` of ``unit`` times seconds, divided by the seconds.

    The first program is the connector's.
    """
    durations = turns.take_turns({program.name: program.run for program in programs}, warm=warm)
    return Comparison(
        name,
        unit,
        {program: [amount / seconds for seconds in samples] for program, samples in durations.items()},
        {program.name: program.settings for program in programs},
        {program.name: program.bar for program in programs if program.bar},
    )
