"""What a process keeps for itself and a forked child does not take over: locks, and one value a key.

A fork copies the locks of the process, held ones as held, but only the thread that forks: a child would wait for ever
for a lock that another thread of its parent held. PySpark forks its workers, and a user's program may fork at any time.
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


class _Renewed(Protocol):
    def after_fork(self) -> None: ...


_of_this_process: weakref.WeakSet[_Renewed] = weakref.WeakSet()


class ProcessLock:
    """A lock that is free in a forked child, whichever thread of the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _of_this_process.add(self)

    def after_fork(self) -> None:
        """Begin again, in a forked child."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


class ProcessCache(Generic[K, V]):
    """One value a key, made by its first use. Thread-safe; a value is made, and replaced, under the cache's lock.

    A forked child begins without values, and closes none of its parent's.
    """

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._values: dict[K, V] = {}
        self._parents: list[object] = []  # kept in a child, so that nothing of its parent's is finalized
        _of_this_process.add(self)

    def get(self, key: K, make: Callable[[], V], is_usable: Callable[[V], bool], discard: Callable[[V], object]) -> V:
        """Return the value of ``key``; make it if there is none, replace one that is not usable."""
        with self._lock:
            value = self._values.get(key)
            if value is None or not is_usable(value):
                if value is not None:
                    discard(value)
                value = self._values[key] = make()
            return value

    def kept_keys(self) -> frozenset[K]:
        """Return the keys that have a value now."""
        with self._lock:
            return frozenset(self._values)

    def values(self, is_wanted: Callable[[V], bool]) -> list[V]:
        """Return the values for which ``is_wanted`` is true."""
        with self._lock:
            return [value for value in self._values.values() if is_wanted(value)]

    def take(self, key: K) -> V | None:
        """Keep the value of ``key`` no longer, and return it."""
        with self._lock:
            return self._values.pop(key, None)

    def take_unused(self, is_unused: Callable[[V], bool]) -> list[V]:
        """Keep the values that are unused no longer, and return them; no use of one begins meanwhile."""
        with self._lock:
            unused = [key for key, value in self._values.items() if is_unused(value)]
            return [self._values.pop(key) for key in unused]

    def after_fork(self) -> None:
        """Begin without values, in a forked child."""
        self._parents.append(self._values)
        self._values = {}


def _begin_again() -> None:
    for one in list(_of_this_process):
        one.after_fork()


os.register_at_fork(after_in_child=_begin_again)
