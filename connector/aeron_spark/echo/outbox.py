"""Queues of replies that wait for their publication: ordered, and limited in number and time.

A server never blocks in a publication, so that no client waits for another one.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from aeron_spark.transport.api import OfferResult

MAX_REPLIES: Final = 256  # waiting replies of one client; a duologue has at most those of one poll
REFUSAL_BURST: Final = 100
REFUSALS_PER_S: Final = 100.0  # limited because every client that waits for its own response receives all of them


class Publication(Protocol):
    """A publication."""

    def offer(self, message: bytes) -> OfferResult | None:
        """Offer a message once. Return None if it was published, else the reason."""


class Outbox:
    """A queue of messages for ``publication``. Each message may wait ``timeout_s`` seconds."""

    def __init__(self, publication: Publication, timeout_s: float) -> None:
        self.sent = 0
        self._publication = publication
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, bytes]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits."""
        return not self._waiting

    def put(self, message: bytes, now: float) -> None:
        """Add a message at the end. Drops the oldest message of a full queue."""
        if len(self._waiting) == MAX_REPLIES:
            self._waiting.popleft()
        self._waiting.append((now + self._timeout_s, message))

    def flush(self, now: float, limit: int = MAX_REPLIES) -> int:
        """Publish up to ``limit`` messages and return their number. Stops at a message that has waited too long."""
        before = self.sent
        while self._waiting and self._waiting[0][0] > now and self.sent - before < limit:
            if self._publication.offer(self._waiting[0][1]) is not None:
                break
            self._waiting.popleft()
            self.sent += 1
        return self.sent - before

    def is_overdue(self, now: float) -> bool:
        """Return whether the oldest message has waited longer than ``timeout_s``."""
        return bool(self._waiting) and self._waiting[0][0] <= now

    def drop_overdue(self, now: float) -> None:
        """Drop messages that have waited longer than ``timeout_s``, so that they do not block the later ones."""
        while self.is_overdue(now):
            self._waiting.popleft()


class SharedOutbox:
    """Queues of the responses on the channel of all clients. A client that floods the channel delays no other client.

    Admissions are sent first; the server's limit of clients limits their number. Each session has its own queue of
    refusals, and the queues take turns. Together they send ``REFUSALS_PER_S``. The server does not poll a session with
    a waiting refusal (:meth:`has_refusal`), so a queue has at most the refusals of one poll.
    """

    def __init__(self, publication: Publication, timeout_s: float) -> None:
        self._publication = publication
        self._timeout_s = timeout_s
        self._admissions = Outbox(publication, timeout_s)
        self._refusals: dict[int, Outbox] = {}  # by image id; the first one sends next
        self._allowed = float(REFUSAL_BURST)
        self._allowed_at = 0.0

    def admit(self, message: bytes, now: float) -> None:
        """Queue a response that gives a client the address of its duologue."""
        self._admissions.put(message, now)

    def refuse(self, image: int, message: bytes, now: float) -> None:
        """Queue a refusal for the sender of an image."""
        self._refusals.setdefault(image, Outbox(self._publication, self._timeout_s)).put(message, now)

    def has_refusal(self, image: int) -> bool:
        """Return whether a refusal for this image waits."""
        return image in self._refusals

    def flush(self, now: float) -> int:
        """Send waiting messages, and drop those that have waited too long. Return the number of sent messages."""
        self._admissions.drop_overdue(now)
        sent = self._admissions.flush(now)
        elapsed_s = max(0.0, now - self._allowed_at)
        self._allowed, self._allowed_at = min(REFUSAL_BURST, self._allowed + elapsed_s * REFUSALS_PER_S), now
        for _ in range(len(self._refusals)):
            image, queue = next(iter(self._refusals.items()))
            queue.drop_overdue(now)
            flushed = queue.flush(now, 1) if self._admissions.is_empty and self._allowed >= 1 else 0
            if not flushed and not queue.is_empty:
                break
            sent += flushed
            self._allowed -= flushed
            del self._refusals[image]
            if not queue.is_empty:
                self._refusals[image] = queue  # moves it behind the others
        return sent
