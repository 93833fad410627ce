"""The event loop of an endpoint: one thread that polls the inbox, sends waiting frames, calls timers and ends waits.

Listeners never run on the event loop, and nothing on it waits. A slow, silent or hostile peer delays no other peer.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, Generic, Protocol, TypeVar

from aeron_spark.reused_threads import ReusedThread
from aeron_spark.transport.api import Inbox, TransportEvent
from aeron_spark.waiting import resolve

LOG: Final = logging.getLogger("aeron_spark.endpoint")

TICK_S: Final = 0.01  # between two ticks
BUSY_WAIT_S: Final = 0.0002  # longest wait while work is about to become possible without an event
WAIT_S: Final = 0.01  # longest wait otherwise; an event ends it
IDLE_WAIT_S: Final = 0.2  # longest wait, and time between two ticks, while the endpoint is idle
IDLE_AFTER_S: Final = 0.1  # without work, until the endpoint counts as idle


class EventLoop:
    """Calls ``handle`` with each event, ``work`` after each poll, and ``tick`` every TICK_S seconds, on one thread.

    ``work`` returns whether more work is about to become possible. While ``is_idle`` is true, ticks come every
    IDLE_WAIT_S seconds. The loop logs an exception of these functions and continues.
    """

    def __init__(
        self,
        name: str,
        inbox: Callable[[], Inbox],
        handle: Callable[[TransportEvent, float], None],
        work: Callable[[float], bool],
        tick: Callable[[float], None],
        is_idle: Callable[[], bool],
    ) -> None:
        self.name = name
        self.failed: BaseException | None = None
        """The last exception that the loop logged."""
        self.turns = 0
        """How often the loop has turned; it turns several times a second, also when it is idle."""
        self.turned_at = time.monotonic()
        """When the last turn began, in monotonic seconds. Thread-safe."""
        self.on_turn: Callable[[float], object] | None = None
        """Called after each turn with the seconds of its work. Change it before the start."""
        self._inbox = inbox
        self._handle = handle
        self._work = work
        self._tick = tick
        self._is_idle = is_idle
        self._stopping = threading.Event()
        self._thread: Final = ReusedThread(self._run, name)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Stop the thread; return whether it has ended within ``timeout_s``.

        Called on the event loop itself, it returns at once, and the thread ends after this turn.
        """
        self._stopping.set()
        if not self.is_running:
            return True
        self._inbox().wake()
        if self.is_current_thread:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the event loop."""
        return self._thread.is_current

    @property
    def is_running(self) -> bool:
        """Whether the thread has started and not ended."""
        return self._thread.is_alive()

    def _run(self) -> None:
        next_tick, has_more, last_work, is_idle = 0.0, True, time.monotonic(), False
        while not self._stopping.is_set():
            self.turns += 1
            events = self._safely(self._poll, BUSY_WAIT_S if has_more else IDLE_WAIT_S if is_idle else WAIT_S)
            now = self.turned_at = time.monotonic()
            if not isinstance(events, list):
                self._stopping.wait(WAIT_S)  # the poll failed, as it does after the loss of the media driver
                continue
            for event in events:
                self._safely(self._handle, event, now)
            has_more = bool(self._safely(self._work, now))
            if now >= next_tick:
                next_tick = now + TICK_S
                self._safely(self._tick, now)
            if has_more or events or not self._safely(self._is_idle):
                last_work = now
            is_idle = now - last_work >= IDLE_AFTER_S
            if self.on_turn is not None:
                self.on_turn(time.monotonic() - now)

    def _poll(self, timeout: float) -> list[TransportEvent]:
        return self._inbox().poll(timeout)

    def _safely(self, function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except Exception as error:
            self.failed = error
            LOG.exception("event loop %s: %s failed", self.name, function.__name__)
            return None


REOPEN_SECONDS: Final = 0.5  # between two attempts to open a transport after the loss of the media driver


class Closable(Protocol):
    """An opened transport."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class TransportReopening(Generic[T]):
    """Opens a transport on a pool, again and again, until that succeeds.

    Call it on the event loop; ``close`` from the thread that closes the endpoint.
    """

    def __init__(self, open_transport: Callable[[], T], pool: Executor) -> None:
        self.wanted = False
        """Whether the media driver was lost and the transport is not open again."""
        self._open_transport = open_transport
        self._pool = pool
        self._next_attempt = 0.0
        self._pending: Future[T] | None = None

    def begin(self, now: float) -> None:
        """Start the attempts, after the loss of the media driver."""
        self.wanted, self._next_attempt = True, now

    def step(self, now: float) -> T | None:
        """Return the transport when it is open. Raises the error of a failed attempt; the next call tries again."""
        if self._pending is None:
            if now < self._next_attempt:
                return None
            self._next_attempt = now + REOPEN_SECONDS
            self._pending = self._pool.submit(self._open_transport)
        if not self._pending.done():
            return None
        pending, self._pending = self._pending, None
        opened = pending.result()
        self.wanted = False
        return opened

    def close(self) -> None:
        """Close a transport that is being opened."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.add_done_callback(_close)


def _close(pending: Future[T]) -> None:
    if not pending.cancelled() and pending.exception() is None:
        pending.result().close()


R = TypeVar("R")

_MAX_ENDED_DEADLINES: Final = 64  # deadlines of ended futures in the heap before it is rebuilt


class Deadlines:
    """Futures that get a result at their deadline unless they end before. Thread-safe.

    The event loop calls ``expire``, which runs the callbacks of these futures: they must not wait. ``wake`` wakes the
    event loop for a deadline that it could miss while it is idle. ``clock`` gives monotonic seconds.
    """

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[Future[Any], Any]] = {}  # by number: the future and its result
        self._heap: list[tuple[float, int]] = []  # time and number, also of futures that ended before

    def __len__(self) -> int:
        """Return the number of futures that have not ended."""
        return len(self._pending)

    def add(self, future: Future[R], result: R, seconds: float) -> None:
        """Give ``result`` to the future after ``seconds``, or at once for 0 seconds."""
        if seconds <= 0:
            resolve(future, result)
            return
        if future.done():
            return
        with self._lock:
            number = next(self._numbers)
            self._pending[number] = (future, result)
            heapq.heappush(self._heap, (self._clock() + seconds, number))
        future.add_done_callback(lambda _: self._remove(number))
        if seconds < IDLE_WAIT_S:
            self._wake()

    def expire(self, now: float) -> None:
        """End the futures whose deadline has passed."""
        if not self._heap:  # read without the lock: a deadline that is added meanwhile has time until the next tick
            return
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                _, number = heapq.heappop(self._heap)
                pending = self._pending.pop(number, None)
                if pending is not None:
                    due.append(pending)
        for future, result in due:
            resolve(future, result)

    def is_due(self, now: float) -> bool:
        """Whether :meth:`expire` may have something to do by ``now``."""
        with self._lock:
            return bool(self._heap) and self._heap[0][0] <= now

    def _remove(self, number: int) -> None:
        with self._lock:
            self._pending.pop(number, None)
            if len(self._heap) > 2 * len(self._pending) + _MAX_ENDED_DEADLINES:
                self._heap = [one for one in self._heap if one[1] in self._pending]
                heapq.heapify(self._heap)
