"""Reads the state of a node's directory without starting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aeron_spark.node import state_files
from aeron_spark.node.lifecycle import local_node_paths, reap_ended
from aeron_spark.node.locks import is_locked, owner_pid
from aeron_spark.node.paths import Space, space_of
from aeron_spark.node.settings import NodeSettings
from aeron_spark.node.state_files import driver_liveness


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of a node's directory; unknown values are None.

    ``state`` is ``running`` for a node of this package, ``starting`` for one that is not ready yet, ``foreign`` for a
    driver that another program started, ``stale`` for files of an ended driver (the next start removes them), and
    ``absent`` without any.
    """

    state: Literal["running", "starting", "foreign", "stale", "absent"]
    aeron_dir: str
    archive_dir: str
    folder: str
    pid: int | None
    started: float | None  # seconds since the epoch
    heartbeat_age: float | None  # seconds
    version: str | None
    aeron_version: str | None
    archive_id: int | None
    settings: NodeSettings | None
    clients: int | None  # Aeron clients without the archive's own
    recordings: int | None  # active ones
    stays: bool  # started explicitly: does not stop when unused
    warning: str
    aeron_space: Space
    archive_space: Space

    @property
    def runs(self) -> bool:
        """Whether a media driver runs in the directory and can be used."""
        return self.state in ("running", "foreign")


def status(aeron_dir: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None) -> NodeStatus:
    """Return the state of the node of ``aeron_dir``. Needs no JVM, and changes nothing."""
    reap_ended()
    node = local_node_paths(aeron_dir, None, environ)
    is_alive = is_locked(node.alive_lock)
    running = state_files.read_record(node.record) if is_alive else None
    use = state_files.read_state(node.state) if is_alive else None
    directory = Path(running.aeron_dir) if running else node.aeron_dir
    driver = driver_liveness(directory)
    state: Literal["running", "starting", "foreign", "stale", "absent"] = "absent"
    if is_alive:
        state = "running" if running else "starting"
    elif driver is not None:
        state = "foreign" if driver.alive and driver.pid != owner_pid(node.alive_lock) else "stale"
    archive_dir = running.archive_dir if running else str(node.archive_dir)
    return NodeStatus(
        state=state,
        aeron_dir=str(directory),
        archive_dir=archive_dir,
        folder=str(node.folder),
        pid=running.pid if running else driver.pid if driver else None,
        started=running.started if running else driver.started if driver else None,
        heartbeat_age=driver.heartbeat_age if driver else None,
        version=running.package_version if running else None,
        aeron_version=running.aeron_version if running else None,
        archive_id=running.archive_id if running else None,
        settings=running.settings if running else None,
        clients=use.clients if use else None,
        recordings=use.recordings if use else None,
        stays=is_alive and node.stay.exists(),
        warning=running.warning if running else "",
        aeron_space=space_of(directory),
        archive_space=space_of(Path(archive_dir or node.archive_dir)),
    )
