"""Runs a Python program of the benchmarks that answers each line of its input with a line of output."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.measure import ROOT

TIMEOUT_S: Final = 1_800.0  # for all of a program's work
STOP_S: Final = 60.0


@contextmanager
def run_program(module: str, *arguments: object) -> Iterator[Callable[[str], str]]:
    """Run a module, which first prints ``ready``; yield a function that sends it a line and returns the response.

    The program ends at the end of its input, and is killed after ``TIMEOUT_S``. Raises RuntimeError if it ends before.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=ROOT)
    killer = threading.Timer(TIMEOUT_S, process.kill)
    killer.daemon = True
    killer.start()
    assert process.stdin is not None
    assert process.stdout is not None
    requests, responses = process.stdin, process.stdout

    def request(line: str) -> str:
        if line:
            requests.write(f"{line}\n")
        response = responses.readline().strip()
        if not response:
            moment = f"before it responded to {line!r}" if line else "before it was ready"
            raise RuntimeError(f"{module} exited with {process.wait(STOP_S)} {moment} (killed after {TIMEOUT_S:g} s)")
        return response

    try:
        if (first := request("")) != "ready":
            raise RuntimeError(f"{module} printed {first!r}, expected 'ready'")
        yield request
    finally:
        killer.cancel()
        requests.close()
        await_end(process)
        responses.close()


def await_end(process: subprocess.Popen[Any]) -> int:
    """Wait for a process that was asked to end, and kill it after ``STOP_S``; return its exit code."""
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(STOP_S)
