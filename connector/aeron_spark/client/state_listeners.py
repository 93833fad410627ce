"""Tells a program that its client has lost a session, is connected again, or has given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aeron_spark.connection.deliveries import SerialExecutor
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import AeronSparkError, EndedError
from aeron_spark.protocol.frames import OutgoingRecord


class StateListeners:
    """Calls the listeners ``lost``, ``reconnect`` and ``stopped`` on the listener pool, one at a time and in order.

    Its methods are for the event loop, and do not wait.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._listeners: Final = runtime.listeners
        self._executor: Final = SerialExecutor(runtime.loop.pool, runtime.options.queue_bytes, on_room=lambda: None)

    def lost(self, connection: ConnectionRunner, error: AeronSparkError, unconfirmed: Sequence[OutgoingRecord]) -> None:
        """Call the listeners for a session that has ended, with the messages of these records.

        If the program closed the session, they are called only if some of its messages are unconfirmed.
        """

        def notify() -> None:
            messages = connection.messages_of(unconfirmed)
            if messages or not isinstance(error, EndedError):
                lost = error.with_what(error.what)
                lost.unconfirmed = messages
                self._listeners.notify("lost", connection, lost)

        if self._listeners.has("lost"):
            self._executor.submit(notify)

    def reconnected(self, connection: ConnectionRunner, *, resumed: bool) -> None:
        """Tell that the client is connected again, and whether with the same session."""
        self._executor.submit(lambda: self._listeners.notify("reconnect", connection, resumed))

    def stopped(self, error: AeronSparkError) -> None:
        """Tell that the client does not try to connect any more."""
        self._executor.submit(lambda: self._listeners.notify("stopped", None, error))
