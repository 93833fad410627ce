"""The listeners of an endpoint, the report of errors to them, and what an endpoint logs that has none."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, Literal, TypeVar

from aeron_spark.endpoint.connection import CallEnded, ConnectionCore
from aeron_spark.errors import AeronSparkError, SessionLost, TransportError
from aeron_spark.facts import Bus
from aeron_spark.protocol.session import closed_error
from aeron_spark.texts import escape_text

LOG: Final = logging.getLogger("aeron_spark.endpoint")
MAX_LOGGED_CHARACTERS: Final = 1024  # of an error's text
MAX_STACK_FUNCTIONS: Final = 12

F = TypeVar("F", bound=Callable[..., object])
Notice = Literal["init", "connect", "resume", "disconnect"]
ListenerEvent = Literal["init", "connect", "resume", "disconnect", "error", "reconnect", "lost", "stopped"]


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """An error is reported to the error listeners. With a subscriber, an error without a listener is not logged."""

    connection: ConnectionCore | None
    error: BaseException


class Ending(Enum):
    """Why a session on a server ended, if no error is the cause."""

    CLOSED_BY_SERVER = "the server closed the connection"
    CLOSED_BY_CLIENT = "the client closed the connection"
    NOT_RESUMED = "the client did not resume the session in time"
    NEVER_CONNECTED = "the client did not send the first frame of its first link"

    def error_of(self, label: str) -> AeronSparkError:
        """Return the error of the connection with this label, whose session has ended so."""
        match self:
            case Ending.CLOSED_BY_CLIENT:
                return TransportError("the peer closed the connection", remedy="Wait until the client connects again.")
            case Ending.NOT_RESUMED:
                return SessionLost(f"{label} was not resumed in time", remedy="Connect again.")
            case _:
                return closed_error()


@dataclass(frozen=True, slots=True)
class ConnectionChanged:
    """The listeners of a connection are called next. Emitted on a thread of the listeners.

    ``cause`` is why a connection has ended; None if its session continues, and the client may resume it.
    """

    connection: ConnectionCore
    notice: Notice
    cause: Ending | AeronSparkError | None = None


class EndpointListeners:
    """Listeners of one endpoint, called on the caller's thread. A listener's exception is reported as an error.

    They get the object that the program sees. ``facts`` gets ``ErrorReported`` before the error listeners are called.
    """

    def __init__(self, facts: Bus) -> None:
        self._facts: Final = facts
        self._by_event: dict[str, list[Callable[..., object]]] = {}

    def add(self, event: ListenerEvent, listener: F) -> F:
        self._by_event.setdefault(event, []).append(listener)
        return listener

    def has(self, event: ListenerEvent) -> bool:
        return event in self._by_event

    def notify(self, event: ListenerEvent, connection: ConnectionCore | None, *more: object) -> None:
        """Call the listeners of an event with the connection, unless it is None, and ``more``."""
        arguments = more if connection is None else (connection.for_program, *more)
        for listener in self._by_event.get(event, ()):
            try:
                listener(*arguments)
            except Exception as error:
                self.report(connection, error)

    def report(self, connection: ConnectionCore | None, error: BaseException) -> None:
        """Call the error listeners, or log the error if there is none. Exceptions of error listeners are logged."""
        listeners = self._by_event.get("error", ())
        if not listeners and not self._facts.has(ErrorReported):
            source = connection.label if connection is not None else "endpoint"
            LOG.warning("%s: %s", escape_text(source), escape_text(str(error), MAX_LOGGED_CHARACTERS))
        _isolated(lambda: self._facts.emit(ErrorReported(connection, error)))
        for listener in listeners:
            _isolated(partial(listener, None if connection is None else connection.for_program, error))


def _isolated(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        LOG.exception("an error listener failed")


def log_failed_call(ended: CallEnded) -> None:
    """Log a call that failed, on one line. A one-way call is reported to the error listeners instead."""
    error = ended.error
    if error is None or not ended.name:
        return
    text = escape_text(str(error), MAX_LOGGED_CHARACTERS)
    head = f"call {ended.name} of {escape_text(ended.connection.label)} failed: {escape_text(ended.what)}"
    if isinstance(error, AeronSparkError):  # its caller gets the error with its remedy
        LOG.info("%s: %s", head, text)
    else:
        LOG.warning("%s: %s: %s (%s)", head, type(error).__name__, text, stack_of(error))


def stack_of(error: BaseException) -> str:
    """Return the functions that ran at an error, the innermost first: ``stream.py:88 commit < rpc.py:215 _run``."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_STACK_FUNCTIONS:]
    return " < ".join(f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}" for one in reversed(frames))
