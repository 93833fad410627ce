"""Paths of a node's directories and files, with checks of the directories and of their free space.

The directory of its media driver identifies a node. Aeron's mapped files are in /dev/shm. Locks, and all files that
must survive a reboot, are in the node's folder under the data home.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import CATALOG_FILE
from aeron_spark.aeron.counters import CNC_FILE
from aeron_spark.errors import InUseError, OptionError, SetupError
from aeron_spark.node import locks
from aeron_spark.node.settings import MIB, NodeSettings
from aeron_spark.node.state_files import MARK_FILE, archive_mark_pid, driver_liveness

SHARED_MEMORY: Final = Path("/dev/shm")

DEFAULT_NAME: Final = "default"
SUFFIX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class NodePaths:
    """The directories and files of one node.

    ``chosen``, ``archive_chosen``: the caller, not this package, chose the driver's or the archive's directory. A
    running node with another archive directory then does not match the request. ``named``: the caller named another
    directory than the default one, which AERON_SPARK_AERON_DIR may set.
    """

    aeron_dir: Path
    archive_dir: Path
    folder: Path
    config_home: Path
    chosen: bool
    archive_chosen: bool = False
    named: bool = False

    @property
    def disk_aeron_dir(self) -> Path:
        """The default driver's directory if shared memory is too small."""
        return self.folder / "aeron"

    @property
    def users_lock(self) -> Path:
        """Locked shared by each process that uses the node, and exclusively by the process that stops it."""
        return self.folder / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Locked exclusively by the process that starts the node."""
        return self.folder / "start.lock"

    @property
    def alive_lock(self) -> Path:
        """Locked exclusively by the node process until its end; has its process id."""
        return self.folder / "alive.lock"

    @property
    def record(self) -> Path:
        """The description of the running node; the node process writes it once, when it is ready."""
        return self.folder / "node.json"

    @property
    def state(self) -> Path:
        """Numbers of clients and recordings; the node process writes them about twice a second."""
        return self.folder / "state.json"

    @property
    def failure(self) -> Path:
        """The error for which the node process could not start."""
        return self.folder / "failed.json"

    @property
    def progress(self) -> Path:
        """The stage of the node process's start."""
        return self.folder / "starting.json"

    @property
    def stay(self) -> Path:
        """Exists if the node was started explicitly, and therefore does not stop when unused."""
        return self.folder / "stay"

    @property
    def claim(self) -> Path:
        """Exists from the start of a node in the directory until another program's media driver is found there."""
        return self.folder / "claim"

    @property
    def log(self) -> Path:
        """The output of the node process."""
        return self.folder / "node.log"


def data_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of this package's data: AERON_SPARK_DATA_HOME, else below XDG_DATA_HOME."""
    return _package_folder(environ, "AERON_SPARK_DATA_HOME", "XDG_DATA_HOME", ".local/share")


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of this package's keys: AERON_SPARK_CONFIG_HOME, else below XDG_CONFIG_HOME."""
    return _package_folder(environ, "AERON_SPARK_CONFIG_HOME", "XDG_CONFIG_HOME", ".config")


def default_aeron_dir(user: str) -> Path:
    """Return the default directory of the media driver of ``user``, which no other user of this machine has."""
    return unclaimed_path(SHARED_MEMORY / f"aeron-spark-{user}", os.geteuid())


def node_paths(
    environ: Mapping[str, str],
    user: str,
    aeron_dir: str | os.PathLike[str] | None = None,
    archive_dir: str | os.PathLike[str] | None = None,
) -> NodePaths:
    """Return the paths of the node of ``aeron_dir`` (default: AERON_SPARK_AERON_DIR, else one directory per user).

    Raises OptionError for a relative path and for the root directory.
    """
    given = _absolute("aeronDir", aeron_dir)
    configured = _absolute("AERON_SPARK_AERON_DIR", environ.get("AERON_SPARK_AERON_DIR"))
    archive = _absolute("archiveDir", archive_dir or environ.get("AERON_SPARK_ARCHIVE_DIR"))
    default = default_aeron_dir(user)
    driver = given or configured or default
    folder = data_home(environ) / "nodes" / (DEFAULT_NAME if driver == default else node_name(driver))
    return NodePaths(
        driver,
        archive or folder / "archive",
        folder,
        config_home(environ),
        chosen=driver != default,
        archive_chosen=archive is not None,
        named=driver != (configured or default),
    )


