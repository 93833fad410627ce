"""Listeners by the class of message: a listener for a class gets its subclasses, too; one for ``object`` gets all."""

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
        """All listeners a message of exactly this class goes to, in the order they are called."""

    def add(self, cls: type, listener: _L) -> None:
        """Have ``listener`` called for messages of ``cls``, after those that were added for it before."""
        if not isinstance(cls, type):
            raise OptionError(f"messages are told apart by class, and {cls!r} is none", remedy="Give a class")
        self._by_class[cls] = (*self._by_class.get(cls, ()), listener)
        self._found.clear()

    def remove(self, cls: type, listener: _L) -> bool:
        """Take one registration back; return whether there was one."""
        kept = list(self._by_class.get(cls, ()))
        if listener not in kept:
            return False
        kept.remove(listener)
        self._by_class[cls] = tuple(kept)
        self._found.clear()
        return True


class _Found(dict[type, tuple[_L, ...]]):
    """What was looked up before; each message asks."""

    def __init__(self, by_class: dict[type, tuple[_L, ...]]) -> None:
        super().__init__()
        self._by_class = by_class

    def __missing__(self, cls: type) -> tuple[_L, ...]:
        self[cls] = found = tuple(listener for one in cls.__mro__ for listener in self._by_class.get(one, ()))
        return found
