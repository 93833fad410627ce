"""The jobs of an installed wheel, run by ``spark-submit``: killed, ended by SIGTERM, continued to the right result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import aeron_spark
from aeron_spark import node
from aeron_spark.direct.writing import DirectAppender
from aeron_spark.jobs.session import SETTINGS
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from demo.comparing import compare
from demo.flights import SCHEMA, load
from tests.e2e.processes import is_alive, read_table
from tests.e2e.served import ServerProgram
from tests.nodes import new_aeron_dir, remove_node
from tests.spark_conf import spark_conf
from tests.waiting import poll_until
from tests.wheels import build_wheel

ROWS: Final = 2000
TIMEOUT_S: Final = 300.0  # of a run; it takes fifteen seconds on an idle machine

pytestmark = [
    pytest.mark.delta,
    pytest.mark.full("several starts of Spark; tests/spark/test_jobs.py runs the jobs in one session"),
]


@pytest.fixture(scope="module")
def aeron_dir(run_name: str) -> Iterator[Path]:
    """A node with a recorded stream of flights."""
    folder = new_aeron_dir(run_name)
    with node.ensure(folder, ipc_term_length="256k"):
        options = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": str(folder), "record": "auto"}
        appender = DirectAppender(WriteOptions.parse({**options, "ack": "archive"}, streaming=False), Source("flights"))
        for batch in load(ROWS).to_batches(max_chunksize=50):
            appender.arrow(batch)
        appender.finish()
        yield folder
    remove_node(folder)


@pytest.fixture(scope="module")
def server(aeron_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProgram]:
    running = ServerProgram(aeron_dir, tmp_path_factory.mktemp("server"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the wheel is installed, without what it requires."""
    target, wheel = tmp_path_factory.mktemp("installed"), build_wheel(tmp_path_factory.mktemp("project"))
    command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return target


class Job:
    """A job of an installed package, its arguments, and its checkpoint; each run continues the last one."""

    def __init__(self, installed: Path, folder: Path, name: str, *arguments: str, has_checkpoint: bool = True) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self._environ = os.environ | {"PYTHONPATH": str(installed), "PYSPARK_PYTHON": sys.executable}
        show_path = [sys.executable, "-m", "aeron_spark", "jobs", "path", name]
        found = subprocess.run(show_path, env=self._environ, cwd=folder, capture_output=True, text=True, check=True)
        assert Path(found.stdout.strip()).is_relative_to(installed)
        self._command = [
            str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2,4]",
            *(f"--conf={key}={value}" for key, value in spark_conf(folder).items() if key not in SETTINGS),
            found.stdout.strip(), *([f"--checkpoint={self.checkpoint}"] if has_checkpoint else []), *arguments,
        ]  # fmt: skip
        self._runs = 0

    def start(self, *arguments: str) -> Run:
        self._runs += 1
        log = self.folder / f"{self._runs}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self._command, *arguments], env=self._environ, cwd=self.folder, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        return Run(process, log, self.checkpoint / "commits")

    def run_to_end(self, *arguments: str) -> str:
        return self.run(0, arguments=arguments)

    def run(self, *codes: int, arguments: Sequence[str] = ()) -> str:
        """Run the job until it ends by itself, with one of the exit codes; return its log."""
        with self.start(*arguments) as run:
            assert run.process.wait(TIMEOUT_S) in codes, run.text[-6000:]
            return run.text


class Run:
    """One run of a job, whose process is Spark's JVM; the program in Python is its child."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, commits: Path) -> None:
        self.process = process
        self._log = log
        self._commits = commits

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def text(self) -> str:
        """Spark's log and the lines of the job."""
        return self._log.read_text(errors="replace")

    def await_commits(self, more: int) -> None:
        """Wait until ``more`` further micro-batches are committed."""
        before = self._count()

        def has_more() -> bool:
            assert self.process.poll() is None, self.text[-6000:]
            return self._count() >= before + more

        poll_until(has_more, TIMEOUT_S, f"{more} committed micro-batches", state=lambda: str(self._count()))

    def kill(self) -> None:
        """Kill the JVM, the job and its planners with SIGKILL, and wait until the workers have ended, too."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
        poll_until(lambda: not any(map(is_alive, processes)), TIMEOUT_S, "the end of the job's processes")

    def kill_worker(self) -> None:
        """Kill a Python worker, whose task Spark repeats."""

        def killed() -> bool:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    if "pyspark.daemon" in child.cmdline() and "pyspark.daemon" in child.parent().cmdline():  # type: ignore[union-attr]
                        child.kill()
                        return True
                except psutil.Error:
                    continue
            return False

        poll_until(killed, TIMEOUT_S, "a Python worker")

    def end(self) -> None:
        """Send SIGTERM to the JVM, as a scheduler does, and wait until all processes have ended."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        poll_until(lambda: not any(map(is_alive, processes)), TIMEOUT_S, "the end of the job's processes")

    def _count(self) -> int:
        return len([path for path in self._commits.glob("*") if path.name.isdecimal()])


def arguments_of(options: Mapping[str, str], flag: str = "--option") -> list[str]:
    return [f"{flag}={name}={value}" for name, value in options.items()]


def source(aeron_dir: Path) -> list[str]:
    """Return the options of the recorded stream, with small micro-batches."""
    options = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": str(aeron_dir), "maxRowsPerTrigger": "200"}
    return arguments_of(options)


