"""The part of a report that shows comparisons: for each a chart, the programs with their settings, and the bars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.charts import bar_chart
from benchmarks.measure import Figure
from benchmarks.samples import Summary, summarize


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of one comparison, with the samples and settings of all of its programs."""

    name: str
    unit: str
    figures: tuple[Figure, ...]

    @property
    def summaries(self) -> dict[str, Summary]:
        """Return the summary of each program; the connector is first."""
        return {program: summarize(samples) for one in self.figures for program, samples in one.samples.items()}

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of each program."""
        return {program: text for one in self.figures for program, text in one.settings.items()}

    @property
    def chart_name(self) -> str:
        """Return the file name of the chart."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") + ".svg"

    def chart(self) -> str:
        """Return the chart as SVG."""
        return bar_chart(self.name, self.unit, self.summaries)

    def section(self, folder: str, *, with_machine: bool = False) -> str:
        """Return the Markdown of this comparison, with its machine if wanted; its chart is in ``folder``."""
        lines = [
            f"### {self.name[0].upper()}{self.name[1:]}",
            "",
            *([f"Measured on machine {self.figures[0].machine}.", ""] if with_machine else []),
            f"![{self.name}, in {self.unit}]({folder}/{self.chart_name})",
            "",
            f"| program | median, {self.unit} | least to most | spread | settings |",
            "|---|---|---|---|---|",
        ]
        for program, summary in self.summaries.items():
            spread = f"{summary.spread:.0%}" + ("" if summary.is_steady else " **over 20 %**")
            cells = (
                program,
                f"{summary.median:.4g}",
                f"{summary.least:.4g} to {summary.most:.4g}",
                spread,
                self.settings.get(program, ""),
            )
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", "| the connector, compared with | ratio of medians | bar | |", "|---|---|---|---|"]
        verdicts = {None: "", True: "met", False: "**missed**"}
        for one in self.figures:
            lines.append(f"| {one.unit.removeprefix('of ')} | {one.value:.3g} | {one.target} | {verdicts[one.met]} |")
        return "\n".join(lines)


def groups_of(figures: Sequence[Figure]) -> list[Group]:
    """Return the comparisons among the figures, in the order of their first figures."""
    names = dict.fromkeys(one.group for one in figures if one.group)
    members = {name: tuple(one for one in figures if one.group == name) for name in names}
    return [Group(name, found[0].rate_unit, found) for name, found in members.items()]
