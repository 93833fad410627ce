"""The event loop of an endpoint, and its waits: no other module waits for the peer.

One thread polls the inbox, sends waiting frames, calls timers and ends waits at their deadlines. Listeners never run on
it, and nothing on it waits. A slow, silent or hostile peer delays no other peer.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.session import closed_error
from aeron_spark.reused_threads import ReusedThread
from aeron_spark.transport.api import Inbox, TransportEvent
from aeron_spark.waiting import fail, resolve, result_within

LOG: Final = logging.getLogger("aeron_spark.endpoint")

TICK_S: Final = 0.01  # between two ticks
BUSY_WAIT_S: Final = 0.0002  # longest wait while work is about to become possible without an event
WAIT_S: Final = 0.01  # longest wait otherwise; an event ends it
IDLE_WAIT_S: Final = 0.2  # longest wait, and time between two ticks, while the endpoint is idle
REOPEN_SECONDS: Final = 0.5  # between two attempts to open a transport after the loss of the media driver
IDLE_AFTER_S: Final = 0.1  # without work, until the endpoint counts as idle
STATE_POLL_S: Final = 0.001  # between two checks of a state that no event reports
MAX_LISTENER_THREADS: Final = 4096  # at most one for each connection with deliveries; made when needed
_MAX_ENDED_DEADLINES: Final = 64  # deadlines of ended futures in the heap before it is rebuilt

T = TypeVar("T")


class LoopEndpoint(Protocol):
    """The endpoint that a loop runs. The loop logs the exceptions of these methods, and continues."""

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now. Thread-safe."""

    def handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event whose token has no owner."""

    def work(self, now: float) -> bool:
        """Do the work of one turn; return whether more work is about to become possible."""

    def tick(self, now: float) -> None:
        """Do the work that is due. Called every TICK_S seconds, or IDLE_WAIT_S while the endpoint is idle."""

    def is_idle(self, now: float) -> bool:
        """Whether the endpoint waits for events only, and has no deadline within IDLE_WAIT_S."""


class Owner(Protocol):
    """The object that handles the events of one token."""

    def on_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event. Called on the event loop."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work for the event loop. ``done`` fails if the event loop ends before."""

    run: Callable[[], object]
    done: Future[Any] | None = None