def node_name(aeron_dir: Path) -> str:
    """Return a readable folder name for ``aeron_dir`` that no other directory has."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", aeron_dir.name).strip("-.") or "node"
    return f"{readable[:40]}-{hashlib.sha256(str(aeron_dir).encode()).hexdigest()[:8]}"


def _absolute(option: str, text: str | os.PathLike[str] | None) -> Path | None:
    if not text:
        return None
    path = Path(os.path.normpath(os.fspath(text)))
    if not path.is_absolute():
        raise OptionError(
            f"{option} {os.fspath(text)!r} is a relative path, but other processes have other working directories",
            remedy="Give the absolute path, such as /dev/shm/aeron-prices.",
        )
    if path == Path("/"):
        raise OptionError(f"{option} cannot be the root directory", remedy="Name a separate directory.")
    return path


def _package_folder(environ: Mapping[str, str], own_variable: str, xdg_variable: str, default: str) -> Path:
    if environ.get(own_variable):
        return Path(os.path.abspath(environ[own_variable]))
    if environ.get(xdg_variable):
        return Path(os.path.abspath(environ[xdg_variable])) / "aeron-spark"
    return Path(environ.get("HOME") or os.path.expanduser("~")) / default / "aeron-spark"


AERON_FILES: Final = frozenset({CNC_FILE, "loss-report.dat", "publications", "images"})

ARCHIVE_LOCK: Final = "node.lock"


def unclaimed_path(path: Path, owner: int) -> Path:
    """Return ``path``, or one beside it with a random suffix if another user than ``owner`` has it.

    For a folder that all users can write, such as /dev/shm: another user may have made a file of any known name first.
    A path that ``owner`` has already comes first, so all processes of this user get the same one.
    """
    found = _owner_of(path)
    if found == owner:
        return path
    others = path.parent.glob(glob.escape(path.name) + "-" + "[0-9a-f]" * 2 * SUFFIX_BYTES)
    own = next((one for one in sorted(others) if _owner_of(one) == owner), None)
    if own is not None:
        return own
    return path if found is None else path.with_name(f"{path.name}-{secrets.token_hex(SUFFIX_BYTES)}")


def _owner_of(path: Path) -> int | None:
    try:
        return os.lstat(path).st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None


def make_private(folder: Path) -> None:
    """Create ``folder`` for this user only. Raises SetupError if it is a file, or of another user."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise SetupError(f"{folder} is not a directory", remedy="Name another directory.") from error
    except OSError as error:
        raise SetupError(f"{folder} cannot be created ({error.strerror})", remedy="Name another directory.") from error
    require_own(folder)


def require_own(folder: Path) -> None:
    """Raise SetupError if ``folder`` is a link, a file, or of another user, who may have created it for an attack."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise SetupError(
            f"{folder} is in a directory of another user", remedy="Name a directory of your own, or run as its owner."
        ) from error
    if found.st_uid != os.geteuid():
        raise SetupError(
            f"the directory {folder} belongs to user {found.st_uid}, not to user {os.geteuid()}",
            remedy="Name a directory of your own (aeronDir or AERON_SPARK_AERON_DIR), or run as its owner.",
        )
    if not stat.S_ISDIR(found.st_mode):
        raise _no_directory(folder)


def require_directory(folder: Path) -> None:
    """Raise SetupError if ``folder`` is a file."""
    if folder.exists() and not folder.is_dir():
        raise _no_directory(folder)


def _no_directory(path: Path) -> SetupError:
    return SetupError(f"{path} is not a directory", remedy="Name a directory, or remove the file.")


def require_writable(folder: Path) -> None:
    """Raise SetupError if ``folder`` cannot be written, or not be created."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SetupError(
            f"{folder} cannot be written: {existing} does not allow it",
            remedy="Name another directory, or let its owner grant access.",
        )


