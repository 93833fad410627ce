"""Who listens to which messages: a listener for a class hears its subclasses too, one for ``object`` hears all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aeron_spark.errors import OptionError

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection

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


LOG: Final = logging.getLogger("aeron_spark.endpoint")

F = TypeVar("F", bound=Callable[..., object])


class EndpointListeners:
    """Listeners of one endpoint. Each method can be used as a decorator."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Callable[..., object]]] = {}
        self._messages: Listeners[Callable[[Connection, Any], object]] = Listeners()

    def on_init(self, listener: F) -> F:
        """``listener(connection)``: authenticated, and nothing of it was delivered yet."""
        return self._add("init", listener)

    def on_connect(self, listener: F) -> F:
        """``listener(connection)``: it can be used. Once a session: a resume does not call it again."""
        return self._add("connect", listener)

    def on_resume(self, listener: F) -> F:
        """``listener(connection)``: it was away, and goes on where it was."""
        return self._add("resume", listener)

    def on_disconnect(self, listener: F) -> F:
        """``listener(connection)``: it was closed, or is silent for longer than the expiry. Once, unless it resumes."""
        return self._add("disconnect", listener)

    def on_error(self, listener: F) -> F:
        """``listener(connection or None, error)``. Without any, errors are logged."""
        return self._add("error", listener)

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        """Have ``listener(connection, message)`` called for each message of this class, of whichever connection."""
        self._messages.add(kind, listener)

    def tell(self, name: str, connection: Connection) -> None:
        """Call the listeners of an event."""
        for listener in self._by_name.get(name, ()):
            try:
                listener(connection)
            except Exception as error:
                self.report(connection, error)

    def deliver(self, connection: Connection, message: object) -> bool:
        """Call the listeners of a message; whether there are any."""
        listeners = self._messages.matching(type(message))
        for listener in listeners:
            try:
                listener(connection, message)
            except Exception as error:
                self.report(connection, error)
        return bool(listeners)

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Call the listeners for errors; what they raise is only logged."""
        listeners = self._by_name.get("error", ())
        if not listeners:
            LOG.warning("%s: %s", connection.label if connection is not None else "endpoint", error)
        for listener in listeners:
            try:
                listener(connection, error)
            except Exception:
                LOG.exception("a listener for errors raised")

    def _add(self, name: str, listener: F) -> F:
        self._by_name.setdefault(name, []).append(listener)
        return listener