class Loop:
    """The thread, the jobs, the deadlines, the pools and the waits of one endpoint. Thread-safe, unless noted.

    ``endpoint`` is set before any other use. ``clock`` returns monotonic seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name: Final = name
        self.clock: Final = clock
        self.pool: Final = self.executor(MAX_LISTENER_THREADS, f"{name}-listener")
        """The threads that call listeners, and do other work that may take long."""
        self.failed: BaseException | None = None
        """The last exception that the loop logged."""
        self.turns = 0
        """How often the loop has turned; it turns several times a second, also when it is idle."""
        self.turned_at = clock()
        """When the last turn began."""
        self.on_turn: Callable[[float], object] | None = None
        """Called after each turn with the seconds of its work. Change it before the start."""
        self.lock: Final = threading.Lock()
        """Guards ``is_closing``, ``jobs``, the senders that wait for a flush, and the deadlines."""
        self.is_closing = False
        """Whether the endpoint is closing."""
        self.jobs: list[Job] = []
        """Jobs of other threads for the event loop."""
        self.endpoint: LoopEndpoint
        self._owners: dict[int, Owner] = {}  # by token
        self._flushes: set[Callable[[], None]] = set()
        self._takes_jobs = True  # False after the end
        self._numbers = itertools.count()
        self._deadlines: dict[int, tuple[Future[Any], Any]] = {}  # by number: the future and its outcome
        self._heap: list[tuple[float, int]] = []  # time and number, also of futures that ended before
        self._next_tick = 0.0
        self._has_more = True  # more work is about to become possible
        self._worked_at = self.turned_at
        self._stopping = threading.Event()
        self._thread: Final = ReusedThread(self._run, name)

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""
        return self.endpoint.inbox

    # The thread.

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
        self.inbox.wake()
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

    def is_idle(self) -> bool:
        """Return whether the endpoint waits for events only, and no future has its deadline within IDLE_WAIT_S."""
        now = self.clock()
        with self.lock:
            if self._heap and self._heap[0][0] <= now + IDLE_WAIT_S:
                return False
        return self.endpoint.is_idle(now)

    def begin_closing(self) -> bool:
        """Mark the endpoint as closing; return whether this call is the first to do so."""
        with self.lock:
            is_first, self.is_closing = not self.is_closing, True
        return is_first

    def end(self) -> None:
        """Fail the jobs of the stopped loop and take no others; let the pool end with the work that it has."""
        with self.lock:
            jobs, self.jobs, self._takes_jobs = self.jobs, [], False
            self._flushes.clear()
        for job in jobs:
            if job.done is not None:
                fail(job.done, closed_error())
        self.pool.shutdown(wait=False)

    def executor(self, threads: int, name: str) -> Executor:
        """Return a new pool of at most so many threads."""
        return ThreadPoolExecutor(threads, thread_name_prefix=name)

    # Events and work for the loop.

    def own(self, token: int, owner: Owner) -> None:
        """Give the events of a token to ``owner``. Only on the event loop."""
        self._owners[token] = owner

    def disown(self, token: int) -> Owner | None:
        """Give the events of a token to the endpoint again; return its owner. On the event loop, or after its end."""
        return self._owners.pop(token, None)

    def run_soon(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the event loop, unless that has ended."""
        self._add(Job(job))

    def call(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` on the event loop; return a future of its result or error. It is EndedError if the loop ends."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(job())
            except BaseException as error:
                done.set_exception(error)

        self._add(Job(run, done))
        return done

    def request_flush(self, flush: Callable[[], None]) -> None:
        """Call ``flush``, the method of a sender, on the event loop; several requests before are one."""
        with self.lock:
            if self._takes_jobs:
                self._flushes.add(flush)
        if not self.is_current_thread:
            self.wake()

    def in_background(
        self, work: Callable[[], T], then: Callable[[Future[T]], object] | None = None
    ) -> Future[T] | None:
        """Do ``work`` on a thread of the pool, then call ``then`` with its future on the event loop.

        Does nothing, and returns None, if the endpoint or the process is ending.
        """
        try:
            future = self.pool.submit(work)
        except RuntimeError:  # the pool takes no more work
            return None
        if then is not None:
            future.add_done_callback(lambda done: self.run_soon(lambda: then(done)))
        return future

    def wake(self) -> None:
        """End the present wait of the event loop, if it runs."""
        if self.is_running:  # a loop that starts later begins with the jobs
            self.inbox.wake()

    # Deadlines and waits.

    @property
    def waits(self) -> int:
        """The number of futures of ``end_at`` that have not ended."""
        return len(self._deadlines)

    def end_at(self, future: Future[T], outcome: T | AeronSparkError, at: float) -> None:
        """Give ``outcome`` to the future at the time ``at``, or now if that has passed, unless the future ends before.

        The callbacks of the future then run on the event loop: they must not wait.
        """
        remaining_s = at - self.clock()
        if remaining_s <= 0:
            _end(future, outcome)
            return
        if future.done():
            return
        with self.lock:
            number = next(self._numbers)
            self._deadlines[number] = (future, outcome)
            heapq.heappush(self._heap, (at, number))
        future.add_done_callback(lambda _: self._forget(number))
        if remaining_s < IDLE_WAIT_S:  # the loop could miss it while it is idle
            self.wake()

    def wait(self, future: Future[T], timeout_s: float | None, what: str, *, remedy: str = "") -> T:
        """Return the future's result, or raise its error, or WaitTimeout after ``timeout_s``; see ``result_within``."""
        return result_within(future, timeout_s, what, remedy=remedy)

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``is_true()``, for ``timeout_s`` at most; return it. For a state that no event reports."""
        end = self.clock() + timeout_s
        while not (found := is_true()) and self.clock() < end:
            time.sleep(STATE_POLL_S)
        return found

    def condition(self, lock: threading.RLock | None = None) -> threading.Condition:
        """Return a condition for waits that are no future: for room, for messages of bulk links, for stages."""
        return threading.Condition(lock)

    # Turns.

    def turn(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for events, handle them, then do the work that waits; return whether any was done.

        Only for the thread of the event loop.
        """
        self.turns += 1
        events = self._safely(self._poll, timeout_s)
        now = self.turned_at = self.clock()
        if not isinstance(events, list):
            self._stopping.wait(WAIT_S if timeout_s else 0.0)  # as a poll without events
            return False
        for event in events:
            owner = self._owners.get(getattr(event, "token", -1))
            self._safely(self.endpoint.handle_event if owner is None else owner.on_event, event, now)
        has_worked = bool(self.jobs or self._flushes)  # read without the lock: a thread that adds one wakes the loop
        if has_worked:
            self._run_jobs()
        self._has_more = bool(self._safely(self.endpoint.work, now)) or bool(self._flushes)
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._safely(self.endpoint.tick, now)
            self.expire(now)
        if self._has_more or events or not self._safely(self.is_idle):
            self._worked_at = now
        if self.on_turn is not None:
            self.on_turn(self.clock() - now)
        return has_worked or bool(events)

    @property
    def wait_s(self) -> float:
        """How long the next turn may wait for events."""
        if self._has_more:
            return BUSY_WAIT_S
        return IDLE_WAIT_S if self.turned_at - self._worked_at >= IDLE_AFTER_S else WAIT_S

    def expire(self, now: float) -> None:
        """End the futures whose deadline has passed. Only for the thread of the event loop."""
        if not self._heap:  # read without the lock: a deadline that is added meanwhile has time until the next tick
            return
        due = []
        with self.lock:
            while self._heap and self._heap[0][0] <= now:
                _, number = heapq.heappop(self._heap)
                found = self._deadlines.pop(number, None)
                if found is not None:
                    due.append(found)
        for future, outcome in due:
            _end(future, outcome)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.turn(self.wait_s)

    def _poll(self, timeout_s: float) -> list[TransportEvent]:
        return self.inbox.poll(timeout_s)

    def _add(self, job: Job) -> None:
        with self.lock:
            if self._takes_jobs:
                self.jobs.append(job)
            elif job.done is not None:
                job.done.set_exception(closed_error())
        self.wake()

    def _run_jobs(self) -> None:
        with self.lock:
            flushes, self._flushes = self._flushes, set()
            jobs, self.jobs = self.jobs, []
        for work in (*(job.run for job in jobs), *flushes):
            self._safely(work)

    def _forget(self, number: int) -> None:
        with self.lock:
            self._deadlines.pop(number, None)
            if len(self._heap) > 2 * len(self._deadlines) + _MAX_ENDED_DEADLINES:
                self._heap = [one for one in self._heap if one[1] in self._deadlines]
                heapq.heapify(self._heap)

    def _safely(self, function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except Exception as error:
            self.failed = error
            LOG.exception("event loop %s: %s failed", self.name, getattr(function, "__qualname__", function))
            return None


def _end(future: Future[Any], outcome: object) -> None:
    if isinstance(outcome, AeronSparkError):
        fail(future, outcome)
    else:
        resolve(future, outcome)
