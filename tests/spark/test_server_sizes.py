"""Large rows from Spark through a server to Spark: they arrive as they were, in bounded memory of everybody."""

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
# Beside what it had: the chunks under way, and what an allocator keeps. Not the row, let alone all of them.
SERVER_MOST: Final = 96 * MIB
LOOK: Final = 0.2  # seconds


@pytest.fixture(scope="module")
def program(node: NodeHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProgram]:
    """A server in a process of its own, so that its memory can be told from the test's."""
    folder = tmp_path_factory.mktemp("server")
    one = ServerProgram(Path(node.aeron_dir), folder, "--streams-dir", str(folder / "streams"))
    yield one
    one.close()


class Memory:
    """The most anonymous memory that processes have while it looks; what is mapped of files is the kernel's to take."""

    def __init__(self, processes: Callable[[], list[psutil.Process]]) -> None:
        self.most = 0
        self._processes = processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            for process in self._processes():
                self.most = max(self.most, anonymous(process))


def anonymous(process: psutil.Process) -> int:
    """Bytes of a process's memory that are no file's; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def workers() -> list[psutil.Process]:
    """The Python workers of the session."""
    gateway = SparkContext._gateway
    assert gateway is not None
    found = []
    for child in psutil.Process(gateway.proc.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if any("pyspark" in part for part in child.cmdline()):
                found.append(child)
    return found


def row_of(number: int, size: int) -> bytes:
    """A row that is made of its number, quickly."""
    return hashlib.shake_128(number.to_bytes(8, "little")).digest(MIB) * (size // MIB)


@pytest.mark.parametrize(
    ("rows", "mib"),
    [
        pytest.param(1, 48, marks=pytest.mark.full("a row that shows bounded memory takes 23 CPU seconds")),
        pytest.param(1, 128, marks=pytest.mark.full("the same with a larger row")),
        pytest.param(100, 20, marks=pytest.mark.soak),
        pytest.param(1, 1024, marks=pytest.mark.soak),
    ],
)
def test_large_rows_arrive_with_bounded_memory(
    spark: SparkSession, program: ServerProgram, rows: int, mib: int
) -> None:
    stream, size = f"s-{rows}-{mib}", mib * MIB
    program.create(stream, 1)
    assert program.process is not None
    server = psutil.Process(program.process.pid)
    wait_for(lambda: anonymous(server) > 0, 60.0, "the server's memory to be told")
    before = anonymous(server)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({"value": pa.array([row_of(number, size)], pa.binary())})

    with Memory(lambda: [server]) as of_server, Memory(workers) as of_workers:
        made = spark.range(0, rows, 1, 1).mapInArrow(make, "value binary")
        made.write.format("aeron").mode("append").options(**program.options(stream), payload="framed").save()
        read = spark.read.format("aeron").options(**program.options(stream), maxBytesPerTrigger="64m").load()
        found = read.selectExpr("length(value) as length", "sha2(value, 256) as digest").collect()
    wanted = sorted((size, hashlib.sha256(row_of(number, size)).hexdigest()) for number in range(rows))
    assert sorted((row.length, row.digest) for row in found) == wanted
    grown = of_server.most - before
    print(f"{rows} rows of {mib} MiB: the server {grown / MIB:.0f} MiB more, a worker {of_workers.most / MIB:.0f} MiB")
    assert grown < SERVER_MOST
    assert size < of_workers.most < 512 * MIB + 5 * size  # it holds a row, and copies for Arrow and for Spark
