"""Finding U1: ``venv/bin/python job.py`` works without an activated environment."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.node import NodeHandle
from tests.aeron.streams import Stream, own_node
from tests.e2e.processes import PATIENCE, ROOT

PROGRAM: Final = ROOT / "tests" / "e2e" / "unactivated.py"


@pytest.fixture
def own(run_name: str) -> Iterator[NodeHandle]:
    with own_node(f"{run_name}-{secrets.token_hex(3)}") as handle:
        yield handle


@pytest.mark.full(
    "a Spark session and its workers take more than 10 CPU seconds; the choice is shown in tests/unit/spark"
)
def test_a_program_run_by_the_python_of_an_environment_that_is_not_activated_reads_a_stream(
    own: NodeHandle, tmp_path: Path
) -> None:
    """Finding U1: it ended with DATA_SOURCE_NOT_FOUND, as Spark's workers ran another Python."""
    stream = Stream(own).record()
    stream.publisher().send([b"one", b"two"])
    home = {name: os.environ[name] for name in ("HOME", "AERON_SPARK_DATA_HOME", "AERON_SPARK_CONFIG_HOME")}
    without = tmp_path / "bin"
    without.mkdir()
    (without / "python3").write_text("#!/bin/sh\nexec false\n")  # the PATH's Python has not got the package
    (without / "python3").chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(stream.options)],
        env={**home, "PATH": f"{without}:/usr/bin:/bin", "SPARK_LOCAL_DIRS": str(tmp_path / "spark")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["one", "two"]
    stream.close()
