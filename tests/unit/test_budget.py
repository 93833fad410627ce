"""The CPU seconds of a test include all its processes, and a test over its limit fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.budget import (
    LIMIT_S,
    SHARED_LIMITS_S,
    Costs,
    folder_of,
    lines,
    main,
    over_limit,
    over_run_limit,
    over_shared_limit,
)
from tests.cpu import TICKS_PER_S, Account, CpuSample, Meter, ProcessTime, busy_seconds, parse_stat
from tests.inner import run_inner
from tests.leaks import RUN_VARIABLE
from tests.marks import ALLOWED_SKIPS, is_allowed, pytest_collection_modifyitems

ROOT = 100
BURN = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"


class Machine:
    """The invented processes of a machine; times are in seconds."""

    def __init__(self) -> None:
        self.processes: dict[int, ProcessTime] = {}
        self.runs: dict[int, str] = {}
        self.account = Account(ROOT, "ours", self.runs.get, self.read)
        self.events: list[Callable[[], None]] = []  # the next one happens after a process was read
        self.now = 1_000.0

    def has(self, pid: int, parent: int, seconds: float, run: str = "", *, waited: float = 0.0) -> None:
        started = self.processes[pid].started if pid in self.processes else int(self.now * TICKS_PER_S)
        ticks = round(seconds * TICKS_PER_S)
        self.processes[pid] = ProcessTime(pid, parent, ticks, started, round(waited * TICKS_PER_S))
        self.runs[pid] = run

    def read(self, pid: int) -> ProcessTime | None:
        process = self.processes.get(pid)
        if self.events:
            self.events.pop(0)()
        return process

    def used(self) -> float:
        self.now += 1
        return self.account.update(frozenset(self.processes), self.now * TICKS_PER_S)


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.has(1, 0, 50)
    machine.has(ROOT, 1, 2)
    return machine


def test_children_and_their_children_count(machine: Machine) -> None:
    machine.has(101, ROOT, 3)
    machine.has(102, 101, 4)
    assert machine.used() == 9


def test_a_busy_process_of_the_machine_does_not_count(machine: Machine) -> None:
    machine.has(7, 1, 500, run="another")
    assert machine.used() == 2


def test_a_process_with_the_pid_of_an_ended_one_of_another_run_counts(machine: Machine) -> None:
    machine.has(7, 1, 500, run="another")
    assert machine.used() == 2
    machine.now += 10
    assert machine.used() == 2
    del machine.processes[7]
    assert machine.used() == 2
    machine.has(7, ROOT, 1)
    assert machine.used() == 3


def test_a_detached_process_counts_by_its_environment_and_after_its_end(machine: Machine) -> None:
    machine.has(300, 1, 5, run="ours")
    assert machine.used() == 7
    del machine.processes[300]
    assert machine.used() == 7


def test_a_process_whose_parent_waited_for_it_counts_once(machine: Machine) -> None:
    machine.has(101, ROOT, 3)
    assert machine.used() == 5
    del machine.processes[101]
    machine.has(ROOT, 1, 5, waited=3)
    assert machine.used() == 5


@pytest.mark.parametrize("read_before", range(10))
def test_a_process_that_ends_while_others_are_read_counts_once(machine: Machine, read_before: int) -> None:
    """Regression: a server whose end fell between the readings of its parent and of itself counted twice."""

    def end() -> None:
        del machine.processes[101]
        machine.has(ROOT, 1, 23, waited=21)

    machine.has(101, ROOT, 20)
    machine.has(102, ROOT, 1)
    assert machine.used() == 23
    machine.events = [lambda: None] * read_before + [end]
    assert machine.used() in (23, 24)
    assert machine.used() == 24


def test_an_update_ends_although_children_end_all_the_time(machine: Machine) -> None:
    def read(pid: int) -> ProcessTime:
        waited = machine.processes[pid].waited / TICKS_PER_S + 0.01
        machine.has(pid, 1, 2 + waited, waited=waited)
        return machine.processes[pid]

    account = Account(ROOT, "ours", read_process=read)
    assert 2 < account.update(frozenset({ROOT}), machine.now * TICKS_PER_S) < 3


def test_an_ended_process_without_a_waiting_parent_still_counts(machine: Machine) -> None:
    """Regression: PySpark's daemon does not wait for its workers, and half of their time was missing."""
    machine.has(101, ROOT, 1)
    machine.has(102, 101, 3)
    machine.has(103, 101, 4)
    assert machine.used() == 10
    del machine.processes[102]
    assert machine.used() == 10
    machine.has(103, 101, 5)
    assert machine.used() == 11
    del machine.processes[103]
    del machine.processes[101]
    machine.has(ROOT, 1, 3, waited=1)  # for the daemon
    assert machine.used() == 11


