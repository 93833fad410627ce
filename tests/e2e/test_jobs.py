"""The jobs of ``spark_jobs``, run by PySpark's ``spark-submit``: from Aeron into Delta, and from Delta to Aeron.

The same jobs use the direct route and a server, with different options.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark import node
from aeron_spark.direct.writing import DirectAppender
from aeron_spark.jobs.session import SETTINGS, START_FAILURE
from aeron_spark.log.writing import Source
from aeron_spark.options import WriteOptions
from aeron_spark.wire import decode, decode_batches
from demo.comparing import compare
from demo.flights import SCHEMA, load
from tests.e2e.processes import read_table
from tests.e2e.served import ServerProgram
from tests.nodes import new_aeron_dir, remove_node
from tests.programs import ROOT, python_environ
from tests.spark_conf import spark_conf

ROWS: Final = 1000
TIMEOUT_S: Final = 600.0  # of a job; it takes fifteen seconds on an idle machine

pytestmark = pytest.mark.delta


@pytest.fixture(scope="module")
def aeron_dir(run_name: str) -> Iterator[Path]:
    folder = new_aeron_dir(run_name)
    with node.ensure(folder, ipc_term_length="256k"):
        yield folder
    remove_node(folder)


LATE_PYTHON: Final = f"""\
#!/bin/sh
case "$*" in
*python_streaming_source_runner*) [ -e "$0.was" ] || {{ touch "$0.was"; sleep 15; }} ;;
esac
exec {sys.executable} "$@"
"""


def late_python(folder: Path) -> Path:
    """Return a Python whose first source process starts later than Spark's timeout of ten seconds."""
    python = folder / "late-python"
    python.write_text(LATE_PYTHON)
    python.chmod(0o755)
    return python


def submit(folder: Path, job: str, *arguments: str, python: str | Path = sys.executable) -> str:
    """Run a job to its end, with only spark-submit's entries on its path; return Spark's log."""
    return submit_program(folder, ROOT / "spark_jobs" / job, "--available-now", *arguments, python=python)


def submit_program(folder: Path, *program: str | Path, python: str | Path = sys.executable) -> str:
    """Run a program and its arguments with spark-submit to its end; return Spark's log."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("spark-submit"), "--master", "local[2]",
        *(f"--conf={name}={value}" for name, value in spark_conf(folder).items() if name not in SETTINGS),
        *program,
    ]  # fmt: skip
    environ = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stderr


def option_arguments(options: dict[str, str]) -> list[str]:
    return [f"--option={name}={value}" for name, value in options.items()]


def direct_arguments(aeron_dir: Path, **more: str) -> list[str]:
    return option_arguments({"channel": "aeron:ipc", "aeronDir": str(aeron_dir), **more})


def recorded(aeron_dir: Path, stream: str, path: Path) -> pa.Table:
    """Return the rows of an arrow stream, read from the archive in a separate process."""
    command = [sys.executable, "-m", "tests.e2e.recorded", str(aeron_dir), stream, str(path)]
    subprocess.run(command, env=python_environ(), check=True, timeout=TIMEOUT_S)
    with pa.OSFile(str(path), "rb") as file:
        messages = pa.ipc.open_file(file).read_all().column("value").to_pylist()
    frames = [decode(message) for message in messages]
    assert all(frame.header.is_whole for frame in frames)
    return pa.Table.from_batches([batch for frame in frames for batch in decode_batches(frame.payload)])


@pytest.fixture(scope="module")
def published(aeron_dir: Path) -> None:
    """Flights on a recorded stream."""
    options = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": str(aeron_dir), "record": "auto"}
    appender = DirectAppender(WriteOptions.parse({**options, "ack": "archive"}, streaming=False), Source("flights"))
    for batch in load(ROWS).to_batches(max_chunksize=100):
        appender.arrow(batch)
    appender.finish()


def into_delta_arguments(aeron_dir: Path, folder: Path) -> list[str]:
    """Return the arguments with which the first job copies the flights into ``folder``, in several batches."""
    source = direct_arguments(aeron_dir, streamId="1001", startingOffsets="earliest", maxBytesPerTrigger="100k")
    return [f"--table={folder / 'flights'}", f"--checkpoint={folder / 'checkpoint'}", *source]


def check_batches(folder: Path) -> None:
    assert len(os.listdir(folder / "checkpoint" / "commits")) > 1, "the limit makes several batches of it"


@pytest.fixture(scope="module")
def server(aeron_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProgram]:
    running = ServerProgram(aeron_dir, tmp_path_factory.mktemp("server"))
    try:
        yield running
    finally:
        running.close()


@dataclass(frozen=True)
class Results:
    """The Delta table that the first job has made, and the stream that the second job has made from it."""

    table: Path
    stream: str


@pytest.fixture(scope="module")
def results(
    aeron_dir: Path, published: None, server: ServerProgram, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """Both jobs, in one process, because a start of Spark is expensive; the tests share what they made."""
    folder = tmp_path_factory.mktemp("jobs")
    server.create("flights", 2)
    table = folder / "flights"
    options = option_arguments(server.options("flights"))
    jobs = [
        ["aeron_to_delta.py", *into_delta_arguments(aeron_dir, folder)],
        ["delta_to_aeron.py", f"--table={table}", f"--checkpoint={folder / 'out'}", *options],
    ]
    commands = [[str(ROOT / "spark_jobs" / job), "--available-now", *arguments] for job, *arguments in jobs]
    submit_program(folder, Path(__file__).with_name("submitted_jobs.py"), json.dumps(commands))
    check_batches(folder)
    return Results(table, "flights")


@pytest.mark.full("a separate Spark, and its timeout of ten seconds; tests/unit/jobs tests the start of a query")
def test_a_job_whose_python_starts_too_late_starts_its_query_again(
    aeron_dir: Path, published: None, tmp_path: Path
) -> None:
    arguments = into_delta_arguments(aeron_dir, tmp_path)
    log = submit(tmp_path, "aeron_to_delta.py", *arguments, python=late_python(tmp_path))
    assert START_FAILURE in log, "Spark waited for the late Python"
    check_batches(tmp_path)
    comparison = compare(load(ROWS), read_table(tmp_path / "flights").cast(SCHEMA))
    assert comparison.equal, comparison.sentence


@pytest.mark.full("a separate Spark; the first job is in make test, and so is direct writing")
def test_the_second_job_writes_flights_on_the_direct_route(aeron_dir: Path, results: Results, tmp_path: Path) -> None:
    flights = load(ROWS)
    sink = direct_arguments(aeron_dir, streamId="1002", record="auto")
    submit(tmp_path, "delta_to_aeron.py", f"--table={results.table}", f"--checkpoint={tmp_path / 'out'}", *sink)
    comparison = compare(flights, recorded(aeron_dir, "1002", tmp_path / "recorded.arrow").cast(SCHEMA))
    assert comparison.equal, comparison.sentence


@pytest.mark.full("a separate Spark; the first job is in make test, and so is reading through a server")
def test_the_first_job_reads_flights_through_a_server(server: ServerProgram, results: Results, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    source = option_arguments({**server.options(results.stream), "startingOffsets": "earliest"})
    submit(tmp_path, "aeron_to_delta.py", f"--table={copy}", f"--checkpoint={tmp_path / 'into'}", *source)
    comparison = compare(load(ROWS), read_table(copy).cast(SCHEMA))
    assert comparison.equal, comparison.sentence
