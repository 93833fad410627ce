"""What ``aeron-spark server`` does with messages of bytes: whoever subscribes gets those of all others."""

from __future__ import annotations

import threading
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.errors import AeronSparkError, WaitTimeout
from aeron_spark.server.server import ServerCore

SUBSCRIBE: Final = "aeron-spark subscribe"


class Relay:
    """Passes messages of bytes on. Nothing is kept: who is not here, or too slow for its buffer, misses them.

    ``missed`` counts what did not fit the buffer of a subscriber that is slower than the senders; it delays nobody.
    """

    def __init__(self, server: ServerCore) -> None:
        self.passed_on = 0
        self.missed = 0
        self._subscribers: set[Connection] = set()
        self._lock = threading.Lock()
        server.on_message(str, self._subscribe)
        server.on_message(bytes, self._pass_on)
        server.on_disconnect(self._gone)

    @property
    def subscribers(self) -> int:
        """How many there are."""
        return len(self._subscribers)

    def _subscribe(self, connection: Connection, text: str) -> None:
        if text == SUBSCRIBE:
            with self._lock:
                self._subscribers.add(connection)

    def _pass_on(self, sender: Connection, message: bytes) -> None:
        with self._lock:
            others = [one for one in self._subscribers if one is not sender]
        for other in others:
            try:
                other.send(message, timeout=0)
                self.passed_on += 1
            except WaitTimeout:
                self.missed += 1
            except AeronSparkError:
                self._gone(other)

    def _gone(self, connection: Connection) -> None:
        # one that comes back to its session subscribes anew: it cannot know what it missed meanwhile
        with self._lock:
            self._subscribers.discard(connection)
