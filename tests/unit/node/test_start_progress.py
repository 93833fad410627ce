"""A slow start of a node continues, a start that is stuck is killed, and both errors have the stage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError, TransportError, WaitTimeout
from aeron_spark.node import lifecycle, state_files
from aeron_spark.node.lifecycle import STALL_TIMEOUT_S, StallWatch, processor_ticks, read_stage, write_stage
from aeron_spark.node.paths import NodePaths

PID = 4711


class Process:
    """A fake node process with a virtual clock; it calls ``action(now)`` at each sleep of the waiting process."""

    def __init__(self, action: Callable[[float], None] = lambda now: None) -> None:
        self.pid = PID
        self.returncode: int | None = None
        self.killed = False
        self.now = 0.0
        self._action = action

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1.0)
        self._action(self.now)

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        self.returncode = -9 if self.returncode is None else self.returncode
        return self.returncode


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    return NodePaths(tmp_path / "aeron", tmp_path / "archive", tmp_path, tmp_path, chosen=True)


@pytest.fixture(autouse=True)
def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_children", set())


def set_processor_ticks(monkeypatch: pytest.MonkeyPatch, ticks: Callable[[], int]) -> None:
    monkeypatch.setattr(lifecycle, "processor_ticks", lambda pid: ticks())


def set_stage(paths: NodePaths, stage: str) -> None:
    state_files.write_json(paths.progress, {"pid": PID, "stage": stage})


def wait_for(paths: NodePaths, process: Process, deadline: float) -> None:
    lifecycle._await_ready(paths, process, deadline, clock=process.clock, sleep=process.sleep)


def test_a_start_of_minutes_continues_if_it_uses_the_processor(
    paths: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(now: float) -> None:
        if now >= 500:
            paths.record.touch()

    process = Process(act)
    set_processor_ticks(monkeypatch, lambda: int(process.now) // 50)  # a tick in 50 s
    set_stage(paths, "starting the Java virtual machine")
    wait_for(paths, process, 600.0)
    assert process.now >= 500
    assert not process.killed


def test_a_start_that_reaches_new_stages_is_not_stuck(paths: NodePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(now: float) -> None:
        set_stage(paths, f"repairing recording {int(now) // 50}")
        if now >= 300:
            paths.record.touch()

    process = Process(act)
    set_processor_ticks(monkeypatch, lambda: 7)
    wait_for(paths, process, 600.0)
    assert not process.killed


def test_a_late_start_continues_and_the_error_has_its_stage(paths: NodePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    set_processor_ticks(monkeypatch, lambda: int(process.now))
    set_stage(paths, "starting the media driver and the archive")
    text = r"\(process 4711\) was not ready in time: it is still starting the media driver and the archive\. Try again"
    with pytest.raises(WaitTimeout, match=text):
        wait_for(paths, process, 90.0)
    assert not process.killed
    assert lifecycle._children == {PID}  # to be reaped when it ends


def test_a_start_that_is_stuck_is_killed_and_the_error_has_its_stage(
    paths: NodePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    set_processor_ticks(monkeypatch, lambda: 7)
    set_stage(paths, "starting the Java virtual machine")
    text = rf"made no progress for {STALL_TIMEOUT_S:g} s while it was starting the Java virtual machine\. See its log"
    with pytest.raises(TransportError, match=text):
        wait_for(paths, process, 600.0)
    assert process.killed
    assert STALL_TIMEOUT_S <= process.now < STALL_TIMEOUT_S + 10


def test_a_failed_start_raises_the_error_of_the_node_process(paths: NodePaths) -> None:
    process = Process()
    process.returncode = 1
    state_files.write_failure(paths.failure, SetupError("there is no Java", remedy="Install it."))
    with pytest.raises(SetupError, match=re.escape("there is no Java. Install it.")):
        wait_for(paths, process, 60.0)
    paths.failure.unlink()
    with pytest.raises(TransportError, match="ended with code 1 while it started"):
        wait_for(paths, process, 60.0)


def test_a_stage_is_that_of_the_process_that_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "starting.json"
    assert read_stage(path, os.getpid()) == lifecycle.FIRST_STAGE
    write_stage(path, "repairing recordings")
    assert read_stage(path, os.getpid()) == "repairing recordings"
    assert read_stage(path, os.getpid() + 1) == lifecycle.FIRST_STAGE  # which was killed


def test_the_processor_time_of_a_missing_process_is_zero() -> None:
    before = processor_ticks(os.getpid())
    while processor_ticks(os.getpid()) == before:
        pass
    assert processor_ticks(os.getpid()) > before >= 0
    assert processor_ticks(None) == processor_ticks(2**22 + 1) == 0


def test_a_value_that_changes_in_time_is_not_stalled() -> None:
    now = 0.0
    watch = StallWatch(10.0, lambda: now)
    assert not watch.is_stalled("a")
    now = 9.0
    assert not watch.is_stalled("b")
    now = 18.0
    assert not watch.is_stalled("b")
    now = 19.0
    assert watch.is_stalled("b")
    assert not watch.is_stalled("c")
