"""What the results look like: a chart, and a small table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from rich.table import Table

from demo.flights import Day


def draw(days: Mapping[str, Day], path: Path) -> None:
    """Write the chart as a PNG, in one step: two demos may write it at once."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = sorted(days)
    dates = [date.fromisoformat(name) for name in names]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(11, 6), layout="constrained")
    above.fill_between(dates, [days[name].flights for name in names], color="#9ecae1", label="scheduled")
    above.plot(dates, [days[name].departed for name in names], color="#08519c", linewidth=0.9, label="departed")
    above.set_ylabel("flights a day")
    above.set_ylim(bottom=0)
    above.legend(loc="lower right")
    late = [days[name].delay / max(days[name].departed, 1) for name in names]
    below.bar(dates, late, width=1.0, color="#de2d26")
    below.set_ylabel("minutes late, on average")
    figure.suptitle(
        "Flights from New York City, 2013: Aeron → Spark → Aeron, as a plain Aeron subscriber received them"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    figure.savefig(unfinished, dpi=110)
    plt.close(figure)
    unfinished.replace(path)


def by_month(days: Mapping[str, Day]) -> Table:
    """Return the months, added up from their days."""
    months: defaultdict[str, list[Day]] = defaultdict(list)
    for name, day in days.items():
        months[name[:7]].append(day)
    table = Table(title="Received by the plain Aeron subscriber", title_justify="left")
    table.add_column("month")
    for column in ("flights", "departed", "minutes late"):
        table.add_column(column, justify="right")
    for month in sorted(months):
        flights, departed = (sum(getattr(day, what) for day in months[month]) for what in ("flights", "departed"))
        late = sum(day.delay for day in months[month]) / max(departed, 1)
        table.add_row(month, f"{flights:,}", f"{departed:,}", f"{late:.1f}")
    return table
