"""The processes of an end-to-end test, seen from the test: started, told, killed, and compared with each other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from aeron_spark import node
from aeron_spark.waiting import Deadline
from tests.e2e.producer import Ledger, row_of
from tests.e2e.spark_program import ANSWER
from tests.waiting import poll_until

ROOT: Final = Path(__file__).resolve().parents[2]
TIMEOUT_S: Final = 120.0  # of actions that are fast on an idle machine
STREAM: Final = "1001"


def environment() -> dict[str, str]:
    """Return an environment in which a Python finds the package and the tests."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "connector"), str(ROOT)])}


class SparkProgram:
    """A Spark driver in a process of its own; see :mod:`tests.e2e.spark_program`."""

    def __init__(
        self, place: Path, master: str = "local[2,4]", conf: Mapping[str, str] | None = None, hosts: Sequence[int] = ()
    ) -> None:
        """``hosts`` are the processes, beside the driver's own, whose children belong to this Spark."""
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self._hosts = hosts
        self._log = (place / "spark.log").open("ab")
        order = {"master": master, "place": str(place), "conf": dict(conf or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.spark_program", json.dumps(order)],
            env=environment() | {"SPARK_HOME": str(spark_home(place)), "SPARK_LOCAL_DIRS": str(place / "local")},
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.jvm = int(self._answer()["jvm"])

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Give an order, and return the answer."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        assert "raised" not in answer, answer["raised"]
        return answer

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers that run tasks: what PySpark's daemons forked."""
        daemons = {process.pid for process in self._matching("pyspark.daemon")}
        return [process for process in self._matching("pyspark.worker") if process.ppid() in daemons]

    def planners(self) -> list[psutil.Process]:
        """Return the long-lived Python processes in which the driver plans its queries' batches."""
        return self._matching("python_streaming_source_runner")

    def executor_of(self, worker: int) -> psutil.Process:
        """Return the executor that a Python worker belongs to."""
        above = {parent.pid for parent in psutil.Process(worker).parents()}
        return next(executor for executor in self.executors() if executor.pid in above)

    def executors(self) -> list[psutil.Process]:
        """Return the executors."""
        return self._matching("CoarseGrainedExecutorBackend")

    def kill(self) -> None:
        """kill -9 of the driver: its JVM and the Python program."""
        for pid in (self.jvm, self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self._end()

    def kill_quietly(self) -> None:
        """Collect what is left of one that has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.jvm, signal.SIGKILL)
        self._end()

    def close(self) -> None:
        """End the program in order."""
        if self.process.poll() is None:
            assert self.process.stdin
            self.process.stdin.close()
            try:
                self.process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._end()

    def log(self) -> str:
        """Return what Spark logged."""
        return (self.place / "spark.log").read_text(errors="replace")

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
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                self._answers.put(line.removeprefix(ANSWER))
        self._answers.put(None)

    def _answer(self) -> dict[str, Any]:
        line = self._answers.get(timeout=TIMEOUT_S)
        assert line is not None, f"Spark ended:\n{self.log()[-4000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


# Of a cluster: a task that is slow is started a second time, on another executor.
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

    ``local-cluster`` has all its executors on one host, and Spark starts no second attempt of a task on the same host.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.processes: list[subprocess.Popen[bytes]] = []
        self.home = spark_home(place)
        try:
            self._start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = poll_until(
                lambda: self._said("master.Master", r"spark://127.0.0.1:\d+"), TIMEOUT_S, "Spark's master"
            )
            for host in ("127.0.0.2", "127.0.0.3"):
                options = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                self._start("worker.Worker", *options, "--work-dir", str(place / f"work-{host}"), self.url)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> list[int]:
        """The processes whose children are the executors."""
        return [process.pid for process in self.processes[1:]]

    def close(self) -> None:
        """End the cluster, and wait until it has."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait(TIMEOUT_S)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.place / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                    env=environment() | {"SPARK_HOME": str(self.home), "SPARK_DAEMON_MEMORY": "256m"},
                    cwd=self.place,
                    stdout=log,
                    stderr=log,
                )
            )

    def _said(self, name: str, pattern: str) -> str | None:
        assert self.processes[-1].poll() is None, (self.place / f"{name}.log").read_text()
        found = re.search(pattern, (self.place / f"{name}.log").read_text())
        return None if found is None else found.group()


def spark_home(place: Path) -> Path:
    """Return a Spark home like PySpark's own, and nothing is written into that."""
    import pyspark

    home = place / "home"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "jars", "sbin"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


class Producer:
    """A producer in a process of its own; see :mod:`tests.e2e.producer`."""

    def __init__(self, aeron_dir: Path, ledger: Path, *, first: int = 0, seed: int = 1, pause: float = 0.05) -> None:
        self.ledger_path = ledger
        arguments = [str(aeron_dir), STREAM, str(ledger), str(first), str(seed), str(pause)]
        with ledger.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.producer", *arguments],
                env=environment(),
                stdin=subprocess.PIPE,
                stderr=log,
            )

    @property
    def ledger(self) -> Ledger:
        """What it has written down."""
        return Ledger.read(self.ledger_path)

    def await_acked(self, more: int) -> int:
        """Wait until ``more`` further rows are acknowledged; return how many there are in all."""
        wanted = len(self.ledger.acked) + more

        def enough() -> int | None:
            assert self.process.poll() is None, self.ledger_path.with_suffix(".log").read_text()
            there = len(self.ledger.acked)
            return there if there >= wanted else None

        return poll_until(enough, TIMEOUT_S, f"{wanted} acknowledged rows", state=lambda: str(self.ledger.failures))

    def finish(self) -> Ledger:
        """Let it end in order; return its ledger."""
        if self.process.poll() is None:
            assert self.process.stdin
            self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0, self.ledger_path.with_suffix(".log").read_text()
        return self.ledger

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdin
        self.process.stdin.close()


