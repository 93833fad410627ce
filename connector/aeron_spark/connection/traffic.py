"""Counts the bytes of one connection, over all its links and bulk links."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Literal

from aeron_spark.connection.link import LinkEnds

LinkKind = Literal["message", "bulk"]
LINK_KINDS: Final[tuple[LinkKind, ...]] = ("message", "bulk")


@dataclass(slots=True)
class Transferred:
    """Bytes of received and of sent frames."""

    received: int = 0
    sent: int = 0


class EndpointTraffic:
    """The bytes of all links of an endpoint, also of closed ones, by kind: ``message`` or ``bulk``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[LinkEnds, LinkKind] = {}
        self._closed: dict[LinkKind, Transferred] = {kind: Transferred() for kind in LINK_KINDS}

    def add(self, link: LinkEnds, kind: LinkKind) -> None:
        """Count the bytes of a link until it is removed."""
        with self._lock:
            self._links[link] = kind

    def remove(self, link: LinkEnds) -> None:
        """Keep the bytes of a link that is closed."""
        with self._lock:
            kind = self._links.pop(link, None)
            if kind is not None:
                self._closed[kind].received += link.received_bytes
                self._closed[kind].sent += link.sent_bytes

    def totals(self) -> dict[LinkKind, Transferred]:
        """Return the bytes by kind."""
        with self._lock:
            found = {kind: Transferred(one.received, one.sent) for kind, one in self._closed.items()}
            for link, kind in self._links.items():
                found[kind].received += link.received_bytes
                found[kind].sent += link.sent_bytes
        return found


class Traffic:
    """The bytes of one connection's frames. Thread-safe.

    Each link counts its own bytes without a lock, because one thread at a time sends on it, and one receives.
    """

    def __init__(self, now: float) -> None:
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
