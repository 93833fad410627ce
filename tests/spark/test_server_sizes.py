"""Large rows written and read through a server: they arrive unchanged, and server and workers use bounded memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.e2e.served import ServerProgram

MIB: Final = 1 << 20
# Growth of the server's memory: chunks in transfer and memory that the allocator keeps, but no complete row.
MAX_SERVER_GROWTH: Final = 96 * MIB
POLL_INTERVAL_S: Final = 0.2


@pytest.fixture(scope="module")
def program(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProgram]:
    """A server in a separate process, so that its memory can be measured."""
    folder = tmp_path_factory.mktemp("server")
    program = ServerProgram(Path(node.aeron_dir), folder, "--streams-dir", str(folder / "streams"))
    yield program
    program.close()


class MemoryPeak:
    """Measures the largest anonymous memory of one of several processes while the ``with`` block lasts.

    Memory that maps files does not count, as the kernel can reclaim it.
    """

    def __init__(self, processes: Callable[[], list[psutil.Process]]) -> None:
        self.bytes = 0
        self._processes = processes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._stop.wait(POLL_INTERVAL_S):
            for process in self._processes():
                self.bytes = max(self.bytes, anonymous_bytes(process))


def anonymous_bytes(process: psutil.Process) -> int:
    """Return the size of a process's memory that maps no file; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def find_workers() -> list[psutil.Process]:
    """Return the Python workers of the session."""
    gateway = SparkContext._gateway
    assert gateway is not None
    workers = []
    for child in psutil.Process(gateway.proc.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # the process has ended
            if any("pyspark" in part for part in child.cmdline()):
                workers.append(child)
    return workers


def make_row(number: int, size: int) -> bytes:
    """Return a row whose bytes depend on its number, and are fast to compute."""
    return hashlib.shake_128(number.to_bytes(8, "little")).digest(MIB) * (size // MIB)


@pytest.mark.parametrize(
    ("rows", "mib"),
    [
        pytest.param(
            1, 48, marks=pytest.mark.full("a row that is large enough to show bounded memory takes 23 CPU seconds")
        ),
        pytest.param(1, 128, marks=pytest.mark.full("the same with a larger row")),
        pytest.param(100, 20, marks=pytest.mark.soak),
        pytest.param(1, 1024, marks=pytest.mark.soak),
    ],
)
def test_large_rows_arrive_unchanged_with_bounded_memory(
    spark: SparkSession, program: ServerProgram, rows: int, mib: int
) -> None:
    stream, size = f"s-{rows}-{mib}", mib * MIB
    program.create(stream, 1)
    server = psutil.Process(program.process.pid)
    wait_for(lambda: anonymous_bytes(server) > 0, 60.0, "the server process to have memory")
    before = anonymous_bytes(server)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({"value": pa.array([make_row(number, size)], pa.binary())})

    with MemoryPeak(lambda: [server]) as server_peak, MemoryPeak(find_workers) as worker_peak:
        made = spark.range(0, rows, 1, 1).mapInArrow(make, "value binary")
        made.write.format("aeron").mode("append").options(**program.options(stream), payload="framed").save()
        read = spark.read.format("aeron").options(**program.options(stream), maxBytesPerTrigger="64m").load()
        found = read.selectExpr("length(value) as length", "sha2(value, 256) as digest").collect()
    expected = sorted((size, hashlib.sha256(make_row(number, size)).hexdigest()) for number in range(rows))
    assert sorted((row.length, row.digest) for row in found) == expected
    growth = server_peak.bytes - before
    assert growth < MAX_SERVER_GROWTH
    assert size < worker_peak.bytes < 512 * MIB + 5 * size  # a worker has a row, and copies for Arrow and for Spark
