"""The traffic, rates, memory and large responses of connections. A key or connection that uses too much is limited."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import astuple, dataclass
from typing import Final, Generic, Literal, TypeVar

from aeron_spark.endpoint.links import Link

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
        self._links: dict[Link, LinkKind] = {}
        self._closed: dict[LinkKind, Transferred] = {kind: Transferred() for kind in LINK_KINDS}

    def add(self, link: Link, kind: LinkKind) -> None:
        """Count the bytes of a link until it is removed."""
        with self._lock:
            self._links[link] = kind

    def remove(self, link: Link) -> None:
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
        self._links: set[Link] = set()
        self._received = self._sent = 0  # bytes of links that were removed

    def add(self, link: Link) -> None:
        """Count the bytes of a link, or of a bulk link's link, until it is removed."""
        with self._lock:
            self._links.add(link)

    def remove(self, link: Link) -> None:
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


BURST_S: Final = 1.0  # a bucket holds the tokens of this time

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits per second for all connections of one key together; None is no limit."""

    bytes_in: int | None = None
    bytes_out: int | None = None
    messages_in: int | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """Bytes received and sent, and messages received, by one connection."""

    bytes_in: int
    bytes_out: int
    messages_in: int

    def __sub__(self, earlier: Used) -> Used:
        return Used(
            self.bytes_in - earlier.bytes_in,
            self.bytes_out - earlier.bytes_out,
            self.messages_in - earlier.messages_in,
        )


@dataclass(slots=True)
class TokenBucket:
    """Tokens for ``rate`` units a second. ``level`` is negative if more was used. Times are monotonic seconds."""

    rate: int
    level: float
    at: float

    @classmethod
    def full(cls, rate: int, now: float) -> TokenBucket:
        """Return a bucket with all its tokens."""
        return cls(rate, rate * BURST_S, now)

    def take(self, count: int, now: float) -> None:
        """Take tokens, also those that it does not have."""
        self.level = self.level_at(now) - count
        self.at = now

    def level_at(self, now: float) -> float:
        """Return the tokens at ``now``, if none is taken before."""
        return min(self.rate * BURST_S, self.level + self.rate * (now - self.at))

    def is_full_at(self, now: float) -> bool:
        """Whether the bucket has all its tokens at ``now``, if none is taken before."""
        return self.level_at(now) >= self.rate * BURST_S


class RateLimits(Generic[K]):
    """The buckets of each key. For one thread."""

    def __init__(self) -> None:
        self._buckets: dict[K, tuple[TokenBucket | None, ...]] = {}  # for bytes in, bytes out, messages in

    def __len__(self) -> int:
        return len(self._buckets)

    def charge(self, key: K, rates: Rates, used: Used, now: float) -> None:
        """Take what a connection of this key used from its buckets. A changed rate begins with a full bucket."""
        earlier = self._buckets.get(key, (None,) * 3)
        buckets = tuple(
            None if rate is None else old if old is not None and old.rate == rate else TokenBucket.full(rate, now)
            for rate, old in zip(astuple(rates), earlier, strict=True)
        )
        self._buckets[key] = buckets
        for bucket, count in zip(buckets, astuple(used), strict=True):
            if bucket is not None:
                bucket.take(count, now)

    def keep(self, keys: set[K], now: float) -> None:
        """Forget the full buckets of all other keys. Others stay: reconnecting gives a client no new burst."""
        for key in self._buckets.keys() - keys:
            if all(bucket is None or bucket.is_full_at(now) for bucket in self._buckets[key]):
                del self._buckets[key]

    def may_receive(self, key: K) -> bool:
        """Whether the key's clients may send more to this endpoint now."""
        bytes_in, _, messages_in = self._buckets[key]
        return all(bucket is None or bucket.level >= 0 for bucket in (bytes_in, messages_in))

    def may_send(self, key: K) -> bool:
        """Whether this endpoint may send more to the key's clients now."""
        _, bytes_out, _ = self._buckets[key]
        return bytes_out is None or bytes_out.level >= 0


