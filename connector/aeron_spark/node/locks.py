"""File locks (flock) that a crash releases, with a deadline on every wait, and none of them inherited by a fork.

A lock taken with flock belongs to the open file, which a forked child shares: LOCK_UN in the child would unlock the
parent, and a child that merely lives would keep the parent's lock. So a child closes its copies as soon as it is born,
and a lock is released by closing, never by LOCK_UN.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from aeron_spark.errors import SetupError, WaitTimeout

RETRY: Final = 0.002  # seconds between two attempts: a start waits for milliseconds, so polling is cheap enough
# Seconds in which a process that has just taken a lock writes its id into the file. A server that is refused promises
# to end within a second, and half of that goes to its start.
HOLDER_TIMEOUT: Final = 0.5
LONGEST_PID: Final = 20  # bytes that are read of a process id; any user may have written the file
MACHINE_MODE: Final = 0o666

_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """One lock file. Not re-entrant; one object is one holder, whatever the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock; false in a child forked from the process that took it."""
        return self._fd is not None

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free now; True when this object holds it."""
        if self._fd is not None:
            return True
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except BaseException:
                os.close(fd)
                raise
            if self._is_in_place(fd):
                break
            os.close(fd)
        self._fd = fd
        _open_locks.add(self)
        return True

    def try_own(self) -> bool:
        """Take the lock exclusively if it is free now, and write this process's id into it; True when it was taken."""
        if not self.try_acquire():
            return False
        self.write_owner()
        return True

    def acquire(self, seconds: float, what: str, *, shared: bool = False, remedy: str = "") -> None:
        """Take the lock, or raise WaitTimeout that says ``what`` was waited for after ``seconds``."""
        end = time.monotonic() + seconds
        while not self.try_acquire(shared=shared):
            if time.monotonic() >= end:
                raise WaitTimeout(f"waited {seconds:g} s for {what} (lock {self.path})", remedy=remedy)
            time.sleep(RETRY)

    def write_owner(self) -> None:
        """Put this process's id into the file, for whoever finds the lock free after a crash."""
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def touch(self) -> None:
        """Mark the file as used now; the keeper counts its linger time from here."""
        assert self._fd is not None
        os.utime(self._fd)

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        self._close()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise SetupError(
                f"the lock file {self.path} belongs to another user, or its folder cannot be written",
                remedy="Use a folder of your own: set AERON_SPARK_DATA_HOME.",
            ) from error

    def _is_in_place(self, fd: int) -> bool:
        """Whether the open file is the one that others find; always true of a file that is never removed."""
        return True

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            _open_locks.discard(self)
            os.close(fd)


class MachineLock(FileLock):
    """One lock for all users of this machine, as a file in a directory that all of them may write, such as /dev/shm.

    Every user may open the file. ``release`` removes it; a process that is killed leaves it, and the next holder uses
    it. A link, or a file with a second name, is refused: writing an id could change a file of this user's elsewhere.
    """

    def release(self) -> None:
        """Give the lock back, and remove its file; harmless when it is not held."""
        if self._fd is not None and self._is_in_place(self._fd):
            with suppress(OSError):  # in such a directory a file of another user stays
                os.unlink(self.path)
        self._close()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                fd = os.open(self.path, flags)
            except FileNotFoundError:
                try:
                    fd = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, MACHINE_MODE)
                except FileExistsError:  # another process made it meanwhile
                    continue
                except OSError as error:
                    raise self._refused(str(error.strerror)) from error
            except OSError as error:
                raise self._refused(str(error.strerror)) from error
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.close(fd)
                raise self._refused("it is no file, or it has a second name")
            if found.st_uid == os.geteuid():
                os.fchmod(fd, MACHINE_MODE)  # beyond the umask
            return fd

    def _is_in_place(self, fd: int) -> bool:
        """Whether the open file is the one that others find: the holder before may have removed it meanwhile."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _refused(self, why: str) -> SetupError:
        return SetupError(
            f"the lock file {self.path} cannot be used: {why}", remedy=f"See whose it is: ls -l {self.path}"
        )


def is_locked(path: Path) -> bool:
    """Whether anybody holds the lock at ``path`` exclusively; false where the file does not exist."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def owner(path: Path) -> int | None:
    """Return the process id that the last owner wrote into the lock file, or None."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_PID)
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() else None


def holder(
    path: Path, seconds: float = HOLDER_TIMEOUT, *, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int | None:  # fmt: skip
    """Return the process id of the lock's present holder; None where the holder did not write one within ``seconds``.

    For a caller that could not take the lock: the holder may have taken it a moment ago, so that the file is empty, or
    still has the id of an earlier holder that was killed.
    """
    end = clock() + seconds
    while True:
        pid = owner(path)
        if pid is not None and _exists(pid):
            return pid
        if clock() >= end:
            return None
        sleep(RETRY)


def holder_name(path: Path) -> str:
    """Return the holder's process id for an error's text."""
    pid = holder(path)
    return "of unknown id" if pid is None else str(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _forget_in_child() -> None:
    for lock in list(_open_locks):
        lock._close()


os.register_at_fork(after_in_child=_forget_in_child)
