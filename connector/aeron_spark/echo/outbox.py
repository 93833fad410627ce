"""Replies that wait for their publication: in order, bounded, for a time only, so that no client waits for another."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from aeron_spark.transport.api import OfferResult

MOST: Final = 256  # replies of one client; a duologue never has more than one poll's
REFUSALS_AT_ONCE: Final = 100
REFUSALS_A_SECOND: Final = 100.0  # every client that waits for its own answer has to read them all


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

    def flush(self, now: float, most: int = MOST) -> int:
        """Send what can be sent, ``most`` messages at most; return how many. Nothing is tried that is overdue."""
        before = self.sent
        while self._waiting and self._waiting[0][0] > now and self.sent - before < most:
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


class SharedOutbox:
    """The answers to all who ask over one channel, so that one who floods it keeps no other from being answered.

    Admissions go first: the server's limit of clients bounds them. Refusals of each session wait in a separate queue,
    and the queues take turns; all together they are sent at ``REFUSALS_A_SECOND``. A session with a refusal that waits
    is not polled (:meth:`waits_for`), so that a queue has at most what one poll of a session gives.
    """

    def __init__(self, publication: Offers, patience: float) -> None:
        self._publication = publication
        self._patience = patience
        self._admissions = Outbox(publication, patience)
        self._refusals: dict[int, Outbox] = {}  # by image; the one whose turn it is comes first
        self._allowed = float(REFUSALS_AT_ONCE)
        self._allowed_at = 0.0

    def admit(self, message: bytes, now: float) -> None:
        """Tell a client where its duologue is."""
        self._admissions.put(message, now)

    def refuse(self, image: int, message: bytes, now: float) -> None:
        """Tell the sender of an image that its message was refused."""
        self._refusals.setdefault(image, Outbox(self._publication, self._patience)).put(message, now)

    def waits_for(self, image: int) -> bool:
        """Whether a refusal of this image was not sent yet."""
        return image in self._refusals

    def flush(self, now: float) -> int:
        """Send what can be sent now, and forget what has waited for too long; return how many messages were sent."""
        self._admissions.forget_overdue(now)
        sent = self._admissions.flush(now)
        passed = max(0.0, now - self._allowed_at)
        self._allowed, self._allowed_at = min(REFUSALS_AT_ONCE, self._allowed + passed * REFUSALS_A_SECOND), now
        for _ in range(len(self._refusals)):
            image, queue = next(iter(self._refusals.items()))
            queue.forget_overdue(now)
            taken = queue.flush(now, 1) if self._admissions.empty and self._allowed >= 1 else 0
            if not taken and not queue.empty:
                break
            sent += taken
            self._allowed -= taken
            del self._refusals[image]
            if not queue.empty:
                self._refusals[image] = queue  # behind the others
        return sent
