"""Stopping a node by hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aeron_spark.errors import RefusedError, TransportError, UsageError, WaitTimeout
from aeron_spark.node import paths, state_files
from aeron_spark.node.liveness import driver_liveness
from aeron_spark.node.locks import FileLock, is_locked, owner
from aeron_spark.node.paths import NodePaths
from aeron_spark.node.starting import aeron_dir_argument, collect_ended, paths_here

STOP_TIMEOUT: Final = 30.0  # seconds
ORDERLY_TIMEOUT: Final = 5.0  # seconds that a node has at least, once it was told to stop
FORCED_TIMEOUT: Final = 1.0  # seconds that it has before it is killed
KILL_TIMEOUT: Final = 10.0  # seconds for a killed process to be gone
POLL_INTERVAL_S: Final = 0.01  # seconds
KEEPER_MODULE: Final = b"aeron_spark.node.keeper"


def stop(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    timeout: float = STOP_TIMEOUT,
    environ: Mapping[str, str] | None = None,
) -> bool:
    """Stop the node of ``aeron_dir``; False where none runs.

    Without ``force`` it waits up to ``timeout`` for the node to be unused and raises RefusedError where it is not;
    with ``force`` it stops at once, and kills the node where it does not stop in time. A driver that somebody else
    started is never touched.
    """
    places = paths_here(aeron_dir, None, environ)
    if not places.folder.is_dir() or not is_locked(places.alive_lock):
        found = driver_liveness(places.aeron_dir)
        if found is not None and found.alive and found.pid != owner(places.alive_lock):
            raise UsageError(
                f"the media driver in {places.aeron_dir} (process {found.pid}) was started by somebody else",
                remedy="Stop it where it was started.",
            )
        _tidy(places)
        return False
    deadline = time.monotonic() + timeout
    with FileLock(places.users_lock) as users:
        if not force:
            _await_unused(places, users, deadline, timeout)
        _end(places, deadline, timeout, force)
    collect_ended()
    return True


def _await_unused(places: NodePaths, users: FileLock, deadline: float, timeout: float) -> None:
    """Return holding the exclusive lock once no client and no recording is left; raise RefusedError otherwise."""
    reason, remedy = "other processes hold it", "Stop what uses it"
    while True:
        if users.try_acquire():
            asked = time.monotonic()
            state = _fresh_state(places, asked, deadline)
            if state is None:
                reason = "its keeper does not answer"
            elif not state.clients and not state.recordings:
                return
            else:
                reason, remedy = _use(state, aeron_dir_argument(places.aeron_dir))
                users.release()  # whoever wants to use it meanwhile may
        if time.monotonic() >= deadline:
            raise RefusedError(
                f"the node in {places.aeron_dir} is in use after {timeout:g} s: {reason}",
                remedy=f"{remedy}, wait longer (--timeout), or stop it all the same (--force).",
            )
        time.sleep(POLL_INTERVAL_S)


def _use(state: state_files.NodeState, where: str) -> tuple[str, str]:
    """Return what uses the node, and how to end that; ``where`` ends a command line that reaches this node."""
    reason = f"{state.clients} Aeron clients and {state.recordings} recordings are active"
    if not state.recordings:
        return reason, "Stop what uses it"
    names = ", ".join(state.recorded)
    more = state.recordings - len(state.recorded)
    reason += f": {names}{f' and {more} more' if names and more > 0 else ''}" if names else ""
    return reason, (
        f"Stop what uses it; 'aeron-spark recordings stop ID{where}' or 'aeron-spark recordings stop --channel URI "
        f"--stream-id N{where}' ends a recording ('aeron-spark recordings list{where}' shows them all)"
    )


def _fresh_state(places: NodePaths, since: float, deadline: float) -> state_files.NodeState | None:
    """Return what the keeper saw after ``since``, or None at the deadline."""
    while is_locked(places.alive_lock):
        state = state_files.read_state(places.state)
        if state is not None and state.checked > since:
            return state
        if time.monotonic() >= deadline + 1.0:  # one look more, so that a time-out of 0 can still succeed
            return None
        time.sleep(POLL_INTERVAL_S)
    return state_files.NodeState(since, 0, 0)  # it ended by itself


def _end(places: NodePaths, deadline: float, timeout: float, force: bool) -> None:
    while is_locked(places.alive_lock) and not places.record.exists() and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)  # it is starting, and cannot be told yet
    pid = owner(places.alive_lock)
    if pid is None:
        raise TransportError(f"the lock {places.alive_lock} does not say whose it is", remedy="Try again.")
    _signal(places, pid, signal.SIGTERM)
    if _gone(places, max(deadline, time.monotonic() + (FORCED_TIMEOUT if force else ORDERLY_TIMEOUT))):
        _tidy(places)
        return
    if not force:
        raise WaitTimeout(
            f"the node of process {pid} did not stop within {timeout:g} s", remedy="Use --force, which kills it."
        )
    _signal(places, pid, signal.SIGKILL)
    if not _gone(places, time.monotonic() + KILL_TIMEOUT):
        raise WaitTimeout(f"process {pid} was killed and is still there", remedy="Is its disk or memory stuck?")
    _tidy(places)


def _tidy(places: NodePaths) -> None:
    """Remove what a killed node left: it would remove it itself at its next start, and nobody may want one."""
    left = state_files.read_json(places.record)
    if left is None:
        return
    paths.remove_dead_driver(Path(left["aeron_dir"]), owner(places.alive_lock))
    for path in (places.record, places.state, places.stay):
        path.unlink(missing_ok=True)


def _gone(places: NodePaths, deadline: float) -> bool:
    while is_locked(places.alive_lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _signal(places: NodePaths, pid: int, number: signal.Signals) -> None:
    """Send a signal to the keeper, and to nothing else that may have its process id in another container."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        command = None
    if command is not None and KEEPER_MODULE in command:
        os.kill(pid, number)
    elif command != b"" and is_locked(
        places.alive_lock
    ):  # a dying process has no command line, and its locks for a moment
        raise UsageError(
            f"process {pid}, which runs the node in {places.aeron_dir}, is not visible from here",
            remedy="Stop it in the container, or as the user, that started it.",
        )
