"""Stops a node on request."""

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
from aeron_spark.node.locks import FileLock, is_locked, owner_pid
from aeron_spark.node.paths import NodePaths
from aeron_spark.node.starting import aeron_dir_argument, local_node_paths, reap_ended

STOP_TIMEOUT: Final = 30.0  # seconds
MIN_STOP_TIMEOUT_S: Final = 10.0  # for the node's end after the signal, even if the caller's timeout is over
FORCED_STOP_TIMEOUT_S: Final = 1.0  # for the node's end after the signal, before the kill
KILL_TIMEOUT_S: Final = 10.0  # for the end of a killed process
POLL_INTERVAL_S: Final = 0.01  # much less than the end of a node takes
KEEPER_MODULE: Final = b"aeron_spark.node.keeper"


def stop(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    timeout: float = STOP_TIMEOUT,
    environ: Mapping[str, str] | None = None,
) -> bool:
    """Stop the node of ``aeron_dir``. Return whether a node was running.

    Without ``force``, wait up to ``timeout`` seconds until the node is unused; raises RefusedError if it is still used.
    With ``force``, stop it immediately, and kill it if it does not stop in time. Raises UsageError for a driver that
    was not started by aeron-spark, and WaitTimeout if the node does not end.
    """
    node = local_node_paths(aeron_dir, None, environ)
    if not node.folder.is_dir() or not is_locked(node.alive_lock):
        found = driver_liveness(node.aeron_dir)
        if found is not None and found.alive and found.pid != owner_pid(node.alive_lock):
            raise UsageError(
                f"the media driver in {node.aeron_dir} (process {found.pid}) was not started by aeron-spark",
                remedy="Stop it with the program that started it.",
            )
        _remove_files(node)
        return False
    deadline = time.monotonic() + timeout
    with FileLock(node.users_lock) as users:
        if not force:
            _await_unused(node, users, deadline, timeout)
        _end(node, deadline, timeout, force)
    reap_ended()
    return True


def _await_unused(node: NodePaths, users: FileLock, deadline: float, timeout: float) -> None:
    """Return with the exclusive lock when no client and no recording is active. Raises RefusedError at the deadline."""
    reason, remedy = "other processes hold it", "Stop the programs that use it"
    while True:
        if users.try_acquire():
            state = _await_state(node, time.monotonic(), deadline)
            if state is None:
                reason = "its process does not update its state"
            elif not state.clients and not state.recordings:
                return
            else:
                reason, remedy = _describe_use(state, aeron_dir_argument(node.aeron_dir))
                users.release()  # other processes may use the node during the wait
        if time.monotonic() >= deadline:
            raise RefusedError(
                f"the node in {node.aeron_dir} is in use after {timeout:g} s: {reason}",
                remedy=f"{remedy}, wait longer (--timeout), or stop it while it is used (--force).",
            )
        time.sleep(POLL_INTERVAL_S)


def _describe_use(state: state_files.NodeState, argument: str) -> tuple[str, str]:
    """Return a text of the node's use, and its remedy; ``argument`` ends a command line that reaches this node."""
    reason = f"{state.clients} Aeron clients and {state.recordings} recordings are active"
    if not state.recordings:
        return reason, "Stop the programs that use it"
    names = ", ".join(state.recorded)
    more = state.recordings - len(state.recorded)
    reason += f": {names}{f' and {more} more' if names and more > 0 else ''}" if names else ""
    return reason, (
        f"Stop the programs that use it, end its recordings with 'aeron-spark recordings stop ID{argument}' or "
        f"'aeron-spark recordings stop --channel URI --stream-id N{argument}' ('aeron-spark recordings list{argument}' "
        "shows them all)"
    )


def _await_state(node: NodePaths, since: float, deadline: float) -> state_files.NodeState | None:
    """Return the first state that the node process has written after ``since``, or None at the deadline."""
    while is_locked(node.alive_lock):
        state = state_files.read_state(node.state)
        if state is not None and state.checked > since:
            return state
        if time.monotonic() >= deadline + 1.0:  # 1 s more, so that a timeout of 0 can succeed
            return None
        time.sleep(POLL_INTERVAL_S)
    return state_files.NodeState(since, 0, 0)  # the node has ended


def _end(node: NodePaths, deadline: float, timeout: float, force: bool) -> None:
    while is_locked(node.alive_lock) and not node.record.exists() and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)  # wait for its start, during which it may not handle signals yet
    pid = owner_pid(node.alive_lock)
    if pid is None:
        raise TransportError(f"the lock file {node.alive_lock} has no process id", remedy="Try again.")
    _signal(node, pid, signal.SIGTERM)
    if _await_end(node, max(deadline, time.monotonic() + (FORCED_STOP_TIMEOUT_S if force else MIN_STOP_TIMEOUT_S))):
        _remove_files(node)
        return
    if not force:
        raise WaitTimeout(
            f"the node of process {pid} did not stop within {timeout:g} s", remedy="Use --force, which kills it."
        )
    _signal(node, pid, signal.SIGKILL)
    if not _await_end(node, time.monotonic() + KILL_TIMEOUT_S):
        raise WaitTimeout(
            f"process {pid} did not end within {KILL_TIMEOUT_S:g} s after its kill",
            remedy="Check whether its disk hangs, or the machine has no memory.",
        )
    _remove_files(node)


def _remove_files(node: NodePaths) -> None:
    """Remove the files of a killed node, which otherwise remain until the next start."""
    record = state_files.read_json(node.record)
    if record is None:
        return
    paths.remove_dead_driver(Path(record["aeron_dir"]), owner_pid(node.alive_lock))
    for path in (node.record, node.state, node.stay):
        path.unlink(missing_ok=True)


def _await_end(node: NodePaths, deadline: float) -> bool:
    while is_locked(node.alive_lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _signal(node: NodePaths, pid: int, number: signal.Signals) -> None:
    """Send a signal to the node process, but not to another process with its id, in another container."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        command = None
    if command is not None and KEEPER_MODULE in command:
        os.kill(pid, number)
    elif command != b"" and is_locked(node.alive_lock):  # an ending process has no command line, but locks for a moment
        raise UsageError(
            f"process {pid}, which runs the node in {node.aeron_dir}, is not visible to this process",
            remedy="Stop it in the container, or as the user, that started it.",
        )
