"""Limits the rates at which the connections of a key send and receive, with one token bucket for each rate. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import astuple, dataclass
from typing import Final, Generic, TypeVar

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
