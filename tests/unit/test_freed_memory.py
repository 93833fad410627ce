"""Freed memory goes back to the system: large buffers, and free pages of the C library's heaps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aeron_spark.cli import server_run
from aeron_spark.cli.main import main
from aeron_spark.process import VARIABLE, FreePages

# Frees most of what it used, but not what it allocated last: buffers of 15 MB, as of a server's calls, or a heap.
PROGRAM = """
import sys
import threading
from pathlib import Path

from aeron_spark.process import return_free_pages, return_large_buffers

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

before, remaining = resident(), []

def use_large_buffers():
    for _ in range(12):
        large = b"x" * 15_000_000
        remaining.append([b"y" * 100_000 for _ in range(3)])
        del large

def use_heap():
    used = [b"x" * 60_000 for _ in range(400)]
    remaining.append(b"y" * 60_000)
    del used

how = sys.argv[1]
if how.endswith("heaps"):
    thread = threading.Thread(target=use_heap)
    thread.start()
    thread.join()
    if how == "trimmed heaps":
        return_free_pages()
else:
    if how == "returning":
        return_large_buffers()
    use_large_buffers()
print(resident() - before)
"""
IN_USE_MIB = 4

pytestmark = pytest.mark.skipif(
    "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="another C library has no such setting"
)


def growth_mib(how: str, **variables: str) -> int:
    """Return by how many MiB the process of ``PROGRAM`` has grown that has used and freed memory in this way."""
    root = Path(__file__).parents[2]
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


@pytest.mark.slow
def test_freed_pages_of_the_heaps_return_to_the_system() -> None:
    """As after Java's compiler: a thread frees nearly all that it has used, but not the last buffer of its heap."""
    assert growth_mib("heaps") >= IN_USE_MIB + 15
    assert growth_mib("trimmed heaps") <= IN_USE_MIB + 2


def test_the_command_of_the_server_has_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(server_run, "return_large_buffers", lambda: calls.append(True))
    monkeypatch.setattr("sys.setswitchinterval", lambda seconds: None)
    assert main(["server", "--config", str(tmp_path / "missing.toml")]) != 0
    assert calls == [True]


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """An entry for each time that free pages were returned."""
    calls: list[bool] = []
    monkeypatch.setattr("aeron_spark.process.return_free_pages", lambda: calls.append(True))
    return calls


def test_free_pages_are_returned_once_a_minute(returned: list[bool]) -> None:
    times = iter(range(0, 301, 5))
    now = [float(next(times))]
    free_pages = FreePages(lambda: now[0])
    for now[0] in times:
        free_pages.return_if_due()
    assert len(returned) == 5


def test_what_is_not_used_is_freed_before_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("aeron_spark.process.return_free_pages", lambda: calls.append("pages"))
    now = [0.0]
    free_pages = FreePages(lambda: now[0], free=lambda: calls.append("garbage"))
    for now[0] in (59.0, 61.0):
        free_pages.return_if_due()
    assert calls == ["garbage", "pages"]


def test_a_running_server_returns_free_pages(returned: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    polls = iter(range(100))
    monkeypatch.setattr("aeron_spark.process.RETURN_INTERVAL_S", 0.005)
    monkeypatch.setattr(server_run, "POLL_INTERVAL_S", 0.001)
    running = SimpleNamespace(closed=False, report_ready_once=lambda: None)
    server_run._await_end(running, lambda: next(polls, None) is None, SimpleNamespace(take=lambda: False))
    assert 1 < len(returned) <= 50
