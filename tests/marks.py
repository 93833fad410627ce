"""A pytest plugin: a test is left out for a listed reason only.

A skip for a reason that is not in ``ALLOWED_SKIPS`` fails, on every machine: a test that silently does not run proves
nothing. A ``full`` mark names why `make test` goes without the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

# The beginning of a reason, as a regular expression, and where it is legitimate.
ALLOWED_SKIPS: Final = {
    r"no network namespaces: ": "tests/net on a system or in a container that allows none; in CI that fails",
    r"no /proc on this system": "the meter of CPU time anywhere but on Linux, where it sees itself alone",
    r"only root can ": "files of other users",
    r"no strace on this machine": "tests that look at system calls",
    r"strace may not trace here": "containers without ptrace",
    r"root may not mount here: ": "the same, in tests of whole programs",
    r"routes cannot be changed here: ": "containers without CAP_NET_ADMIN, in tests that cut a network",
    r"no file system can be mounted here: ": "tests of a full disk, where no tmpfs of a fixed size can be mounted",
}


def is_allowed(reason: str) -> bool:
    """Tell whether a test may be skipped for this reason."""
    return any(re.match(allowed, reason.removeprefix("Skipped: ")) for allowed in ALLOWED_SKIPS)


def why_not(reason: str) -> str:
    return f"skipped for a reason that tests/marks.py does not list: {reason}"


def reason_of(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("full"):
            if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0].strip() or mark.kwargs:
                raise pytest.UsageError(
                    f'{item.nodeid}: a full mark has one argument, the reason: @pytest.mark.full("two JVMs a case")'
                )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and not is_allowed(reason := reason_of(report.longrepr)):
        report.outcome, report.longrepr = "failed", why_not(reason)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[pytest.CollectReport]:
    report: pytest.CollectReport = yield
    if report.outcome == "skipped" and not is_allowed(reason := reason_of(report.longrepr)):
        report.outcome, report.longrepr = "failed", why_not(reason)
    return report
