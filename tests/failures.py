"""A pytest plugin that appends each failed test to a file, so that ``make test`` can list them after its last suite."""

from __future__ import annotations

import pytest

MAX_LINES = 6  # of an error's text, for each failed test


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


def register(config: pytest.Config) -> None:
    """Register the log if the user chose a file; with several workers, the controller gets their reports."""
    path = config.getoption("--failure-log")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLog(path), "failure-log")
