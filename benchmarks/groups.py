"""The part of a report that shows comparisons: their charts, the programs with their settings, and the bars."""

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

    @property
    def title(self) -> str:
        """Return the heading under which comparisons of this kind stand: "Batch read"."""
        first = self._title_and_case[0]
        return first[0].upper() + first[1:]

    @property
    def _title_and_case(self) -> tuple[str, str]:
        first, separator, rest = self.name.partition(" of ")
        return (first, rest) if separator else (first.partition(",")[0], first.partition(", ")[2])

    def row(self, programs: Sequence[str], *, with_machine: bool) -> list[str]:
        """Return the cells of this comparison: its case, its programs, the bars, and its machine if wanted."""
        summaries = self.summaries
        bars = [
            f"{one.value:.3g} of {one.unit.removeprefix('of ')} ({one.target}, {'met' if one.met else '**missed**'})"
            for one in self.figures
            if one.target
        ]
        return [
            f"[{self._title_and_case[1] or self.name}]({self.chart_name})",
            *(_summary_cell(summaries[program]) for program in programs),
            "<br>".join(bars),
            *([str(self.figures[0].machine)] if with_machine else []),
        ]


def _summary_cell(summary: Summary) -> str:
    text = f"{summary.median:.4g} ({summary.least:.4g} to {summary.most:.4g})"
    return text if summary.is_steady else text + r"\*"


def comparison_tables(groups: Sequence[Group], *, with_machine: bool = False) -> list[str]:
    """Return the Markdown of comparisons: a table for those of the same programs, then the programs' settings."""
    tables: dict[str, dict[tuple[str, frozenset[str]], list[Group]]] = {}
    for one in groups:
        tables.setdefault(one.title, {}).setdefault((one.unit, frozenset(one.summaries)), []).append(one)
    parts: list[str] = []
    for title, of_title in tables.items():
        parts.append(f"## {title}")
        for rows in of_title.values():
            programs = list(rows[0].summaries)
            titles = [rows[0].unit, *programs, "ratios with a bar", *(["machine"] if with_machine else [])]
            parts.append(table(titles, [one.row(programs, with_machine=with_machine) for one in rows]))
    settings: dict[str, dict[str, None]] = {}
    for one in groups:
        for program, text in one.settings.items():
            settings.setdefault(program, {})[text] = None
    rows_of_settings = [[program, "<br>".join(filter(None, texts))] for program, texts in settings.items()]
    return [*parts, "## Settings", table(["program", "settings"], rows_of_settings)] if groups else []


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [*(" | ".join(cells) for cells in (titles, *rows))]
    return "\n".join([f"| {lines[0]} |", "|---" * len(titles) + "|", *(f"| {line} |" for line in lines[1:])])


def groups_of(figures: Sequence[Figure]) -> list[Group]:
    """Return the comparisons among the figures, in the order of their first figures."""
    names = dict.fromkeys(one.group for one in figures if one.group)
    members = {name: tuple(one for one in figures if one.group == name) for name in names}
    return [Group(name, found[0].rate_unit, found) for name, found in members.items()]
