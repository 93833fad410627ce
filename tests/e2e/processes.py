"""Starts, controls and kills the processes of end-to-end tests, and compares their results."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from aeron_spark.waiting import Deadline
from tests.e2e.producer import Ledger, row_of
from tests.e2e.spark_program import RESPONSE_PREFIX
from tests.programs import python_environ, start_module
from tests.waiting import poll_until

TIMEOUT_S: Final = 120.0  # of actions that are fast on an idle machine
STREAM: Final = "1001"


class SparkProgram:
    """A Spark driver in a separate process; see :mod:`tests.e2e.spark_program`."""

    def __init__(
        self, folder: Path, master: str = "local[2,4]", conf: Mapping[str, str] | None = None, hosts: Sequence[int] = ()
    ) -> None:
        """``hosts`` are further processes whose children belong to this Spark."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._hosts = hosts
        self._log = (folder / "spark.log").open("ab")
        settings = {"master": master, "folder": str(folder), "conf": dict(conf or {})}
        self.process = start_module(
            "tests.e2e.spark_program", json.dumps(settings),
            environ={"SPARK_HOME": str(spark_home(folder)), "SPARK_LOCAL_DIRS": str(folder / "local")},
            cwd=folder, stderr=self._log, start_new_session=True,  # for kill_group
        )  # fmt: skip
        self._responses: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.jvm = int(self._response()["jvm"])

    def request(self, method: str, **arguments: Any) -> dict[str, Any]:
        self.process.send(json.dumps({"request": method, **arguments}))
        response = self._response()
        assert "raised" not in response, response["raised"]
        return response

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers that run tasks, which are children of PySpark's daemons."""
        daemons = {process.pid for process in self._matching("pyspark.daemon")}
        return [process for process in self._matching("pyspark.worker") if process.ppid() in daemons]

    def planners(self) -> list[psutil.Process]:
        """Return the long-lived Python processes in which the driver plans the batches of its queries."""
        return self._matching("python_streaming_source_runner")

    def executor_of(self, worker: int) -> psutil.Process:
        ancestors = {parent.pid for parent in psutil.Process(worker).parents()}
        return next(executor for executor in self.executors() if executor.pid in ancestors)

    def executors(self) -> list[psutil.Process]:
        return self._matching("CoarseGrainedExecutorBackend")

    def kill(self) -> None:
        """Kill the driver, which is its JVM and the Python program, with SIGKILL."""
        for pid in (self.jvm, self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self._end()

    def kill_group(self) -> None:
        """Kill the driver's process group with SIGKILL, and wait until all processes of the driver have ended.

        The group has the Python program, its JVM and the planners. The workers have a group of their own, and end when
        the JVM has ended.
        """
        processes = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGKILL)
        self._end()
        poll_until(lambda: not any(map(is_alive, processes)), TIMEOUT_S, "the end of the driver's processes")

    def clean_up(self) -> None:
        """Kill the rest of a driver that has ended, and close its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.jvm, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """End the program, and wait for its exit."""
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._end()

    def log(self) -> str:
        """Return Spark's log."""
        return (self.folder / "spark.log").read_text(errors="replace")

    def _matching(self, word: str) -> list[psutil.Process]:
        found = []
        for child in (child for host in (self.jvm, *self._hosts) for child in psutil.Process(host).children(True)):
            with contextlib.suppress(psutil.Error):
                if any(word == part.rpartition(".")[2] or word == part for part in child.cmdline()):
                    found.append(child)
        return found

    def _end(self) -> None:
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith(RESPONSE_PREFIX):
                self._responses.put(line.removeprefix(RESPONSE_PREFIX))
        self._responses.put(None)

    def _response(self) -> dict[str, Any]:
        line = self._responses.get(timeout=TIMEOUT_S)
        assert line is not None, f"Spark ended:\n{self.log()[-4000:]}"
        response: dict[str, Any] = json.loads(line)
        return response


# Settings of a cluster that starts a slow task a second time, on another executor.
SPECULATION: Final = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


class Cluster:
    """A standalone Spark cluster of one core on each of two hosts, which are addresses of this machine.

    ``local-cluster`` has all executors on one host, and Spark starts no second attempt of a task on the same host.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.home = spark_home(folder)
        try:
            self._start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = poll_until(
                lambda: self._find_in_log("master.Master", r"spark://127.0.0.1:\d+"), TIMEOUT_S, "Spark's master"
            )
            for host in ("127.0.0.2", "127.0.0.3"):
                options = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                self._start("worker.Worker", *options, "--work-dir", str(folder / f"work-{host}"), self.url)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[int]:
        """The processes whose children are the executors."""
        return [process.pid for process in self.processes[1:]]

    def close(self) -> None:
        """End the cluster, and wait for its processes."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait(TIMEOUT_S)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                    env=python_environ(**{"SPARK_HOME": str(self.home), "SPARK_DAEMON_MEMORY": "256m"}),
                    cwd=self.folder,
                    stdout=log,
                    stderr=log,
                )
            )

    def _find_in_log(self, name: str, pattern: str) -> str | None:
        assert self.processes[-1].poll() is None, (self.folder / f"{name}.log").read_text()
        found = re.search(pattern, (self.folder / f"{name}.log").read_text())
        return None if found is None else found.group()


def spark_home(folder: Path) -> Path:
    """Return a Spark home with links to PySpark's, so that Spark writes nothing into the latter."""
    import pyspark

    home = folder / "home"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "jars", "sbin"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


