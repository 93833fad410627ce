"""Counts the bytes of one connection, over all its links and bulk links."""

from __future__ import annotations

import threading

from aeron_spark.connection.link import LinkEnds


class Traffic:
    """The bytes of one connection's frames. Thread-safe.

    Each link counts its own bytes without a lock, because one thread at a time sends on it, and one receives.
    """

    def __init__(self, now: float) -> None:
        self.began_at = now
        """When the connection was made, in monotonic seconds."""
        self.bulk_active_at = now
        """When a bulk link last sent or received data, in monotonic seconds."""
        self._lock = threading.Lock()
        self._links: set[LinkEnds] = set()
        self._received = self._sent = 0  # bytes of links that were removed

    def add(self, link: LinkEnds) -> None:
        """Count the bytes of a link, or of a bulk link's link, until it is removed."""
        with self._lock:
            self._links.add(link)

    def remove(self, link: LinkEnds) -> None:
        """Keep the bytes of a link that is closed."""
        with self._lock:
            self._links.remove(link)
            self._received += link.received_bytes
            self._sent += link.sent_bytes

    def totals(self) -> tuple[int, int]:
        """Return the bytes of all received and of all sent frames, without the headers of Aeron and UDP."""
        with self._lock:
            received, sent = self._received, self._sent
            for link in self._links:
                received += link.received_bytes
                sent += link.sent_bytes
        return received, sent
