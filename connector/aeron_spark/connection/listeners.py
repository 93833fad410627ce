"""Listeners by class of message. A listener of a class also gets subclasses; one of ``object`` gets all messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from aeron_spark.errors import OptionError

_L = TypeVar("_L")


class Listeners(Generic[_L]):
    """Listeners by class, in a fixed order: those of the exact class first, then superclass by superclass."""

    def __init__(self) -> None:
        self._by_class: dict[type, tuple[_L, ...]] = {}
        self._found: _Found[_L] = _Found(self._by_class)
        self.matching: Callable[[type], tuple[_L, ...]] = self._found.__getitem__
        """Return all listeners for a message of exactly this class, in the order of the calls."""

    def add(self, cls: type, listener: _L) -> None:
        """Add a listener for messages of ``cls``, after earlier ones. Raises OptionError if ``cls`` is not a class."""
        if not isinstance(cls, type):
            raise OptionError(f"{cls!r} is not a class, by which listeners select messages", remedy="Give a class.")
        self._by_class[cls] = (*self._by_class.get(cls, ()), listener)
        self._found.clear()

    def remove(self, cls: type, listener: _L) -> bool:
        """Remove one registration of a listener; return whether it was registered."""
        remaining = list(self._by_class.get(cls, ()))
        if listener not in remaining:
            return False
        remaining.remove(listener)
        self._by_class[cls] = tuple(remaining)
        self._found.clear()
        return True


class _Found(dict[type, tuple[_L, ...]]):
    """Cache of the listeners by exact class, because each message needs them."""

    def __init__(self, by_class: dict[type, tuple[_L, ...]]) -> None:
        super().__init__()
        self._by_class = by_class

    def __missing__(self, cls: type) -> tuple[_L, ...]:
        self[cls] = found = tuple(listener for one in cls.__mro__ for listener in self._by_class.get(one, ()))
        return found
