"""Facts: frozen values that one part of a process emits, and to which other parts, such as a log, subscribe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

F = TypeVar("F")


class Bus:
    """Passes each fact to the subscribers of its class. Thread-safe once all have subscribed."""

    def __init__(self) -> None:
        self._subscribers: Final[dict[type, list[Callable[[Any], object]]]] = {}

    def on(self, kind: type[F], subscriber: Callable[[F], object]) -> None:
        """Call ``subscriber(fact)`` for each fact of exactly this class. Call this before the start.

        It is called on the thread that emits the fact, which may hold a lock: it returns soon and does not raise.
        """
        self._subscribers.setdefault(kind, []).append(subscriber)

    def has(self, kind: type) -> bool:
        """Whether a fact of this class has a subscriber."""
        return kind in self._subscribers

    def emit(self, fact: object) -> None:
        """Call the subscribers of the fact's class, in the order in which they have subscribed."""
        for subscriber in self._subscribers.get(type(fact), ()):
            subscriber(fact)
