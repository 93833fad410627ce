"""The facts of a server that its log and its metrics show. Parts of the server notify an observer; they do not log."""

from __future__ import annotations

from typing import Final

from aeron_spark.connection.call_observer import ServedCall
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol.server_effects import Ending, HandshakeEnded, Notice
from aeron_spark.wire.stream_rpc import AnyRequest


class ServerObserver:
    """Learns the facts of a server. Its methods return soon and do not raise. This class does nothing."""

    def handshake_ended(self, ended: HandshakeEnded) -> None:
        """A handshake has ended. Called on the event loop."""

    def connection_changed(
        self, connection: ConnectionRunner, notice: Notice, cause: Ending | AeronSparkError | None
    ) -> None:
        """Listeners were notified of a connection. Called on a thread of the listeners.

        ``cause`` is why a connection has ended; None if its session continues, and the client may resume it.
        """

    def call_ended(self, connection: ConnectionRunner, ended: ServedCall) -> None:
        """A call of a client has ended. Called on a thread of the workers."""

    def request_ended(self, connection: ConnectionRunner, request: AnyRequest, error: AeronSparkError | None) -> None:
        """A request to the streams was executed, or has failed. Called on a thread of the workers."""

    def read(self, stream: str, size: int) -> None:
        """A reader gets bytes of a stream. Called on a thread of the transfers."""

    def driver_back(self) -> None:
        """The server has connected to a media driver again, after a loss. Called on the event loop."""


class ServerObservers(ServerObserver):
    """Notifies several observers, in the order in which they were added."""

    def __init__(self) -> None:
        self._observers: Final[list[ServerObserver]] = []

    def add(self, observer: ServerObserver) -> None:
        """Add an observer, before the server starts."""
        self._observers.append(observer)

    def handshake_ended(self, ended: HandshakeEnded) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.handshake_ended(ended)

    def connection_changed(
        self, connection: ConnectionRunner, notice: Notice, cause: Ending | AeronSparkError | None
    ) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.connection_changed(connection, notice, cause)

    def call_ended(self, connection: ConnectionRunner, ended: ServedCall) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.call_ended(connection, ended)

    def request_ended(self, connection: ConnectionRunner, request: AnyRequest, error: AeronSparkError | None) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.request_ended(connection, request, error)

    def read(self, stream: str, size: int) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.read(stream, size)

    def driver_back(self) -> None:
        """Notify each observer."""
        for observer in self._observers:
            observer.driver_back()
