"""What runs in a node's directory, told without starting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aeron_spark.node import state_files
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.locks import is_locked, owner
from aeron_spark.node.settings import NodeSettings
from aeron_spark.node.space import Space, space_of
from aeron_spark.node.starting import collect_ended, paths_here


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """``state``: ``running`` a node of this package, ``starting`` one not ready yet, ``foreign`` somebody else's
    driver, ``stale`` files of a dead one (the next start removes them), ``absent`` nothing. What is not known is None.
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
    clients: int | None  # Aeron clients, the archive's own not counted
    recordings: int | None  # that grow now
    stays: bool  # started by hand: does not stop when unused
    warning: str
    aeron_space: Space
    archive_space: Space

    @property
    def runs(self) -> bool:
        """Whether a media driver can be used here now."""
        return self.state in ("running", "foreign")


def status(aeron_dir: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None) -> NodeStatus:
    """Return what is known of the node of ``aeron_dir``; needs no JVM, and changes nothing."""
    collect_ended()
    places = paths_here(aeron_dir, None, environ)
    ours = is_locked(places.alive_lock)
    running = state_files.read_record(places.record) if ours else None
    state = state_files.read_state(places.state) if ours else None
    directory = Path(running.aeron_dir) if running else places.aeron_dir
    driver = driver_liveness(directory)
    word: Literal["running", "starting", "foreign", "stale", "absent"] = "absent"
    if ours:
        word = "running" if running else "starting"
    elif driver is not None:
        word = "foreign" if driver.alive and driver.pid != owner(places.alive_lock) else "stale"
    archive_dir = running.archive_dir if running else str(places.archive_dir)
    return NodeStatus(
        state=word,
        aeron_dir=str(directory),
        archive_dir=archive_dir,
        folder=str(places.folder),
        pid=running.pid if running else driver.pid if driver else None,
        started=running.started if running else driver.started if driver else None,
        heartbeat_age=driver.heartbeat_age if driver else None,
        version=running.package_version if running else None,
        aeron_version=running.aeron_version if running else None,
        archive_id=running.archive_id if running else None,
        settings=running.settings if running else None,
        clients=state.clients if state else None,
        recordings=state.recordings if state else None,
        stays=ours and places.stay.exists(),
        warning=running.warning if running else "",
        aeron_space=space_of(directory),
        archive_space=space_of(Path(archive_dir or places.archive_dir)),
    )
