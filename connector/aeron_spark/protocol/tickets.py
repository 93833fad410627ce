"""The server's sessions, each found by a ticket that only its client's key can use.

Rules:
* A ticket is looked at after its bearer has proved its key. With another key than its session's it is as good as
  unknown, and changes nothing: neither the session, nor its expiry, nor its tickets.
* Who presents a ticket is offered a new one. The old one stays good until the first message under the new keys
  confirms the new one, so that a lost answer locks nobody out; from then on the old one is unknown.
* A new session is found by what its client presented, too, until its first message: the first answer can be lost, and
  its client then has nothing else.
* A session without a duologue expires; one with a duologue does not.
* The number of sessions is bounded, in all and of each key. Nobody's session makes room for another key's.

Nothing here locks: callers hold a lock around each call. ``now`` is seconds that never go back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.refusals import Refusal

S = TypeVar("S")

TICKET_BYTES: Final = 32  # beyond guessing
MAX_SESSIONS: Final = 10_000  # each holds what its client has not acknowledged, up to its buffer
MAX_SESSIONS_PER_KEY: Final = 16  # clients that share a key file, or come back without their tickets
MAX_OFFERS: Final = 4  # of one session: answers that were lost one after the other
CONFIRM_SECONDS: Final = 10.0  # from an offer to its first message; a session does not expire between

FULL: Final = Refusal("full", "Server has too many sessions")
FULL_FOR_KEY: Final = Refusal("full", "Too many connected sessions for this key")


@dataclass(slots=True, eq=False)
class _Entry(Generic[S]):
    key: bytes
    session: S
    expires_at: float | None  # None while a duologue is attached
    current: bytes = b""  # digests
    offered: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Offer(Generic[S]):
    """A session, and the ticket to send to its client."""

    session: S
    ticket: bytes = field(repr=False)


class TicketStore(Generic[S]):
    """Sessions of any type by ticket. ``entropy`` returns as many random bytes as it is asked for."""

    def __init__(
        self,
        entropy: Callable[[int], bytes],
        retention_seconds: float,
        *,
        most: int = MAX_SESSIONS,
        most_per_key: int = MAX_SESSIONS_PER_KEY,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        if most < 1 or most_per_key < 1:
            raise OptionError(
                f"the server keeps {most} sessions, {most_per_key} of a key", remedy="Make both at least 1"
            )
        self._entropy = entropy
        self._retention_seconds = retention_seconds
        self._most = most
        self._most_per_key = most_per_key
        self._confirm_seconds = confirm_seconds
        self._by_ticket: dict[bytes, _Entry[S]] = {}  # by digest: a look-up's time tells nothing of a ticket
        self._by_key: dict[bytes, list[_Entry[S]]] = {}  # oldest first

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._by_key.values())

    def open(
        self, key: bytes, session: S, now: float, presented: bytes | None = None
    ) -> tuple[Offer[S], list[S]] | Refusal:
        """Keep a new session of the client ``key``: its first ticket, and the sessions that ended for it, or a refusal.

        ``presented`` is what its client came with, and of no use so far; one that is somebody else's stays theirs. It
        expires unless :meth:`confirm` is called. A key at its limit loses its own oldest detached session.
        """
        ended = self.expire(now)
        own = self._by_key.get(key, [])
        if len(own) >= self._most_per_key:
            oldest = next((entry for entry in own if entry.expires_at is not None), None)
            if oldest is None:
                return FULL_FOR_KEY
            self._remove(oldest)
            ended.append(oldest.session)
        elif len(self) >= self._most:
            return FULL
        entry = _Entry(key, session, now + self._retention_seconds)
        self._by_key.setdefault(key, []).append(entry)
        if presented is not None and _digest(presented) not in self._by_ticket:
            entry.offered.append(_digest(presented))
            self._by_ticket[_digest(presented)] = entry
        return self._offer(entry), ended

    def present(self, ticket: bytes, key: bytes, now: float) -> Offer[S] | None:
        """Return the session of a ticket, whose bearer has proved ``key``, and a new ticket; None for one of no use.

        That is an unknown, used or expired one, and one of another key. The session's duologue, if it has one, goes on
        until :meth:`confirm`.
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
            # the client has this one, not those before it: it must be the last that new offers push out
            entry.offered.remove(digest)
            entry.offered.append(digest)
        return self._offer(entry)

    def confirm(self, ticket: bytes) -> bool:
        """The first message came under the keys of the handshake that brought ``ticket``: the others are void now.

        The session has a duologue from here on. False if the ticket is of no use any more: refuse that duologue.
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
        """The duologue of this ticket's session is gone: the session expires unless its client comes back.

        A ticket that is not its session's current one belongs to an older duologue, and changes nothing.
        """
        digest = _digest(ticket)
        entry = self._by_ticket.get(digest)
        if entry is not None and entry.current == digest and entry.expires_at is None:
            entry.expires_at = now + self._retention_seconds

    def drop(self, ticket: bytes) -> None:
        """The session of this ticket was closed for good. Idempotent."""
        entry = self._by_ticket.get(_digest(ticket))
        if entry is not None:
            self._remove(entry)

    def expire(self, now: float) -> list[S]:
        """Drop the sessions whose time is over, and return them."""
        over = [
            entry
            for entries in self._by_key.values()
            for entry in entries
            if entry.expires_at is not None and now >= entry.expires_at
        ]
        for entry in over:
            self._remove(entry)
        return [entry.session for entry in over]

    def deadline(self) -> float | None:
        """When :meth:`expire` finds something, if nothing changes."""
        times = [entry.expires_at for entries in self._by_key.values() for entry in entries]
        return min((time for time in times if time is not None), default=None)

    def sessions(self) -> list[S]:
        """Return every session that has a ticket, to look for a leak."""
        return [entry.session for entries in self._by_key.values() for entry in entries]

    def _offer(self, entry: _Entry[S]) -> Offer[S]:
        ticket = self._entropy(TICKET_BYTES)
        digest = _digest(ticket)
        if digest in self._by_ticket:
            raise UsageError(
                "the entropy gave the same ticket twice", remedy="Give the server a real source of entropy"
            )
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
