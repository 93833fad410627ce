"""The thread of one stream reader or writer, which executes its calls in order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from aeron_spark.aio.own_loop import OwnLoop
from aeron_spark.errors import EndedError
from aeron_spark.waiting import fail, resolve

T = TypeVar("T")


class _Begun(NamedTuple):
    """A call for the thread."""

    call: Callable[[], Any]
    future: Future[Any]
    is_last: bool


class OwnThread:
    """Executes calls one after the other. The thread starts with the first one, and ends after :meth:`close`.

    A call that was begun is executed, also if the task that awaits it is cancelled. The thread does not keep the
    process alive: Python would wait for it before the client closes at the end of the process.
    """

    def __init__(self, own_loop: OwnLoop, label: str) -> None:
        self._own_loop: Final = own_loop
        self._label: Final = label
        self._lock: Final = threading.Lock()
        self._calls: Final[SimpleQueue[_Begun | None]] = SimpleQueue()  # None ends the thread
        self._thread: threading.Thread | None = None
        self._is_closing = False
        weakref.finalize(self, self._calls.put, None).atexit = False  # a reader or writer that was not closed

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Have the thread execute ``call`` after all earlier ones. Raises EndedError after :meth:`close`."""
        self._own_loop.check()
        begun: Future[T] = Future()
        with self._lock:
            if self._is_closing:
                raise EndedError(f"{self._label} is closed", remedy="Open another one.")
            self._calls.put(_Begun(call, begun, is_last=False))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_execute_all, args=(self._calls,), name="aeron-spark-aio-stream", daemon=True
                )
                self._thread.start()
        return begun

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, or raise its error."""
        return await self.result(self.begin(call))

    async def result(self, begun: Future[T]) -> T:
        """Return the result of a call that was begun. A cancellation ends the wait only."""
        await self._own_loop.wait(begun)
        return begun.result()

    def begin_close(self, close: Callable[[], None]) -> Future[None] | None:
        """Have the thread execute ``close`` as its last call; None if that was begun before, or no call was."""
        closing: Future[None] = Future()
        with self._lock:
            if self._is_closing:
                return None
            self._is_closing = True
            if self._thread is None:
                return None
            self._calls.put(_Begun(close, closing, is_last=True))
        return closing

    async def close(self, close: Callable[[], None]) -> None:
        """Execute ``close`` as the last call of the thread, and wait for it. A second call does nothing."""
        self._own_loop.check()
        closing = self.begin_close(close)
        if closing is not None:
            await self.result(closing)

    def join(self, close: Callable[[], None]) -> None:
        """Execute ``close`` as the last call, and wait until the thread has ended. For another thread."""
        self.begin_close(close)
        if self._thread is not None:
            self._thread.join()


def _execute_all(calls: SimpleQueue[_Begun | None]) -> None:
    while _execute_next(calls):
        pass


def _execute_next(calls: SimpleQueue[_Begun | None]) -> bool:
    """Execute the next call; return whether others may follow. Nothing of it is kept during the next wait."""
    begun = calls.get()
    if begun is None:
        return False
    try:
        result = begun.call()
    except BaseException as error:
        fail(begun.future, error)
    else:
        resolve(begun.future, result)
    return not begun.is_last
