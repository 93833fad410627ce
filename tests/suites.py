"""Runs the suites of ``make test``, and lists their failed tests together at the end.

The tests without a JVM run first, then all others except Spark's. Spark's tests run beside both, because they wait for
half of their time. They run one at a time, in one process, because they share a Spark session. The others have a lower
priority: Spark fails a query whose Python process does not start within 10 s. Their output is printed at the end.

``python -m tests.suites [--any] [--serial] [--unit | --only TESTS] [--beside COMMAND]... -- OPTIONS`` passes
``OPTIONS`` to each pytest. ``--any`` disables the limit for the sum of CPU seconds. ``--serial`` runs one test after
the other. ``--unit`` runs only the tests without a JVM, with ``--changed`` only those that the change can break
(``tests/selection.py``). ``--only`` runs only the given ones. ``--beside`` runs a command, such as ``make lint``,
beside the tests that run first. Its output is printed after theirs, and its failure fails the run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from tests import budget
from tests.cpu import TICKS_PER_S, own_ticks, sample_machine
from tests.programs import ROOT
from tests.selection import selected_tests

# A module's tests share what they have started, and stay together.
PARALLEL: Final = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
UNIT: Final = ("-q", *PARALLEL)
SPARK: Final = ("tests/spark",)
# These tests wait. Each worker begins with a row of neighbours, which share what they have started; a worker that is
# done takes tests from the end of another row. The costly set-ups are in tests/e2e, at the begin of a row.
STEALING: Final = ("-n", "4", "--dist", "worksteal")
OTHERS: Final = (*STEALING, "tests/e2e", "tests/net", "tests/cli", "tests/aeron")
# Of all tests but Spark's: a process gets half of the processor time that one of Spark's tests gets.
NICE: Final = ("nice", "-n", "3")
ENDING_TIMEOUT_S: Final = 120.0
TESTS_FAILED: Final = 1  # the exit code of pytest; larger ones mean that it did not run the tests
KILLED: Final = 128  # the exit code for a pytest that a signal ended


def serial(suite: Sequence[str]) -> list[str]:
    """Return the arguments of a suite without those for several workers."""
    for options in (PARALLEL, STEALING):
        for at in range(len(suite)):
            if tuple(suite[at : at + len(options)]) == options:
                return [*suite[:at], *suite[at + len(options) :]]
    return list(suite)


class Run:
    """Runs pytest for each suite, as ``command`` with more arguments; collects failures and costs in ``folder``."""

    def __init__(self, command: Sequence[str], folder: Path, *, serial: bool = False) -> None:
        self._command = command
        self._serial = serial
        self._costs = folder / "costs"
        self._failures = folder / "failures"
        self._begin = sample_machine(0.0)
        self._beside_s = 0.0  # CPU seconds of the commands beside the suites
        self.exit_code = 0

    def run(self, suite: Sequence[str], beside: Sequence[str] = ()) -> bool:
        """Run a suite and, beside it, shell commands, all with ``NICE``; return whether pytest could run all its tests.

        The output of the suite is printed at once, that of the commands after the end of all.
        """
        with ExitStack() as stack:
            commands = [stack.enter_context(_Background([*NICE, "bash", "-c", command])) for command in beside]
            code = _wait(_start([*NICE, *self._pytest(suite)]))
            before = own_ticks()  # with those of ended children
            failed = [command for command, process in zip(beside, commands, strict=True) if process.finish()]
            self._beside_s += (own_ticks() - before) / TICKS_PER_S
        if failed:
            with self._failures.open("a") as file:
                file.writelines(f"failed: {command}\n" for command in failed)
        return self._note(code, TESTS_FAILED if failed else 0)

    @contextmanager
    def meanwhile(self, suite: Sequence[str]) -> Iterator[None]:
        """Run a suite beside the block, or after it if the run is serial; print its output when both have ended."""
        if self._serial:
            yield
            self.run(suite)
            return
        with _Background(self._pytest(suite)) as process:
            yield
            self._note(process.finish())

    def _note(self, *codes: int) -> bool:
        worst = max(code if code >= 0 else KILLED for code in codes)
        self.exit_code = max(self.exit_code, worst)
        return worst <= TESTS_FAILED

    def _pytest(self, suite: Sequence[str]) -> list[str]:
        if self._serial:
            suite = serial(suite)
        return [*self._command, f"--cpu-log={self._costs}", f"--failure-log={self._failures}", *suite]

    def finish(self, *limits: str) -> None:
        """Print the CPU seconds, which fail the run if they exceed their limit, and then the failed tests."""
        if self._costs.exists() and (error := budget.main(str(self._costs), *limits, others=self._share_of_others)):
            print(error)
            self.exit_code = max(self.exit_code, TESTS_FAILED)
        if self._failures.exists():
            print(self._failures.read_text(), end="")

    def _share_of_others(self, tests_s: float) -> float:
        """Return the share of the machine, 0 to 1, that other programs used during this run."""
        return sample_machine(tests_s + self._beside_s).others_since(self._begin, os.cpu_count() or 1)


class _Background:
    """A process whose output is printed when it has ended; at the end of the block at the latest."""

    def __init__(self, command: Sequence[str]) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed at the end of the block
        self._process = _start(command, self._output)

    def __enter__(self) -> _Background:
        return self

    def __exit__(self, *error: object) -> None:
        with self._output:
            _wait(self._process)  # after Ctrl-C, which it got, too: a suite ends what its tests have started
            self._output.seek(0)
            print(self._output.read(), end="", flush=True)

    def finish(self) -> int:
        """Wait until the process has ended; return its exit code."""
        return _wait(self._process)


def _start(command: Sequence[str], output: IO[str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output and subprocess.STDOUT, text=True)


def _wait(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:  # the process got it, too
        process.wait(ENDING_TIMEOUT_S)
        raise


def main(arguments: Sequence[str]) -> int:
    """Run the suites; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites")
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--serial", action="store_true")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--unit", action="store_true")
    which.add_argument("--only", default="")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("options", nargs="*")
    given = parser.parse_args(arguments)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Run([sys.executable, "-m", "pytest", *given.options], Path(folder), serial=given.serial)
        first = shlex.split(given.only) or [*UNIT, *(selected_tests() if given.changed else ["tests/unit"])]
        with ExitStack() as stack:
            if not (given.only or given.unit):
                stack.enter_context(run.meanwhile(SPARK))
            if run.run(first, beside=given.beside) and not (given.only or given.unit):
                run.run(OTHERS)
        print(f"the tests took {time.monotonic() - begin:.0f} s", flush=True)
        run.finish(*(["--any"] if given.any else []))
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
