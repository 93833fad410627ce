"""The modules that a command loads before it does its work: the start of a command is mostly their import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.programs import CONNECTOR

HEAVY = ("asyncio", "jpype", "numpy", "pandas", "pyarrow", "pyspark", "rich")
LOADED = f"""
import json, sys
from aeron_spark.cli.main import main
code = main(sys.argv[1:])
own = sorted(name for name in sys.modules if name.startswith("aeron_spark"))
print(json.dumps([code, len(sys.modules), own, [name for name in {HEAVY!r} if name in sys.modules]]))
"""
MODULES = "import json, sys; import {}; print(json.dumps([n for n in {!r} if n in sys.modules]))"


def run(code: str, *arguments: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": str(CONNECTOR), "AERON_SPARK_CONFIG_HOME": "/no/such/folder"},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_the_version_is_printed_without_the_modules_of_any_command() -> None:
    code, modules, own, heavy = run(LOADED, "--version")
    assert (code, heavy) == (0, [])
    assert own == [
        "aeron_spark", "aeron_spark.cli", "aeron_spark.cli.main", "aeron_spark.errors", "aeron_spark.version",
    ]  # fmt: skip
    assert isinstance(modules, int)
    assert modules <= 200  # 179 with Python 3.11


@pytest.mark.parametrize(
    "command", ["streams list", "recordings list", "keys list", "connections list", "sbe describe"]
)
def test_the_command_line_is_read_without_heavy_libraries(command: str) -> None:
    code, modules, own, heavy = run(LOADED, *command.split(), "--help")
    assert (code, heavy) == (0, [])
    assert isinstance(own, list)
    assert len(own) <= 55
    assert isinstance(modules, int)
    assert modules <= 260


def test_the_recordings_of_an_archive_are_listed_without_pyarrow() -> None:
    """JPype loads numpy for itself."""
    assert run(MODULES.format("aeron_spark.direct.recordings", ("pyarrow", "pyspark", "rich", "asyncio"))) == []