def require_usable_foreign_driver(aeron_dir: Path, chosen: bool) -> None:
    """Raise SetupError if the caller may not use the running driver in ``aeron_dir``.

    A directory that the caller chose may be of another user, such as a container's, if it can be read and written. The
    default directory must be of this user, because any user could create it.
    """
    if not chosen:
        require_own(aeron_dir)
    if not os.access(aeron_dir / CNC_FILE, os.R_OK | os.W_OK):
        raise SetupError(
            f"the media driver in {aeron_dir} belongs to another user and cannot be written",
            remedy="Run as its owner, let its owner grant access, or name a directory of your own.",
        )


def remove_dead_driver(aeron_dir: Path, dead_pid: int | None) -> None:
    """Remove the directory of a driver that has ended: of process ``dead_pid``, or without a recent heartbeat.

    Raises SetupError if a driver is alive in the directory, or the directory has files that are not Aeron's.
    """
    require_own(aeron_dir)
    if not aeron_dir.exists():
        return
    unknown = sorted(entry.name for entry in aeron_dir.iterdir() if entry.name not in AERON_FILES)
    if unknown:
        raise SetupError(
            f"{aeron_dir} has files that are not a media driver's, such as {unknown[0]}",
            remedy="Name a separate directory for the media driver, which empties it at each start.",
        )
    found = driver_liveness(aeron_dir)
    if found is not None and found.alive and found.pid != dead_pid:
        raise SetupError(f"a media driver of process {found.pid} is alive in {aeron_dir}", remedy="Stop it first.")
    shutil.rmtree(aeron_dir)


def lock_archive(archive_dir: Path) -> locks.FileLock:
    """Lock ``archive_dir`` for this process, remove the mark file of a killed node, and return the lock.

    The lock proves that the last node has ended, so its mark file, which would be "active" for ten more seconds, can be
    removed. Aeron checks the mark file of another program itself. Raises InUseError if another node has the lock.
    """
    make_private(archive_dir)
    lock = locks.FileLock(archive_dir / ARCHIVE_LOCK)
    if not lock.try_acquire():
        raise InUseError(
            f"the archive in {archive_dir} is used by the node of process {locks.owner_pid(lock.path)}",
            remedy="Name another archive directory, or stop that node. Two media drivers cannot share an archive.",
        )
    previous_pid = locks.owner_pid(lock.path)
    if previous_pid is not None and archive_mark_pid(archive_dir) == previous_pid:
        (archive_dir / MARK_FILE).unlink(missing_ok=True)
    lock.write_owner()
    return lock


CONTROL_BYTES: Final = 48 * MIB  # CnC file (46 MiB: counters, commands, errors) and loss report, at Aeron's defaults
MIN_LOGS: Final = 4  # a publication and an image in each direction
TERMS_PER_LOG: Final = 3
BLOCK_BYTES: Final = 512  # of st_blocks
RESERVE_BYTES: Final = 256 * MIB
RESERVE_SHARE: Final = 8  # of a small file system, the reserve is an eighth


@dataclass(frozen=True, slots=True)
class Space:
    """Free and total bytes of the file system of ``path``."""

    path: str
    free: int
    total: int


def driver_space(aeron_dir: Path) -> Space:
    """Return the space of a driver's file system, without the bytes that the driver's files may still take.

    A driver's log is a sparse file. It takes space page by page, while its stream is written.
    """
    space = space_of(aeron_dir)
    return replace(space, free=space.free - _unwritten_bytes(aeron_dir))


