"""Starts the node of a directory if it does not run, returns handles on it, and stops it on request.

A start takes about a second, but minutes on an overloaded machine. A start that was killed for its slowness would begin
again with the whole work. Therefore a start is killed only if it makes no progress at all.

Order of locks: users (shared), start, alive. While a process has locked users, the node does not stop as unused. Only
the process that has locked start replaces a dead node. The files of a dead node are removed only under alive, because a
node process may still be starting after the process that started it was killed.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron.counters import DriverLiveness
from aeron_spark.errors import (
    ConnectError,
    OptionError,
    RefusedError,
    SetupError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.node import paths, state_files
from aeron_spark.node.locks import FileLock, is_locked, owner_pid
from aeron_spark.node.paths import NodePaths, node_paths
from aeron_spark.node.settings import NodeSettings, differences, machine_cores, parse_requested, parse_settings
from aeron_spark.node.state_files import NodeHandle, driver_liveness

STALL_TIMEOUT_S: Final = 60.0  # without a new stage and without processor time, a start is stuck after this time
FIRST_STAGE: Final = "loading its program"  # before the process has written a stage

# Fields of /proc/<pid>/task/<tid>/stat after the name in brackets: the time in user mode and in the kernel, in ticks.
_USER: Final = 11
_KERNEL: Final = 12


def write_stage(path: Path, stage: str) -> None:
    """Write the current stage of this process's start, such as "starting the archive"."""
    state_files.write_json(path, {"pid": os.getpid(), "stage": stage})


def read_stage(path: Path, pid: int | None) -> str:
    """Return the current stage of the start of process ``pid``."""
    values = state_files.read_json(path)
    return str(values["stage"]) if values is not None and values["pid"] == pid else FIRST_STAGE


def processor_ticks(pid: int | None) -> int:
    """Return the processor time of the process's main thread in ticks of the system, or 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[_USER]) + int(fields[_KERNEL])
    except (OSError, IndexError, ValueError):  # the process has ended, or the system has no such file
        return 0


class StallWatch:
    """Detects that a value has not changed for ``seconds`` of ``clock``."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._value: object = None
        self._since = clock()

    def is_stalled(self, value: object) -> bool:
        """Store ``value``, and return whether it has been the same for ``seconds``."""
        now = self._clock()
        if value != self._value:
            self._value, self._since = value, now
        return now - self._since >= self._seconds


# Seconds. A start takes about one second, but minutes on an overloaded machine, or after a kill with many active
# recordings. A start that is stuck is killed after STALL_TIMEOUT_S.
START_TIMEOUT: Final = 600.0
MAX_LOG_BYTES: Final = 8 * 1024 * 1024  # then the next start begins a new log, and keeps the old one
START_POLL_INTERVAL_S: Final = 0.005  # much less than a start, so that no process waits noticeably longer than it
DRIVER_POLL_INTERVAL_S: Final = 0.05  # for a media driver of another program
PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]

_children: set[int] = set()  # process ids of started nodes that this process has not reaped yet


