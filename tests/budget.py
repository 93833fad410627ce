"""A pytest plugin that measures the CPU seconds of each test, and enforces the limits of ``make test``.

The cost of a test includes its set-up, its call and its tear-down, with all processes it started (``tests/cpu.py``).
The set-up and tear-down of shared fixtures is listed separately and has a separate limit: the test after which a
fixture exceeds it fails. With several workers, each worker measures its tests, and the controller prints all results.

Media drivers and clients poll, so a test that takes longer costs more. A limit therefore rises with the share of the
machine that other programs used, and with the largest slowness of the machine that was measured during the run: the
speed of a virtual machine changes within a run.

``python -m tests.budget FILE`` reads what ``--cpu-log`` wrote, a sum and a slowness for each run of pytest, and fails
if the sums exceed the limit of ``make test``; ``--any`` disables this limit.
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

from tests.cpu import CpuSample, Meter

LIMIT_S: Final = 10.0  # CPU seconds of a test; one that needs more is marked `full`, with a reason
RUN_LIMIT_S: Final = 1_050.0  # CPU seconds of all tests of `make test` together
# Limits above LIMIT_S for shared set-ups with their tear-downs, in CPU seconds, each with its reason.
SHARED_LIMITS_S: Final[dict[str, tuple[float, str]]] = {
    "spark (tests/spark)": (50.0, "Spark's session, which all tests in tests/spark share"),
    "server_route_warmed_up (tests/spark)": (20.0, "the first query through a server starts Spark's Python workers"),
    "outputs (tests/spark/test_quickstart.py)": (20.0, "a notebook with two queries and a chart"),
    "table (tests/spark/test_jobs.py)": (20.0, "a job copies flights into Delta in several micro-batches"),
}
LOOP_COUNT: Final = 1_000_000  # of the loop that measures the speed of a machine
LOOP_S: Final = 0.013  # CPU seconds of the loop on the machine for which the limits were set
SLOW: Final = 1.2  # a machine with a larger slowness is a slow one
# Limits of a slow machine rise by this factor, too: the loop tells only roughly how slow several processes are.
SLOW_FACTOR: Final = 1.5
MEASURED_COST_S: Final = 1.0  # after a test that cost more, the machine's slowness is measured
SLOWEST: Final = 20
MIN_SHOWN_S: Final = 0.05  # of a shared set-up; smaller costs are only in the sum of the run
COST: Final = "cpu seconds"  # names of user properties, in which workers send costs to the controller
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
    """Return the time of a Python loop relative to the machine for which the limits were set, at least 1."""
    begin = time.thread_time()
    for _ in range(LOOP_COUNT):
        pass
    return max(1.0, (time.thread_time() - begin) / LOOP_S)


def raised_limit(limit: float, others: float, slowness: Callable[[], float]) -> float:
    """Return the limit for a machine of this slowness, of which other programs used the share ``others``, 0 to 1."""
    slowest = max(slowness() for _ in range(3))
    return limit * (1.0 + others) * slowest * (SLOW_FACTOR if slowest > SLOW else 1.0)


def over_shared_limit(
    name: str, cost: float, limit: float, others: float = 0.0, slowness: Callable[[], float] = slowness
) -> str | None:
    """Return an error if the set-up and tear-down of a shared fixture used more CPU seconds than its limit; 0: none."""
    if not limit:
        return None
    limit = max(limit, SHARED_LIMITS_S.get(name, (0.0, ""))[0])
    if cost <= limit or cost <= (limit := raised_limit(limit, others, slowness)):
        return None
    return (
        f"the shared fixture {name} used {cost:.1f} CPU seconds with the processes it started, and the limit is "
        f"{limit:g}. Make it cheaper, or list it with the reason in SHARED_LIMITS_S in tests/budget.py."
    )


def over_run_limit(
    cost: float, limit: float = RUN_LIMIT_S, others: float = 0.0, slowness: Callable[[], float] = slowness
) -> str | None:
    """Return an error if `make test` used more CPU seconds than its limit."""
    if cost <= limit or cost <= (limit := raised_limit(limit, others, slowness)):
        return None
    return f"these are more than {limit:g}, the limit of `make test`: make tests cheaper, or mark some `full`."


def has_no_limit(item: pytest.Item) -> bool:
    """Whether ``make test`` does not run the test, and it may use any number of CPU seconds."""
    return any(item.iter_markers("full")) or any(item.iter_markers("soak"))


def over_limit(cost: float, limit: float, others: float = 0.0, slowness: Callable[[], float] = slowness) -> str | None:
    """Return an error if a test used more CPU seconds than its limit; 0 for none."""
    mark = '@pytest.mark.full("the reason"), so that only `make test-full` runs it'
    if limit < LIMIT_S:  # of `make check`
        mark = "@pytest.mark.slow, so that `make check` does not run it"
    if not limit or cost <= limit or cost <= (limit := raised_limit(limit, others, slowness)):
        return None
    return (
        f"this test used {cost:.1f} CPU seconds with the processes it started, and the limit is {limit:g}. "
        f"Make it cheaper, or mark it {mark}."
    )


class Costs:
    """Measures the costs in one test process, and adds them to the reports of its tests."""

    def __init__(self, run: str, limit: float, *, exact: bool) -> None:
        self._exact = exact
        self._meter = Meter(run)
        self._limit = limit
        self._cost: dict[str, float] = defaultdict(float)
        self._shared: list[tuple[str, float]] = []
        self._whole: dict[str, float] = {}  # of each shared fixture: set-up, and later tear-down
        self._errors: list[str] = []  # of shared fixtures, not reported yet
        self._open: list[CpuSample] = []  # at the begin of each running shared set-up or tear-down, the innermost last
        self._inner: list[float] = []  # CPU seconds of the nested ones of each
        self._shared_s = 0.0
        self._is_unlimited = False  # whether the current test has no limit
        self._unlimited: set[str] = set()  # shared fixtures that such a test has set up
        self._slowest = slowness()
        self._last: CpuSample | None = None  # at the end of the last test, which is the begin of the next one

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_begin] = (self._last or self._meter.sample(), self._shared_s)
        self._is_unlimited = has_no_limit(item)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        # finalizers run last in, first out: these two enclose the fixture's own
        fixturedef.addfinalizer(lambda: self._end("tear-down", name))
        name = f"{fixturedef.argname} ({fixturedef.baseid or fixturedef.scope})"
        if self._is_unlimited:
            self._unlimited.add(name)
        self._start()
        try:
            result = yield
        finally:
            self._end("set-up", name)
            fixturedef.addfinalizer(self._start)
        return result

    def _start(self) -> None:
        self._open.append(self._meter.sample())
        self._inner.append(0.0)

    def _end(self, part: str, name: str) -> None:
        if not self._open:  # the start of the tear-down failed
            return
        now, begin = self._meter.sample(), self._open.pop()
        spent = now.ours - begin.ours
        own = spent - self._inner.pop()
        if self._inner:
            self._inner[-1] += spent
        else:
            self._shared_s += spent
        if own >= MIN_SHOWN_S:
            self._shared.append((f"{part} of {name}", own))
        self._whole[name] = own + (self._whole.get(name, 0.0) if part == "tear-down" else 0.0)
        limit = 0.0 if name in self._unlimited else self._limit
        if error := over_shared_limit(name, self._whole[name], limit, *self._load(begin, now)):
            self._errors.append(error)
            self._whole[name] = 0.0  # reported once; its tear-down may exceed the limit separately

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield
        if call.when == "teardown":
            begin, shared = item.stash[_begin]
            now = self._last = self._meter.sample()
            cost = now.ours - begin.ours - (self._shared_s - shared)
            if cost >= MEASURED_COST_S:
                self.measure_slowness()
            report.user_properties.append((COST, cost))
            report.user_properties += [(SHARED, row) for row in self._shared]
            self._shared.clear()
            limit = 0.0 if has_no_limit(item) else self._limit
            if error := over_limit(cost, limit, *self._load(begin, now)):
                self._errors.append(error)
            if self._errors and report.passed:
                report.outcome = "failed"
                report.longrepr = "\n".join(self._errors)
            self._errors.clear()
        return report

    def _load(self, begin: CpuSample, now: CpuSample) -> tuple[float, Callable[[], float]]:
        """Return the share of the machine that other programs used between two samples, and the measure of slowness."""
        if self._exact:
            return 0.0, lambda: 1.0
        return now.others_since(begin, os.cpu_count() or 1), self.measure_slowness

    def measure_slowness(self) -> float:
        """Return the largest slowness of this run until now."""
        self._slowest = max(self._slowest, slowness())
        return self._slowest

    def close(self) -> None:
        """Stop the measurement."""
        self._meter.close()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        total = self._meter.seconds()
        self.close()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[COST] = total, self._slowest
        else:
            session.config.stash[_totals].append((total, self._slowest))


_begin = pytest.StashKey[tuple[CpuSample, float]]()
_totals = pytest.StashKey[list[tuple[float, float]]]()  # of each process: CPU seconds, and the machine's slowness


def add(config: pytest.Config, seconds: float) -> None:
    """Add CPU seconds of a process that belongs to no process of the run, in the pytest that the user started."""
    config.stash[_totals].append((seconds, 1.0))


class Summary:
    """Prints the costs of a run, in the process that the user started."""

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
        self._config.stash[_totals].append(getattr(node, "workeroutput", {}).get(COST, (0.0, 1.0)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.costs:
            return
        total = sum(seconds for seconds, _ in self._config.stash[_totals])
        terminalreporter.section("CPU seconds, with all processes that the tests started")
        count = self._config.getoption("--cpu-slowest")
        for line in lines(self.costs, self.shared, self.folders, total, count):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        log = self._config.getoption("--cpu-log")
        totals = self._config.stash[_totals]
        if log and totals:
            with open(log, "a") as file:
                file.write(f"{sum(seconds for seconds, _ in totals):.1f} {max(slow for _, slow in totals):.2f}\n")


def folder_of(nodeid: str) -> str:
    """Return the folder of a test: ``tests/aeron/node`` for ``tests/aeron/node/test_edges.py::test_x``.

    All tests below ``tests/unit`` count as one folder.
    """
    parts = PurePosixPath(nodeid.partition("::")[0]).parent.parts
    return "/".join(parts[:2] if parts[1:2] == ("unit",) else parts)


def lines(
    costs: dict[str, float], shared: dict[str, float], folders: dict[str, float], total: float, count: int = SLOWEST
) -> Iterator[str]:
    """Yield the lines of the summary: the slowest tests and shared fixtures, the sum of each folder, and the total."""
    for nodeid, cost in sorted(costs.items(), key=lambda row: -row[1])[:count]:
        yield f"{cost:8.1f}  {nodeid}"
    for name, cost in sorted(shared.items(), key=lambda row: -row[1])[:count]:
        yield f"{cost:8.1f}  {name}"
    for folder, cost in sorted(folders.items()):
        yield f"{cost:8.1f}  sum of {folder}"
    yield f"{total:8.1f}  in all, with collecting the tests"


def register(config: pytest.Config, run: str) -> None:
    """Register the measurement in processes that run tests, and the summary in the process that the user started."""
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Summary(config), "cpu-summary")
    if is_worker or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(
            Costs(run, config.getoption("--cpu-limit"), exact=config.getoption("--cpu-limit-exact")), "cpu-costs"
        )


def main(path: str, *arguments: str, others: Callable[[float], float] = lambda _: 0.0) -> str | None:
    """Print the sum of the CPU seconds in a file; return an error if it exceeds the limit.

    ``others`` gets the sum, and returns the share of the machine, 0 to 1, that other programs used.
    """
    rows = [tuple(map(float, line.split())) for line in Path(path).read_text().splitlines()]
    total, slowest = sum(row[0] for row in rows), max((row[1] for row in rows), default=1.0)
    print(f"the tests took {total:.0f} CPU seconds (slowness of the machine: {slowest:.1f})")
    if "--any" in arguments:
        return None
    return over_run_limit(total, others=others(total), slowness=lambda: max(slowest, slowness()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