@dataclass(frozen=True)
class Place:
    """A node of a test's own, a stream on it, and a query's table and checkpoint."""

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
        """Start the query from the stream into the table; ``options`` are further options of its source."""
        options = {**self.options, "startingOffsets": "earliest", **more.pop("options", {})}
        spark.ask("start", name="q", options=options, table=str(self.table), checkpoint=str(self.checkpoint), **more)

    def recorded(self, stream: str = STREAM) -> dict[tuple[int, int], bytes]:
        """Return what the archive holds: by recording and position, every message."""
        path = self.folder / "recorded.arrow"
        subprocess.run(
            [sys.executable, "-m", "tests.e2e.recorded", str(self.aeron_dir), stream, str(path)],
            env=environment(), check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        with pa.OSFile(str(path), "rb") as file:
            return by_place(pa.ipc.open_file(file).read_all())

    def await_rows(self, spark: SparkProgram, wanted: Callable[[set[int]], bool], what: str) -> None:
        """Wait until the rows are as ``wanted``, as long as they grow; a query that has failed fails the test."""
        deadline = Deadline(TIMEOUT_S, what)
        most = 0
        while not wanted(rows := rows_in(self.table)):
            failure = spark.ask("state", name="q")["failure"]
            assert failure is None, failure
            if len(rows) > most:
                most = len(rows)
                deadline.progress()
            time.sleep(0.1)
            deadline.idle(f"{len(rows)} rows in the table")


def kill_node(aeron_dir: Path) -> int:
    """kill -9 of the media driver and archive in ``aeron_dir``; return which process that was."""
    from aeron_spark.node.locks import is_locked, owner_pid

    places = node.local_node_paths(aeron_dir)
    status = node.status(aeron_dir)
    assert status.state == "running", status
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    # Not collected here: to the others it may stay a zombie for long, which is no living node either.
    poll_until(
        lambda: not is_locked(places.alive_lock) or owner_pid(places.alive_lock) != status.pid,
        10,
        "the node to be gone",
    )
    return status.pid


def forget(aeron_dir: Path) -> None:
    """Stop the node of a test and remove what it wrote."""
    places = node.local_node_paths(aeron_dir)
    node.stop(aeron_dir, force=True, timeout=30)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(places.folder, ignore_errors=True)


def read_table(path: Path) -> pa.Table:
    """Read a Delta table by its log, file by file: another reader than the one that wrote it."""
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
    """Compare a table with what the archive holds, row by row: nothing lost, nothing twice, nothing changed."""
    found = Counter(zip(_places(table.column("recordingId"), table), table.column("value").to_pylist(), strict=True))
    wanted = Counter(recorded.items())
    assert not (lost := wanted - found), f"{lost.total()} rows lost, such as {min(lost)}"
    assert not (more := found - wanted), f"{more.total()} rows too many, such as {min(more)}"


def assert_ledger(recorded: dict[tuple[int, int], bytes], *ledgers: Ledger) -> None:
    """What was acknowledged is there; what is there was offered; nothing is there twice."""
    found = Counter(map(row_of, recorded.values()))
    acked = {row for ledger in ledgers for row in ledger.acked}
    offered = {row for ledger in ledgers for row in ledger.offered}
    assert acked, "nothing was acknowledged at all"
    assert not (lost := acked - found.keys()), f"{len(lost)} acknowledged rows are not recorded, such as {min(lost)}"
    assert found.keys() <= offered
    assert max(found.values()) == 1


def by_place(rows: pa.Table) -> dict[tuple[int, int], bytes]:
    """Return the messages that :mod:`tests.e2e.recorded` found, by recording and position."""
    return dict(zip(_places(rows.column("recording"), rows), rows.column("value").to_pylist(), strict=True))


def _places(recording: pa.ChunkedArray[Any], rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(recording.to_pylist(), rows.column("position").to_pylist(), strict=True))


def kill_one_of(processes: list[psutil.Process], rng: random.Random) -> int | None:
    """kill -9 of one of them, unless it has ended by itself meanwhile; return which."""
    for process in rng.sample(processes, len(processes)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            return process.pid
    return None
