"""Finds and removes the leaks of a test: processes, directories of Aeron, ports and threads.

All processes that a test run starts inherit ``AERON_SPARK_TEST_RUN``. The variable identifies a process of the run even
if the process has its own session and its parent has ended. Test runs may share a machine; each ignores the resources
of other living runs.

A thread that a process uses again (``reused_threads``) counts from the start of its present work, and not while it is
idle.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import ReferenceType, WeakKeyDictionary

import psutil

from aeron_spark.node.locks import MachineLock
from aeron_spark.reused_threads import IDLE_NAME, ReusedThread

RUN_VARIABLE: Final = "AERON_SPARK_TEST_RUN"
TIMEOUT_VARIABLE: Final = "TEST_LEAK_TIMEOUT_S"  # time for resources to end after a test; set by tests of leaks
RUN_PREFIX: Final = "aeron-spark-test-"  # followed by the pid of the run's pytest and a random part
SHARED_MEMORY: Final = Path("/dev/shm")
LOCK_FOLDERS: Final = "aeron-spark-locks-"  # followed by the user's id; a server's locks are in it
_PROC: Final = Path("/proc")
POLL_INTERVAL_S: Final = 0.05
THREAD_PREFIX: Final = "aeron-spark"  # of the project's threads; all of them are daemons, or may be


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The resources that exist at one moment."""

    processes: frozenset[int]
    directories: frozenset[str]
    ports: frozenset[tuple[str, int]]
    threads: frozenset[threading.Thread]
    at: float  # monotonic seconds


class Origins:
    """Records which thread started each thread, when each executor was made, and when each reused thread was used."""

    def __init__(self) -> None:
        self.starters: WeakKeyDictionary[threading.Thread, threading.Thread] = WeakKeyDictionary()
        self.made: WeakKeyDictionary[ThreadPoolExecutor, float] = WeakKeyDictionary()
        self.used: WeakKeyDictionary[threading.Thread, float] = WeakKeyDictionary()
        init, start, use = ThreadPoolExecutor.__init__, threading.Thread.start, ReusedThread.start

        def recorded_init(executor: ThreadPoolExecutor, *args: Any, **kwargs: Any) -> None:
            self.made[executor] = time.monotonic()
            init(executor, *args, **kwargs)

        def recorded_start(thread: threading.Thread) -> None:
            self.starters[thread] = threading.current_thread()
            start(thread)

        def recorded_use(work: ReusedThread) -> None:
            use(work)
            thread = work._thread
            assert thread is not None
            self.starters[thread], self.used[thread] = threading.current_thread(), time.monotonic()

        ReusedThread.start = recorded_use
        ThreadPoolExecutor.__init__ = recorded_init
        threading.Thread.start = recorded_start

    def is_older_or_descendant(self, thread: threading.Thread, before: Snapshot) -> bool:
        """Return whether the thread's executor, or the thread that started it, existed at ``before``."""
        visited = set[threading.Thread]()  # two reused threads may have started each other's work
        while thread not in visited:
            visited.add(thread)
            executor = executor_of(thread)
            if executor is not None and self.made.get(executor, before.at) < before.at:
                return True
            starter = self.starters.get(thread)
            if starter is None or starter is threading.main_thread():
                return False
            if not self.is_new(starter, before):
                return True
            thread = starter
        return False

    def is_new(self, thread: threading.Thread, before: Snapshot) -> bool:
        """Return whether the thread, or its present work, began after ``before``."""
        return thread not in before.threads or self.used.get(thread, before.at) > before.at


ORIGINS: Final = Origins()  # Python itself does not record this


def executor_of(thread: threading.Thread) -> ThreadPoolExecutor | None:
    """Return the executor of a worker thread; None for other threads, and if the executor no longer exists."""
    args = getattr(thread, "_args", ())  # the first argument is a weak reference to the executor
    found = args[0]() if args and isinstance(args[0], ReferenceType) else None
    return found if isinstance(found, ThreadPoolExecutor) else None


def take_snapshot() -> Snapshot:
    """Return the resources of the whole machine. Their owners are determined later, and only for new resources."""
    return Snapshot(
        processes=_processes(),
        directories=_directories(),
        ports=_PORTS.ports(),
        threads=frozenset(one for one in threading.enumerate() if _counts(one)),
        at=time.monotonic(),
    )


def _counts(thread: threading.Thread) -> bool:
    return not thread.daemon or (thread.name.startswith(THREAD_PREFIX) and thread.name != IDLE_NAME)


def _processes() -> frozenset[int]:
    if not _PROC.is_dir():
        return frozenset(psutil.pids())
    return frozenset(int(name) for name in os.listdir(_PROC) if name.isdigit())  # in half the time of psutil


def _directories() -> frozenset[str]:
    """Return the paths of drivers' directories and servers' lock files. A user's folder of lock files stays."""
    found = set[str]()
    with contextlib.suppress(FileNotFoundError):  # a system without it
        for name in os.listdir(SHARED_MEMORY):
            path = SHARED_MEMORY / name
            if name.startswith(LOCK_FOLDERS):
                with contextlib.suppress(OSError):  # of another user
                    found.update(map(str, path.iterdir()))
            elif name.startswith("aeron"):
                found.add(str(path))
    return frozenset(found)


