"""Where a node's things are: a pure function of the caller's words and the environment.

A node is known by the directory of its media driver. Everything that must outlive a reboot, and the locks, live in the
node's folder under the data home; only Aeron's own mapped files live in /dev/shm.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.errors import OptionError

SHARED_MEMORY: Final = Path("/dev/shm")
DEFAULT_NAME: Final = "default"


@dataclass(frozen=True, slots=True)
class NodePlaces:
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


def node_places(
    environ: Mapping[str, str],
    user: str,
    aeron_dir: str | os.PathLike[str] | None = None,
    archive_dir: str | os.PathLike[str] | None = None,
) -> NodePlaces:
    """Return the places of the node of ``aeron_dir`` (default: AERON_SPARK_AERON_DIR, else one a user)."""
    named = _absolute("aeronDir", aeron_dir or environ.get("AERON_SPARK_AERON_DIR"))
    archive = _absolute("archiveDir", archive_dir or environ.get("AERON_SPARK_ARCHIVE_DIR"))
    default = default_aeron_dir(user)
    driver = named or default
    folder = data_home(environ) / "nodes" / (DEFAULT_NAME if driver == default else node_name(driver))
    return NodePlaces(
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
