"""A pytest plugin for failed tests: it appends each to a file, and adds the state of the run's media drivers.

``make test`` lists the failed tests of the file after its last suite. The state of a driver shows whether the driver,
its archive or its cluster stood still, or reported an error, before the test failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import CNC_FILE, read_counters, read_errors, read_liveness
from aeron_spark.errors import AeronSparkError
from tests.leaks import SHARED_MEMORY

MAX_LINES = 6  # of an error's text, for each failed test
LONG_CYCLE_NS = 1_000_000_000  # a turn of an agent takes microseconds; after 10 s its clients give up


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failure-log", metavar="FILE", help="append each failed test and the end of its error to a file")


class FailureLog:
    """Appends failed tests to a file, in the process that the user started."""

    def __init__(self, path: str) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._append(report)

    def _append(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.failed:
            return
        with open(self._path, "a") as file:
            file.writelines(f"{line}\n" for line in lines(report))


def lines(report: pytest.TestReport | pytest.CollectReport) -> list[str]:
    """Return the name of a failed test with its phase, and the lines of its error: at most MAX_LINES, indented."""
    text = report.longreprtext.splitlines()
    # pytest marks the lines of an error with E; errors that are only a text have no marks
    error = [line[1:].strip() for line in text if line.startswith("E ")] or [line.strip() for line in text[-MAX_LINES:]]
    return [f"failed ({report.when}): {report.nodeid}", *(f"    {line}" for line in error[:MAX_LINES])]


class DriverStates:
    """Adds the state of the run's media drivers to the report of a failed test, in the process that ran it."""

    def __init__(self, run: str) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield
        if report.failed and (states := "\n".join(driver_states(SHARED_MEMORY, self._run))):
            report.sections.append(("Media drivers of the run", states))
        return report


def driver_states(folder: Path, run: str, long_cycle_ns: int = LONG_CYCLE_NS) -> Iterator[str]:
    """Yield lines about each driver with a directory in ``folder`` named after the run: its age, turns and errors."""
    for path in sorted(folder.glob(f"*{run}*/{CNC_FILE}")):
        directory = str(path.parent)
        try:
            driver = read_liveness(directory)
            yield f"{directory}: process {driver.pid}, last heartbeat {driver.heartbeat_age:.1f} s ago"
            for counter in read_counters(directory):
                if "max cycle time" in counter.label and counter.value > long_cycle_ns:
                    yield f"    {counter.label}: {counter.value / 1e9:.1f} s"
            for error in read_errors(directory):
                yield f"    {error.observations} times: {error.text.splitlines()[0]}"
        except AeronSparkError as error:  # the driver ends at this moment, or has just begun
            yield f"{directory}: {error}"


def register(config: pytest.Config, run: str) -> None:
    """Register both; the log if the user chose a file. With several workers, the controller gets their reports."""
    config.pluginmanager.register(DriverStates(run), "driver-states")
    path = config.getoption("--failure-log")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLog(path), "failure-log")
