"""The event loop of asyncio to which a client belongs: waits in it for futures of other threads, and calls into it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from aeron_spark.errors import UsageError, WaitTimeout

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

    def time(self) -> float:
        """Return the time of the event loop in seconds."""
        return self._loop.time()

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

    async def result_within(self, future: Future[T], seconds: float | None, awaited: str, *, remedy: str) -> T:
        """Return the future's result. Raises its error, and WaitTimeout after ``seconds`` (None: no deadline)."""
        if not await self.wait(future, seconds):
            raise WaitTimeout(f"waited {seconds:.3g} s for {awaited}", remedy=remedy)
        return future.result()

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
