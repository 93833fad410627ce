"""Where a node's things are: a pure function of the caller's words and the environment.

A node is known by the directory of its media driver. Everything that must outlive a reboot, and the locks, live in the
node's folder under the data home; only Aeron's own mapped files live in /dev/shm.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.cnc import CNC_FILE
from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.node import locks
from aeron_spark.node.liveness import MARK_FILE, archive_mark_pid, driver_liveness

SHARED_MEMORY: Final = Path("/dev/shm")

DEFAULT_NAME: Final = "default"


@dataclass(frozen=True, slots=True)
class NodePaths:
    """The directories and files of one node. ``chosen`` says that the caller, not this package, named the driver's.

    ``archive_chosen`` says the same of the archive's: a node that runs with another one is then not what was asked for.
    """

    aeron_dir: Path
    archive_dir: Path
    folder: Path
    config_home: Path
    chosen: bool
    archive_chosen: bool = False

    @property
    def disk_aeron_dir(self) -> Path:
        """Where the default driver goes when shared memory is too small."""
        return self.folder / "aeron"

    @property
    def users_lock(self) -> Path:
        """Held shared by every process that uses the node; who stops it holds it exclusively."""
        return self.folder / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Held exclusively by the one process that starts the node."""
        return self.folder / "start.lock"

    @property
    def alive_lock(self) -> Path:
        """Held exclusively by the keeper for its life; it carries the keeper's pid."""
        return self.folder / "alive.lock"

    @property
    def record(self) -> Path:
        """What runs, written once by the keeper when it is ready."""
        return self.folder / "node.json"

    @property
    def state(self) -> Path:
        """Who uses the node, written by the keeper about once a second."""
        return self.folder / "state.json"

    @property
    def failure(self) -> Path:
        """Why the keeper could not start."""
        return self.folder / "failed.json"

    @property
    def progress(self) -> Path:
        """What the keeper does while it starts."""
        return self.folder / "starting.json"

    @property
    def stay(self) -> Path:
        """Exists while the node was started by hand, to stay until it is stopped by hand."""
        return self.folder / "stay"

    @property
    def log(self) -> Path:
        """The keeper's output."""
        return self.folder / "node.log"


def data_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of this package's data: AERON_SPARK_DATA_HOME, else below XDG_DATA_HOME."""
    return _home(environ, "AERON_SPARK_DATA_HOME", "XDG_DATA_HOME", ".local/share")


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of this package's keys: AERON_SPARK_CONFIG_HOME, else below XDG_CONFIG_HOME."""
    return _home(environ, "AERON_SPARK_CONFIG_HOME", "XDG_CONFIG_HOME", ".config")


def default_aeron_dir(user: str) -> Path:
    """Return where the media driver of ``user`` is when nobody says otherwise."""
    return SHARED_MEMORY / f"aeron-spark-{user}"


def node_paths(
    environ: Mapping[str, str],
    user: str,
    aeron_dir: str | os.PathLike[str] | None = None,
    archive_dir: str | os.PathLike[str] | None = None,
) -> NodePaths:
    """Return the places of the node of ``aeron_dir`` (default: AERON_SPARK_AERON_DIR, else one a user)."""
    named = _absolute("aeronDir", aeron_dir or environ.get("AERON_SPARK_AERON_DIR"))
    archive = _absolute("archiveDir", archive_dir or environ.get("AERON_SPARK_ARCHIVE_DIR"))
    default = default_aeron_dir(user)
    driver = named or default
    folder = data_home(environ) / "nodes" / (DEFAULT_NAME if driver == default else node_name(driver))
    return NodePaths(
        driver,
        archive or folder / "archive",
        folder,
        config_home(environ),
        chosen=driver != default,
        archive_chosen=archive is not None,
    )


def node_name(aeron_dir: Path) -> str:
    """Return a folder name for ``aeron_dir`` that a person recognises and no other directory has."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", aeron_dir.name).strip("-.") or "node"
    return f"{readable[:40]}-{hashlib.sha256(str(aeron_dir).encode()).hexdigest()[:8]}"


def _absolute(option: str, text: str | os.PathLike[str] | None) -> Path | None:
    if not text:
        return None
    path = Path(os.path.normpath(os.fspath(text)))
    if not path.is_absolute():
        raise OptionError(
            f"{option} {os.fspath(text)!r} is a relative path, and other processes have another working directory",
            remedy="Give the whole path, such as /dev/shm/aeron-prices.",
        )
    if path == Path("/"):
        raise OptionError(f"{option} cannot be the root directory", remedy="Name a directory of its own.")
    return path


def _home(environ: Mapping[str, str], own: str, general: str, under_home: str) -> Path:
    if environ.get(own):
        return Path(os.path.abspath(environ[own]))
    if environ.get(general):
        return Path(os.path.abspath(environ[general])) / "aeron-spark"
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(home) / under_home / "aeron-spark"


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
