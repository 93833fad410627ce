"""The listeners of an endpoint, and the report of errors to them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from aeron_spark.connection.call_observer import MAX_LOGGED_CHARACTERS
from aeron_spark.connection.listeners import Listeners
from aeron_spark.text_safety import escape_text

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection


LOG: Final = logging.getLogger("aeron_spark.endpoint")

F = TypeVar("F", bound=Callable[..., object])
ListenerEvent = Literal["init", "connect", "resume", "disconnect", "error", "reconnect", "lost", "stopped"]


class EndpointListeners:
    """Listeners of one endpoint, called on the caller's thread. A listener's exception is reported as an error."""

    def __init__(self) -> None:
        self._by_event: dict[str, list[Callable[..., object]]] = {}
        self._messages: Listeners[Callable[[Connection, Any], object]] = Listeners()

    def add(self, event: ListenerEvent, listener: F) -> F:
        """Add a listener of an event, and return it."""
        self._by_event.setdefault(event, []).append(listener)
        return listener

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        """Add ``listener(connection, message)`` for the messages of a class, of all connections."""
        self._messages.add(kind, listener)

    def has(self, event: ListenerEvent) -> bool:
        """Whether an event has a listener."""
        return event in self._by_event

    def notify(self, event: ListenerEvent, connection: Connection | None, *more: object) -> None:
        """Call the listeners of an event with the connection, unless it is None, and ``more``."""
        arguments = more if connection is None else (connection, *more)
        for listener in self._by_event.get(event, ()):
            try:
                listener(*arguments)
            except Exception as error:
                self.report(connection, error)

    def deliver(self, connection: Connection, message: object) -> bool:
        """Call the listeners of a message; return whether it has any."""
        listeners = self._messages.matching(type(message))
        for listener in listeners:
            try:
                listener(connection, message)
            except Exception as error:
                self.report(connection, error)
        return bool(listeners)

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Call the error listeners, or log the error if there is none. Exceptions of error listeners are logged."""
        listeners = self._by_event.get("error", ())
        if not listeners:
            source = connection.label if connection is not None else "endpoint"
            LOG.warning("%s: %s", escape_text(source), escape_text(str(error), MAX_LOGGED_CHARACTERS))
        for listener in listeners:
            try:
                listener(connection, error)
            except Exception:
                LOG.exception("an error listener failed")