def received(server: ServerProgram, stream: str) -> pa.Table:
    """Return the rows of a server's stream, read by a client."""
    options = server.options(stream)
    with aeron_spark.connect(
        options["server"], identity=options["identity"], server_key=options["serverKey"],
        aeron_dir=options["aeronDir"], store=MemoryPeerStore(), timeout=60.0,
    ) as client:  # fmt: skip
        return pa.Table.from_batches(list(client.reader(stream)))


def check_flights(found: pa.Table) -> None:
    comparison = compare(load(ROWS), found.cast(SCHEMA))
    assert comparison.equal, comparison.sentence


def test_a_killed_job_makes_the_right_table(aeron_dir: Path, installed: Path, tmp_path: Path) -> None:
    """A killed worker, a killed driver, and SIGTERM interrupt the copy; each start continues it."""
    table = tmp_path / "table"
    start = "--option=startingOffsets=earliest"
    job = Job(installed, tmp_path, "aeron_to_delta", f"--table={table}", *source(aeron_dir), start)
    with job.start("--interval=1 second") as run:
        run.await_commits(2)
        run.kill_worker()
        run.await_commits(2)
        run.kill()
    with job.start("--interval=1 second") as run:
        run.await_commits(2)
        run.end()
        assert "SIGTERM: the query ends after its micro-batch" in run.text
        assert "aeron_to_delta ended, exit code 0" in run.text
    assert "aeron_to_delta ended, exit code 0" in job.run_to_end("--available-now")
    check_flights(read_table(table))


def test_a_killed_backfill_continues(aeron_dir: Path, installed: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    job = Job(installed, tmp_path, "backfill", f"--table={table}", *source(aeron_dir), "--end=latest")
    with job.start() as run:
        run.await_commits(2)
        run.kill()
    assert 0 < read_table(table).num_rows < ROWS
    job.run_to_end()
    check_flights(read_table(table))
    assert "0 rows, last micro-batch: none" in job.run_to_end()
    assert read_table(table).num_rows == ROWS


def test_a_killed_mirror_writes_each_row_to_a_server_once(
    aeron_dir: Path, server: ServerProgram, installed: Path, tmp_path: Path
) -> None:
    server.create("mirror", 2)
    copy = arguments_of(server.options("mirror"), "--target-option")
    start = "--option=startingOffsets=earliest"
    mirror = Job(installed, tmp_path, "mirror", *source(aeron_dir), start, *copy)
    with mirror.start("--interval=1 second") as run:
        run.await_commits(3)
        run.kill()
    mirror.run_to_end("--available-now")
    check_flights(received(server, "mirror"))


def write_table(folder: Path) -> None:
    """Write the flights as a Delta table of ten files, each in a commit of its own."""
    (folder / "_delta_log").mkdir(parents=True)
    metadata = {
        "id": "flights", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
        "schemaString": from_arrow_schema(SCHEMA).json(), "createdTime": 0,
    }  # fmt: skip
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for number, batch in enumerate(load(ROWS).to_batches(max_chunksize=ROWS // 10)):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_batches([batch]).cast(SCHEMA), path)
        size = path.stat().st_size
        added = {"path": path.name, "size": size, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
        lines = [json.dumps(action) for action in [*(first if number == 0 else []), {"add": added}]]
        (folder / "_delta_log" / f"{number:020}.json").write_text("\n".join(lines))


def test_a_killed_publisher_of_a_table_writes_each_row_to_a_server_once(
    server: ServerProgram, installed: Path, tmp_path: Path
) -> None:
    server.create("table", 2)
    write_table(tmp_path / "flights")
    options = arguments_of(server.options("table"))
    table = [f"--table={tmp_path / 'flights'}", "--table-option=maxFilesPerTrigger=1"]
    publish = Job(installed, tmp_path, "delta_to_aeron", *table, *options)
    with publish.start("--interval=1 second") as run:
        run.await_commits(3)
        run.kill()
    publish.run_to_end("--available-now")
    check_flights(received(server, "table"))


def test_a_killed_mirror_to_a_channel_loses_nothing(aeron_dir: Path, installed: Path, tmp_path: Path) -> None:
    """On the direct route the rows of a micro-batch can be there twice; an audit says which, and may be killed, too."""
    options = {"channel": "aeron:ipc", "streamId": "1003", "aeronDir": str(aeron_dir)}
    copy = arguments_of({**options, "record": "auto"}, "--target-option")
    mirror = Job(installed, tmp_path, "mirror", *source(aeron_dir), "--option=startingOffsets=earliest", *copy)
    with mirror.start("--interval=1 second") as run:
        run.await_commits(3)
        run.kill()
    mirror.run_to_end("--available-now")
    write_table(tmp_path / "flights")
    table = f"--table={tmp_path / 'flights'}"
    (tmp_path / "audit").mkdir()
    audit = Job(installed, tmp_path / "audit", "audit", table, *arguments_of(options), has_checkpoint=False)
    with audit.start() as run:
        poll_until(lambda: "audit begins" in run.text, TIMEOUT_S, "the begin of the audit")
        run.kill()
    (numbers,) = re.findall(
        r"stream: ([\d,]+), table: ([\d,]+), missing: (\d+),.* only in table: (\d+)", audit.run(0, 1)
    )
    of_stream, of_table, repeated, lost = (int(number.replace(",", "")) for number in numbers)
    assert (of_table, lost) == (ROWS, 0)
    assert of_stream - ROWS == repeated <= 200, "the rows of one micro-batch"