class Producer:
    """A producer in a separate process; see :mod:`tests.e2e.producer`."""

    def __init__(
        self,
        aeron_dir: Path,
        ledger: Path,
        *,
        first: int = 0,
        seed: int = 1,
        pause: float = 0.05,
        content: Literal["text", "sbe"] = "text",
    ) -> None:
        self.ledger_path = ledger
        arguments = [str(aeron_dir), STREAM, str(ledger), str(first), str(seed), str(pause), content]
        with ledger.with_suffix(".log").open("ab") as log:
            self.process = start_module("tests.e2e.producer", *arguments, stdout=None, stderr=log)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def ledger(self) -> Ledger:
        """The ledger that the producer has written so far."""
        return Ledger.read(self.ledger_path)

    def await_acked(self, more: int) -> int:
        """Wait until ``more`` further rows are acknowledged; return the number of all acknowledged rows."""
        wanted = len(self.ledger.acked) + more

        def count_if_enough() -> int | None:
            assert self.process.poll() is None, self.ledger_path.with_suffix(".log").read_text()
            count = len(self.ledger.acked)
            return count if count >= wanted else None

        return poll_until(
            count_if_enough, TIMEOUT_S, f"{wanted} acknowledged rows", state=lambda: str(self.ledger.failures)
        )

    def finish(self) -> Ledger:
        """Request the producer's end, and wait for it; return the ledger."""
        if self.process.poll() is None:
            self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0, self.ledger_path.with_suffix(".log").read_text()
        return self.ledger

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self.process.stdin.close()


@dataclass(frozen=True)
class QuerySetup:
    """The node of one test, a stream on it, and a query's table and checkpoint."""

    aeron_dir: Path
    folder: Path

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def options(self) -> dict[str, str]:
        """The options that name the stream."""
        return {"channel": "aeron:ipc", "streamId": STREAM, "aeronDir": str(self.aeron_dir)}

    def start(self, spark: SparkProgram, **more: Any) -> None:
        """Start the query from the stream into the table; ``options`` in ``more`` are further options of its source."""
        options = {**self.options, "startingOffsets": "earliest", **more.pop("options", {})}
        spark.request(
            "start", name="q", options=options, table=str(self.table), checkpoint=str(self.checkpoint), **more
        )

    def recorded(self, stream: str = STREAM) -> dict[tuple[int, int], bytes]:
        """Return all messages in the archive, by recording and position."""
        path = self.folder / "recorded.arrow"
        subprocess.run(
            [sys.executable, "-m", "tests.e2e.recorded", str(self.aeron_dir), stream, str(path)],
            env=python_environ(), check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        with pa.OSFile(str(path), "rb") as file:
            return by_position(pa.ipc.open_file(file).read_all())

    def await_rows(self, spark: SparkProgram, wanted: Callable[[set[int]], bool], what: str) -> None:
        """Wait until the rows are as ``wanted``; the test fails if the query fails, or the rows stop growing."""
        deadline = Deadline(TIMEOUT_S, what)
        max_rows = 0
        while not wanted(rows := rows_in(self.table)):
            failure = spark.request("state", name="q")["failure"]
            assert failure is None, failure
            if len(rows) > max_rows:
                max_rows = len(rows)
                deadline.progress()
            time.sleep(0.1)
            deadline.idle(f"{len(rows)} rows in the table")


def read_table(path: Path) -> pa.Table:
    """Read a Delta table from its log and files, independently of the Spark that wrote it."""
    files: dict[str, None] = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = None
            elif "remove" in action:
                del files[action["remove"]["path"]]
    return pa.concat_tables([pq.ParquetFile(path / name).read() for name in files]) if files else pa.table({})


def rows_in(path: Path) -> set[int]:
    """Return the numbers of the rows in a table of values."""
    table = read_table(path)
    return {row_of(value) for value in table.column("value").to_pylist()} if table.num_rows else set()


def assert_same(table: pa.Table, recorded: dict[tuple[int, int], bytes]) -> None:
    """Check that a table has the messages of the archive: no row is lost, repeated or changed."""
    found = Counter(zip(_positions(table.column("recordingId"), table), table.column("value").to_pylist(), strict=True))
    wanted = Counter(recorded.items())
    assert not (lost := wanted - found), f"{lost.total()} rows lost, such as {min(lost)}"
    assert not (more := found - wanted), f"{more.total()} rows too many, such as {min(more)}"


def assert_ledger(recorded: dict[tuple[int, int], bytes], *ledgers: Ledger) -> None:
    """Check that acknowledged rows are recorded, recorded rows were offered, and no row is recorded twice."""
    found = Counter(map(row_of, recorded.values()))
    acked = {row for ledger in ledgers for row in ledger.acked}
    offered = {row for ledger in ledgers for row in ledger.offered}
    assert acked, "no row was acknowledged"
    assert not (lost := acked - found.keys()), f"{len(lost)} acknowledged rows are not recorded, such as {min(lost)}"
    assert found.keys() <= offered
    assert max(found.values()) == 1


def by_position(rows: pa.Table) -> dict[tuple[int, int], bytes]:
    """Return the messages that :mod:`tests.e2e.recorded` has read, by recording and position."""
    return dict(zip(_positions(rows.column("recording"), rows), rows.column("value").to_pylist(), strict=True))


def _positions(recording: pa.ChunkedArray[Any], rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(recording.to_pylist(), rows.column("position").to_pylist(), strict=True))


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process has not ended; a zombie has, whose parent may read its exit late."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_one_of(processes: list[psutil.Process], rng: random.Random) -> int | None:
    """Kill one of the processes with SIGKILL; return its id, or None if all have ended already."""
    for process in rng.sample(processes, len(processes)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            return process.pid
    return None
