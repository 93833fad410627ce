"""The event loop to which an object of asyncio belongs, and the thread that executes its calls."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from aeron_spark.endpoint.sender import Pending
from aeron_spark.errors import EndedError, UsageError
from aeron_spark.waiting import fail, resolve

T = TypeVar("T")

CLOSED_POLL_S: Final = 0.5  # between two checks of a listener's thread whether the event loop was closed


class OwnLoop:
    """The event loop that runs now. Only its coroutines may use the client that has this object."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[WeakKeyDictionary[Future[Any], set[asyncio.Future[None]]]] = WeakKeyDictionary()

    def check(self) -> None:
        """Raise UsageError unless the caller runs in this event loop."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            return
        if self._loop.is_closed():
            raise UsageError(
                "the event loop of this client is closed",
                remedy="Open a client in each event loop, and close it there (async with).",
            )
        raise UsageError(
            "this client belongs to another event loop",
            remedy="Use it in the event loop that opened it. Another thread calls asyncio.run_coroutine_threadsafe.",
        )

    async def wait(self, future: Future[Any], seconds: float | None = None) -> bool:
        """Wait until a future of another thread has ended; return False if it has not after ``seconds``.

        A cancellation ends the wait, and does not cancel the future.
        """
        if not future.done():
            waiting = self._loop.create_future()
            others = self._waiting.get(future)
            if others is None:  # a future keeps its callbacks to its end: many waits for it share one
                others = self._waiting[future] = set()
                future.add_done_callback(self._wake)
            others.add(waiting)
            timer = None if seconds is None else self._loop.call_later(seconds, _end, waiting)
            try:
                await waiting
            finally:
                others.discard(waiting)
                if timer is not None:
                    timer.cancel()
        return future.done()

    async def awaited(self, pending: Pending[T]) -> T:
        """Return the result of a wait for the peer, or raise its error. A cancellation cancels the wait."""
        try:
            await self.wait(pending.future, pending.remaining_s)
            return pending.take()
        finally:
            pending.cancel()

    def _wake(self, future: Future[Any]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: none of its tasks waits
            self._loop.call_soon_threadsafe(self._end_waits, future)

    def _end_waits(self, future: Future[Any]) -> None:
        for waiting in self._waiting.pop(future, ()):
            _end(waiting)

    def in_loop(self, listener: Callable[..., object]) -> Callable[..., None]:
        """Return a function for other threads: it calls ``listener``, which may be a coroutine, in the event loop.

        It returns when the listener has returned, so that messages stay in order and senders feel back-pressure. A call
        after the end of the event loop does nothing.
        """

        async def run(arguments: tuple[object, ...]) -> None:
            result = listener(*arguments)
            if inspect.isawaitable(result):
                await result

        def call(*arguments: object) -> None:
            running = run(arguments)
            try:
                done = asyncio.run_coroutine_threadsafe(running, self._loop)
            except RuntimeError:  # the event loop is closed
                running.close()
                return
            ended = threading.Event()
            done.add_done_callback(lambda _: ended.set())
            while not ended.wait(CLOSED_POLL_S):
                if self._loop.is_closed():
                    return
            if not done.cancelled():
                done.result()

        return call


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


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
