"""A pytest plugin that checks the reasons for which tests do not run.

A skip fails unless its reason is in ``ALLOWED_SKIPS``, so that no test is skipped unnoticed. The reason in a ``full``
mark explains why `make test` does not run the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

# The beginning of an allowed reason, as a regular expression, and the systems or tests for which it is allowed.
ALLOWED_SKIPS: Final = {
    r"no network namespaces: ": "tests/net on a system or in a container that forbids them; fails in CI",
    r"no /proc on this system": "the meter of CPU time on systems other than Linux, where it sees only its process",
    r"only root can ": "files of other users",
    r"no process namespaces: ": "process 1 of a container, on a system or in a container that forbids them",
    r"no systemd-analyze on this machine": "the unit file on systems without systemd",
    r"no strace on this machine": "tests that record system calls",
    r"strace may not trace here": "containers without ptrace",
    r"root may not mount here: ": "containers that forbid mounts, in tests of programs",
    r"routes cannot be changed here: ": "containers without CAP_NET_ADMIN, in tests that cut a network",
    r"no vectors of SBE messages in ": "the 1,793 public messages, which lie beside the project",
    r"no file system can be mounted here: ": "tests of a full disk on systems that forbid mounting a tmpfs",
}


def is_allowed(reason: str) -> bool:
    """Return whether a test may be skipped for this reason."""
    return any(re.match(allowed, reason.removeprefix("Skipped: ")) for allowed in ALLOWED_SKIPS)


def skip_error(reason: str) -> str:
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
        item.user_properties += [("promise", mark.args[0]) for mark in item.iter_markers("matrix")]  # for tools/matrix


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and not is_allowed(reason := reason_of(report.longrepr)):
        report.outcome, report.longrepr = "failed", skip_error(reason)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[pytest.CollectReport]:
    report: pytest.CollectReport = yield
    if report.outcome == "skipped" and not is_allowed(reason := reason_of(report.longrepr)):
        report.outcome, report.longrepr = "failed", skip_error(reason)
    return report
