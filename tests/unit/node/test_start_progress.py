"""Finding C11: a node that starts slowly is waited for; one that is stuck is given up, and both are told by stage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError, TransportError, WaitTimeout
from aeron_spark.node import start_progress, starting, state_files
from aeron_spark.node.paths import NodePaths
from aeron_spark.node.start_progress import STALL_TIMEOUT, StallWatch, processor_ticks, read_stage, write_stage

PID = 4711


class Process:
    """A node's process on a clock of the test's own: it does what ``does`` says at each step of the waiting process."""

    def __init__(self, does: Callable[[float], None] = lambda now: None) -> None:
        self.pid = PID
        self.returncode: int | None = None
        self.killed = False
        self.now = 0.0
        self._does = does

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1.0)
        self._does(self.now)

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        self.returncode = -9 if self.returncode is None else self.returncode
        return self.returncode


@pytest.fixture
def places(tmp_path: Path) -> NodePaths:
    return NodePaths(tmp_path / "aeron", tmp_path / "archive", tmp_path, tmp_path, chosen=True)


@pytest.fixture(autouse=True)
def nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_children", set())


def uses(monkeypatch: pytest.MonkeyPatch, ticks: Callable[[], int]) -> None:
    monkeypatch.setattr(starting, "processor_ticks", lambda pid: ticks())


def at_stage(places: NodePaths, stage: str) -> None:
    state_files.write_json(places.progress, {"pid": PID, "stage": stage})


def wait_for(places: NodePaths, process: Process, deadline: float) -> None:
    starting._await_ready(places, process, deadline, clock=process.clock, sleep=process.sleep)  # type: ignore[arg-type]


def test_finding_c11_a_start_that_takes_minutes_is_waited_for_as_long_as_it_uses_the_processor(
    places: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def does(now: float) -> None:
        if now >= 500:
            places.record.touch()

    process = Process(does)
    uses(monkeypatch, lambda: int(process.now) // 50)  # a tick in 50 s
    at_stage(places, "starting the Java virtual machine")
    wait_for(places, process, 600.0)
    assert process.now >= 500
    assert not process.killed


def test_finding_c11_a_start_that_comes_to_another_stage_is_not_stuck(
    places: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def does(now: float) -> None:
        at_stage(places, f"repairing recording {int(now) // 50}")
        if now >= 300:
            places.record.touch()

    process = Process(does)
    uses(monkeypatch, lambda: 7)
    wait_for(places, process, 600.0)
    assert not process.killed


def test_finding_c11_a_start_that_is_late_goes_on_and_the_error_names_its_stage(
    places: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    uses(monkeypatch, lambda: int(process.now))
    at_stage(places, "starting the media driver and the archive")
    told = r"\(process 4711\) was not ready in time: it is still starting the media driver and the archive\. It goes on"
    with pytest.raises(WaitTimeout, match=told):
        wait_for(places, process, 90.0)
    assert not process.killed
    assert starting._children == {PID}  # to be collected when it ends


def test_finding_c11_a_start_that_is_stuck_is_killed_and_the_error_names_its_stage(
    places: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    uses(monkeypatch, lambda: 7)
    at_stage(places, "starting the Java virtual machine")
    told = rf"made no progress for {STALL_TIMEOUT:g} s while it was starting the Java virtual machine\. See its log"
    with pytest.raises(TransportError, match=told):
        wait_for(places, process, 600.0)
    assert process.killed
    assert STALL_TIMEOUT <= process.now < STALL_TIMEOUT + 10


def test_finding_c11_a_start_that_failed_says_why(places: NodePaths) -> None:
    process = Process()
    process.returncode = 1
    state_files.write_failure(places.failure, SetupError("there is no Java", remedy="Install it."))
    with pytest.raises(SetupError, match=re.escape("there is no Java. Install it.")):
        wait_for(places, process, 60.0)
    places.failure.unlink()
    with pytest.raises(TransportError, match="ended with code 1 while it started"):
        wait_for(places, process, 60.0)


def test_a_stage_is_that_of_the_process_that_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "starting.json"
    assert read_stage(path, os.getpid()) == start_progress.UNKNOWN
    write_stage(path, "repairing recordings")
    assert read_stage(path, os.getpid()) == "repairing recordings"
    assert read_stage(path, os.getpid() + 1) == start_progress.UNKNOWN  # which was killed


def test_processor_time_of_a_process_grows_and_that_of_none_is_zero() -> None:
    before = processor_ticks(os.getpid())
    while processor_ticks(os.getpid()) == before:
        pass
    assert processor_ticks(os.getpid()) > before >= 0
    assert processor_ticks(None) == processor_ticks(2**22 + 1) == 0


def test_what_changes_in_time_has_not_stalled() -> None:
    now = 0.0
    watch = StallWatch(10.0, lambda: now)
    assert not watch.stalled("a")
    now = 9.0
    assert not watch.stalled("b")
    now = 18.0
    assert not watch.stalled("b")
    now = 19.0
    assert watch.stalled("b")
    assert not watch.stalled("c")
