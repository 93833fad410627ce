"""Measures the memory of a worker that reads far more bytes than it may hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

from benchmarks.environment import Environment
from benchmarks.measure import Figure

GIB: Final = 1 << 30
LENGTH: Final = 1_300


def run(env: Environment) -> Iterator[Figure]:
    """Read some gigabytes in one task, and take the highest memory mark of every Python worker."""
    with env.on_another_node("memory") as own:
        yield _reading_figure(own)


def _reading_figure(env: Environment) -> Figure:
    size = GIB // 64 if env.quick else 16 * GIB
    messages = -(-size // LENGTH)
    stream = env.recorded_stream(messages, LENGTH)
    env.read_batch(stream).limit(1).collect()  # starts a worker, so that its marks can be reset
    for pid in worker_pids():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    started = time.perf_counter()
    env.read_batch(stream).write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    peaks = sorted((_status_kib(pid, "VmHWM") / 1024 for pid in worker_pids()), reverse=True)[:3]
    return Figure(
        f"peak resident memory of a worker that reads {messages * LENGTH / GIB:.2g} GiB",
        peaks[0],
        "MiB",
        "<= 400",
        f"{messages * LENGTH / seconds / 1e6:.0f} MB/s; shared with the media driver "
        f"{max(_status_kib(pid, 'RssShmem') for pid in worker_pids()) / 1024:.0f} MiB at the end",
        {"MiB": peaks},
    )


def worker_pids() -> list[int]:
    """Return the process ids of Spark's Python workers below this process."""
    pids = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(part in " ".join(process.cmdline()) for part in ("pyspark.daemon", "pyspark.worker")):
                pids.append(process.pid)
        except psutil.Error:  # it ended meanwhile
            continue
    return pids


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