def local_node_paths(
    aeron_dir: str | os.PathLike[str] | None = None,
    archive_dir: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> NodePaths:
    """Return the node's paths for this process's user and environment."""
    return node_paths(os.environ if environ is None else environ, _user(), aeron_dir, archive_dir)


def running_aeron_dir(aeron_dir: str | os.PathLike[str] | None) -> Path:
    """Return the directory of the media driver for ``aeron_dir``: a running node's own, which may be on the disk."""
    node = local_node_paths(aeron_dir)
    running = state_files.read_record(node.record) if is_locked(node.alive_lock) else None
    return node.aeron_dir if running is None else Path(running.aeron_dir)


def aeron_dir_argument(aeron_dir: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> str:
    """Return the arguments that a printed command line needs to reach the node of ``aeron_dir``.

    Empty for the node that this user's commands use by default.
    """
    node = local_node_paths(None, None, environ)
    if not node.chosen and Path(aeron_dir) in (node.aeron_dir, node.disk_aeron_dir):
        return ""
    return f" --aeron-dir {shlex.quote(os.fspath(aeron_dir))}"


def ensure(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    archive_dir: str | os.PathLike[str] | None = None,
    timeout: float = START_TIMEOUT,
    wait_s: float | None = None,
    environ: Mapping[str, str] | None = None,
    at_start: Mapping[str, Any] | None = None,
    **settings: Any,
) -> NodeHandle:
    """Return a handle on the node of ``aeron_dir``; start the node if it does not run.

    ``settings`` are fields of :class:`NodeSettings`. An omitted one has this machine's default if the node must be
    started, else the running node's value. ``at_start`` are settings for a start only: a running node may have others.
    Needs no JVM in this process.

    With ``wait_s`` a node is started only where one belongs: in the default directory (AERON_SPARK_AERON_DIR, else the
    user's), and where one was started before, until another program's media driver is found there. Elsewhere the user
    runs the driver, which may be restarting. A node in its place would keep it from starting, and would not have its
    recordings. This call then waits ``wait_s`` seconds for it. Without ``wait_s`` a node is started in any directory.

    Raises OptionError for a wrong setting, or one that differs from the running node's; SetupError if this machine
    cannot run a node (no Java, no space, a directory of another user); ConnectError if no media driver runs where no
    node belongs; WaitTimeout if it is not ready after ``timeout`` seconds; TransportError if its start fails or is
    stuck. After a WaitTimeout the start continues, and the next call waits for the same start.
    """
    requested = {name: value for name, value in settings.items() if value is not None}
    parse_requested(requested)
    reap_ended()
    node = local_node_paths(aeron_dir, archive_dir, environ)
    paths.make_private(node.folder)
    deadline = time.monotonic() + timeout
    users = FileLock(node.users_lock)
    users.acquire(timeout, f"the node in {node.aeron_dir} to finish stopping", shared=True)
    try:
        users.touch()
        find = partial(_find, node, requested, users)
        found = find() if wait_s is None else _await_driver(node, find, wait_s)
        return found if found is not None else _start(node, requested, dict(at_start or {}), users, deadline)
    except BaseException:
        users.release()
        raise


def _await_driver(node: NodePaths, find: Callable[[], NodeHandle | None], wait_s: float) -> NodeHandle | None:
    """Return a handle on the running node or driver, or None if neither runs and a node belongs in the directory."""
    deadline = time.monotonic() + wait_s
    while True:
        found = find()
        if found is not None:
            return found
        if not node.named or node.claim.exists():
            return None
        paths.require_directory(node.aeron_dir)
        if time.monotonic() >= deadline:
            waited = f" (waited {wait_s:.3g} s)" if wait_s else ""
            raise ConnectError(
                f"no media driver runs in {node.aeron_dir}{waited}",
                remedy="Start it, or let aeron-spark run one there: "
                f"'aeron-spark node start --aeron-dir {shlex.quote(str(node.aeron_dir))}'.",
            )
        time.sleep(DRIVER_POLL_INTERVAL_S)


def _find(node: NodePaths, requested: Mapping[str, Any], users: FileLock) -> NodeHandle | None:
    """Return a handle on the running node or foreign driver, or None if the directory has neither."""
    if is_locked(node.alive_lock):
        running = state_files.read_record(node.record)
        return None if running is None else _handle(node, running, requested, users)
    found = driver_liveness(node.aeron_dir)
    if found is None or not found.alive or found.pid == owner_pid(node.alive_lock):
        return None
    return _foreign_handle(node, found, requested, users)


def _handle(
    node: NodePaths, running: state_files.NodeRecord, requested: Mapping[str, Any], users: FileLock
) -> NodeHandle | None:
    if running.host != state_files.this_host():
        raise SetupError(
            f"the folder {node.folder} is used by a node on the host {running.host}",
            remedy="Set AERON_SPARK_DATA_HOME to a local disk: two machines cannot share a node's folder.",
        )
    differing = differences(requested, running.settings)
    if running.archive_dir and node.archive_chosen and running.archive_dir != str(node.archive_dir):
        differing.append(f"archive_dir is {running.archive_dir!r}, not {str(node.archive_dir)!r}")
    if differing:
        raise OptionError(
            f"the node in {running.aeron_dir} runs with other settings: {'; '.join(differing)}",
            remedy="Stop it first ('aeron-spark node stop'), use its settings, or name another aeronDir.",
        )
    driver = driver_liveness(Path(running.aeron_dir))
    if driver is None or not driver.alive:
        if not node.record.exists():  # the node began to stop after its record was read
            return None
        raise ConnectError(
            f"the media driver in {running.aeron_dir} has no heartbeat, but its process {running.pid} exists",
            remedy="Try again, or run 'aeron-spark node stop --force'. The process or the machine may be overloaded.",
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


def _foreign_handle(
    node: NodePaths, found: DriverLiveness, requested: Mapping[str, Any], users: FileLock
) -> NodeHandle:
    paths.require_usable_foreign_driver(node.aeron_dir, node.chosen)
    if requested:
        raise OptionError(
            f"the media driver in {node.aeron_dir} (process {found.pid}) was not started by aeron-spark, "
            f"so {', '.join(sorted(requested))} cannot be set",
            remedy="Omit the settings to use this driver, or name another aeronDir.",
        )
    node.claim.unlink(missing_ok=True)
    return NodeHandle(
        aeron_dir=str(node.aeron_dir),
        pid=found.pid,
        started=found.started,
        foreign=True,
        archive_dir="",
        archive_id=-1,
        settings=None,
        warning="",
        _users=users,
    )


def _start(
    node: NodePaths, requested: Mapping[str, Any], at_start: Mapping[str, Any], users: FileLock, deadline: float
) -> NodeHandle:
    with FileLock(node.start_lock) as lock:
        lock.acquire(max(0.0, deadline - time.monotonic()), f"another process to start the node in {node.aeron_dir}")
        with FileLock(node.alive_lock) as alive:
            watch = StallWatch(STALL_TIMEOUT_S, time.monotonic)
            while True:
                found = _find(node, requested, users)
                if found is not None:
                    return found
                if alive.try_acquire():
                    break  # no process starts or stops the node
                _refuse_late(node, owner_pid(node.alive_lock), watch, time.monotonic() >= deadline)
                time.sleep(START_POLL_INTERVAL_S)
            settings = parse_settings({**at_start, **requested}, machine_cores())
            chosen, warning = _prepare(node, settings)
        process = _spawn(chosen, settings, warning)
        _await_ready(chosen, process, deadline)
    started = _find(node, requested, users)
    if started is None:
        raise TransportError(
            f"the node in {chosen.aeron_dir} ended immediately after its start", remedy=f"See its log, {node.log}."
        )
    if started.warning:
        warnings.warn(started.warning, RuntimeWarning, stacklevel=4)
    return replace(started, is_started_here=started.pid == process.pid)


def _prepare(node: NodePaths, settings: NodeSettings) -> tuple[NodePaths, str]:
    """Remove a dead node's files and check directories and space. Return the node's final paths, and a warning."""
    dead_pid = owner_pid(node.alive_lock)
    old_record = state_files.read_json(node.record)
    # First, because this process has locked alive: other processes would take the recorded dead node for a live one.
    node.record.unlink(missing_ok=True)
    paths.require_own(node.aeron_dir)
    if old_record is not None:  # free the space of a killed node before the check of free space
        paths.remove_dead_driver(Path(old_record["aeron_dir"]), dead_pid)
    archive_warning = ""
    if settings.archive:
        paths.require_own(node.archive_dir)
        archive_warning = paths.check_archive_space(node.archive_dir, settings)
    paths.remove_dead_driver(node.aeron_dir, dead_pid)
    aeron_dir, warning = paths.choose_aeron_dir(node.aeron_dir, node.disk_aeron_dir, node.chosen, settings)
    paths.require_writable(aeron_dir)
    node.failure.unlink(missing_ok=True)
    node.progress.unlink(missing_ok=True)
    return replace(node, aeron_dir=aeron_dir), " ".join(text for text in (archive_warning, warning) if text)


def _spawn(node: NodePaths, settings: NodeSettings, warning: str) -> subprocess.Popen[bytes]:
    argument = {
        "aeron_dir": str(node.aeron_dir),
        "archive_dir": str(node.archive_dir),
        "folder": str(node.folder),
        "config_home": str(node.config_home),
        "chosen": node.chosen,
        "settings": settings.to_json(),
        "warning": warning,
    }
    if node.log.exists() and node.log.stat().st_size > MAX_LOG_BYTES:
        node.log.replace(node.log.with_suffix(".log.1"))
    node.claim.touch(mode=0o600)
    path = os.pathsep.join([str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open(os.open(node.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "aeron_spark.node.keeper", json.dumps(argument)],
            cwd=node.folder,  # the caller's working directory could be unmounted, or have an io.py
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # signals for the terminal's or a Spark worker's process group must not reach it
        )


def _await_ready(
    node: NodePaths,
    process: subprocess.Popen[bytes],
    deadline: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the node is ready.

    Raises the error of a failed start, TransportError after killing a process that is stuck, and WaitTimeout at the
    deadline, after which the start continues.
    """
    watch = StallWatch(STALL_TIMEOUT_S, clock)
    try:
        while not node.record.exists():
            code = process.poll()
            # If another node process, of a killed starter, was faster, ours ends: then wait for the other one.
            if code is not None and not is_locked(node.alive_lock):
                raise state_files.read_failure(node.failure) or TransportError(
                    f"the node in {node.aeron_dir} ended with code {code} while it started",
                    remedy=f"See its log, {node.log}.",
                )
            _refuse_late(node, process.pid if code is None else owner_pid(node.alive_lock), watch, clock() >= deadline)
            sleep(START_POLL_INTERVAL_S)
    except TransportError:
        process.kill()  # it is stuck or has ended
        process.wait()
        raise
    finally:
        # The node outlives this process. A return code prevents the warning of Popen; `reap_ended` reaps it later.
        if process.returncode is None:
            process.returncode = 0
            _children.add(process.pid)


def _refuse_late(node: NodePaths, pid: int | None, watch: StallWatch, late: bool) -> None:
    """Raise TransportError if the node process makes no progress, WaitTimeout if ``late``."""
    stage = read_stage(node.progress, pid)
    name = f"the node in {node.aeron_dir} (process {pid})"
    if watch.is_stalled((stage, processor_ticks(pid))):
        raise TransportError(
            f"{name} made no progress for {STALL_TIMEOUT_S:g} s while it was {stage}",
            remedy=f"See its log, {node.log}, and stop it with 'aeron-spark node stop --force'.",
        )
    if late:
        raise WaitTimeout(
            f"{name} was not ready in time: it is still {stage}",
            remedy="Try again, or with a longer timeout: the start continues. Check whether the machine is overloaded.",
        )


def reap_ended() -> None:
    """Reap the nodes that this process started and that have ended, so that they do not remain as zombies."""
    for pid in list(_children):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # this process is a forked child, or other code has reaped it
            ended = pid
        if ended:
            _children.discard(pid)


def _user() -> str:
    """Return the user's name. The environment may have the name of another user, after runuser or sudo."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user without a name, in a container
        return str(os.geteuid())


STOP_TIMEOUT: Final = 30.0  # seconds
MIN_STOP_TIMEOUT_S: Final = 10.0  # for the node's end after the signal, even if the caller's timeout is over
FORCED_STOP_TIMEOUT_S: Final = 1.0  # for the node's end after the signal, before the kill
KILL_TIMEOUT_S: Final = 10.0  # for the end of a killed process
STOP_POLL_INTERVAL_S: Final = 0.01  # much less than the end of a node takes
KEEPER_MODULE: Final = b"aeron_spark.node.keeper"


def stop(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    timeout: float = STOP_TIMEOUT,
) -> bool:
    """Stop the node of ``aeron_dir``. Return whether a node was running.

    Without ``force``, wait up to ``timeout`` seconds until the node is unused; raises RefusedError if it is still used.
    With ``force``, stop it immediately, and kill it if it does not stop in time. Raises UsageError for a driver that
    was not started by aeron-spark, and WaitTimeout if the node does not end.
    """
    node = local_node_paths(aeron_dir, None, None)
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
        time.sleep(STOP_POLL_INTERVAL_S)


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
        time.sleep(STOP_POLL_INTERVAL_S)
    return state_files.NodeState(since, 0, 0)  # the node has ended


def _end(node: NodePaths, deadline: float, timeout: float, force: bool) -> None:
    while is_locked(node.alive_lock) and not node.record.exists() and time.monotonic() < deadline:
        time.sleep(STOP_POLL_INTERVAL_S)  # wait for its start, during which it may not handle signals yet
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
        time.sleep(STOP_POLL_INTERVAL_S)
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
