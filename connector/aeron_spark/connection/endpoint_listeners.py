"""The listeners of an endpoint, and the report of errors. A listener's exception is reported as an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aeron_spark.connection.listeners import Listeners

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection


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
