"""The ready jobs, through ``spark-submit`` as it comes with PySpark: from Aeron into Delta, and from there to Aeron.

Directly, and through a server by other options alone.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from aeron_spark import node
from aeron_spark.wire import decode, decode_batches
from demo.comparing import compare
from demo.flights import SCHEMA, load
from spark_jobs.session import NOT_BACK
from tests.e2e.processes import ROOT, environment, forget, read_table
from tests.e2e.served import ServerProgram
from tests.leaks import SHARED_MEMORY
from tests.spark_conf import DELTA

ROWS: Final = 1000
PATIENCE: Final = 600.0  # seconds for a job; fifteen on a machine that does nothing else

pytestmark = pytest.mark.delta


@pytest.fixture(scope="module")
def aeron_dir(run_name: str) -> Iterator[Path]:
    place = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    with node.ensure(place, ipc_term_length="256k"):
        yield place
    forget(place)


LATE: Final = f"""\
#!/bin/sh
case "$*" in
*python_streaming_source_runner*) [ -e "$0.was" ] || {{ touch "$0.was"; sleep 15; }} ;;
esac
exec {sys.executable} "$@"
"""


def late_python(place: Path) -> Path:
    """Return a Python that takes longer to run a source's process than the ten seconds that Spark gives it, once."""
    python = place / "late-python"
    python.write_text(LATE)
    python.chmod(0o755)
    return python


def submit(place: Path, job: str, *arguments: str, python: str | Path = sys.executable) -> str:
    """Run a job to its end, with nothing on its path but what spark-submit puts there; return Spark's log."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("spark-submit"), "--master", "local[2]", "--driver-memory", "1g",
        "--driver-class-path", f"{DELTA}/*",
        *(f"--conf={setting}" for setting in (
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.sql.session.timeZone=UTC",
            "spark.sql.shuffle.partitions=2",
            "spark.ui.enabled=false",
        )),
        ROOT / "spark_jobs" / job, "--available-now", *arguments,
    ]  # fmt: skip
    own = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stderr


def given(options: dict[str, str]) -> list[str]:
    return [f"--option={name}={value}" for name, value in options.items()]


def direct(aeron_dir: Path, **more: str) -> list[str]:
    return given({"channel": "aeron:ipc", "aeronDir": str(aeron_dir), **more})


def recorded(aeron_dir: Path, stream: str, path: Path) -> pa.Table:
    """Return the rows of an arrow stream, read from the archive in a process of its own."""
    command = [sys.executable, "-m", "tests.e2e.recorded", str(aeron_dir), stream, str(path)]
    subprocess.run(command, env=environment(), check=True, timeout=PATIENCE)
    with pa.OSFile(str(path), "rb") as file:
        messages = pa.ipc.open_file(file).read_all().column("value").to_pylist()
    frames = [decode(message) for message in messages]
    assert all(frame.header.whole for frame in frames)
    return pa.Table.from_batches([batch for frame in frames for batch in decode_batches(frame.payload)])


@pytest.fixture(scope="module")
def table(aeron_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Delta table of the flights, which the first job has made of a stream in several batches, late to begin."""
    place = tmp_path_factory.mktemp("into")
    producer = [sys.executable, "-m", "demo.producer", "--aeron-dir", str(aeron_dir), "--channel", "aeron:ipc"]
    published = subprocess.run(
        [*producer, "--stream-id", "1001", "--rows", str(ROWS), "--seconds", "0"],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert published.returncode == 0, published.stderr
    assert json.loads(published.stdout.splitlines()[-1])["published"] == ROWS
    source = direct(aeron_dir, streamId="1001", startingOffsets="earliest", maxBytesPerTrigger="100k")
    into = [f"--table={place / 'flights'}", f"--checkpoint={place / 'checkpoint'}"]
    said = submit(place, "aeron_to_delta.py", *into, *source, python=late_python(place))
    assert NOT_BACK in said, "Spark waited for the late Python"
    assert len(os.listdir(place / "checkpoint" / "commits")) > 1, "the limit makes several batches of it"
    return place / "flights"


@pytest.fixture
def server(aeron_dir: Path, tmp_path: Path) -> Iterator[ServerProgram]:
    running = ServerProgram(aeron_dir, tmp_path / "server")
    try:
        yield running
    finally:
        running.close()


def test_flights_come_through_both_jobs_as_they_were_published(aeron_dir: Path, table: Path, tmp_path: Path) -> None:
    flights = load(ROWS)
    in_delta = compare(flights, read_table(table).cast(SCHEMA))
    assert in_delta.equal, in_delta.sentence

    sink = direct(aeron_dir, streamId="1002", record="auto")
    submit(tmp_path, "delta_to_aeron.py", f"--table={table}", f"--checkpoint={tmp_path / 'out'}", *sink)
    back = compare(flights, recorded(aeron_dir, "1002", tmp_path / "recorded.arrow").cast(SCHEMA))
    assert back.equal, back.sentence


def test_both_jobs_work_through_a_server_by_options_alone(server: ServerProgram, table: Path, tmp_path: Path) -> None:
    server.create("flights", 2)
    options = server.options("flights")
    submit(tmp_path, "delta_to_aeron.py", f"--table={table}", f"--checkpoint={tmp_path / 'out'}", *given(options))
    copy = tmp_path / "copy"
    source = given({**options, "startingOffsets": "earliest"})
    submit(tmp_path, "aeron_to_delta.py", f"--table={copy}", f"--checkpoint={tmp_path / 'into'}", *source)
    through = compare(load(ROWS), read_table(copy).cast(SCHEMA))
    assert through.equal, through.sentence