class OpenPorts:
    """Lists the ports that this process has opened, again only if its sockets changed: the list costs milliseconds."""

    def __init__(self) -> None:
        self._sockets: frozenset[str] = frozenset()
        self._ports: frozenset[tuple[str, int]] = frozenset()

    def ports(self) -> frozenset[tuple[str, int]]:
        """Return the protocol and the number of each open port."""
        if not _PROC.is_dir():
            return frozenset(_open_ports())
        sockets = frozenset(path for path in _open_files(os.getpid()) if path.startswith("socket:"))
        if sockets != self._sockets:
            self._ports = frozenset(_open_ports()) if sockets else frozenset()
            self._sockets = sockets
        return self._ports


_PORTS: Final = OpenPorts()


def leaks_since(before: Snapshot, run: str, *, timeout_s: float, strict: bool = False) -> list[str]:
    """Describe the resources that this run made since ``before`` and that still exist after ``timeout_s``.

    A fixture of a wider scope (a Spark session, a node, a server) may start processes and threads during a test. They
    belong to that fixture, and are allowed while it lives. ``strict``, for the end of the run, allows none.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        _remove_locks_of_killed_servers(run)
        found = _new_since(before, run, strict=strict)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_INTERVAL_S)


def remove_leaks(before: Snapshot, run: str, *, strict: bool = False) -> None:
    """Kill the processes and remove the directories that :func:`leaks_since` finds, so that no later test uses them."""
    processes, directories = _leaks(before, take_snapshot(), run, strict=strict)
    found = []
    for pid in processes:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
            found[-1].kill()
    psutil.wait_procs(found, timeout=10)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(directory)  # a lock file


def _remove_locks_of_killed_servers(run: str) -> None:
    """Remove lock files without an owner, which killed servers have left."""
    for path in fnmatch.filter(_directories(), f"*/{run}*.aeron-spark-server-*.lock"):
        lock = MachineLock(Path(path))
        if lock.try_acquire():
            lock.release()


def _new_since(before: Snapshot, run: str, *, strict: bool) -> list[str]:
    now = take_snapshot()
    processes, directories = _leaks(before, now, run, strict=strict)
    found = [f"process {about}" for pid in processes if (about := _describe(pid)) is not None]
    found += [f"directory {directory}" for directory in directories]
    found += [f"port {kind} {number}, open in this process" for kind, number in sorted(now.ports - before.ports)]
    new = [one for one in now.threads if ORIGINS.is_new(one, before)]
    threads = [one for one in new if strict or not ORIGINS.is_older_or_descendant(one, before)]
    return found + sorted(f"{'daemon' if one.daemon else 'non-daemon'} thread {one.name!r}" for one in threads)


def _leaks(before: Snapshot, now: Snapshot, run: str, *, strict: bool) -> tuple[list[int], list[str]]:
    """Return the new processes and directories of this run that do not belong to a wider fixture."""
    ours = {pid for pid in now.processes - before.processes if _is_of_run(pid, run)}
    allowed = set() if strict else {pid for pid in ours if _belongs_to_a_fixture(pid, before.processes)}
    new_directories = now.directories - before.directories
    users = _users_of(new_directories)
    directories = [
        directory
        for directory in sorted(new_directories)
        if not _is_of_another_run(directory, users[directory], run) and not users[directory] & allowed
    ]
    return sorted(ours - allowed), directories


def _is_of_run(pid: int, run: str) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(RUN_VARIABLE) == run
    except psutil.Error:  # ended meanwhile, or of another user
        return False


def _belongs_to_a_fixture(pid: int, before: Iterable[int]) -> bool:
    """Return whether the process descends from one that is neither new nor this pytest."""
    try:
        parents = {parent.pid for parent in psutil.Process(pid).parents()}
    except psutil.Error:
        return False
    own = psutil.Process()
    ancestors = {own.pid, *(parent.pid for parent in own.parents())}
    return bool((parents & set(before)) - ancestors - {0, 1})


def _users_of(paths: Iterable[str]) -> dict[str, set[int]]:
    """Return for each path the processes that use it.

    Aeron's drivers and clients have mapped files of a directory; a server has opened its lock file.
    """
    users: dict[str, set[int]] = {path: set() for path in paths}
    if not users:
        return users
    for pid in psutil.pids():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:  # ended meanwhile, or of another user
            continue
        opened = _open_files(pid)
        for path, pids in users.items():
            if f"{path}/" in maps or path in opened:
                pids.add(pid)
    return users


def _open_files(pid: int) -> set[str]:
    files = set[str]()
    with contextlib.suppress(OSError):  # ended meanwhile
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                files.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return files


def _is_of_another_run(directory: str, users: set[int], run: str) -> bool:
    name = Path(directory).name
    if name.startswith(run):
        return False
    if name.startswith(RUN_PREFIX):
        owner = name.removeprefix(RUN_PREFIX).split("-")[0]
        return owner.isdigit() and psutil.pid_exists(int(owner))
    return bool(users) and not any(_is_of_run(pid, run) or pid == os.getpid() for pid in users)


def _open_ports() -> Iterable[tuple[str, int]]:
    for connection in psutil.Process().net_connections(kind="inet"):
        if connection.status == psutil.CONN_LISTEN:
            yield "tcp", connection.laddr.port
        elif connection.status == psutil.CONN_NONE and connection.laddr and not connection.raddr:
            yield "udp", connection.laddr.port


def _describe(pid: int) -> str | None:
    """Return the pid and the command of a process, or None if it has ended meanwhile."""
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return None
    return f"{pid}: {command[:200]}"