def reserve_of(space: Space) -> int:
    """Return the bytes of a driver's file system that must stay free: with less, the driver's process soon ends."""
    return min(RESERVE_BYTES, space.total // RESERVE_SHARE)


def _unwritten_bytes(folder: Path | str) -> int:
    """Return how much the files below ``folder`` grow if each page of them is written; 0 without the folder."""
    size = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # the driver deletes logs at any time
                if entry.is_dir(follow_symlinks=False):
                    size += _unwritten_bytes(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    size += max(0, status.st_size - BLOCK_BYTES * status.st_blocks)
    return size


def required_driver_bytes(settings: NodeSettings) -> int:
    """Return the bytes that a driver with these settings needs for a few streams."""
    return CONTROL_BYTES + MIN_LOGS * TERMS_PER_LOG * max(settings.term_length, settings.ipc_term_length)


def required_archive_bytes(settings: NodeSettings) -> int:
    """Return the bytes that an archive needs for its first recording: a segment, and the same size as a reserve."""
    return 2 * settings.longest_segment + MIB if settings.archive else 0


def space_of(path: Path) -> Space:
    """Return the space of the file system in which ``path`` is, or will be."""
    existing = path
    while True:
        try:
            numbers = os.statvfs(existing)
            break
        except (FileNotFoundError, NotADirectoryError):
            existing = existing.parent
    return Space(str(path), numbers.f_bavail * numbers.f_frsize, numbers.f_blocks * numbers.f_frsize)


def describe_shortage(path: Path, required_bytes: int, removable_bytes: int = 0) -> str:
    """Return a text with the free and the required space of ``path``, or an empty text if it has enough.

    ``removable_bytes`` of the used space count as free.
    """
    free = space_of(path).free + removable_bytes
    if free >= required_bytes:
        return ""
    return f"{path} has {free / MIB:.0f} MiB free, and {required_bytes / MIB:.0f} MiB are needed"


def check_archive_space(archive_dir: Path, settings: NodeSettings) -> str:
    """Return a warning, or "", about the space of the archive's disk. Raises SetupError for a new archive.

    An archive with recordings starts with less: its recordings can be read, purged and deleted, which frees space.
    """
    shortage = describe_shortage(archive_dir, required_archive_bytes(settings))
    if shortage and (archive_dir / CATALOG_FILE).exists():
        return (
            f"the archive's directory {shortage}: recordings can be read, purged and deleted, and the archive may "
            "refuse new ones. Free some space on this disk."
        )
    if shortage:
        raise SetupError(
            f"the archive's directory {shortage}",
            remedy="Free some space, name another directory (AERON_SPARK_ARCHIVE_DIR), or choose a smaller "
            "segment_length.",
        )
    return ""


def file_bytes(folder: Path) -> int:
    """Return the bytes that the files below ``folder`` use on disk or in memory; 0 without the folder."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a driver may be starting there
            size += BLOCK_BYTES * os.lstat(path).st_blocks
    return size


def choose_aeron_dir(preferred: Path, on_disk: Path, chosen: bool, settings: NodeSettings) -> tuple[Path, str]:
    """Return the driver's directory and a warning. The default directory falls back to disk, a chosen one does not.

    The files of a dead driver in a directory count as free space, because a start removes them.

    Raises SetupError if no directory has enough space.
    """
    required = required_driver_bytes(settings)
    shortage = describe_shortage(preferred, required, file_bytes(preferred))
    if not shortage:
        return preferred, ""
    small = required_driver_bytes(replace(settings, term_length=MIB, ipc_term_length=MIB))
    remedy = (
        "Enlarge it (docker: --shm-size=1g), set AERON_SPARK_AERON_DIR, or choose smaller values of both term_length "
        "and ipc_term_length: 'aeron-spark node start --term-length 1MiB --ipc-term-length 1MiB' needs "
        f"{small / MIB:.0f} MiB."
    )
    if chosen:
        raise SetupError(f"the media driver's directory {shortage}", remedy=remedy)
    if shortage_on_disk := describe_shortage(on_disk, required, file_bytes(on_disk)):
        raise SetupError(f"the media driver has no space: {shortage}; {shortage_on_disk}", remedy=remedy)
    return on_disk, f"{shortage}: the media driver runs in {on_disk} instead, which is slower. {remedy}"