def test_a_process_whose_parent_ended_still_counts(machine: Machine) -> None:
    machine.has(101, ROOT, 1)
    machine.has(102, 101, 3)
    assert machine.used() == 6
    del machine.processes[101]
    machine.has(ROOT, 1, 3, waited=1)
    machine.has(102, 1, 4)
    assert machine.used() == 7
    del machine.processes[102]
    assert machine.used() == 7


def test_a_young_process_is_checked_again_and_a_pid_may_be_reused(machine: Machine) -> None:
    machine.has(300, 1, 1, run="another")
    assert machine.used() == 2
    machine.has(300, 1, 1, run="ours")
    assert machine.used() == 3
    del machine.processes[300]
    assert machine.used() == 3
    machine.has(300, 1, 9, run="another")
    assert machine.used() == 3


def test_a_stat_line_is_parsed_with_blanks_and_brackets_in_the_command() -> None:
    line = "12 (a) b (c) S 3 " + " ".join(str(number) for number in range(5, 53))
    assert parse_stat(line) == ProcessTime(12, 3, 14 + 15 + 16 + 17, 22, 16 + 17)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc on this system")
def test_the_meter_counts_a_child_and_a_detached_process(run_name: str) -> None:
    meter = Meter(run_name)
    try:
        before = meter.seconds()
        subprocess.run([sys.executable, "-c", BURN], check=True)
        after_child = meter.seconds()
        code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, RUN_VARIABLE: run_name})
        deadline = time.monotonic() + 20
        while meter.seconds() < after_child + 0.25:
            assert time.monotonic() < deadline, "waited for the detached process's CPU time to show"
            time.sleep(0.02)
    finally:
        meter.close()
    assert after_child - before >= 0.25


def test_a_test_over_the_limit_fails_unless_it_is_marked() -> None:
    assert over_limit(9.9, 10) is None
    assert "used 10.1 CPU seconds" in (over_limit(10.1, 10, 0.0, lambda: 1.0) or "")
    assert "the limit is 11" in (over_limit(11.1, 10, 0.0, lambda: 1.1) or "")
    assert "the limit is 30" in (over_limit(30.1, 10, 0.0, lambda: 2.0) or "")  # a slow machine
    assert over_limit(29.9, 10, 0.0, lambda: 2.0) is None
    assert over_limit(14.9, 10, 0.5, lambda: 1.0) is None
    assert "the limit is 15" in (over_limit(15.1, 10, 0.5, lambda: 1.0) or "")
    assert over_limit(10.1, 0) is None
    assert "mark.full" in (over_limit(10.1, 10, 0.0, lambda: 1.0) or "")
    assert "mark.slow" in (over_limit(0.6, 0.5, 0.0, lambda: 1.0) or "")


