"""Threads that wait for an answer, by its number."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any


class Waiters:
    """Numbered answers that somebody waits for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, number: int) -> Future[Any]:
        """Wait for the answer of this number."""
        waiter: Future[Any] = Future()
        with self._lock:
            self._waiting[number] = waiter
        return waiter

    def drop(self, number: int) -> None:
        """Wait for it no longer."""
        with self._lock:
            self._waiting.pop(number, None)

    def answer(self, number: int, value: object = None) -> bool:
        """Give the answer; whether somebody waited."""
        with self._lock:
            waiter = self._waiting.pop(number, None)
        if waiter is None:
            return False
        waiter.set_result(value)
        return True

    def fail(self, number: int, error: BaseException) -> None:
        """Say that there will be no answer."""
        with self._lock:
            waiter = self._waiting.pop(number, None)
        if waiter is not None:
            waiter.set_exception(error)

    def fail_all(self, error: BaseException) -> None:
        """Say so to everybody."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.set_exception(error)
