"""File locks (flock) that the system releases after a crash, with timeouts; a forked child does not inherit them.

A flock belongs to the open file, which a forked child shares: LOCK_UN in the child would unlock the parent's lock, and
the child's open copy would keep it locked after the parent's end. Therefore a child closes its copies immediately after
the fork, and a lock is released by closing the file, never by LOCK_UN.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from aeron_spark.errors import SetupError, WaitTimeout
from aeron_spark.files import NotRegularError, open_regular
from aeron_spark.process import exists

RETRY_INTERVAL_S: Final = 0.002  # short, because locks are usually locked for milliseconds
# A process writes its id into the file after it has acquired the lock, within this time. A server that is refused must
# end within 1 s, and its start needs half of that.
OWNER_TIMEOUT_S: Final = 0.5
MAX_PID_BYTES: Final = 20  # a limit, because another user may have written the file
MACHINE_MODE: Final = 0o666

_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """A lock on one file. Each object acquires the lock separately, even in one process; not re-entrant.

    Several threads may release it at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._releasing = threading.Lock()

    @property
    def is_acquired(self) -> bool:
        """Whether this object has acquired the lock; false in a forked child of the process that did."""
        return self._fd is not None

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Acquire the lock if it is free now. Return whether this object has it."""
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
            if self._is_current(fd):
                break
            os.close(fd)
        self._fd = fd
        _open_locks.add(self)
        return True

    def try_own(self) -> bool:
        """Acquire the lock if it is free, and write this process's id into the file. Return whether it succeeded."""
        if not self.try_acquire():
            return False
        self.write_owner()
        return True

    def acquire(self, seconds: float, awaited: str, *, shared: bool = False, remedy: str = "") -> None:
        """Acquire the lock. Raises WaitTimeout with the text ``awaited`` after ``seconds``."""
        end = time.monotonic() + seconds
        while not self.try_acquire(shared=shared):
            if time.monotonic() >= end:
                raise WaitTimeout(f"waited {seconds:g} s for {awaited} (lock {self.path})", remedy=remedy)
            time.sleep(RETRY_INTERVAL_S)

    def write_owner(self) -> None:
        """Write this process's id into the file. After a crash, other processes can read whose lock it was."""
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def touch(self) -> None:
        """Set the file's time to now; the node process computes its idle time from it."""
        assert self._fd is not None
        os.utime(self._fd)

    def release(self, *, touch: bool = False) -> None:
        """Release the lock if this object has acquired it; with ``touch``, first set the file's time to now."""
        with self._releasing:  # a second close of the same number could close a file that was opened since
            if self._fd is None:
                return
            if touch:
                self.touch()
            self._before_release(self._fd)
            self._close()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _open(self) -> int:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except PermissionError as error:
            raise SetupError(
                f"the lock file {self.path} belongs to another user, or its folder cannot be written",
                remedy="Set AERON_SPARK_DATA_HOME to a folder of your own.",
            ) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._refused(str(error.strerror)) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._refused("it is not a regular file")
        return fd

    def _refused(self, cause: str) -> SetupError:
        return SetupError(
            f"the lock file {self.path} cannot be used: {cause}", remedy=f"Check its owner: ls -l {self.path}"
        )

    def _is_current(self, fd: int) -> bool:
        """Whether the path still names the open file; always true here, because the file is never removed."""
        return True

    def _before_release(self, fd: int) -> None:
        """Do what a subclass does with the file before it is unlocked."""

    def close_in_child(self) -> None:
        """Close the copy of the open file in a forked child, in which no thread of the parent releases the lock."""
        self._releasing = threading.Lock()
        self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            _open_locks.discard(self)
            os.close(fd)


class MachineLock(FileLock):
    """A lock for several users of this machine: each user who can reach the file may open it.

    ``release`` removes it. After a kill the file remains, and the next process uses it. A symbolic link, or a file with
    a second name, is refused: writing an id could change another file of this user.
    """

    def _before_release(self, fd: int) -> None:
        if self._is_current(fd):
            with suppress(OSError):  # in such a directory, only its owner can remove a file
                os.unlink(self.path)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                fd = os.open(self.path, flags)
            except FileNotFoundError:
                try:
                    fd = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, MACHINE_MODE)
                except FileExistsError:  # another process has created it since
                    continue
                except OSError as error:
                    raise self._refused(str(error.strerror)) from error
            except OSError as error:
                raise self._refused(str(error.strerror)) from error
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.close(fd)
                raise self._refused("it is not a regular file, or it has a second name")
            if found.st_uid == os.geteuid():
                os.fchmod(fd, MACHINE_MODE)  # independent of the umask
            return fd

    def _is_current(self, fd: int) -> bool:
        """Whether the path still names the open file: its last owner may have removed it since."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        except FileNotFoundError:
            return False


def is_locked(path: Path) -> bool:
    """Whether the file at ``path`` is locked exclusively; false if it does not exist."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def owner_pid(path: Path) -> int | None:
    """Return the process id of the last owner from the lock file, or None."""
    try:
        with open(open_regular(path), "rb") as file:
            text = file.read(MAX_PID_BYTES)
    except (FileNotFoundError, NotRegularError):
        return None
    return int(text) if text.isdigit() else None


def current_owner_pid(
    path: Path, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
) -> int | None:
    """Return the process id of the lock's current owner, or None if the owner does not write it in time.

    For a caller that could not acquire the lock. Just after an acquisition the file is empty, or has the id of an
    earlier owner that was killed.
    """
    end = clock() + OWNER_TIMEOUT_S
    while True:
        pid = owner_pid(path)
        if pid is not None and exists(pid):
            return pid
        if clock() >= end:
            return None
        sleep(RETRY_INTERVAL_S)


def current_owner_text(path: Path) -> str:
    """Return the current owner's process id for an error's text."""
    pid = current_owner_pid(path)
    return "of unknown id" if pid is None else str(pid)


def _close_in_child() -> None:
    for lock in list(_open_locks):
        lock.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
