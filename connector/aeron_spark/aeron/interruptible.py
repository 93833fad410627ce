"""Runs blocking Java calls so that signals such as Ctrl-C are handled during the call.

Python handles a signal in the main thread, between two of its instructions. During a Java call the main thread executes
none: up to ten seconds if a driver or an archive does not respond. Therefore another thread makes the call, and the
main thread waits for that thread in Python.

A thread that returns from Java while the JVM or the interpreter ends aborts the process. At the end of the process its
Aeron clients are closed, and so running calls return. Therefore the process interrupts these calls and waits for their
threads before it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from aeron_spark.aeron import jvm
from aeron_spark.aeron.attached_threads import enter_java
from aeron_spark.aeron.jvm import jclass
from aeron_spark.waiting import Deadline, result_within

T = TypeVar("T")

THREAD: Final = "aeron-spark-java"
RETURN_TIMEOUT_S: Final = 5.0  # at the end of the process, for calls that an interrupt ends; others are left running

_running: Final[dict[threading.Thread, Any]] = {}  # threads that make a call, and their objects in Java


def interruptible(call: Callable[..., T], *args: Any, discard: Callable[[T], object] | None = None) -> T:
    """Return ``call(*args)``, which may block in Java. In the main thread a signal handler can end the wait.

    The Java call then continues until its own timeout, and ``discard`` gets its result.
    """
    if threading.current_thread() is not threading.main_thread():
        enter_java()
        return call(*args)
    done: Future[T] = Future()
    try:
        threading.Thread(target=_run, args=(done, call, args), name=THREAD, daemon=True).start()
        return result_within(done, None, "a call of Java")
    except BaseException:
        if discard is not None:
            done.add_done_callback(lambda late: _discard(late, discard))
        raise


class Interruptible:
    """A proxy of a Java object that calls each method through :func:`interruptible`, except ``non_blocking`` ones."""

    def __init__(self, java: Any, non_blocking: frozenset[str]) -> None:
        self._java = java
        self._non_blocking = non_blocking

    def __getattr__(self, name: str) -> Any:
        enter_java()
        method = getattr(self._java, name)
        return method if name in self._non_blocking else lambda *args: interruptible(method, *args)


def _run(done: Future[T], call: Callable[..., T], args: tuple[Any, ...]) -> None:
    own = threading.current_thread()
    try:
        _running[own] = jclass("java.lang.Thread").currentThread()
        result = call(*args)
    except BaseException as error:  # raised in the waiting thread
        done.set_exception(error)
    else:
        done.set_result(result)
    if own in _running:
        jclass("java.lang.Thread").detach()  # else Java would keep its state of this thread
        del _running[own]


def _discard(late: Future[T], discard: Callable[[T], object]) -> None:
    if late.exception() is None:
        discard(late.result())


def _end_calls() -> None:
    """Interrupt the calls that still run, and wait up to ``RETURN_TIMEOUT_S`` for their threads."""
    deadline = Deadline(RETURN_TIMEOUT_S, "calls of Java that were interrupted")
    running = tuple(_running.items())
    for _, java_thread in running:
        java_thread.interrupt()
    for thread, _ in running:
        thread.join(deadline.remaining())


jvm.call_before_end(_end_calls)
