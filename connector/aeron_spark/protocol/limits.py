"""How many may come in, and how fast: connections, pending handshakes, handshakes a second.

Rules:
* A call checks everything and takes everything, or takes nothing: a refusal changes no count and no bucket.
* What was taken is given back by its :class:`Permit`, once, however often it is asked to.
* What is counted by address goes by :func:`~aeron_spark.protocol.access.limit_key`; a count of zero has no entry.
* 0 is no limit.

Nothing here locks: callers of several threads hold a lock around each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.protocol.access import LimitKey, Source, UdpSource
from aeron_spark.protocol.refusals import Refusal

FULL: Final = Refusal("full", "Server is full")
ADDRESS_LIMIT: Final = Refusal("address-limit", "Too many connections for IP address")
PENDING: Final = Refusal("pending", "Too many handshakes are pending")
PENDING_FOR_ADDRESS: Final = Refusal("pending", "Too many handshakes are pending for IP address")
RATE: Final = Refusal("rate", "Too many handshakes from IP address, try again later")

MAX_CONNECTIONS: Final = 1000  # each has a term buffer or two
MAX_CONNECTIONS_PER_ADDRESS: Final = 0  # a NAT may hide an office: whoever knows better says so
MAX_PENDING: Final = 256  # each has a small publication from a bounded pool, for seconds
MAX_PENDING_PER_ADDRESS: Final = 16
HANDSHAKES_PER_SECOND: Final = 10.0  # of one address: a client that reconnects without a pause is held up, others not
HANDSHAKE_BURST: Final = 50  # at once: an office that comes back after an outage
MAX_BUCKETS: Final = 10_000  # addresses whose rate is remembered: about 3 MB


@dataclass(frozen=True, slots=True)
class Limits:
    """What is configured; 0 is no limit. ``exempt_loopback`` lifts from loopback what lies on addresses, not totals."""

    connections: int = MAX_CONNECTIONS
    connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS
    pending: int = MAX_PENDING
    pending_per_address: int = MAX_PENDING_PER_ADDRESS
    handshakes_per_second: float = HANDSHAKES_PER_SECOND
    handshake_burst: int = HANDSHAKE_BURST
    buckets: int = MAX_BUCKETS
    exempt_loopback: bool = False

    def __post_init__(self) -> None:
        for name in ("connections", "connections_per_address", "pending", "pending_per_address"):
            if getattr(self, name) < 0:
                raise OptionError(f"the limit {name} is {getattr(self, name)}", remedy="Use 0 for no limit.")
        if not 0 <= self.handshakes_per_second < float("inf"):
            raise OptionError(
                f"the limit handshakes_per_second is {self.handshakes_per_second}", remedy="Use 0 for no limit."
            )
        for name in ("handshake_burst", "buckets"):
            if getattr(self, name) < 1:
                raise OptionError(f"the limit {name} is {getattr(self, name)}", remedy="Use 1 at least.")


class Permit:
    """A place that was taken. :meth:`release` gives it back, the first time it is called.

    In a ``with`` statement it is given back at the end of the block; ``ExitStack.pop_all`` keeps it for longer.
    """

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    @property
    def is_taken(self) -> bool:
        """Whether the place is still taken."""
        return self._give_back is not None

    def release(self) -> None:
        """Give the place back; harmless when it was before."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class Admission:
    """Counts of one server. Handshakes and connections are counted apart, so that neither starves the other."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._pending = _Count(limits.pending, limits.pending_per_address, PENDING, PENDING_FOR_ADDRESS)
        self._connections = _Count(limits.connections, limits.connections_per_address, FULL, ADDRESS_LIMIT)
        self._rate = HandshakeRate(limits.handshakes_per_second, limits.handshake_burst, limits.buckets)

    @property
    def pending(self) -> int:
        """Handshakes under way."""
        return self._pending.total

    @property
    def connections(self) -> int:
        """Connections there are."""
        return self._connections.total

    @property
    def addresses(self) -> int:
        """Entries by address, of handshakes and connections: 0 when nobody is here."""
        return len(self._pending.by_address) + len(self._connections.by_address)

    def begin_handshake(self, source: Source, now: float) -> Permit | Refusal:
        """Take a place for a handshake that begins at ``now`` (monotonic seconds), or say why not."""
        key = self._key(source)
        refusal = self._pending.refusal(key)
        if refusal is not None:
            return refusal
        if key is not None and not self._rate.take(key, now):
            return RATE
        return self._pending.take(key)

    def connect(self, source: Source) -> Permit | Refusal:
        """Take a place for a connection, or say why not. The handshake's place is released by the caller."""
        key = self._key(source)
        return self._connections.refusal(key) or self._connections.take(key)

    def _key(self, source: Source) -> LimitKey | None:
        if not isinstance(source, UdpSource) or (self.limits.exempt_loopback and source.is_loopback):
            return None
        return source.limit_key


class _Count:
    """A count in all and by address. ``take`` follows a ``refusal`` of None with nothing in between."""

    def __init__(self, most: int, most_per_address: int, full: Refusal, full_for_address: Refusal) -> None:
        self.total = 0
        self.by_address: dict[LimitKey, int] = {}
        self._most = most
        self._most_per_address = most_per_address
        self._full = full
        self._full_for_address = full_for_address

    def refusal(self, key: LimitKey | None) -> Refusal | None:
        if self._most and self.total >= self._most:
            return self._full
        if key is not None and self._most_per_address and self.by_address.get(key, 0) >= self._most_per_address:
            return self._full_for_address
        return None

    def take(self, key: LimitKey | None) -> Permit:
        self.total += 1
        if key is not None:
            self.by_address[key] = self.by_address.get(key, 0) + 1
        return Permit(lambda: self._give_back(key))

    def _give_back(self, key: LimitKey | None) -> None:
        self.total -= 1
        if key is None:
            return
        left = self.by_address[key] - 1
        if left:
            self.by_address[key] = left
        else:
            del self.by_address[key]


class HandshakeRate:
    """A token bucket an address: ``burst`` at once, then ``per_second``.

    A bucket that is full again is forgotten. Beyond ``most`` buckets the one used longest ago is forgotten early: who
    has so many addresses gains a burst by it, which a new address would have given him, too. To refuse newcomers
    instead would let him lock out everybody else.
    """

    def __init__(self, per_second: float, burst: int, most: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._most = most
        self._buckets: dict[LimitKey, tuple[float, float]] = {}  # tokens left at a time, in the order of these times
        self._latest = float("-inf")

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: LimitKey, now: float) -> bool:
        """Take a token at ``now``; False, and nothing changed, where there is none. A clock set back stands still."""
        if not self._per_second:
            return True
        now = self._latest = max(now, self._latest)
        tokens = self._tokens(key, now)
        if tokens < 1:
            return False
        self._buckets.pop(key, None)
        self._forget(now)
        self._buckets[key] = (tokens - 1, now)
        return True

    def _tokens(self, key: LimitKey, now: float) -> float:
        left, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, left + (now - at) * self._per_second)

    def _forget(self, now: float) -> None:
        while self._buckets:
            oldest = next(iter(self._buckets))
            if len(self._buckets) < self._most and self._tokens(oldest, now) < self._burst:
                return
            del self._buckets[oldest]
