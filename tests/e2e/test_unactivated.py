"""``venv/bin/python job.py`` works without an activated environment."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet
import pytest

from aeron_spark import node
from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, own_node
from tests.e2e.processes import TIMEOUT_S
from tests.nodes import remove_node
from tests.pages import sections
from tests.programs import ROOT

PROGRAM: Final = ROOT / "tests" / "e2e" / "unactivated.py"


@pytest.fixture
def new_node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(f"{run_name}-{secrets.token_hex(3)}") as handle:
        yield handle


def unactivated(place: Path) -> dict[str, str]:
    """Return the environment variables without an activated environment: the PATH's Python lacks the package."""
    home = {name: os.environ[name] for name in ("HOME", "AERON_SPARK_DATA_HOME", "AERON_SPARK_CONFIG_HOME")}
    without = place / "bin"
    without.mkdir()
    (without / "python3").write_text("#!/bin/sh\nexec false\n")
    (without / "python3").chmod(0o755)
    return {**home, "PATH": f"{without}:/usr/bin:/bin", "SPARK_LOCAL_DIRS": str(place / "spark")}


@pytest.mark.full(
    "a Spark session and its workers take more than 10 CPU seconds; tests/unit/spark tests the choice of the Python"
)
def test_a_program_of_an_environment_that_is_not_activated_reads_a_stream(new_node: NodeHandle, tmp_path: Path) -> None:
    """Regression: the program ended with DATA_SOURCE_NOT_FOUND, because Spark's workers ran another Python."""
    stream = Stream(new_node).record()
    stream.publisher().send([b"one", b"two"])
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(stream.options)],
        env=unactivated(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["one", "two"]
    stream.close()


@pytest.mark.full("a Spark and its workers take more than 10 CPU seconds; tests/spark/test_pages.py runs the same code")
def test_the_first_example_of_the_readme_runs_as_a_program(aeron_dir: Path, tmp_path: Path) -> None:
    """Regression: as ``venv/bin/python job.py`` the example read no row and exited with 0."""
    (example,) = [
        block.code
        for section in sections("README.md")
        for block in section.executed
        if block.code.startswith("from pyspark.sql import SparkSession\n")
    ]
    assert "/tmp/" in example
    (tmp_path / "example.py").write_text(example.replace("/tmp/", f"{tmp_path}/"))
    conf = tmp_path / "conf"
    conf.mkdir()
    settings = {
        "master": "local[1]",
        "driver.host": "127.0.0.1",
        "driver.bindAddress": "127.0.0.1",
        "ui.enabled": "false",
    }
    (conf / "spark-defaults.conf").write_text("".join(f"spark.{name} {value}\n" for name, value in settings.items()))
    environ = unactivated(tmp_path) | {"SPARK_CONF_DIR": str(conf), "AERON_SPARK_AERON_DIR": str(aeron_dir)}
    try:
        for published in (1000, 2000):
            done = subprocess.run(
                [sys.executable, "example.py"], env=environ, cwd=tmp_path,
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-4000:]
            assert sorted(numbers(tmp_path / "squares")) == sorted(list(range(1000)) * (published // 1000))
    finally:
        node.stop(aeron_dir, force=True)
        remove_node(aeron_dir)


def numbers(table: Path) -> list[int]:
    """Return the column ``id`` of the files that Spark has committed to a Parquet table."""
    commits = [path for path in (table / "_spark_metadata").glob("[0-9]*") if path.suffix == ""]
    names = [json.loads(line)["path"] for path in sorted(commits) for line in path.read_text().splitlines()[1:]]
    files = [pyarrow.parquet.read_table(table / Path(name).name) for name in names]
    return [value for file in files for value in file.column("id").to_pylist()]
