"""The one thread of an endpoint that polls: it takes what arrives, sends what could not go out, and watches the time.

Listeners never run on it, and nothing on it waits: a peer that is slow, silent or hostile delays nobody else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, Generic, Protocol, TypeVar

from aeron_spark.transport.api import Inbox, TransportEvent

LOG: Final = logging.getLogger("aeron_spark.endpoint")

TICK_S: Final = 0.01  # seconds between two looks at the time of everything

BUSY_WAIT_S: Final = 0.0002  # longest wait while something is about to happen that no event tells of

WAIT_S: Final = 0.01  # longest wait otherwise; what arrives ends it

IDLE_WAIT_S: Final = (
    0.2  # longest wait, and time between two ticks, while nothing is under way: a keep-alive, an expiry
)

IDLE_AFTER_S: Final = 0.1  # seconds without anything until that


class EventLoop:
    """``handle`` takes an event; ``work`` is called after each poll and says whether it is about to do more;
    ``tick`` is called every TICK_S seconds, or every IDLE_WAIT_S while ``calm`` says that nothing is under way.
    What they raise is logged, and the loop goes on.
    """

    def __init__(
        self,
        name: str,
        inbox: Callable[[], Inbox],
        handle: Callable[[TransportEvent, float], None],
        work: Callable[[float], bool],
        tick: Callable[[float], None],
        calm: Callable[[], bool],
    ) -> None:
        self._inbox = inbox
        self._handle = handle
        self._work = work
        self._tick = tick
        self._calm = calm
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failed: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> bool:
        """End; whether the thread has ended in time. From the agent itself, end after this round."""
        self._stopping.set()
        self._inbox().wake()
        if self.here or not self.alive:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether this is the agent's thread."""
        return threading.current_thread() is self._thread

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        next_tick, more, restless, calm = 0.0, True, time.monotonic(), False
        while not self._stopping.is_set():
            events = self._safely(self._poll, BUSY_WAIT_S if more else IDLE_WAIT_S if calm else WAIT_S)
            now = time.monotonic()
            if not isinstance(events, list):
                self._stopping.wait(WAIT_S)  # the inbox is broken: its driver is gone, and the next round may tell
                continue
            for event in events:
                self._safely(self._handle, event, now)
            more = bool(self._safely(self._work, now)) or bool(events)
            if now >= next_tick:
                next_tick = now + TICK_S
                self._safely(self._tick, now)
            if more or not self._safely(self._calm):
                restless = now
            calm = now - restless >= IDLE_AFTER_S

    def _poll(self, timeout: float) -> list[TransportEvent]:
        return self._inbox().poll(timeout)

    def _safely(self, function: Callable[..., object], *given: object) -> object:
        try:
            return function(*given)
        except Exception as error:
            self.failed = error
            LOG.exception("the endpoint's agent met an error")
            return None


REOPEN_SECONDS: Final = 0.5  # between two looks for a media driver that has gone


class Closable(Protocol):
    """What was opened."""

    def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class TransportReopening(Generic[T]):
    """For the agent alone, but for ``close``."""

    def __init__(self, open_it: Callable[[], T], pool: Executor) -> None:
        self.wanted = False
        self._open_it = open_it
        self._pool = pool
        self._next = 0.0
        self._pending: Future[T] | None = None

    def begin(self, now: float) -> None:
        """The driver has gone."""
        self.wanted, self._next = True, now

    def step(self, now: float) -> T | None:
        """Return what was opened, once it is. Raises what opening it raised; it is tried again."""
        if self._pending is None:
            if now < self._next:
                return None
            self._next = now + REOPEN_SECONDS
            self._pending = self._pool.submit(self._open_it)
        if not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        opened = pending.result()
        self.wanted = False
        return opened

    def close(self) -> None:
        """Nobody wants it any more: what is being opened is closed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.add_done_callback(_close)


def _close(pending: Future[T]) -> None:
    if not pending.cancelled() and pending.exception() is None:
        pending.result().close()
