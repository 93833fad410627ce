"""How soon a task has its first rows: in a fresh process, where a JVM must start, and in one that has it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from aeron_spark.log.api import Range
from aeron_spark.options import ReadOptions
from aeron_spark.spark.reader import RangePartition, Task
from aeron_spark.spark.schema import RAW
from benchmarks.measure import Figure
from benchmarks.stage import ROOT, Stage

LENGTH: Final = 100
MESSAGES: Final = 200_000
LATER: Final = 20
PROGRAM: Final = """
import json, sys
from benchmarks.starting import first_rows
print(json.dumps(first_rows(json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))))
"""


def run(stage: Stage) -> Iterator[Figure]:
    """Measure in processes of their own, then in Spark's workers."""
    stream = stage.filled(MESSAGES, LENGTH)
    options = stage.options(stream, payload="raw")
    ranges = [as_json(one) for one in task_of(options).stream().whole()]
    later = 3 if stage.quick else LATER
    runs = [in_a_process(options, ranges, later) for _ in range(stage.rounds)]
    yield _first("first task in a fresh process, start of the JVM included", [run[0] for run in runs])
    yield _later("a later task in the same process", [one for run in runs for one in run[1:]])
    tasks = [_in_a_worker(stage, options, ranges, keep=False) for _ in range(stage.rounds)]
    tasks += [_in_a_worker(stage, options, ranges, keep=True) for _ in range(2 + later)]
    firsts = dict(reversed(tasks))
    yield _first("first task in a fresh Python worker of Spark", list(firsts.values()))
    yield _later("a later task in such a worker", [took for worker, took in tasks if took != firsts[worker]])


def first_rows(options: dict[str, str], ranges: list[dict[str, Any]], later: int) -> list[float]:
    """Return the seconds from the call to the first batch: of a first task, then of ``later`` ones."""
    task = task_of(options)
    share = RangePartition(tuple(Range(**one) for one in ranges), task.options.route)
    found = []
    for _ in range(1 + later):
        begun = time.perf_counter()
        batches = task.read(share)
        first = next(batches)
        found.append(time.perf_counter() - begun)
        assert first.num_rows
        batches.close()  # type: ignore[attr-defined]
    return found


def in_a_process(options: dict[str, str], ranges: list[dict[str, Any]], later: int) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(options), json.dumps(ranges), str(later)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    )
    return [float(one) for one in json.loads(done.stdout)]


def _in_a_worker(
    stage: Stage, options: dict[str, str], ranges: list[dict[str, Any]], *, keep: bool
) -> tuple[int, float]:
    """Return the worker's process and its seconds; it is not used again unless it is to be kept."""

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            (seconds,) = first_rows(options, ranges, 0)
            yield pa.RecordBatch.from_pydict({"worker": [os.getpid()], "seconds": [seconds]})

    found = stage.spark.range(0, 1, 1, 1).mapInArrow(measure, "worker long, seconds double")
    # a task that is cut short, as first() does, takes its worker with it
    (row,) = found.collect() if keep else [found.first()]
    assert row is not None
    return int(row["worker"]), float(row["seconds"])


def task_of(options: dict[str, str]) -> Task:
    from aeron_spark.direct.archives import this_host

    return Task(ReadOptions.parse(options, streaming=False), "raw", RAW, this_host())


def as_json(one: Range) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Range.__dataclass_fields__}


def _first(name: str, seconds: list[float]) -> Figure:
    return Figure(name, statistics.median(seconds), "s", "<= 1", f"median of {len(seconds)}", {"seconds": seconds})


def _later(name: str, seconds: list[float]) -> Figure:
    millis = [one * 1000 for one in seconds]
    detail = f"median of {len(millis)}, the longest {max(millis):.0f} ms; replay set-up included"
    return Figure(name, statistics.median(millis), "ms", "<= 50", detail, {"milliseconds": millis})
