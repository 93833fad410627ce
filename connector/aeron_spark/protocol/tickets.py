"""Finds the server's sessions by tickets. Only the key of a session's client can use its tickets.

Rules:
* A client presents a ticket after it has proved its key. A ticket of another key's session counts as unknown: neither
  the session, nor its expiry, nor its tickets change.
* A client that presents a valid ticket gets a new one. The old ticket stays valid until the first frame under the new
  keys confirms the new one, so that a client that misses DONE_ACK can still resume. Then the old one is deleted.
* Until its first frame, a new session is also found by the ticket that its client presented, because the client has no
  other ticket if it misses the first DONE_ACK.
* A session with a link does not expire; a session without a link does.
* The number of sessions is limited, in total and per key. A session never ends to make room for another key's.

The class has no lock: callers hold a lock around each call. ``now`` is in seconds that never go back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from aeron_spark.errors import UsageError
from aeron_spark.protocol.sources import ReachedLimit, Refusal

S = TypeVar("S")

TICKET_BYTES: Final = 32  # too many to guess
MAX_SESSIONS: Final = 10_000  # each keeps its unacknowledged messages, up to its buffer
MAX_CONNECTIONS_PER_KEY: Final = 64  # sessions; a Spark application needs one for each Python worker
MAX_OFFERS: Final = 4  # unconfirmed tickets of one session, if several DONE_ACKs are lost
CONFIRM_SECONDS: Final = 10.0  # from an offer to its first frame; the session does not expire before

FULL: Final = Refusal("full", "Server has too many sessions")
FULL_FOR_KEY: Final = Refusal("key-limit", "Too many connections for this key")


@dataclass(slots=True, eq=False)
class _Entry(Generic[S]):
    key: bytes
    session: S
    expires_at: float | None  # None while the session has a link
    current: bytes = b""  # digests
    offered: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Offer(Generic[S]):
    """A session, and the new ticket to send to its client."""

    session: S
    ticket: bytes = field(repr=False)


class TicketStore(Generic[S]):
    """Sessions of any type, by ticket. ``entropy(n)`` returns n random bytes. The limits may change; sessions stay."""

    def __init__(
        self,
        entropy: Callable[[int], bytes],
        retention_seconds: float,
        *,
        max_sessions: Callable[[], int] = lambda: MAX_SESSIONS,
        max_connections_per_key: Callable[[], int] = lambda: MAX_CONNECTIONS_PER_KEY,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        self._entropy = entropy
        self._retention_seconds = retention_seconds
        self._max_sessions = max_sessions
        self._max_connections_per_key = max_connections_per_key
        self._confirm_seconds = confirm_seconds
        # by digest, so that the time of a look-up reveals nothing of a ticket
        self._by_ticket: dict[bytes, _Entry[S]] = {}
        self._by_key: dict[bytes, list[_Entry[S]]] = {}  # oldest first

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._by_key.values())

    def open(
        self, key: bytes, session: S, now: float, presented: bytes | None = None, limit: int | None = None
    ) -> tuple[Offer[S], list[S]] | Refusal:
        """Add a new session of the client ``key``. Return its first ticket and the expired sessions, or a refusal.

        ``presented`` is the unknown ticket that the client sent, if any; it finds the session from now on, unless it
        belongs to another session. The session expires unless :meth:`confirm` is called. At its limit, which is
        ``limit`` if that is given, a key loses its own oldest session without a link.
        """
        ended = self.expire(now)
        own = self._by_key.get(key, [])
        limit_of_key = limit or self._max_connections_per_key()
        if len(own) >= limit_of_key:
            oldest = next((entry for entry in own if entry.expires_at is not None), None)
            if oldest is None:
                return FULL_FOR_KEY.at(ReachedLimit("maxConnectionsPerKey", limit_of_key, "connections=", bool(limit)))
            self._remove(oldest)
            ended.append(oldest.session)
        elif len(self) >= (max_sessions := self._max_sessions()):
            return FULL.at(ReachedLimit("maxSessions", max_sessions))
        entry = _Entry(key, session, now + self._retention_seconds)
        self._by_key.setdefault(key, []).append(entry)
        if presented is not None and _digest(presented) not in self._by_ticket:
            entry.offered.append(_digest(presented))
            self._by_ticket[_digest(presented)] = entry
        return self._offer(entry), ended

    def present(self, ticket: bytes, key: bytes, now: float) -> Offer[S] | None:
        """Return the session of a ticket and a new ticket, for a client that has proved ``key``.

        Returns None if the ticket is unknown, replaced or expired, or belongs to another key. The session keeps its
        link, if it has one, until :meth:`confirm`.
        """
        digest = _digest(ticket)
        entry = self._by_ticket.get(digest)
        if entry is None or not hmac.compare_digest(entry.key, key):
            return None
        if entry.expires_at is not None:
            if now >= entry.expires_at:
                return None
            entry.expires_at = max(entry.expires_at, now + self._confirm_seconds)
        if digest in entry.offered:
            # the client has this ticket, so new offers must push it out last
            entry.offered.remove(digest)
            entry.offered.append(digest)
        return self._offer(entry)

    def confirm(self, ticket: bytes) -> bool:
        """Handle the first frame under the keys of the handshake that sent ``ticket``: delete all other tickets.

        The session has a link from now on. Returns False if the ticket is not valid any more; the caller must then
        close the link.
        """
        digest = _digest(ticket)
        entry = self._by_ticket.get(digest)
        if entry is None:
            return False
        for other in {entry.current, *entry.offered} - {digest, b""}:
            del self._by_ticket[other]
        entry.current = digest
        entry.offered.clear()
        entry.expires_at = None
        return True

    def detach(self, ticket: bytes, now: float) -> None:
        """Let the session of this ticket expire, because it has lost its link, unless its client resumes it.

        A ticket that is not the session's current one belongs to an older link; the call then does nothing.
        """
        digest = _digest(ticket)
        entry = self._by_ticket.get(digest)
        if entry is not None and entry.current == digest and entry.expires_at is None:
            entry.expires_at = now + self._retention_seconds

    def drop(self, ticket: bytes) -> None:
        """Delete the session of this ticket with all its tickets, if it exists."""
        entry = self._by_ticket.get(_digest(ticket))
        if entry is not None:
            self._remove(entry)

    def expire(self, now: float) -> list[S]:
        """Delete the expired sessions, and return them."""
        expired = [
            entry
            for entries in self._by_key.values()
            for entry in entries
            if entry.expires_at is not None and now >= entry.expires_at
        ]
        for entry in expired:
            self._remove(entry)
        return [entry.session for entry in expired]

    def deadline(self) -> float | None:
        """Return the time when the next session expires; None for never."""
        times = [entry.expires_at for entries in self._by_key.values() for entry in entries]
        return min((time for time in times if time is not None), default=None)

    def sessions(self) -> list[S]:
        """Return all sessions. For tests of leaks."""
        return [entry.session for entries in self._by_key.values() for entry in entries]

    def _offer(self, entry: _Entry[S]) -> Offer[S]:
        ticket = self._entropy(TICKET_BYTES)
        digest = _digest(ticket)
        if digest in self._by_ticket:
            raise UsageError("the entropy gave the same ticket twice", remedy="Use a random source of entropy.")
        if len(entry.offered) >= MAX_OFFERS:
            del self._by_ticket[entry.offered.pop(0)]
        entry.offered.append(digest)
        self._by_ticket[digest] = entry
        return Offer(entry.session, ticket)

    def _remove(self, entry: _Entry[S]) -> None:
        for digest in {entry.current, *entry.offered} - {b""}:
            del self._by_ticket[digest]
        own = self._by_key[entry.key]
        own.remove(entry)
        if not own:
            del self._by_key[entry.key]


def _digest(ticket: bytes) -> bytes:
    return hashlib.sha256(ticket).digest()
