"""The relay of ``aeron-spark server``: each subscribed client receives the byte messages of all other clients."""

from __future__ import annotations

import threading
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, WaitTimeout
from aeron_spark.server.server import Server

SUBSCRIBE: Final = "aeron-spark subscribe"


class Relay:
    """Forwards messages of bytes to subscribed clients, and stores none.

    A client misses messages while it is not connected, and while its buffer is full; it delays no other client.
    ``missed`` counts the messages that did not fit a subscriber's buffer.
    """

    def __init__(self, server: Server) -> None:
        self.forwarded = 0
        self.missed = 0
        self._subscribers: set[Connection] = set()
        self._lock = threading.Lock()
        server.on_message(str, self._subscribe)
        server.on_message(bytes, self._forward)
        server.on_disconnect(self._unsubscribe)

    @property
    def subscribers(self) -> int:
        """The number of subscribed clients."""
        return len(self._subscribers)

    def _subscribe(self, connection: Connection, text: str) -> None:
        if text == SUBSCRIBE:
            with self._lock:
                self._subscribers.add(connection)

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
