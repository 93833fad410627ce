"""Locks and cached values that a forked child starts without.

A fork copies all locks in their state, but only the forking thread. A child would wait for ever for a lock that another
thread of its parent had locked. PySpark forks its workers, and a user's program may fork at any time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Resettable(Protocol):
    def after_fork(self) -> None: ...


_instances: weakref.WeakSet[_Resettable] = weakref.WeakSet()


class ProcessLock:
    """A lock that is unlocked in a forked child, even if a thread of the parent had locked it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _instances.add(self)

    def after_fork(self) -> None:
        """Replace the lock by an unlocked one, in a forked child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


class ProcessCache(Generic[K, V]):
    """One value per key, made at its first use.

    Thread-safe: the cache's lock is held while a value is made or replaced. A forked child starts without values, and
    does not close its parent's values.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._values: dict[K, V] = {}
        self._parent_values: list[object] = []  # referenced in a child, so that the child does not finalize them
        _instances.add(self)

    def get(self, key: K, make: Callable[[], V], is_usable: Callable[[V], bool], discard: Callable[[V], object]) -> V:
        """Return the value of ``key``. A missing value is made; an unusable one is discarded and replaced."""
        with self._lock:
            value = self._values.get(key)
            if value is None or not is_usable(value):
                if value is not None:
                    discard(value)
                value = self._values[key] = make()
            return value

    def cached_keys(self) -> frozenset[K]:
        """Return the keys that have a value."""
        with self._lock:
            return frozenset(self._values)

    def values(self, is_wanted: Callable[[V], bool]) -> list[V]:
        """Return the values for which ``is_wanted`` is true."""
        with self._lock:
            return [value for value in self._values.values() if is_wanted(value)]

    def take(self, key: K) -> V | None:
        """Remove the value of ``key`` from the cache and return it; None if the key has no value."""
        with self._lock:
            return self._values.pop(key, None)

    def take_unused(self, is_unused: Callable[[V], bool]) -> list[V]:
        """Remove the unused values from the cache and return them. The lock prevents that a use begins in between."""
        with self._lock:
            unused = [key for key, value in self._values.items() if is_unused(value)]
            return [self._values.pop(key) for key in unused]

    def after_fork(self) -> None:
        """Start without values, in a forked child."""
        self._parent_values.append(self._values)
        self._values = {}


def _reset_in_child() -> None:
    for instance in list(_instances):
        instance.after_fork()


os.register_at_fork(after_in_child=_reset_in_child)