def test_a_shared_fixture_over_its_limit_is_an_error_unless_a_larger_limit_is_listed() -> None:
    """Regression: shared set-ups had no limit."""
    assert over_shared_limit("node (tests/aeron)", 9.9, 10) is None
    assert over_shared_limit("node (tests/aeron)", 19.9, 10, 0.0, lambda: 2.0) is None
    assert over_shared_limit("node (tests/aeron)", 14.9, 10, 0.5, lambda: 1.0) is None
    assert over_shared_limit("node (tests/aeron)", 10.1, 0) is None
    assert "node (tests/aeron) used 10.1 CPU" in (
        over_shared_limit("node (tests/aeron)", 10.1, 10, 0.0, lambda: 1.0) or ""
    )
    for name, (limit, reason) in SHARED_LIMITS_S.items():
        assert reason
        assert limit > LIMIT_S
        assert over_shared_limit(name, limit, LIMIT_S) is None
        assert f"the limit is {limit:g}" in (over_shared_limit(name, limit + 0.1, LIMIT_S, 0.0, lambda: 1.0) or "")


def test_a_sample_has_the_share_of_the_machine_that_others_used() -> None:
    stat = f"cpu  {3 * TICKS_PER_S} {TICKS_PER_S} {2 * TICKS_PER_S} 900 70 {TICKS_PER_S} 0 50 0 0\ncpu0 1 2 3\n"
    assert busy_seconds(stat) == 7.0  # neither idle, nor waiting for a disk, nor stolen
    before = CpuSample(ours=1.0, everything=100.0, clock=50.0)
    assert CpuSample(ours=4.0, everything=108.0, clock=60.0).others_since(before, processors=2) == pytest.approx(5 / 20)
    assert (
        CpuSample(ours=4.0, everything=102.9, clock=60.0).others_since(before, processors=2) == 0.0
    )  # the two values were read at different moments
    assert before.others_since(before, processors=2) == 0.0


def test_the_sum_of_all_tests_has_a_limit(tmp_path: Path) -> None:
    """Regression: the sum of CPU seconds was printed, and had no limit."""
    assert over_run_limit(1_050.0) is None
    assert over_run_limit(3_100.0, slowness=lambda: 2.0) is None
    assert "more than 1050" in (over_run_limit(1_050.1, slowness=lambda: 1.0) or "")
    assert over_run_limit(1_500.0, others=0.5, slowness=lambda: 1.0) is None
    log = tmp_path / "used"
    log.write_text("900.5 1.00\n100.0 1.00\n")
    assert main(str(log)) is None
    log.write_text("4900.5 1.00\n100.0 50.00\n")
    assert main(str(log)) is None
    log.write_text("99900.5 1.00\n100.0 1.00\n")
    assert "the limit of `make test`" in (main(str(log)) or "")
    assert main(str(log), "--any") is None


