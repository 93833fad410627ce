"""What a test left behind: processes, directories of Aeron, ports and threads; how it is ended.

Everything this test run starts inherits ``AERON_SPARK_TEST_RUN``, so that a process is known as ours even when it
moved into a session of its own and its parent has gone. Many test runs may share a machine: what belongs to
another living one is none of our business.
"""

from __future__ import annotations

import contextlib
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

RUN_VARIABLE: Final = "AERON_SPARK_TEST_RUN"
PATIENCE_VARIABLE: Final = "TEST_PATIENCE_S"  # how long the end of a test may take, for tests of that itself
RUN_PREFIX: Final = "aeron-spark-test-"  # then the pid of the run's pytest, then a random part
SHARED_MEMORY: Final = Path("/dev/shm")
POLL: Final = 0.05  # seconds between two looks while something is given time to go
THREAD_PREFIX: Final = "aeron-spark"  # of the project's threads; all of them are daemons, or may be


@dataclass(frozen=True, slots=True)
class Left:
    """What is there at one moment."""

    processes: frozenset[int]
    directories: frozenset[str]
    ports: frozenset[tuple[str, int]]
    threads: frozenset[threading.Thread]
    at: float  # monotonic seconds


class Origins:
    """Which thread started each thread, and when each executor was made."""

    def __init__(self) -> None:
        self.starters: WeakKeyDictionary[threading.Thread, threading.Thread] = WeakKeyDictionary()
        self.made: WeakKeyDictionary[ThreadPoolExecutor, float] = WeakKeyDictionary()
        make, start = ThreadPoolExecutor.__init__, threading.Thread.start

        def make_noted(executor: ThreadPoolExecutor, *given: Any, **named: Any) -> None:
            self.made[executor] = time.monotonic()
            make(executor, *given, **named)

        def start_noted(thread: threading.Thread) -> None:
            self.starters[thread] = threading.current_thread()
            start(thread)

        ThreadPoolExecutor.__init__ = make_noted  # type: ignore[method-assign]
        threading.Thread.start = start_noted  # type: ignore[method-assign]

    def is_of_before(self, thread: threading.Thread, before: Left) -> bool:
        """Tell whether a thread serves an executor that was there before, or comes from a thread that was."""
        executor = executor_of(thread)
        if executor is not None and self.made.get(executor, before.at) < before.at:
            return True
        starter = self.starters.get(thread)
        if starter is None or starter is threading.main_thread():
            return False
        return starter in before.threads or self.is_of_before(starter, before)


ORIGINS: Final = Origins()  # for this process, from now on: Python itself notes neither


def executor_of(thread: threading.Thread) -> ThreadPoolExecutor | None:
    """Return the executor that a thread serves, or None where it serves none, or one that is gone."""
    given = getattr(thread, "_args", ())  # its first argument is a weak reference
    found = given[0]() if given and isinstance(given[0], ReferenceType) else None
    return found if isinstance(found, ThreadPoolExecutor) else None


def look() -> Left:
    """Return what is there now, of the whole machine: whose it is costs time, and is asked only of what is new."""
    return Left(
        processes=frozenset(psutil.pids()),
        directories=frozenset(str(path) for path in SHARED_MEMORY.glob("aeron*")),
        ports=frozenset(_open_ports()),
        threads=frozenset(
            thread for thread in threading.enumerate() if not thread.daemon or thread.name.startswith(THREAD_PREFIX)
        ),
        at=time.monotonic(),
    )


def left_since(before: Left, run: str, *, patience: float, strict: bool = False) -> list[str]:
    """Describe what this run made since ``before`` and what is still there after ``patience`` seconds.

    Something a wider fixture keeps running (a Spark session, a node, a server) may start processes and threads of its
    own during a test: they belong to that fixture, and are allowed while it lives. ``strict``, for the end of the run,
    allows nothing.
    """
    deadline = time.monotonic() + patience
    while True:
        _remove_locks_of_killed_servers(run)
        found = _new_since(before, run, strict=strict)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL)


def remove_since(before: Left, run: str, *, strict: bool = False) -> None:
    """End the processes and remove the directories that :func:`left_since` finds: no later test shall meet them."""
    processes, directories = _strays_since(before, look(), run, strict=strict)
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
    """Remove the lock files that no server holds: a server that was killed leaves its own to the next one."""
    for path in SHARED_MEMORY.glob(f"{run}*.aeron-spark-server-*.lock"):
        lock = MachineLock(path)
        if lock.try_acquire():
            lock.release()


def _new_since(before: Left, run: str, *, strict: bool) -> list[str]:
    now = look()
    processes, directories = _strays_since(before, now, run, strict=strict)
    found = [f"process {about}" for pid in processes if (about := _describe(pid)) is not None]
    found += [f"directory {directory}" for directory in directories]
    found += [f"port {kind} {number}, open in this process" for kind, number in sorted(now.ports - before.ports)]
    threads = [one for one in now.threads - before.threads if strict or not ORIGINS.is_of_before(one, before)]
    return found + sorted(f"{'daemon' if one.daemon else 'non-daemon'} thread {one.name!r}" for one in threads)


def _strays_since(before: Left, now: Left, run: str, *, strict: bool) -> tuple[list[int], list[str]]:
    """Return the processes and directories of this run that are new and belong to no wider fixture."""
    ours = {pid for pid in now.processes - before.processes if _is_of_run(pid, run)}
    allowed = set() if strict else {pid for pid in ours if _belongs_to_a_fixture(pid, before.processes)}
    fresh = now.directories - before.directories
    users = _users_of(fresh)
    directories = [
        directory
        for directory in sorted(fresh)
        if not _is_of_another_run(directory, users[directory], run) and not users[directory] & allowed
    ]
    return sorted(ours - allowed), directories


def _is_of_run(pid: int, run: str) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(RUN_VARIABLE) == run
    except psutil.Error:  # gone meanwhile, or another user's
        return False


def _belongs_to_a_fixture(pid: int, before: Iterable[int]) -> bool:
    """Tell whether a process comes from one that is neither new nor this pytest itself."""
    try:
        parents = {parent.pid for parent in psutil.Process(pid).parents()}
    except psutil.Error:
        return False
    me = psutil.Process()
    above_us = {me.pid, *(parent.pid for parent in me.parents())}
    return bool((parents & set(before)) - above_us - {0, 1})


def _users_of(directories: Iterable[str]) -> dict[str, set[int]]:
    """Return for each directory the processes that have a file of it mapped, as Aeron's drivers and clients do."""
    users: dict[str, set[int]] = {directory: set() for directory in directories}
    if not users:
        return users
    for pid in psutil.pids():
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:  # gone meanwhile, or another user's
            continue
        for directory, pids in users.items():
            if f"{directory}/" in maps:
                pids.add(pid)
    return users


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
    """Say what a process is, or None where it has gone meanwhile: then it is not left behind."""
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return None
    return f"{pid}: {command[:200]}"
