"""Measuring: cases take turns, so that what else the machine does falls on all of them, and medians are compared."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TextIO

ROUNDS: Final = 5  # the fewest a published median is made of


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``target`` is a text such as ``>= 0.85``, empty where the figure is only shown."""

    name: str
    value: float
    unit: str
    target: str = ""
    detail: str = ""
    samples: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if not self.target:
            return None
        relation, bound = self.target.split()
        return self.value >= float(bound) if relation == ">=" else self.value <= float(bound)


def seconds(work: Callable[[], object]) -> float:
    """Return how long ``work`` took."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def take_turns(cases: Mapping[str, Callable[[], float]], *, rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """Run all cases, turn by turn; return what each gave, without its first ``warm`` turns.

    Every other turn is in the opposite order, so that no case always follows the same one.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warm + rounds):
        for name in list(cases) if turn % 2 == 0 else reversed(list(cases)):
            taken = cases[name]()
            if turn >= warm:
                found[name].append(taken)
    return found


def ratio(of: list[float], to: list[float]) -> float:
    """Return the ratio of two medians."""
    return statistics.median(of) / statistics.median(to)


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "cpu": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "memory": f"{memory / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "java": java[0] if java else "",
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "jpype1")},
        "load before": round(os.getloadavg()[0], 2),
    }


def own_output() -> TextIO:
    """Return this process's standard output, for its answers alone: what a JVM says there comes out as an error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
