"""Replies that wait for their publication: in order, bounded, and for a time only, so that nobody waits for anybody."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from aeron_spark.transport.offer import OfferResult

MOST: Final = 256  # replies; a duologue never has more than one poll's, all-clients loses the oldest of a flood


class Offers(Protocol):
    """A publication."""

    def offer(self, message: bytes) -> OfferResult | None:
        """Offer one message, once; return None where it was taken, else why not."""


class Outbox:
    """What is to be said over ``publication``; each message is tried for ``patience`` seconds."""

    def __init__(self, publication: Offers, patience: float) -> None:
        self.sent = 0
        self._publication = publication
        self._patience = patience
        self._waiting: deque[tuple[float, bytes]] = deque()

    @property
    def empty(self) -> bool:
        """Whether everything was sent."""
        return not self._waiting

    def put(self, message: bytes, now: float) -> None:
        """Send this after what waits; the oldest goes where there is too much."""
        if len(self._waiting) == MOST:
            self._waiting.popleft()
        self._waiting.append((now + self._patience, message))

    def flush(self, now: float) -> int:
        """Send what can be sent; return how many. Nothing is tried that is overdue."""
        before = self.sent
        while self._waiting and self._waiting[0][0] > now:
            if self._publication.offer(self._waiting[0][1]) is not None:
                break
            self._waiting.popleft()
            self.sent += 1
        return self.sent - before

    def overdue(self, now: float) -> bool:
        """Whether a message has waited for longer than it may."""
        return bool(self._waiting) and self._waiting[0][0] <= now

    def forget_overdue(self, now: float) -> None:
        """Give up what has waited for too long: where many share a publication, one must not block the others."""
        while self.overdue(now):
            self._waiting.popleft()
