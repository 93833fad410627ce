from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError, WaitTimeout
from aeron_spark.node.locks import FileLock, MachineLock, current_owner_pid, current_owner_text, is_locked, owner_pid


def in_child(work: object) -> int:
    """Run ``work`` in a forked child and return its exit code: 0 for true, 1 for false."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_one_object_at_a_time_has_an_exclusive_lock(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not second.try_acquire(shared=True)
    first.release()
    assert second.try_acquire()
    second.release()


def test_shared_locks_prevent_an_exclusive_one(tmp_path: Path) -> None:
    shared = [FileLock(tmp_path / "l") for _ in range(3)]
    assert all(lock.try_acquire(shared=True) for lock in shared)
    exclusive = FileLock(tmp_path / "l")
    assert not exclusive.try_acquire()
    for lock in shared:
        lock.release()
    assert exclusive.try_acquire()
    exclusive.release()


def test_the_error_of_a_wait_has_the_awaited_event_and_the_lock(tmp_path: Path) -> None:
    with FileLock(tmp_path / "l") as first:
        first.try_acquire()
        with pytest.raises(WaitTimeout, match=r"waited 0\.02 s for the moon .*/l\)\. Wait for night\."):
            FileLock(tmp_path / "l").acquire(0.02, "the moon", remedy="Wait for night.")


def test_a_forked_child_does_not_have_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    assert lock.try_acquire()
    assert in_child(lambda: not lock.is_acquired) == 0
    assert in_child(lambda: not FileLock(tmp_path / "l").try_acquire()) == 0  # the parent still has its lock
    assert lock.is_acquired
    lock.release()


def test_a_running_child_does_not_keep_the_lock_after_its_release(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    assert lock.try_acquire()
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ready_write, b".")
        os.read(end_read, 1)
        os._exit(0)
    os.read(ready_read, 1)
    lock.release()
    try:
        other = FileLock(tmp_path / "l")
        assert other.try_acquire()
        other.release()
    finally:
        os.write(end_write, b".")
        os.waitpid(pid, 0)
        for fd in (ready_read, ready_write, end_read, end_write):
            os.close(fd)


def test_a_lock_is_free_after_its_owner_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "l"
    assert not is_locked(path)

    def lock_and_end() -> bool:
        lock = FileLock(path)
        lock.try_acquire()
        lock.write_owner()
        return is_locked(path)

    assert in_child(lock_and_end) == 0
    assert not is_locked(path)
    last = owner_pid(path)
    assert last is not None
    assert last != os.getpid()


def test_the_file_has_the_process_id_of_the_last_owner(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text("12345678901")
    assert owner_pid(path) == 12345678901
    with FileLock(path) as lock:
        lock.try_acquire()
        lock.write_owner()
        assert owner_pid(path) == os.getpid()
    assert owner_pid(tmp_path / "none") is None


class Clock:
    """A virtual clock that ``sleep`` advances, and that calls ``action`` from the time ``at``."""

    def __init__(self, at: float, action: Callable[[], object]) -> None:
        self.now, self._at, self._action = 0.0, at, action

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._at:
            self._action()


def test_the_owner_may_write_its_process_id_up_to_half_a_second_late(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text(ended_pid())
    clock = Clock(0.4, lambda: path.write_text(str(os.getpid())))
    assert current_owner_pid(path, clock=clock, sleep=clock.sleep) == os.getpid()
    assert clock.now < 0.5


def test_an_ended_process_is_not_the_current_owner(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text(ended_pid())
    clock = Clock(10.0, lambda: None)
    assert current_owner_pid(path, clock=clock, sleep=clock.sleep) is None
    assert clock.now < 1.0
    assert current_owner_text(path) == "of unknown id"


def ended_pid() -> str:
    """Return the id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def test_only_its_user_can_open_a_lock_file(tmp_path: Path) -> None:
    with FileLock(tmp_path / "l") as lock:
        lock.try_acquire()
    assert stat.S_IMODE((tmp_path / "l").stat().st_mode) == 0o600


def test_a_lock_in_an_unwritable_folder_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError

    monkeypatch.setattr("aeron_spark.node.locks.os.open", refuse)
    with pytest.raises(SetupError, match=r"belongs to another user.*AERON_SPARK_DATA_HOME"):
        FileLock(tmp_path / "l").try_acquire()


def test_a_thread_does_not_release_a_lock_while_another_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: an operation on a closed file fails, or is done to a file that was opened since."""
    lock = FileLock(tmp_path / "l")
    assert lock.try_acquire()
    other = threading.Thread(target=lock.release)
    utime = os.utime

    def utime_during_other_release(fd: int) -> None:
        other.start()
        other.join(0.2)
        utime(fd)

    monkeypatch.setattr(os, "utime", utime_during_other_release)
    lock.release(touch=True)
    other.join(10.0)
    assert not lock.is_acquired
    assert FileLock(tmp_path / "l").try_acquire()


def test_a_second_release_does_nothing(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    lock.try_acquire()
    assert lock.try_acquire()  # this object has it already
    lock.release()
    lock.release()
    assert not lock.is_acquired


def test_a_machine_lock_has_one_owner_at_a_time_and_its_release_removes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "l"
    first, second = MachineLock(path), MachineLock(path)
    assert first.try_own()
    assert not second.try_own()
    assert in_child(lambda: not first.is_acquired and not MachineLock(path).try_own()) == 0
    assert is_locked(path)  # the end of a child does not release its parent's lock
    first.release()
    assert not path.exists()
    assert second.try_own()
    second.release()


def test_a_machine_lock_is_acquired_in_a_new_file_if_its_owner_removed_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l"
    first, second, third = MachineLock(path), MachineLock(path), MachineLock(path)
    assert first.try_own()
    flock = fcntl.flock

    def released_first(fd: int, how: int) -> None:
        """Take the lock of the old file, which its current_owner_pid removed after it was opened."""
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", released_first)
    assert second.try_own()
    assert path.read_text() == str(os.getpid())
    assert not third.try_own()
    second.release()


def test_a_machine_lock_is_free_after_a_kill_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "l"
    assert in_child(MachineLock(path).try_own) == 0
    assert path.exists()
    lock = MachineLock(path)
    assert lock.try_own()
    lock.release()


def test_a_lock_is_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "own")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(SetupError, match=f"lock file .*/{name} cannot be used"):
            FileLock(tmp_path / name).try_own()
        assert owner_pid(tmp_path / name) is None
    assert not (tmp_path / "own").exists()


def test_a_machine_lock_refuses_links_to_other_files(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("precious")
    (tmp_path / "link").symlink_to(own)
    os.link(own, tmp_path / "second")
    for name in ("link", "second"):
        with pytest.raises(SetupError, match=f"lock file .*/{name} cannot be used"):
            MachineLock(tmp_path / name).try_own()
    assert own.read_text() == "precious"
