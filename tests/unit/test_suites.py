"""How ``make test`` runs its suites (``tests/suites.py``)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_spark.waiting import wait_for
from tests.cpu import CpuSample
from tests.suites import OTHERS, PARALLEL, UNIT, Run, serial

# Stands for pytest: prints its name, logs what it cost, fails or waits as its arguments say.
PROGRAM = """
import pathlib, sys, time
costs, failures, name, code = sys.argv[1].partition("=")[2], sys.argv[2].partition("=")[2], sys.argv[3], sys.argv[4]
pathlib.Path(name).touch()
end = time.monotonic() + 30
for other in sys.argv[5:]:
    while not pathlib.Path(other).exists():
        if time.monotonic() > end:
            sys.exit(f"waited 30 s for {other}")
        time.sleep(0.01)
open(costs, "a").write("10.0 1.0\\n")
print(f"output of {name}")
if code != "0":
    open(failures, "a").write(f"failed (call): {name}\\n")
sys.exit(int(code))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("tests.suites.ROOT", tmp_path)
    return Run([sys.executable, "-c", PROGRAM], tmp_path)


def test_suites_run_at_the_same_time_and_their_outputs_are_not_mixed(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    with run.meanwhile(["two", "0", "one", "three"]):
        assert run.run(["one", "0", "two"])  # each waits until the other one has begun
        assert run.run(["three", "0"])
    assert run.exit_code == 0
    assert capfd.readouterr().out == "output of one\noutput of three\noutput of two\n"


def test_a_suite_gives_way_to_the_one_that_runs_meanwhile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Run([sys.executable, "-c", "import os; print(os.nice(0))"], tmp_path)
    with run.meanwhile([]):
        run.run([], beside=["nice"])
    own = os.nice(0)
    assert capfd.readouterr().out == f"{own + 3}\n{own + 3}\n{own}\n"


def test_failed_tests_of_all_suites_are_listed_at_the_end(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.run(["one", "1"])
    with run.meanwhile(["three", "1"]):
        assert run.run(["two", "0", "three"])
    assert run.exit_code == 1
    run.finish()
    lines = capfd.readouterr().out.splitlines()
    assert lines[-2:] == ["failed (call): one", "failed (call): three"]
    assert lines[-3].startswith("the tests took 30 CPU seconds")


def test_a_suite_that_pytest_could_not_run_is_reported(run: Run) -> None:
    assert not run.run(["one", "4"])
    assert run.exit_code == 4
    with run.meanwhile(["two", "5"]):
        pass
    assert run.exit_code == 5


def test_a_suite_that_was_killed_fails_the_run(tmp_path: Path) -> None:
    run = Run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], tmp_path)
    assert not run.run(["one"])
    assert run.exit_code == 128


def test_commands_run_beside_the_suites_and_their_output_is_printed_after_theirs(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lint = "touch lint; while [ ! -e one ]; do sleep 0.01; done; echo output of lint"
    assert run.run(["one", "0", "lint"], beside=[lint])  # each waits until the other one has begun
    assert run.exit_code == 0
    assert capfd.readouterr().out == "output of one\noutput of lint\n"


def test_a_command_that_fails_fails_the_run_and_is_listed_at_the_end(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run.run(["one", "0"], beside=["true", "echo found; exit 2"])  # pytest ran all its tests
    assert run.exit_code == 1
    run.finish()
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == ["output of one", "found"]
    assert lines[-1] == "failed: echo found; exit 2"


def test_a_serial_suite_has_no_workers() -> None:
    assert serial(OTHERS) == ["tests/e2e", "tests/net", "tests/cli", "tests/aeron"]
    assert serial([*UNIT, "tests/unit"]) == ["-q", "tests/unit"]


def test_too_many_cpu_seconds_fail_the_run(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.run(["one", "0"])
    (tmp_path / "costs").write_text("99999.0 1.0\n")
    run.finish()
    assert run.exit_code == 1
    assert "the limit of `make test`" in capfd.readouterr().out


@pytest.mark.parametrize(("everything", "code"), [(1_200.0, 1), (2_000.0, 0)], ids=["alone", "beside busy programs"])
def test_the_limit_of_cpu_seconds_rises_with_the_share_that_other_programs_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: float, code: int
) -> None:
    """Regression: a run beside two busy loops used 1,196 CPU seconds instead of 914, and failed."""
    samples = iter([CpuSample(0.0, 0.0, 0.0), CpuSample(1_200.0, everything, 1_000.0)])
    counted: list[float] = []

    def sample(ours: float) -> CpuSample:
        counted.append(ours)
        return next(samples)

    monkeypatch.setattr("tests.suites.sample_machine", sample)
    monkeypatch.setattr("tests.budget.slowness", lambda: 1.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    run = Run([sys.executable, "-c", ""], tmp_path)
    assert run.run([], beside=[f"{sys.executable} -c 'for _ in range(3_000_000): pass'"])
    (tmp_path / "costs").write_text("1200.0 1.0\n")
    run.finish()
    assert run.exit_code == code
    assert counted[1] > 1_200.0  # with the command, which belongs to the run


def test_an_interrupt_ends_when_all_suites_have_ended(tmp_path: Path) -> None:
    suite = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[3]).touch()
    for _ in range(600):  # a signal just before a sleep does not shorten it
        time.sleep(0.1)
except KeyboardInterrupt:
    time.sleep(0.3)
    pathlib.Path(sys.argv[3] + " has ended").touch()
"""
    program = f"""
import pathlib, sys
import tests.suites
tests.suites.ROOT = pathlib.Path({str(tmp_path)!r})
run = tests.suites.Run([sys.executable, "-c", {suite!r}], tests.suites.ROOT)
try:
    with run.meanwhile(["two"]):
        run.run(["one"])
except KeyboardInterrupt:
    assert (tests.suites.ROOT / "one has ended").exists()
    assert (tests.suites.ROOT / "two has ended").exists()
    print("all have ended")
"""
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: all((tmp_path / name).exists() for name in ("one", "two")), 60, "both suites to begin")
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert out == "all have ended\n"


def test_with_serial_a_suite_begins_after_the_end_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.suites.ROOT", tmp_path)
    run = Run([sys.executable, "-c", PROGRAM], tmp_path, serial=True)
    # with its options "one" would wait for a file "-n"
    with run.meanwhile(["two", "0", "one"]):
        assert run.run(["one", "0", *PARALLEL], beside=["echo output of lint"])
        assert not (tmp_path / "two").exists()
    assert capfd.readouterr().out == "output of one\noutput of lint\noutput of two\n"
