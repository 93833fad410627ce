"""A pytest plugin: what each test costs in CPU seconds, and the limit that a test of ``make test`` must keep.

A test's cost is its own set-up, its call and its tear-down, with all processes it started (``tests/cpu.py``). The
set-up and tear-down of fixtures that several tests share is a row of its own, and has a limit of its own: the test
fails after which it is over it. Where tests run on several workers, each measures its own run, and the controller
prints them all.

A test that takes longer costs more, because media drivers and clients poll. So a limit rises with the share of the
machine that other programs used meanwhile, and with the slowness of the machine against the one it was set on.

``python -m tests.budget FILE`` reads the sums that ``--cpu-log`` wrote, and fails where they are more than `make test`
may use; ``--any`` says that they may be any.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

from tests.cpu import Look, Meter

LIMIT_S: Final = 10.0  # CPU seconds of a test; one that needs more is marked `full`, with a reason
RUN_LIMIT_S: Final = 1_600.0  # CPU seconds of all tests of `make test` together
# CPU seconds of shared set-ups, each with its tear-down, that may be more than LIMIT_S, and the reason for each.
SHARED_LIMITS_S: Final[dict[str, tuple[float, str]]] = {
    "spark (tests/spark)": (50.0, "Spark's session, which all tests in tests/spark share"),
    "copied (tests/spark)": (20.0, "the first query through a server starts Spark's Python workers for all others"),
    "own_node (tests/spark/test_pages.py)": (30.0, "a node that only the pages use, and Spark's workers connect to it"),
    "quickstart (tests/e2e/test_notebook.py)": (60.0, "a kernel and a Spark run the notebook as a user does"),
    "table (tests/e2e/test_jobs.py)": (50.0, "spark-submit runs the first job, whose table three tests take"),
    "written (tests/e2e/test_jobs.py)": (50.0, "spark-submit runs the second job, whose stream two tests take"),
}
LOOP_TURNS: Final = 1_000_000  # of the loop that tells how fast a machine is
LOOP_S: Final = 0.013  # CPU seconds that it takes where the limit was made
SLOWEST: Final = 20
LEAST_SHOWN_S: Final = 0.05  # of a shared set-up; less is in the run's sum alone
COST: Final = "cpu seconds"  # names of the user properties by which a worker's figures reach the controller
SHARED: Final = "cpu seconds of shared set-up"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-limit", type=float, default=LIMIT_S, metavar="SECONDS",
        help=f"CPU seconds that a test may use unless it is marked `full` or `soak` (default {LIMIT_S:g}; 0: any)",
    )  # fmt: skip
    parser.addoption(
        "--cpu-limit-exact", action="store_true", help="do not raise the limit on a machine that is busy or slow"
    )
    parser.addoption(
        "--cpu-slowest", type=int, default=SLOWEST, metavar="N", help=f"print the N slowest tests (default {SLOWEST})"
    )
    parser.addoption("--cpu-log", metavar="FILE", help="append this run's sum of CPU seconds to a file")


def slowness() -> float:
    """Return how many times slower this machine runs Python now than the one that the limit was made for, at least 1.

    A machine is slower by itself, or because other processes share its cores and caches.
    """
    begin = time.thread_time()
    for _ in range(LOOP_TURNS):
        pass
    return max(1.0, (time.thread_time() - begin) / LOOP_S)


def raised(limit: float, others: float, slowness: Callable[[], float]) -> float:
    """Return the limit for a machine of which ``others`` used that share, from 0 to 1, and which is slower or not."""
    return limit * (1.0 + others) * max(slowness() for _ in range(3))


def over_shared_limit(
    name: str, cost: float, limit: float, others: float = 0.0, slowness: Callable[[], float] = slowness
) -> str | None:
    """Return what is wrong with a shared fixture whose set-up and tear-down used ``cost`` CPU seconds, or None."""
    if not limit:
        return None
    limit = max(limit, SHARED_LIMITS_S.get(name, (0.0, ""))[0])
    if cost <= limit or cost <= (limit := raised(limit, others, slowness)):
        return None
    return (
        f"the shared fixture {name} used {cost:.1f} CPU seconds with the processes it started, and the limit is "
        f"{limit:g}. Make it cheaper, or list it with the reason in SHARED_LIMITS_S in tests/budget.py."
    )


def over_run_limit(cost: float, limit: float = RUN_LIMIT_S, slowness: Callable[[], float] = slowness) -> str | None:
    """Return what is wrong with a `make test` that used ``cost`` CPU seconds, or None."""
    if cost <= limit or cost <= (limit := raised(limit, 0.0, slowness)):
        return None
    return f"these are more than {limit:g}, the limit of `make test`: make tests cheaper, or mark some `full`."


def over_limit(
    cost: float, limit: float, marks: set[str], others: float = 0.0, slowness: Callable[[], float] = slowness
) -> str | None:
    """Return what is wrong with a test that used ``cost`` CPU seconds, or None."""
    if not limit or cost <= limit or marks & {"full", "soak"} or cost <= (limit := raised(limit, others, slowness)):
        return None
    return (
        f"this test used {cost:.1f} CPU seconds with the processes it started, and the limit is {limit:g}. "
        'Make it cheaper, or mark it @pytest.mark.full("the reason"), so that only `make test-full` runs it.'
    )


class Costs:
    """The figures of one test process: they leave it in the reports of its tests."""

    def __init__(self, run: str, limit: float, *, exact: bool) -> None:
        self._exact = exact
        self._meter = Meter(run)
        self._limit = limit
        self._cost: dict[str, float] = defaultdict(float)
        self._shared: list[tuple[str, float]] = []
        self._whole: dict[str, float] = {}  # of each shared fixture's set-up, and its tear-down once it was
        self._wrong: list[str] = []  # with shared fixtures, not reported yet
        self._open: list[Look] = []  # begin of each shared set-up or tear-down under way, the innermost last
        self._inner: list[float] = []  # what was spent in those inside of it
        self._shared_s = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_begin] = (self._meter.look(), self._shared_s)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        # finalizers run last in, first out: these two stand around the fixture's own
        fixturedef.addfinalizer(lambda: self._end("tear-down", name))
        name = f"{fixturedef.argname} ({fixturedef.baseid or fixturedef.scope})"
        self._start()
        try:
            result = yield
        finally:
            self._end("set-up", name)
            fixturedef.addfinalizer(self._start)
        return result

    def _start(self) -> None:
        self._open.append(self._meter.look())
        self._inner.append(0.0)

    def _end(self, part: str, name: str) -> None:
        if not self._open:  # a tear-down whose beginning failed
            return
        now, began = self._meter.look(), self._open.pop()
        spent = now.ours - began.ours
        own = spent - self._inner.pop()
        if self._inner:
            self._inner[-1] += spent
        else:
            self._shared_s += spent
        if own >= LEAST_SHOWN_S:
            self._shared.append((f"{part} of {name}", own))
        self._whole[name] = own + (self._whole.get(name, 0.0) if part == "tear-down" else 0.0)
        if wrong := over_shared_limit(name, self._whole[name], self._limit, *self._load(began, now)):
            self._wrong.append(wrong)
            self._whole[name] = 0.0  # it is told once; its tear-down may be too much by itself

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield
        if call.when == "teardown":
            began, shared = item.stash[_begin]
            now = self._meter.look()
            cost = now.ours - began.ours - (self._shared_s - shared)
            report.user_properties.append((COST, cost))
            report.user_properties += [(SHARED, row) for row in self._shared]
            self._shared.clear()
            marks = {mark.name for mark in item.iter_markers()}
            if wrong := over_limit(cost, self._limit, marks, *self._load(began, now)):
                self._wrong.append(wrong)
            if self._wrong and report.passed:
                report.outcome = "failed"
                report.longrepr = "\n".join(self._wrong)
            self._wrong.clear()
        return report

    def _load(self, began: Look, now: Look) -> tuple[float, Callable[[], float]]:
        """Return the share of the machine that other programs used between two looks, and the measure of slowness."""
        if self._exact:
            return 0.0, lambda: 1.0
        return now.others_since(began, os.cpu_count() or 1), slowness

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        total = self._meter.seconds()
        self._meter.close()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[COST] = total
        else:
            session.config.stash[_totals].append(total)


_begin = pytest.StashKey[tuple[Look, float]]()
_totals = pytest.StashKey[list[float]]()


class Summary:
    """Prints the figures of a run, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        config.stash[_totals] = []
        self._config = config
        self.costs: dict[str, float] = {}
        self.shared: dict[str, float] = defaultdict(float)
        self.folders: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        folder = folder_of(report.nodeid)
        for name, value in report.user_properties:
            if name == COST:
                assert isinstance(value, float)
                self.costs[report.nodeid] = value
                self.folders[folder] += value
            elif name == SHARED:
                assert isinstance(value, tuple | list)
                self.shared[str(value[0])] += float(value[1])
                self.folders[folder] += float(value[1])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._config.stash[_totals].append(getattr(node, "workeroutput", {}).get(COST, 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.costs:
            return
        total = sum(self._config.stash[_totals])
        terminalreporter.section("CPU seconds, with all processes that the tests started")
        most = self._config.getoption("--cpu-slowest")
        for line in lines(self.costs, self.shared, self.folders, total, most):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        log = self._config.getoption("--cpu-log")
        if log:
            with open(log, "a") as file:
                file.write(f"{sum(self._config.stash[_totals]):.1f}\n")


def folder_of(nodeid: str) -> str:
    """``tests/aeron/node/test_edges.py::test_x`` -> ``tests/aeron/node``; all of ``tests/unit`` is one."""
    parts = PurePosixPath(nodeid.partition("::")[0]).parent.parts
    return "/".join(parts[:2] if parts[1:2] == ("unit",) else parts)


def lines(
    costs: dict[str, float], shared: dict[str, float], folders: dict[str, float], total: float, most: int = SLOWEST
) -> Iterator[str]:
    """Yield the summary: the slowest tests, what they share, the sum of each folder, and of all."""
    for nodeid, cost in sorted(costs.items(), key=lambda row: -row[1])[:most]:
        yield f"{cost:8.1f}  {nodeid}"
    for name, cost in sorted(shared.items(), key=lambda row: -row[1])[:most]:
        yield f"{cost:8.1f}  {name}"
    for folder, cost in sorted(folders.items()):
        yield f"{cost:8.1f}  sum of {folder}"
    yield f"{total:8.1f}  in all, with collecting the tests"


def register(config: pytest.Config, run: str) -> None:
    """Add the plugin to a run: the measuring where tests run, the summary where a user looks."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Summary(config), "cpu-summary")
    if is_worker or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(
            Costs(run, config.getoption("--cpu-limit"), exact=config.getoption("--cpu-limit-exact")), "cpu-costs"
        )


def main(path: str, *given: str) -> str | None:
    """Print the sum of the CPU seconds in a file; return what is wrong with it, or None."""
    total = sum(float(line) for line in Path(path).read_text().split())
    print(f"the tests took {total:.0f} CPU seconds")
    return None if "--any" in given else over_run_limit(total)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
