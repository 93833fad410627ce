"""Calls of Java: their errors, and calls that a signal may interrupt.

Python handles a signal in the main thread, between two of its instructions. During a Java call the main thread executes
none: up to ten seconds if a driver or an archive does not respond. Therefore another thread makes the call, and the
main thread waits for that thread in Python.

A thread that returns from Java while the JVM or the interpreter ends aborts the process. At the end of the process its
Aeron clients are closed, and so running calls return. Therefore the process interrupts these calls and waits for their
threads before it ends.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import jpype

from aeron_spark.aeron import jvm
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.errors import AeronSparkError, ConnectError, TransportError
from aeron_spark.reused_threads import ReusedThread
from aeron_spark.transport.addresses import UNKNOWN_HOST, unknown_host
from aeron_spark.waiting import Deadline, result_within

CORRECT_CHANNEL: Final = "Correct 'channel', or add the host to this machine's name service."
# io.aeron.driver.media.UdpChannel: a RegistrationException carries the text of the driver's exception, not its class
_UNRESOLVED: Final = re.compile(
    r"UnknownHostException: .*?(?:endpoint|control|interface)=(?P<host>\[[^\]]+\]|[^:,\s]+)"
)


def describe(error: Any) -> str:
    """Return ``ShortClass: message`` of a Java throwable, without the category with which Aeron begins messages."""
    name = type(error).__name__.rpartition(".")[2]
    message = plain_message(str(error.getMessage()))
    return message if message.startswith(UNKNOWN_HOST) else f"{name}: {message}"


def plain_message(message: str) -> str:
    """Return an Aeron message without its category; replace the message about an unresolved host by ours."""
    unresolved = _UNRESOLVED.search(message)
    if unresolved is not None:
        return unknown_host(unresolved["host"])
    for category in ("ERROR - ", "FATAL - ", "WARN - "):
        message = message.removeprefix(category)
    return message


def archive_error_code(error: BaseException | None) -> int | None:
    """Return the code of an ArchiveException that caused ``error``, or None."""
    while error is not None:
        if type(error).__name__.endswith("ArchiveException"):
            return int(error.errorCode())  # type: ignore[attr-defined]
        error = error.__cause__
    return None


@contextmanager
def java_errors(action: str, *, unknown_host: str = "") -> Iterator[None]:
    """Convert a Java exception in the block to TransportError (ConnectError for a timeout) with ``action`` in its text.

    ``unknown_host`` is the remedy for a host name that cannot be resolved.
    """
    enter_java()
    try:
        yield
    except AeronSparkError:
        raise
    except jpype.JException as error:
        text = f"{action} failed: {describe(error)}"
        if "Timeout" in type(error).__name__:
            raise ConnectError(text, remedy="See 'aeron-spark doctor'.") from error
        remedy = unknown_host if f": {UNKNOWN_HOST} " in text else ""
        raise TransportError(text, remedy=remedy) from error


T = TypeVar("T")

THREAD: Final = "aeron-spark-java"
RETURN_TIMEOUT_S: Final = 5.0  # at the end of the process, for calls that an interrupt ends; others are left running

_running: Final[set[_Call[Any]]] = set()


def interruptible(call: Callable[..., T], *args: Any, discard: Callable[[T], object] | None = None) -> T:
    """Return ``call(*args)``, which may block in Java. In the main thread a signal handler can end the wait.

    The Java call then continues until its own timeout, and ``discard`` gets its result.
    """
    if threading.current_thread() is not threading.main_thread():
        enter_java()
        return call(*args)
    running = _Call(call, args)
    try:
        running.thread.start()
        return result_within(running.done, None, "a call of Java")
    except BaseException:
        if discard is not None:
            running.done.add_done_callback(lambda late: _discard(late, discard))
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


class _Call(Generic[T]):
    """A call of Java on another thread."""

    def __init__(self, call: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.done: Final[Future[T]] = Future()
        self.thread: Final = ReusedThread(self._run, THREAD)
        self.java_thread: Any = None
        self._call = call
        self._args = args

    def _run(self) -> None:
        try:
            self.java_thread = jclass("java.lang.Thread").currentThread()
            _running.add(self)
            result = self._call(*self._args)
        except BaseException as error:  # raised in the waiting thread
            self.done.set_exception(error)
        else:
            self.done.set_result(result)
        _running.discard(self)


def _discard(late: Future[T], discard: Callable[[T], object]) -> None:
    if late.exception() is None:
        discard(late.result())


def _end_calls() -> None:
    """Interrupt the calls that still run, and wait up to ``RETURN_TIMEOUT_S`` for their threads."""
    deadline = Deadline(RETURN_TIMEOUT_S, "calls of Java that were interrupted")
    running = tuple(_running)
    for call in running:
        call.java_thread.interrupt()
    for call in running:
        call.thread.join(deadline.remaining())


jvm.call_before_end(_end_calls)
