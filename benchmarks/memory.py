"""How much memory a worker needs to read far more than that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from benchmarks.measure import Figure
from benchmarks.stage import Stage

GIB: Final = 1 << 30
LENGTH: Final = 1_300


def run(stage: Stage) -> Iterator[Figure]:
    """Read some gigabytes in one task, and look at the high-water mark of every Python worker."""
    size = GIB // 64 if stage.quick else 4 * GIB
    messages = -(-size // LENGTH)
    stream = stage.filled(messages, LENGTH)
    stage.batch(stream).limit(1).collect()  # a worker is there, and its marks can be reset
    for worker in workers():
        Path(f"/proc/{worker}/clear_refs").write_text("5")
    begun = time.perf_counter()
    stage.batch(stream).write.format("noop").mode("overwrite").save()
    taken = time.perf_counter() - begun
    peaks = sorted((_kib(worker, "VmHWM") / 1024 for worker in workers()), reverse=True)[:3]
    yield Figure(
        f"peak resident memory of a worker that reads {messages * LENGTH / GIB:.2g} GiB",
        peaks[0],
        "MiB",
        "<= 400",
        f"{messages * LENGTH / taken / 1e6:.0f} MB/s; of it shared with the media driver "
        f"{max(_kib(worker, 'RssShmem') for worker in workers()) / 1024:.0f} MiB at the end",
        {"MiB": peaks},
    )


def workers() -> list[int]:
    """Return the processes of Spark's Python workers under this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(part in " ".join(process.cmdline()) for part in ("pyspark.daemon", "pyspark.worker")):
                found.append(process.pid)
        except psutil.Error:  # gone meanwhile
            continue
    return found


def _kib(process: int, name: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
