"""Writes figures as a line on the screen, as JSON, and with charts as docs/performance/figures.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.groups import comparison_tables, groups_of, table
from benchmarks.measure import ROOT, Figure
from benchmarks.published import Results

CHARTS: Final = ROOT / "docs" / "performance"
DOCUMENT: Final = CHARTS / "figures.md"
RESULTS: Final = ROOT / "benchmarks" / "results" / "latest.json"
SPREAD: Final = re.compile(r"; the turns of this case spread over [^;]*, more than 20%")  # the range is there, too
HEAD: Final = """\
# Measured figures

`make bench` writes this page. [performance.md](../performance.md) has the method, the programs and what limits the
figures. A cell has the median of the turns, with the least and the most; an asterisk marks a distance of more than
20 % of the median between these. Each first cell leads to its chart."""


def figure_line(figure: Figure) -> str:
    """Return a figure as one line of text."""
    verdict = {None: "", True: f"  [target {figure.target}: met]", False: f"  [target {figure.target}: MISSED]"}
    detail = f"  ({figure.detail})" if figure.detail else ""
    return f"{figure.name}: {figure.value:.3g} {figure.unit}{detail}{verdict[figure.met]}"


def write_json(path: Path, results: Results) -> None:
    """Write results to ``path``, each machine and each figure in one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lists = {name: ",\n".join(map(json.dumps, rows)) for name, rows in results.to_json().items()}
    path.write_text("{" + ",\n".join(f'"{name}": [\n{rows}\n]' for name, rows in lists.items()) + "}\n")


def read_json(path: Path) -> Results:
    """Return the results of a file that :func:`write_json` wrote."""
    return Results.from_json(json.loads(path.read_text()))


def page(results: Results) -> str:
    """Return the page of results: the machines, the comparisons, and the other figures as details."""
    several = len(results.machines) > 1
    details = [figure for figure in results.figures if not figure.group]
    parts = [
        HEAD,
        machines_table(results.machines),
        *comparison_tables(groups_of(results.figures), with_machine=several),
        *(["## Details", details_table(details, with_machine=several)] if details else []),
    ]
    return "\n\n".join(parts) + "\n"


def machines_table(machines: Sequence[Mapping[str, Any]]) -> str:
    """Return the descriptions of machines as a Markdown table with a column for each."""
    names = dict.fromkeys(name for machine in machines for name in machine)
    titles = [f"machine {number}" for number in range(1, len(machines) + 1)] if len(machines) > 1 else [""]
    rows = [[name, *(str(machine.get(name, "")) for machine in machines)] for name in names]
    return table(["measured on", *titles], rows)


def details_table(figures: Sequence[Figure], *, with_machine: bool = False) -> str:
    """Return figures without a comparison as a Markdown table, with their machines if wanted."""
    verdicts = {None: "", True: "met", False: "**missed**"}
    rows = [
        [
            figure.name, f"{figure.value:.3g} {figure.unit}", figure.target, verdicts[figure.met],
            SPREAD.sub(r"\\*", figure.detail),
            *([str(figure.machine)] if with_machine else []),
        ]
        for figure in figures
    ]  # fmt: skip
    return table(["figure", "median", "target", "", "detail", *(["machine"] if with_machine else [])], rows)


def write_document(results: Results) -> None:
    """Write docs/performance/figures.md with its charts, and the samples to benchmarks/results."""
    write_json(RESULTS, results)
    write_charts(results.figures)
    DOCUMENT.write_text(page(results))


def write_charts(figures: Sequence[Figure]) -> None:
    """Write a chart of each comparison, and remove the charts of earlier ones."""
    CHARTS.mkdir(parents=True, exist_ok=True)
    for old in CHARTS.glob("*.svg"):
        old.unlink()
    for group in groups_of(figures):
        (CHARTS / group.chart_name).write_text(group.chart())
