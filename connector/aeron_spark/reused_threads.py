"""Threads that a process uses again, for the work of one endpoint after the other.

JPype makes a type for each thread of Python that makes objects of Java, and never frees it. So a process that connects
and closes again and again would grow with each thread that uses Java and ends. A thread that has ended its work waits
here for other work instead.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

LOG: Final = logging.getLogger("aeron_spark.endpoint")
IDLE_NAME: Final = "aeron-spark-idle"  # of a thread between two pieces of work; it holds nothing of the last one
MAX_IDLE: Final = 16  # further threads end with their work


class ReusedThread:
    """Runs ``work`` once, on a daemon thread that is called ``name`` meanwhile; methods are those of a Thread."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self.name: Final = name
        self._work: Callable[[], object] | None = work
        self._thread: _Thread | None = None
        self._ended: Final = threading.Event()

    def start(self) -> None:
        """Start the work. Call it once."""
        self._thread = _threads.give(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the work has ended, for ``timeout`` seconds at most."""
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        """Whether the work has started and not ended."""
        return self._thread is not None and not self._ended.is_set()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this work."""
        return self.is_alive() and threading.current_thread() is self._thread

    def run(self) -> None:
        """Do the work in this thread, and log its error."""
        work, self._work = self._work, None  # it may refer to this object
        assert work is not None  # it runs once
        try:
            work()
        except BaseException:  # also SystemExit: the thread is not for this work only
            LOG.exception("the work of the thread %s failed", self.name)

    def end(self) -> None:
        """Note that the thread is idle, or about to end."""
        self._ended.set()


def submit(work: Callable[[], T], name: str) -> Future[T]:
    """Run ``work`` on a thread of this name; return the future of its result."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    ReusedThread(run, name).start()
    return done


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name=IDLE_NAME, daemon=True)
        self.given: Final[SimpleQueue[ReusedThread]] = SimpleQueue()

    def run(self) -> None:
        is_kept = True
        while is_kept:
            work = self.given.get()
            work.run()
            self.name = IDLE_NAME
            is_kept = _threads.keep(self)
            work.end()
            del work  # it refers to the endpoint


class _Threads:
    """The idle threads of this process. A forked child has none."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Thread] = []

    def give(self, work: ReusedThread) -> _Thread:
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None:
            thread = _Thread()
            thread.start()
        thread.name = work.name
        thread.given.put(work)
        return thread

    def keep(self, thread: _Thread) -> bool:
        with self._lock:
            if len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(thread)
            return True


_threads: Final = _Threads()
os.register_at_fork(after_in_child=_threads.after_fork)
