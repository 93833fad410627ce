"""The relay of ``aeron-spark server``: each subscribed client receives the byte messages of all other clients."""

from __future__ import annotations

import threading
from typing import Final

from aeron_spark.endpoint.connection import Connection, ConnectionCore, grant_of
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.endpoint.server_sessions import GrantChanged
from aeron_spark.errors import AeronSparkError, RefusedError, WaitTimeout
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE

SERVICE: Final = FIRST_SERVICE + 3
SUBSCRIBE: Final = "subscribe"


class Relay:
    """Forwards messages of bytes to subscribed clients, and stores none.

    A client calls the method ``SUBSCRIBE`` of the object ``SERVICE``; its key needs the grant ``messages=receive``. A
    client misses messages while it is not connected, and while its buffer is full; it delays no other client.
    ``missed`` counts the messages that did not fit a subscriber's buffer.
    """

    def __init__(self, endpoint: ServerEndpoint) -> None:
        self.forwarded = 0
        self.missed = 0
        self._endpoint = endpoint
        self._subscribers: set[Connection] = set()
        self._lock = threading.Lock()
        endpoint.message_listeners.add(bytes, self._forward)
        endpoint.listeners.add("disconnect", self._unsubscribe)
        endpoint.add_service(self.serve)
        endpoint.facts.on(GrantChanged, self._on_grant_changed)

    @property
    def subscribers(self) -> int:
        """The number of subscribed clients."""
        return len(self._subscribers)

    def serve(self, connection: ConnectionCore) -> None:
        """Let the client of a connection subscribe."""
        connection.serve(_Subscription(self, connection.for_program), (SUBSCRIBE,), SERVICE)

    def subscribe(self, connection: Connection) -> None:
        """Forward messages to a client from now on. Raises RefusedError if its key may not receive messages."""
        if not grant_of(connection).may_pass_messages("receive"):
            raise RefusedError(
                "your key may not receive messages",
                remedy="Ask the server's operator to grant messages=receive in the server's clients file.",
                reason="not-permitted",
            )
        with self._lock:
            self._subscribers.add(connection)

    def _on_grant_changed(self, fact: GrantChanged) -> None:
        connection = fact.connection.for_program
        if fact.refusal is not None or not grant_of(connection).may_pass_messages("receive"):
            self._unsubscribe(connection)

    def _forward(self, sender: Connection, message: bytes) -> None:
        with self._lock:
            receivers = [subscriber for subscriber in self._subscribers if subscriber is not sender]
        for receiver in receivers:
            try:
                receiver.send(message, timeout=0)
                self.forwarded += 1
            except WaitTimeout:
                self.missed += 1
            except AeronSparkError:
                self._unsubscribe(receiver)

    def _unsubscribe(self, connection: Connection) -> None:
        # a client that resumes its session has to subscribe again: it cannot know which messages it missed
        with self._lock:
            self._subscribers.discard(connection)


class _Subscription:
    """The service of one connection."""

    def __init__(self, relay: Relay, connection: Connection) -> None:
        self._relay = relay
        self._connection = connection

    def subscribe(self) -> None:
        self._relay.subscribe(self._connection)