PAUSED_S: Final = 2.0  # less than a silent link lasts
ASSURED_BYTES: Final = 256 * 1024  # of each connection, which is not paused or ended for so little

H = TypeVar("H", bound=Hashable)


class MemoryAccount(Generic[H]):
    """The bytes that connections make the endpoint hold: requests, messages, transfers and unsent responses.

    Above three quarters of ``limit`` (bytes; 0 is no limit) the largest holders pause, until the others hold less than
    half of it. A paused holder continues when it and the others that are not paused hold less than half. The largest
    holder ends at the limit, and when holders have been paused for PAUSED_S: what a paused holder keeps may depend on
    data that is not read. For one thread, except the attributes. ``now`` is in seconds, monotonic.
    """

    def __init__(self, limit: Callable[[], int], assured: int = ASSURED_BYTES) -> None:
        """``limit`` may change; the next review applies it."""
        self._limit: Final = limit
        self.assured: Final = assured
        self.held = 0
        """Bytes that all holders had at the last review."""
        self.paused: frozenset[H] = frozenset()
        """The holders that are paused."""
        self._paused_since = 0.0  # while there is a paused holder

    @property
    def limit(self) -> int:
        """The present limit, in bytes; 0 is no limit."""
        return self._limit()

    @property
    def is_full(self) -> bool:
        """Whether the holders had the limit at the last review, so that no further request is accepted."""
        return bool(self.limit) and self.held >= self.limit

    def review(self, held: Mapping[H, int], now: float) -> H | None:
        """Decide by the bytes of each holder who is paused from now on; return the holder that must end, or None."""
        self.held = sum(held.values())
        if not self.limit or self.held < self.limit // 2:
            self.paused = frozenset()
            return None
        largest_first = sorted((one for one in held if held[one] > self.assured), key=held.__getitem__, reverse=True)
        paused = {one for one in largest_first if one in self.paused}
        others = self.held - sum(held[one] for one in paused)
        if self.held >= self.limit * 3 // 4:
            for one in largest_first:
                if others < self.limit // 2:
                    break
                if one not in paused:
                    paused.add(one)
                    others -= held[one]
        # A paused holder keeps what only its peer's acknowledgements or further data end, so each must have its turn.
        for one in reversed(largest_first):
            if one in paused and others + held[one] < self.limit // 2:
                paused.remove(one)
                others += held[one]
        if not self.paused:
            self._paused_since = now
        self.paused = frozenset(paused)
        takes_too_long = bool(paused) and now - self._paused_since >= PAUSED_S
        if not largest_first or not (self.is_full or takes_too_long):
            return None
        self._paused_since = now  # of the others
        return largest_first[0]


class ResponseMemory:
    """The bytes of the large responses that are encoded or sent now. Thread-safe.

    All together have at most ``limit()`` bytes; 0 is no limit. Responses of up to ``assured`` bytes always have room
    and do not count.
    """

    def __init__(self, limit: Callable[[], int], assured: int = ASSURED_BYTES) -> None:
        self._limit: Final = limit
        self._assured: Final = assured
        self._lock: Final = threading.Lock()
        self._held: Final[dict[int, int]] = {}  # by the number of the response

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, number: int, size: int) -> bool:
        """Hold ``size`` bytes for a response, in the place of those that it has; return False if they have no room.

        Without room nothing changes. ``release`` must follow in any case.
        """
        limit = self._limit()
        if size <= self._assured or not limit:
            return True
        with self._lock:
            others = sum(self._held.values()) - self._held.get(number, 0)
            if others and others + size > limit:
                return False
            self._held[number] = size
            return True

    def release(self, number: int) -> None:
        """Give back the bytes of a response, if it has some."""
        with self._lock:
            self._held.pop(number, None)
