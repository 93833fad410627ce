"""Virtual time for endpoints in one process: event loops without threads, which a test's waits turn.

A wait of a test, or of the endpoint that the test calls, runs the waiting work of the pools in order, turns the event
loops, and advances the time when nothing else is left to do. Everything runs on the test's thread. So the same test
takes the same steps each time, and a wait of a minute takes a fraction of a second.

A test whose listeners block, or that calls from several threads, is marked ``threads``, and has the real loops.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar

from aeron_spark.endpoint.loop import Loop
from aeron_spark.errors import WaitTimeout

P = ParamSpec("P")
T = TypeVar("T")

STEP_S: Final = 2e-5  # of virtual time that a step takes, so that two endpoints cannot talk for ever at one time
BUSY_WAIT_S: Final = 0.002  # between two turns of a busy loop: real ones turn ten times as often
LONGEST_S: Final = 3600.0  # of a wait without a timeout: nothing can end it any more


class VirtualTime:
    """The time of a test, with the event loops and the work of the pools that it drives. For one thread."""

    def __init__(self, next_event: Callable[[], float | None] = lambda: None) -> None:
        """``next_event`` returns when the next event arrives that is under way, or None."""
        self.now = 1_000.0
        self.work: Final[deque[Callable[[], object]]] = deque()
        self.next_event = next_event
        self._loops: Final[list[SteppedLoop]] = []
        self._thread: Final = threading.get_ident()

    def clock(self) -> float:
        """Return the time in seconds."""
        return self.now

    def loop(self, name: str) -> SteppedLoop:
        """Return a new event loop that this time drives."""
        made = SteppedLoop(self, name)
        self._loops.append(made)
        return made

    def sleep(self, seconds: float) -> None:
        """Let the endpoints work for so long."""
        self.run_until(lambda: False, seconds)

    def run_until(self, is_true: Callable[[], object], seconds: float) -> bool:
        """Let the endpoints work until ``is_true()``, for ``seconds`` at most; return whether it is."""
        end = self.now + seconds
        while not is_true():
            if self.now >= end:
                return False
            self.step(end)
        return True

    def step(self, until: float) -> None:
        """Do one piece of work, or turn all loops once; if nothing was done, advance the time, to ``until`` at most."""
        assert threading.get_ident() == self._thread, "another thread waits for the endpoint: mark the test 'threads'"
        self.now = min(until, self.now + STEP_S)
        if self.work:
            self.work.popleft()()
            return
        running = [loop for loop in self._loops if loop.is_running and not loop.is_current_thread]
        worked = [loop.turn(0.0) for loop in running]
        if not any(worked) and not self.work:
            times = [loop.turned_at + loop.wait_s for loop in running]
            coming = self.next_event()
            self.now = max(self.now, min([until, *times, *(() if coming is None else (coming,))]))


class SteppedLoop(Loop):
    """A loop that turns during the waits of its thread, in virtual time."""

    def __init__(self, time: VirtualTime, name: str) -> None:
        self._time: Final = time
        self._is_started = self._is_turning = False
        super().__init__(name, time.clock)

    def start(self) -> None:
        """Turn from now on."""
        self._is_started = True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Turn no more."""
        self._stopping.set()
        return True

    @property
    def is_current_thread(self) -> bool:
        """Whether a turn of this loop runs now."""
        return self._is_turning

    @property
    def is_running(self) -> bool:
        """Whether the loop was started and not stopped."""
        return self._is_started and not self._stopping.is_set()

    def executor(self, threads: int, name: str) -> Executor:
        """Return a pool whose work the waits run, in its order."""
        return _SteppedExecutor(self._time)

    @property
    def wait_s(self) -> float:
        """How long after the last turn the next one follows, if no event arrives."""
        return max(BUSY_WAIT_S, super().wait_s)

    def turn(self, timeout_s: float) -> bool:
        """Turn once; see :class:`Loop`."""
        self._is_turning = True
        try:
            return super().turn(timeout_s)
        finally:
            self._is_turning = False

    def wait(self, future: Future[T], timeout_s: float | None, what: str, *, remedy: str = "") -> T:
        """Let the endpoints work until the future is done."""
        is_done = self._time.run_until(future.done, LONGEST_S if timeout_s is None else timeout_s)
        if not is_done:
            assert timeout_s is not None, f"nothing ends the wait for {what}"
            raise WaitTimeout(f"waited {timeout_s:.3g} s for {what}", remedy=remedy)
        return super().wait(future, 0.0, what, remedy=remedy)

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        """Let the endpoints work until ``is_true()``."""
        return self._time.run_until(is_true, timeout_s)

    def condition(self, lock: threading.RLock | None = None) -> threading.Condition:
        """Return a condition whose waits let the endpoints work."""
        return _SteppedCondition(self._time, lock)


class _SteppedExecutor(Executor):
    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._is_shut_down = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._is_shut_down:
            raise RuntimeError("the pool was shut down")
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._time.work.append(run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut_down = True


class _SteppedCondition(threading.Condition):
    def __init__(self, time: VirtualTime, lock: Any = None) -> None:
        super().__init__(lock)
        self._time = time
        self._notified = 0

    def wait(self, timeout: float | None = None) -> bool:
        seen = self._notified
        return self._outside(lambda: self._notified != seen, timeout)

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        result = predicate()
        if not result:
            self._outside(predicate, timeout)
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        self._notified += 1

    def notify_all(self) -> None:
        self._notified += 1

    def _outside(self, is_true: Callable[[], object], timeout: float | None) -> bool:
        """Let the endpoints work without the lock."""
        saved = self._release_save()  # type: ignore[attr-defined]
        try:
            return self._time.run_until(is_true, LONGEST_S if timeout is None else timeout)
        finally:
            self._acquire_restore(saved)  # type: ignore[attr-defined]
