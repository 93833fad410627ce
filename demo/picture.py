"""Shows the results: a chart and a table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from rich.table import Table

from demo.flights import Day


def draw(days: Mapping[str, Day], path: Path) -> None:
    """Write the chart as a PNG. The file is replaced atomically, because two demos may write it."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = sorted(days)
    dates = [date.fromisoformat(name) for name in names]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(11, 6), layout="constrained")
    above.fill_between(dates, [days[name].flights for name in names], color="#9ecae1", label="scheduled")
    above.plot(dates, [days[name].departed for name in names], color="#08519c", linewidth=0.9, label="departed")
    above.set_ylabel("flights per day")
    above.set_ylim(bottom=0)
    above.legend(loc="lower right")
    late = [days[name].delay / max(days[name].departed, 1) for name in names]
    below.bar(dates, late, width=1.0, color="#de2d26")
    below.set_ylabel("minutes late, on average")
    figure.suptitle(
        "Flights from New York City, 2013: Aeron → Spark → Aeron, as a plain Aeron subscriber received them"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    figure.savefig(draft, dpi=110)
    plt.close(figure)
    draft.replace(path)


def by_month(days: Mapping[str, Day]) -> Table:
    """Return a table with the sums of each month."""
    months: defaultdict[str, list[Day]] = defaultdict(list)
    for name, day in days.items():
        months[name[:7]].append(day)
    table = Table(title="Received by the plain Aeron subscriber", title_justify="left")
    table.add_column("month")
    for column in ("flights", "departed", "minutes late"):
        table.add_column(column, justify="right")
    for month in sorted(months):
        flights, departed = (sum(getattr(day, name) for day in months[month]) for name in ("flights", "departed"))
        late = sum(day.delay for day in months[month]) / max(departed, 1)
        table.add_row(month, f"{flights:,}", f"{departed:,}", f"{late:.1f}")
    return table
