"""The listeners of an endpoint, and the report of errors to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

from aeron_spark.connection.call_observer import MAX_LOGGED_CHARACTERS
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.listeners import Listeners
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.text_safety import escape_text

LOG: Final = logging.getLogger("aeron_spark.endpoint")

F = TypeVar("F", bound=Callable[..., object])
ListenerEvent = Literal["init", "connect", "resume", "disconnect", "error", "reconnect", "lost", "stopped"]


class EndpointListeners:
    """Listeners of one endpoint, called on the caller's thread. A listener's exception is reported as an error.

    The listeners of a program get the object that the program sees; ``observe_error`` gets the runner.
    """

    def __init__(self) -> None:
        self._by_event: dict[str, list[Callable[..., object]]] = {}
        self._messages: Listeners[Callable[[Connection, Any], object]] = Listeners()
        self.observe_error: Callable[[ConnectionRunner | None, BaseException], object] | None = None
        """Called with each error, before the error listeners. Without it, an error without a listener is logged."""

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

    def notify(self, event: ListenerEvent, connection: ConnectionRunner | None, *more: object) -> None:
        """Call the listeners of an event with the connection, unless it is None, and ``more``."""
        arguments = more if connection is None else (connection.for_program, *more)
        for listener in self._by_event.get(event, ()):
            try:
                listener(*arguments)
            except Exception as error:
                self.report(connection, error)

    def listeners_of(self, kind: type) -> Sequence[Callable[[Connection, Any], object]]:
        """Return the listeners of messages of exactly this class, in the order of the calls."""
        return self._messages.matching(kind)

    def report(self, connection: ConnectionRunner | None, error: BaseException) -> None:
        """Call the error listeners, or log the error if there is none. Exceptions of error listeners are logged."""
        listeners = self._by_event.get("error", ())
        if self.observe_error is None and not listeners:
            source = connection.label if connection is not None else "endpoint"
            LOG.warning("%s: %s", escape_text(source), escape_text(str(error), MAX_LOGGED_CHARACTERS))
        if self.observe_error is not None:
            _call_with_error(self.observe_error, connection, error)
        for listener in listeners:
            _call_with_error(listener, None if connection is None else connection.for_program, error)


def _call_with_error(listener: Callable[..., object], connection: object, error: BaseException) -> None:
    try:
        listener(connection, error)
    except Exception:
        LOG.exception("an error listener failed")
