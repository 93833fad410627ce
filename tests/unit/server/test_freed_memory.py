"""Freed memory of large buffers goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_spark.cli.main import main
from aeron_spark.server.freed_memory import VARIABLE

# Each buffer of 15 MB is freed while smaller ones that were allocated after it remain, as those of a server's calls.
PROGRAM = """
import sys
from pathlib import Path

from aeron_spark.server.freed_memory import return_large_buffers

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

if sys.argv[1] == "returning":
    return_large_buffers()
before, remaining = resident(), []
for _ in range(12):
    large = b"x" * 15_000_000
    remaining.append([b"y" * 100_000 for _ in range(3)])
    del large
print(resident() - before)
"""
IN_USE_MIB = 4

pytestmark = pytest.mark.skipif(
    "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="another C library has no such setting"
)


def growth_mib(how: str, **variables: str) -> int:
    """Return by how many MiB a process has grown that has used buffers of 15 MB."""
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root / "connector"), **variables}
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.check_output(command, text=True, env=environment, timeout=60))


@pytest.mark.slow
def test_freed_large_buffers_do_not_stay_in_the_process() -> None:
    assert growth_mib("returning") <= IN_USE_MIB + 5
    assert growth_mib("by default") >= IN_USE_MIB + 10


@pytest.mark.slow
def test_glibcs_own_variable_has_precedence() -> None:
    assert growth_mib("returning", **{VARIABLE: str(32 << 20)}) >= IN_USE_MIB + 10


def test_the_command_of_the_server_has_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[bool] = []
    monkeypatch.setattr("aeron_spark.server.freed_memory.return_large_buffers", lambda: calls.append(True))
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    assert main(["server", "--config", str(tmp_path / "missing.toml")]) != 0
    assert calls == [True]