def test_the_largest_slowness_of_a_run_counts(run_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the slowness after a test counted alone, and a test that ran in a slow phase failed."""
    measured = iter([1.0, 3.0, 1.5])
    monkeypatch.setattr("tests.budget.slowness", lambda: next(measured))
    costs = Costs(run_name, 10.0, exact=False)
    try:
        assert [costs.measure_slowness(), costs.measure_slowness()] == [3.0, 3.0]
    finally:
        costs.close()


def test_the_summary_has_the_slowest_twenty_and_every_folder() -> None:
    costs = {f"tests/aeron/test_a.py::test_{number}": float(number) for number in range(30)}
    found = list(lines(costs, {"set-up of node": 3.0}, {"tests/aeron": 438.0}, 440.0))
    assert found[0].split() == ["29.0", "tests/aeron/test_a.py::test_29"]
    assert len(found) == 20 + 1 + 1 + 1
    assert found[-2:] == ["   438.0  sum of tests/aeron", "   440.0  in all, with collecting the tests"]


@pytest.mark.parametrize(
    ("nodeid", "folder"),
    [
        ("tests/aeron/stream_store/test_edges.py::test_x[a/b::c]", "tests/aeron/stream_store"),
        ("tests/unit/wire/test_frame.py::test_x", "tests/unit"),
        ("tests/spark/test_types.py::test_x", "tests/spark"),
    ],
)
def test_folder_of_returns_the_folder_of_a_test(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder


# Whole runs of pytest, with the settings and plugins of these tests.

TESTS = f"""
import pytest, subprocess, sys

def burn():
    subprocess.run([sys.executable, '-c', {BURN!r}])

@pytest.fixture(scope='module')
def costly():
    burn()
    yield
    burn()

@pytest.fixture(scope='module')
def costly_for_full_tests():
    burn()
    yield
    burn()

def test_shares(costly): pass
@pytest.mark.full('it burns')
def test_may_share(costly_for_full_tests): pass
@pytest.mark.soak
def test_may_burn_longer(): burn()
def test_burns(): burn()
@pytest.mark.full('it burns')
def test_may_burn(): burn()
def test_skips(): pytest.skip('no time')
@pytest.mark.skipif(True, reason='no time')
def test_is_skipped(): pass
def test_may_skip(): pytest.skip('no strace on this machine')
@pytest.mark.xfail(reason='known')
def test_fails_as_expected(): assert False
"""
LOW_LIMIT = ("--cpu-limit=0.4", "--cpu-limit-exact")  # seconds; BURN uses more
SKIPPED_MODULE = "import pytest\npytest.skip('no time', allow_module_level=True)\n"


@pytest.mark.slow
def test_a_run_fails_for_a_skip_without_a_listed_reason_and_for_a_test_over_the_limit(
    tmp_path: Path,
) -> None:
    files = {"test_inner.py": TESTS, "test_skipped.py": SKIPPED_MODULE}
    done = run_inner(tmp_path, files, "-m", "", *LOW_LIMIT, "--continue-on-collection-errors")
    failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.text, re.MULTILINE))
    assert done.code != 0
    assert failed == {
        "test_inner.py::test_burns", "test_inner.py::test_skips", "test_inner.py::test_is_skipped", "test_skipped.py",
        "test_inner.py::test_shares", "test_inner.py::test_fails_as_expected",  # after set-up and tear-down of costly
    }  # fmt: skip
    assert done.text.count("tests/marks.py does not list: Skipped: no time") >= 2
    assert "and the limit is 0." in done.text
    check_rows_of_shared_set_up(done.text)  # and is not counted for the first test


@pytest.mark.slow
def test_with_a_worker_shared_set_up_is_not_counted_for_the_first_test(tmp_path: Path) -> None:
    done = run_inner(tmp_path, {"test_inner.py": TESTS}, "-k", "shares", *LOW_LIMIT, "-n", "1")
    assert done.code == 1
    assert "the shared fixture costly (test_inner.py) used 0." in done.text
    assert "this test used" not in done.text
    check_rows_of_shared_set_up(done.text)


def check_rows_of_shared_set_up(text: str) -> None:
    assert re.search(r"^ +0\.[5-9]  set-up of costly", text, re.MULTILINE)
    assert re.search(r"^ +0\.[5-9]  tear-down of costly", text, re.MULTILINE)
    total = re.search(r"^ +([0-9.]+)  in all", text, re.MULTILINE)
    assert float(total[1]) > 0.6


@pytest.mark.parametrize("arguments", [(), ("",), (7,), ("a reason", "and another")])
def test_a_full_mark_has_a_reason(request: pytest.FixtureRequest, arguments: tuple[object, ...]) -> None:
    item = request.node
    item.add_marker(pytest.mark.full(*arguments))
    with pytest.raises(pytest.UsageError, match="a full mark has one argument, the reason"):
        pytest_collection_modifyitems([item])


def test_every_allowed_reason_has_an_explanation() -> None:
    assert all(ALLOWED_SKIPS.values())
    assert is_allowed("Skipped: no network namespaces: network namespaces need root")
    assert not is_allowed("Skipped: there are no network namespaces: ")
