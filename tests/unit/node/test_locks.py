from __future__ import annotations

import fcntl
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError, WaitTimeout
from aeron_spark.node.locks import FileLock, MachineLock, holder, holder_name, is_locked, owner


def in_child(work: object) -> int:
    """Run ``work`` in a forked child and return its exit code: 0 for true, 1 for false."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)  # type: ignore[operator]
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert not second.try_acquire(shared=True)
    first.release()
    assert second.try_acquire()
    second.release()


def test_many_sharers_keep_an_exclusive_one_out(tmp_path: Path) -> None:
    sharers = [FileLock(tmp_path / "l") for _ in range(3)]
    assert all(lock.try_acquire(shared=True) for lock in sharers)
    outsider = FileLock(tmp_path / "l")
    assert not outsider.try_acquire()
    for lock in sharers:
        lock.release()
    assert outsider.try_acquire()
    outsider.release()


def test_a_wait_ends_with_what_was_waited_for(tmp_path: Path) -> None:
    with FileLock(tmp_path / "l") as first:
        first.try_acquire()
        with pytest.raises(WaitTimeout, match=r"waited 0\.02 s for the moon .*/l\)\. Wait for night\."):
            FileLock(tmp_path / "l").acquire(0.02, "the moon", remedy="Wait for night.")


def test_a_forked_child_does_not_hold_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    assert lock.try_acquire()
    assert in_child(lambda: not lock.held) == 0
    assert in_child(lambda: not FileLock(tmp_path / "l").try_acquire()) == 0  # the parent's is not lost by the fork
    assert lock.held
    lock.release()


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    assert lock.try_acquire()
    ready, told = os.pipe()
    go, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, b".")
        os.read(go, 1)
        os._exit(0)
    os.read(ready, 1)
    lock.release()
    try:
        other = FileLock(tmp_path / "l")
        assert other.try_acquire()
        other.release()
    finally:
        os.write(say, b".")
        os.waitpid(pid, 0)
        for fd in (ready, told, go, say):
            os.close(fd)


def test_a_held_lock_is_seen_and_a_dead_holders_is_free(tmp_path: Path) -> None:
    path = tmp_path / "l"
    assert not is_locked(path)

    def hold_and_die() -> bool:
        lock = FileLock(path)
        lock.try_acquire()
        lock.write_owner()
        return is_locked(path)

    assert in_child(hold_and_die) == 0
    assert not is_locked(path)
    left = owner(path)
    assert left is not None
    assert left != os.getpid()


def test_the_owner_is_who_wrote_last(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text("12345678901")
    assert owner(path) == 12345678901
    with FileLock(path) as lock:
        lock.try_acquire()
        lock.write_owner()
        assert owner(path) == os.getpid()
    assert owner(tmp_path / "none") is None


class Waits:
    """A clock that a wait moves on, and what happens meanwhile."""

    def __init__(self, at: float, happens: Callable[[], object]) -> None:
        self.now, self._at, self._happens = 0.0, at, happens

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._at:
            self._happens()


def test_finding_c4_a_holder_that_writes_its_id_late_is_waited_for_within_the_promised_second(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text(dead())
    waits = Waits(0.4, lambda: path.write_text(str(os.getpid())))
    assert holder(path, clock=waits, sleep=waits.sleep) == os.getpid()
    assert waits.now < 0.5


def test_finding_c4_the_id_of_a_dead_process_is_none_of_a_holder(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_text(dead())
    waits = Waits(10.0, lambda: None)
    assert holder(path, clock=waits, sleep=waits.sleep) is None
    assert waits.now < 1.0
    assert holder_name(path) == "of unknown id"


def dead() -> str:
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def test_a_lock_is_for_its_user_alone(tmp_path: Path) -> None:
    with FileLock(tmp_path / "l") as lock:
        lock.try_acquire()
    assert stat.S_IMODE((tmp_path / "l").stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_has_its_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError

    monkeypatch.setattr("aeron_spark.node.locks.os.open", refuse)
    with pytest.raises(SetupError, match=r"belongs to another user.*AERON_SPARK_DATA_HOME"):
        FileLock(tmp_path / "l").try_acquire()


def test_release_twice_is_harmless(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "l")
    lock.try_acquire()
    assert lock.try_acquire()  # held already
    lock.release()
    lock.release()
    assert not lock.held


def test_a_machine_lock_has_one_holder_at_a_time_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "l"
    first, second = MachineLock(path), MachineLock(path)
    assert first.try_own()
    assert not second.try_own()
    assert in_child(lambda: not first.held and not MachineLock(path).try_own()) == 0
    assert is_locked(path)  # a child that ends takes nothing away
    first.release()
    assert not path.exists()
    assert second.try_own()
    second.release()


def test_a_machine_lock_whose_file_its_holder_removed_meanwhile_is_taken_in_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l"
    first, second, third = MachineLock(path), MachineLock(path), MachineLock(path)
    assert first.try_own()
    flock = fcntl.flock

    def released_first(fd: int, how: int) -> None:
        """Take the lock of the old file, which its holder removed after it was opened."""
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", released_first)
    assert second.try_own()
    assert path.read_text() == str(os.getpid())
    assert not third.try_own()
    second.release()


def test_a_machine_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    path = tmp_path / "l"
    assert in_child(MachineLock(path).try_own) == 0
    assert path.exists()
    lock = MachineLock(path)
    assert lock.try_own()
    lock.release()


def test_a_machine_lock_changes_no_file_elsewhere(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("precious")
    (tmp_path / "link").symlink_to(own)
    os.link(own, tmp_path / "second")
    for name in ("link", "second"):
        with pytest.raises(SetupError, match=f"lock file .*/{name} cannot be used"):
            MachineLock(tmp_path / name).try_own()
    assert own.read_text() == "precious"
