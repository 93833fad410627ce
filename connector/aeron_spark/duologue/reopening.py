"""A transport whose media driver has gone is opened anew, until that works; in another thread, for it may take long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, Generic, Protocol, TypeVar

REOPEN_SECONDS: Final = 0.5  # between two looks for a media driver that has gone


class Closable(Protocol):
    """What was opened."""

    def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Reopening(Generic[T]):
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
