"""Whose is a directory, and may it be taken or removed? Nothing is deleted that Aeron did not make."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from aeron_spark.aeron.cnc import CNC_FILE
from aeron_spark.errors import InUseError, SetupError
from aeron_spark.node import locks
from aeron_spark.node.liveness import MARK_FILE, archive_mark_pid, driver_liveness

AERON_FILES: Final = frozenset({CNC_FILE, "loss-report.dat", "publications", "images"})
ARCHIVE_LOCK: Final = "node.lock"


def make_private(folder: Path) -> None:
    """Create ``folder`` for this user alone, or raise SetupError where it is a file or another user's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SetupError(f"{folder} is not a directory", remedy="Name another place.") from error
    except OSError as error:
        raise SetupError(f"{folder} cannot be created ({error.strerror})", remedy="Name another place.") from error
    refuse_others(folder)


def refuse_others(folder: Path) -> None:
    """Raise SetupError where ``folder`` exists and is a link, a file or another user's: it might be a trap."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise SetupError(
            f"{folder} lies in a directory of another user", remedy="Name a place of your own, or run as its owner."
        ) from error
    if found.st_uid != os.geteuid():
        raise SetupError(
            f"the directory {folder} belongs to user {found.st_uid}, not to user {os.geteuid()}",
            remedy="Name a directory of your own (aeronDir or AERON_SPARK_AERON_DIR), or run as its owner.",
        )
    if not stat.S_ISDIR(found.st_mode):
        raise SetupError(f"{folder} is not a directory", remedy="Name a directory, or remove what is there.")


def refuse_unwritable(folder: Path) -> None:
    """Raise SetupError where ``folder`` cannot be written, or not be made."""
    there = folder
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        raise SetupError(
            f"{folder} cannot be written: {there} does not allow it",
            remedy="Name another place, or have its owner grant access.",
        )


def foreign_driver_may_be_used(aeron_dir: Path, chosen: bool) -> None:
    """Raise SetupError unless the caller may use the live driver in ``aeron_dir``.

    A directory the caller named may be another user's, as long as it can be read and written: drivers of containers
    are. The default name is never taken on trust, because anybody can create it.
    """
    if not chosen:
        refuse_others(aeron_dir)
    if not os.access(aeron_dir / CNC_FILE, os.R_OK | os.W_OK):
        raise SetupError(
            f"the media driver in {aeron_dir} belongs to another user and cannot be written",
            remedy="Run as its owner, let its owner grant access, or name a directory of your own.",
        )


def remove_dead_driver(aeron_dir: Path, dead_pid: int | None) -> None:
    """Remove the directory of a driver that is dead: ours of ``dead_pid``, or one without a heartbeat for long.

    Raises SetupError where something is alive there, or where there are files that are not Aeron's.
    """
    refuse_others(aeron_dir)
    if not aeron_dir.exists():
        return
    strange = sorted(entry.name for entry in aeron_dir.iterdir() if entry.name not in AERON_FILES)
    if strange:
        raise SetupError(
            f"{aeron_dir} holds files that are not a media driver's, such as {strange[0]}",
            remedy="Name a directory of its own for the media driver: it is emptied at every start.",
        )
    found = driver_liveness(aeron_dir)
    if found is not None and found.alive and found.pid != dead_pid:
        raise SetupError(f"a media driver of process {found.pid} is alive in {aeron_dir}", remedy="Stop it first.")
    shutil.rmtree(aeron_dir)


def take_archive(archive_dir: Path) -> locks.FileLock:
    """Make ``archive_dir`` this process's own, and let go of what a killed node left there; return the lock to keep.

    The lock proves the node before us dead, so its mark file, which would say "active" for ten more seconds, goes.
    A mark file of anybody else stays, and Aeron judges it.
    """
    make_private(archive_dir)
    lock = locks.FileLock(archive_dir / ARCHIVE_LOCK)
    if not lock.try_acquire():
        raise InUseError(
            f"the archive in {archive_dir} is used by the node of process {locks.owner(lock.path)}",
            remedy="Name another archive directory, or stop that node: two media drivers cannot share an archive.",
        )
    before = locks.owner(lock.path)
    if before is not None and archive_mark_pid(archive_dir) == before:
        (archive_dir / MARK_FILE).unlink(missing_ok=True)
    lock.write_owner()
    return lock
