"""Measures the time to a task's first rows: in a new process, which starts a JVM, and in one that has a JVM."""

from __future__ import annotations

import base64
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from aeron_spark.log.api import Range
from aeron_spark.options import ReadOptions
from aeron_spark.spark.reader import RangePartition, Task
from aeron_spark.spark.row_values import RAW
from benchmarks.environment import Environment
from benchmarks.measure import ROOT, Figure

LENGTH: Final = 100
MESSAGES: Final = 200_000
LATER_TASKS: Final = 20
PROGRAM: Final = """
import base64, json, pickle, sys
from benchmarks.starting import time_first_rows
options, ranges = pickle.loads(base64.b64decode(sys.argv[1]))
print(json.dumps(time_first_rows(options, ranges, int(sys.argv[2]))))
"""


def run(env: Environment) -> Iterator[Figure]:
    """Measure in separate processes, then in Spark's workers."""
    stream = env.recorded_stream(MESSAGES, LENGTH)
    options = env.stream_options(stream, payload="raw")
    ranges = tuple(make_task(options).stream().whole())
    later = 3 if env.quick else LATER_TASKS
    runs = [time_in_new_process(options, ranges, later) for _ in range(env.rounds)]
    yield _first_task_figure("first task in a new process, start of the JVM included", [run[0] for run in runs])
    yield _later_task_figure("a later task in the same process", [seconds for run in runs for seconds in run[1:]])
    tasks = [_time_in_worker(env, options, ranges, keep=False) for _ in range(env.rounds)]
    tasks += [_time_in_worker(env, options, ranges, keep=True) for _ in range(2 + later)]
    firsts = dict(reversed(tasks))
    yield _first_task_figure("first task in a new Python worker of Spark", list(firsts.values()))
    yield _later_task_figure(
        "a later task in the same Python worker", [seconds for worker, seconds in tasks if seconds != firsts[worker]]
    )


def time_first_rows(options: dict[str, str], ranges: tuple[Range, ...], later: int) -> list[float]:
    """Return the seconds from the call to the first batch: of a first task, then of ``later`` ones."""
    task = make_task(options)
    partition = RangePartition(ranges, task.options.route)
    durations = []
    for _ in range(1 + later):
        started = time.perf_counter()
        batches = task.read(partition)
        first = next(batches)
        durations.append(time.perf_counter() - started)
        assert first.num_rows
        batches.close()  # type: ignore[attr-defined]
    return durations


def time_in_new_process(options: dict[str, str], ranges: tuple[Range, ...], later: int) -> list[float]:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, base64.b64encode(pickle.dumps((options, ranges))).decode(), str(later)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    )
    return [float(seconds) for seconds in json.loads(completed.stdout)]


def _time_in_worker(
    env: Environment, options: dict[str, str], ranges: tuple[Range, ...], *, keep: bool
) -> tuple[int, float]:
    """Return the worker's process id and the seconds of its task; Spark uses the worker again only with ``keep``."""

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            (seconds,) = time_first_rows(options, ranges, 0)
            yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "seconds": [seconds]})

    frame = env.spark.range(0, 1, 1, 1).mapInArrow(measure, "worker long, seconds double")
    # first() ends the task early, and Spark then ends its worker
    (row,) = frame.collect() if keep else [frame.first()]
    assert row is not None
    return int(row["worker"]), float(row["seconds"])


def make_task(options: dict[str, str]) -> Task:
    from aeron_spark.direct.archive_recordings import this_host

    return Task(ReadOptions.parse(options, streaming=False), "raw", RAW, this_host())


def _first_task_figure(name: str, seconds: list[float]) -> Figure:
    return Figure(name, statistics.median(seconds), "s", "<= 1", f"median of {len(seconds)}", {"seconds": seconds})


def _later_task_figure(name: str, seconds: list[float]) -> Figure:
    millis = [1000 * duration for duration in seconds]
    detail = f"median of {len(millis)}, the longest {max(millis):.0f} ms; replay set-up included"
    return Figure(name, statistics.median(millis), "ms", "<= 50", detail, {"milliseconds": millis})
