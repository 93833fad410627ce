"""Java calls that may block, made so that Ctrl-C is heard meanwhile.

Python acts on a signal in the main thread, between two of its own instructions. A thread that waits inside Java comes
to none until the call returns, which takes up to ten seconds where a driver or an archive does not answer. So the main
thread has another thread make the call, and waits for that one in Python.

Python ends a thread that comes back from Java while Python itself ends; in the middle of JPype this aborts the process.
So the process waits at its end for the threads that are on their way back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from aeron_spark.aeron import jvm
from aeron_spark.aeron.jvm import jclass
from aeron_spark.waiting import Deadline, result_within

T = TypeVar("T")

THREAD: Final = "aeron-spark-java"
RETURN_SECONDS: Final = 5.0  # for what is left to do once a call has returned; a call itself is not waited for

_returned: Final[set[threading.Thread]] = set()  # threads whose call has returned from Java


def interruptible(call: Callable[..., T], *given: Any, discard: Callable[[T], object] | None = None) -> T:
    """Return ``call(*given)``, which may block in Java; in the main thread a signal handler may end the wait.

    The call itself goes on then, until its own time-out; what it returns goes to ``discard``.
    """
    if threading.current_thread() is not threading.main_thread():
        return call(*given)
    done: Future[T] = Future()
    try:
        threading.Thread(target=_make, args=(done, call, given), name=THREAD, daemon=True).start()
        return result_within(done, None, "a call of Java")
    except BaseException:
        if discard is not None:
            done.add_done_callback(lambda late: _discard(late, discard))
        raise


class Interruptible:
    """A Java object all of whose methods are called so, but for ``at_once``: those that never block."""

    def __init__(self, java: Any, at_once: frozenset[str]) -> None:
        self._java = java
        self._at_once = at_once

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._java, name)
        return method if name in self._at_once else lambda *given: interruptible(method, *given)


def _make(done: Future[T], call: Callable[..., T], given: tuple[Any, ...]) -> None:
    try:
        result = call(*given)
    except BaseException as error:  # for the thread that waits
        _returned.add(threading.current_thread())
        done.set_exception(error)
    else:
        _returned.add(threading.current_thread())
        done.set_result(result)
    jclass("java.lang.Thread").detach()  # Java would else keep what it has of this thread
    _returned.discard(threading.current_thread())


def _discard(late: Future[T], discard: Callable[[T], object]) -> None:
    if late.exception() is None:
        discard(late.result())


def _await_returned() -> None:
    """Wait for the threads whose call has returned, RETURN_SECONDS at the longest."""
    end = Deadline(RETURN_SECONDS, "calls of Java that have returned")
    for thread in tuple(_returned):
        thread.join(end.remaining())


jvm.before_its_end(_await_returned)
