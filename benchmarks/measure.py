"""A measured figure, durations and processor time, and the description of the machine."""

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

import psutil

from benchmarks.samples import spread_warning

ROOT: Final = Path(__file__).resolve().parents[1]
PEERS: Final = ROOT / "jars" / "target" / "peers"  # what `make bench` fetches
ROUNDS: Final = 5  # least number of samples of a published median


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. ``target`` is a text such as ``>= 0.85``, and empty for a figure that is only shown.

    Figures of one ``group`` share a chart and a table of their programs. ``rate_unit`` is the unit of their samples.
    ``settings`` has the settings of each program. ``machine`` is the number of the machine among those of the results.
    """

    name: str
    value: float
    unit: str
    target: str = ""
    detail: str = ""
    samples: Mapping[str, list[float]] = field(default_factory=dict)
    group: str = ""
    rate_unit: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    machine: int = 1

    @property
    def met(self) -> bool | None:
        """Return whether the target is met; None without a target."""
        if not self.target:
            return None
        relation, bound = self.target.split()
        return self.value >= float(bound) if relation == ">=" else self.value <= float(bound)


def median_figure(name: str, samples: list[float], unit: str) -> Figure:
    """Return the figure of a median without a target, with the least and the most sample."""
    detail = f"median of {len(samples)}, {min(samples):.3g} to {max(samples):.3g}"
    warning = spread_warning("this case", samples)
    return Figure(
        name, statistics.median(samples), unit, detail="; ".join(filter(None, (detail, warning))),
        samples={unit: samples},
    )  # fmt: skip


def measure_seconds(work: Callable[[], object]) -> float:
    """Run ``work`` and return its duration."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time that a process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def describe_machine() -> dict[str, Any]:
    """Return the hardware, the versions and the load that the figures are measured with."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _read_lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) for line in _read_lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "cpu": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "memory": f"{memory / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "java": java[0] if java else "",
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "jpype1")},
        "aeron": jar_version(ROOT / "connector" / "aeron_spark" / "jars", "aeron-all"),
        "kafka broker": jar_version(PEERS / "broker", "kafka-clients"),
        "kafka client of Spark's source": jar_version(PEERS / "spark-kafka", "kafka-clients"),
        "load before": round(os.getloadavg()[0], 2),
    }


def jar_version(folder: Path, name: str) -> str:
    """Return the version in the file name of a jar, or an empty text if the folder does not have the jar."""
    stems = [jar.stem.removeprefix(f"{name}-") for jar in folder.glob(f"{name}-[0-9]*.jar")]
    return stems[0] if stems else ""


def take_over_output() -> TextIO:
    """Return this process's standard output for its responses; output of a JVM goes to standard error from now on."""
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return responses


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
