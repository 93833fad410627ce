"""Whether another process has ended: one that runs, was killed, was not reaped, or is of another namespace."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.process import exists, has_ended, has_mapped
from aeron_spark.waiting import wait_for

TIMEOUT_S = 30.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_running_process_has_not_ended(sleeper: subprocess.Popen[bytes]) -> None:
    assert not has_ended(sleeper.pid)
    assert exists(sleeper.pid)


def test_a_stopped_process_has_not_ended(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert not has_ended(sleeper.pid)


def test_a_killed_process_has_ended_before_and_after_its_parent_reaps_it(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    wait_for(lambda: has_ended(sleeper.pid), TIMEOUT_S, "the process to end")
    assert exists(sleeper.pid)
    sleeper.wait()
    assert has_ended(sleeper.pid)
    assert not exists(sleeper.pid)


def test_a_process_whose_first_thread_has_ended_runs() -> None:
    code = (
        "import ctypes, threading; t = threading.Thread(target=input); t.start(); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", TIMEOUT_S, "its first thread to end")
        assert not has_ended(process.pid)
        process.kill()


def test_a_process_has_mapped_only_its_own_files(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    file = tmp_path / "cnc.dat"
    file.write_bytes(bytes(4096))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ):
        assert has_mapped(os.getpid(), file)
        assert not has_mapped(sleeper.pid, file)
    assert not has_mapped(os.getpid(), file)


def test_a_process_that_was_killed_before_the_question_is_known(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """It has unmapped its files; the caller has just read its id from one of them."""
    sleeper.kill()
    wait_for(lambda: has_ended(sleeper.pid), TIMEOUT_S, "the process to end")
    assert has_mapped(sleeper.pid, tmp_path / "cnc.dat")
    sleeper.wait()
    assert not has_mapped(sleeper.pid, tmp_path / "cnc.dat")


def test_an_unknown_process_has_mapped_nothing(tmp_path: Path) -> None:
    assert not has_mapped(2**31 - 1, tmp_path / "cnc.dat")
