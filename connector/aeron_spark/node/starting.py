"""Using the node of a directory, and starting it when nobody has: quick where it runs, safe where many come at once.

Order of locks: users (shared), then start, then alive. Whoever holds users cannot lose the node to its keeper; whoever
holds start is the only one who replaces a dead node; and what a dead node left is removed under alive only, because a
keeper may still be starting whose starter has been killed.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aeron_spark.errors import ConnectError, OptionError, SetupError, TransportError, WaitTimeout
from aeron_spark.node import paths, space, state_files
from aeron_spark.node.handle import NodeHandle
from aeron_spark.node.liveness import Liveness, driver_liveness
from aeron_spark.node.locks import FileLock, is_locked, owner
from aeron_spark.node.paths import NodePaths, node_paths
from aeron_spark.node.settings import NodeSettings, differences, machine_cores, parse_asked, parse_settings
from aeron_spark.node.start_progress import STALL_TIMEOUT, StallWatch, processor_ticks, read_stage

# Seconds; a start takes about one, and minutes where the machine has too much to do, or after a kill the last segments
# of many open recordings are read. One that is stuck is given up after progress.STALL_TIMEOUT.
START_TIMEOUT: Final = 600.0
LOG_LIMIT: Final = 8 * 1024 * 1024  # bytes after which a start begins a new log and keeps one old one
POLL_INTERVAL_S: Final = 0.005  # seconds between two looks at a node that starts
PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]

_children: set[int] = set()  # nodes started by this process that it has not collected yet


def paths_here(
    aeron_dir: str | os.PathLike[str] | None = None,
    archive_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> NodePaths:
    """Return the node's places for this process's user and environment."""
    return node_paths(os.environ if environ is None else environ, _user(), aeron_dir, archive_dir)


def aeron_dir_argument(aeron_dir: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> str:
    """Return what a printed command line ends with, so that it reaches the node of ``aeron_dir``.

    It is empty for the node that every command of this user takes by itself.
    """
    places = paths_here(None, None, environ)
    if not places.chosen and Path(aeron_dir) in (places.aeron_dir, places.disk_aeron_dir):
        return ""
    return f" --aeron-dir {shlex.quote(os.fspath(aeron_dir))}"


def ensure(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    archive_dir: str | os.PathLike[str] | None = None,
    timeout: float = START_TIMEOUT,
    environ: Mapping[str, str] | None = None,
    **asked: Any,
) -> NodeHandle:
    """Return a handle on the node of ``aeron_dir``, started if it does not run.

    ``asked`` are fields of :class:`NodeSettings`. Those not given are this machine's defaults for a node that starts,
    and whatever runs for one that runs already. Needs no JVM in this process.

    Raises OptionError where a setting is wrong or the running node has another, SetupError where this machine cannot
    run one (no Java, no space, a directory of another user), WaitTimeout where it is not ready after ``timeout``
    seconds, TransportError where its start fails or is stuck. A start that is slow goes on after a WaitTimeout, and the
    next call waits for the same one.
    """
    wanted = {name: value for name, value in asked.items() if value is not None}
    parse_asked(wanted)
    collect_ended()
    places = paths_here(aeron_dir, archive_dir, environ)
    paths.make_private(places.folder)
    deadline = time.monotonic() + timeout
    users = FileLock(places.users_lock)
    users.acquire(timeout, f"the node in {places.aeron_dir} to finish stopping", shared=True)
    try:
        users.touch()
        found = _find(places, wanted, users)
        return found if found is not None else _start(places, wanted, users, deadline)
    except BaseException:
        users.release()
        raise


def _find(places: NodePaths, wanted: Mapping[str, Any], users: FileLock) -> NodeHandle | None:
    """Return a handle on what runs, or None where nothing does."""
    if is_locked(places.alive_lock):
        running = state_files.read_record(places.record)
        return None if running is None else _handle(places, running, wanted, users)
    found = driver_liveness(places.aeron_dir)
    if found is None or not found.alive or found.pid == owner(places.alive_lock):
        return None
    return _foreign_handle(places, found, wanted, users)


def _handle(
    places: NodePaths, running: state_files.NodeRecord, wanted: Mapping[str, Any], users: FileLock
) -> NodeHandle | None:
    if running.host != state_files.this_host():
        raise SetupError(
            f"the folder {places.folder} is used by a node on the host {running.host}",
            remedy="A node's folder belongs to one machine: set AERON_SPARK_DATA_HOME to a local disk.",
        )
    others = differences(wanted, running.settings)
    if running.archive_dir and places.archive_chosen and running.archive_dir != str(places.archive_dir):
        others.append(f"archive_dir is {running.archive_dir!r}, not {str(places.archive_dir)!r}")
    if others:
        raise OptionError(
            f"the node in {running.aeron_dir} runs with other settings: {'; '.join(others)}",
            remedy="Stop it first ('aeron-spark node stop'), ask for what it has, or name another aeronDir.",
        )
    driver = driver_liveness(Path(running.aeron_dir))
    if driver is None or not driver.alive:
        if not places.record.exists():  # it has begun to stop since we read that it runs
            return None
        raise ConnectError(
            f"the media driver in {running.aeron_dir} has no heartbeat any more, though process {running.pid} lives",
            remedy="It may be frozen or the machine overloaded: try again, or 'aeron-spark node stop --force'.",
        )
    return NodeHandle(
        aeron_dir=running.aeron_dir,
        pid=running.pid,
        started=running.started,
        foreign=False,
        archive_dir=running.archive_dir,
        archive_id=running.archive_id,
        settings=running.settings,
        warning=running.warning,
        _users=users,
    )


def _foreign_handle(places: NodePaths, found: Liveness, wanted: Mapping[str, Any], users: FileLock) -> NodeHandle:
    paths.foreign_driver_may_be_used(places.aeron_dir, places.chosen)
    if wanted:
        raise OptionError(
            f"the media driver in {places.aeron_dir} was started by somebody else (process {found.pid}), "
            f"so {', '.join(sorted(wanted))} cannot be chosen",
            remedy="Leave the settings out to use it as it is, or name another aeronDir.",
        )
    return NodeHandle(
        aeron_dir=str(places.aeron_dir),
        pid=found.pid,
        started=found.started,
        foreign=True,
        archive_dir="",
        archive_id=-1,
        settings=None,
        warning="",
        _users=users,
    )


def _start(places: NodePaths, wanted: Mapping[str, Any], users: FileLock, deadline: float) -> NodeHandle:
    with FileLock(places.start_lock) as lock:
        lock.acquire(max(0.0, deadline - time.monotonic()), f"another process to start the node in {places.aeron_dir}")
        with FileLock(places.alive_lock) as alive:
            watch = StallWatch(STALL_TIMEOUT, time.monotonic)
            while True:
                found = _find(places, wanted, users)
                if found is not None:
                    return found
                if alive.try_acquire():
                    break  # no process starts the node, and none stops it
                _refuse_late(places, owner(places.alive_lock), watch, time.monotonic() >= deadline)
                time.sleep(POLL_INTERVAL_S)
            settings = parse_settings(wanted, machine_cores())
            placed, warning = _prepare(places, settings)
        process = _spawn(placed, settings, warning)
        _await_ready(placed, process, deadline)
    started = _find(places, wanted, users)
    if started is None:
        raise TransportError(
            f"the node in {placed.aeron_dir} ended as soon as it was ready", remedy=f"See its log, {places.log}."
        )
    if started.warning:
        warnings.warn(started.warning, RuntimeWarning, stacklevel=4)
    return started


def _prepare(places: NodePaths, settings: NodeSettings) -> tuple[NodePaths, str]:
    """Check everything that can be known before a process is started; return the places it will use and a warning."""
    dead = owner(places.alive_lock)
    left = state_files.read_json(places.record)
    # At once: with alive held by us, whoever looks would take the dead node that this speaks of for a living one.
    places.record.unlink(missing_ok=True)
    paths.refuse_others(places.aeron_dir)
    if left is not None:  # a killed node's files give their space back before space is looked for
        paths.remove_dead_driver(Path(left["aeron_dir"]), dead)
    if settings.archive:
        paths.refuse_others(places.archive_dir)
        space.check_archive_space(places.archive_dir, settings)
    paths.remove_dead_driver(places.aeron_dir, dead)
    aeron_dir, warning = space.choose_aeron_dir(places.aeron_dir, places.disk_aeron_dir, places.chosen, settings)
    paths.refuse_unwritable(aeron_dir)
    places.failure.unlink(missing_ok=True)
    places.progress.unlink(missing_ok=True)
    return replace(places, aeron_dir=aeron_dir), warning


def _spawn(places: NodePaths, settings: NodeSettings, warning: str) -> subprocess.Popen[bytes]:
    argument = {
        "aeron_dir": str(places.aeron_dir),
        "archive_dir": str(places.archive_dir),
        "folder": str(places.folder),
        "config_home": str(places.config_home),
        "chosen": places.chosen,
        "settings": settings.to_json(),
        "warning": warning,
    }
    if places.log.exists() and places.log.stat().st_size > LOG_LIMIT:
        places.log.replace(places.log.with_suffix(".log.1"))
    path = os.pathsep.join([str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "aeron_spark.node.keeper", json.dumps(argument)],
            cwd=places.folder,  # a working directory of the caller's could be unmounted, or hold an io.py
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # neither a terminal's Ctrl-C nor the end of a Spark worker's group may reach it
        )


def _await_ready(
    places: NodePaths, process: subprocess.Popen[bytes], deadline: float, *,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """Wait until the node is ready. Raises why it has failed, TransportError where it is stuck, WaitTimeout when late.

    A process that is stuck is killed; one that is late goes on.
    """
    watch = StallWatch(STALL_TIMEOUT, clock)
    try:
        while not places.record.exists():
            code = process.poll()
            # Where ours has given way to a keeper that an earlier, killed starter left, that one is waited for.
            if code is not None and not is_locked(places.alive_lock):
                raise state_files.read_failure(places.failure) or TransportError(
                    f"the node in {places.aeron_dir} ended with code {code} while it started",
                    remedy=f"See its log, {places.log}.",
                )
            _refuse_late(places, process.pid if code is None else owner(places.alive_lock), watch, clock() >= deadline)
            sleep(POLL_INTERVAL_S)
    except TransportError:
        process.kill()  # it is stuck, or has ended
        process.wait()
        raise
    finally:
        # It outlives us on purpose. Popen would warn about that; all that remains is to collect it when it ends.
        if process.returncode is None:
            process.returncode = 0
            _children.add(process.pid)


def _refuse_late(places: NodePaths, pid: int | None, watch: StallWatch, late: bool) -> None:
    """Raise TransportError where the node's process makes no progress, WaitTimeout where the time is over."""
    stage = read_stage(places.progress, pid)
    where = f"the node in {places.aeron_dir} (process {pid})"
    if watch.stalled((stage, processor_ticks(pid))):
        raise TransportError(
            f"{where} made no progress for {STALL_TIMEOUT:g} s while it was {stage}",
            remedy=f"See its log, {places.log}; 'aeron-spark node stop --force' ends it.",
        )
    if late:
        raise WaitTimeout(
            f"{where} was not ready in time: it is still {stage}",
            remedy="It goes on: try again, or give it more time. Is the machine overloaded?",
        )


def collect_ended() -> None:
    """Collect nodes this process started that have ended since, so that none remains as a zombie."""
    for pid in list(_children):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # forked since, or somebody else collected it
            ended = pid
        if ended:
            _children.discard(pid)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.geteuid())
