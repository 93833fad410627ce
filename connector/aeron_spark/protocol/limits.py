"""Limits of a server: connections, pending handshakes, and handshakes per second.

Rules:
* A call takes everything or nothing: a refusal changes no count and no bucket.
* A :class:`Permit` releases what was taken, at its first ``release`` only.
* Counts by address use :func:`~aeron_spark.protocol.sources.limit_key`; a count of zero has no entry.
* 0 means no limit.
* Half of the pending handshakes is kept for addresses that had a connection in the last day. The limit of an address
  shrinks with the pending handshakes of all others.

The classes have no locks: callers on several threads hold a lock around each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from aeron_spark.errors import OptionError
from aeron_spark.protocol.sources import LimitKey, ReachedLimit, Refusal, Source, UdpSource

FULL: Final = Refusal("full", "Server is full")
ADDRESS_LIMIT: Final = Refusal("address-limit", "Too many connections for IP address")
PENDING: Final = Refusal("pending", "Too many handshakes are pending")
PENDING_FOR_ADDRESS: Final = Refusal("pending", "Too many handshakes are pending for IP address")
RATE: Final = Refusal("rate", "Too many handshakes from IP address, try again later")

MAX_CONNECTIONS: Final = 1000  # each has one or two term buffers
MAX_CONNECTIONS_PER_ADDRESS: Final = 256  # many clients may share the address of a NAT
MAX_PENDING: Final = 256  # each has a small publication from a bounded pool, for seconds
MAX_PENDING_PER_ADDRESS: Final = 16
HANDSHAKES_PER_SECOND: Final = 10.0  # per address; slows only a client that reconnects without pauses
HANDSHAKE_BURST: Final = 50  # per address at once, for many clients that reconnect after an outage
MAX_BUCKETS: Final = 10_000  # addresses with a bucket; about 3 MB
KNOWN_SECONDS: Final = 86_400.0  # an address is known for a day after its last connection
MAX_KNOWN_ADDRESSES: Final = 10_000  # about 2 MB


@dataclass(frozen=True, slots=True)
class Limits:
    """The configured limits; 0 means no limit. With ``exempt_loopback`` only totals apply to loopback addresses."""

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
                raise OptionError(f"the limit {name} is {getattr(self, name)}", remedy="Use at least 1.")


class Permit:
    """One unit of a count. :meth:`release` gives it back; later calls do nothing.

    A ``with`` statement releases it at the end of the block, unless ``ExitStack.pop_all`` moves it.
    """

    __slots__ = ("_on_release",)

    def __init__(self, on_release: Callable[[], None]) -> None:
        self._on_release: Callable[[], None] | None = on_release

    @property
    def is_taken(self) -> bool:
        """Whether the permit was not released yet."""
        return self._on_release is not None

    def release(self) -> None:
        """Give the unit back, unless that was done before."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class Admission:
    """The counts of one server. Separate counts keep handshakes and connections from starving each other."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        """``limits`` may change: others apply to further handshakes and connections. Present ones stay."""
        self.closed: Refusal | None = None
        """The refusal of every further handshake, of a server that is about to end."""
        self._limits = limits
        self._pending = _PendingCount(limits)
        self._known = KnownAddresses()
        self._connections = _ConnectionCount(limits)
        self._rate = HandshakeRate(limits)

    @property
    def pending(self) -> int:
        """The number of pending handshakes."""
        return self._pending.total

    @property
    def connections(self) -> int:
        """The number of connections."""
        return self._connections.total

    @property
    def addresses(self) -> int:
        """The number of entries by address, of handshakes and connections; 0 without clients."""
        return len(self._pending.by_address) + len(self._connections.by_address)

    def begin_handshake(self, source: Source, now: float) -> Permit | Refusal:
        """Count a handshake that starts at ``now`` (monotonic seconds), or return the refusal."""
        key = self._key(source)
        is_known = key is None or self._known.contains(key, now)
        refusal = self.closed or self._pending.refusal(key, is_known=is_known)
        if refusal is not None:
            return refusal
        if key is not None and not self._rate.take(key, now):
            return RATE.at(ReachedLimit("handshakesPerSecond", self._limits().handshakes_per_second))
        return self._pending.take(key, is_known=is_known)

    def connect(self, source: Source, now: float) -> Permit | Refusal:
        """Count a connection, or return the refusal. Its address is known from ``now`` on for ``KNOWN_SECONDS``.

        The caller releases the handshake's permit.
        """
        key = self._key(source)
        refusal = self._connections.refusal(key)
        if refusal is not None:
            return refusal
        if key is not None:
            self._known.add(key, now)
        return self._connections.take(key)

    def _key(self, source: Source) -> LimitKey | None:
        if not isinstance(source, UdpSource) or (self._limits().exempt_loopback and source.is_loopback):
            return None
        return source.limit_key


class _ConnectionCount:
    """Connections: a total and counts by address. Callers call ``take`` directly after ``refusal`` returned None."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self.total = 0
        self.by_address: dict[LimitKey, int] = {}
        self._limits = limits

    def refusal(self, key: LimitKey | None) -> Refusal | None:
        limit, limit_per_address = self._limits().connections, self._limits().connections_per_address
        if limit and self.total >= limit:
            return FULL.at(ReachedLimit("maxConnections", limit))
        if key is not None and limit_per_address and self.by_address.get(key, 0) >= limit_per_address:
            return ADDRESS_LIMIT.at(ReachedLimit("maxConnectionsPerAddress", limit_per_address))
        return None

    def take(self, key: LimitKey | None) -> Permit:
        self.total += 1
        if key is not None:
            self.by_address[key] = self.by_address.get(key, 0) + 1
        return Permit(lambda: self._release(key))

    def _release(self, key: LimitKey | None) -> None:
        self.total -= 1
        if key is not None:
            _decrement(self.by_address, key)


class _PendingCount:
    """Pending handshakes, in total and by address. Callers call ``take`` directly after ``refusal`` returned None.

    Addresses that are not known share half of the total; known ones may use all of it. The limit of an address shrinks
    with the handshakes of all others: a flood from many addresses leaves room for one handshake of the next address.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self.total = 0
        self.by_address: dict[LimitKey, int] = {}
        self._limits = limits
        self._unknown = 0  # of addresses that were not known when they began

    def refusal(self, key: LimitKey | None, *, is_known: bool) -> Refusal | None:
        limit, limit_per_address = self._limits().pending, self._limits().pending_per_address
        room = limit if is_known else limit - limit // 2
        used = self.total if is_known else self._unknown
        if limit and (self.total >= limit or used >= room):
            return PENDING.at(ReachedLimit("maxPending", limit))
        if key is None or not limit_per_address:
            return None
        own = self.by_address.get(key, 0)
        allowed = limit_per_address
        if limit:
            allowed = max(1, allowed * (room - max(0, used - own)) // room)
        if own < allowed:
            return None
        return PENDING_FOR_ADDRESS.at(ReachedLimit("maxPendingPerAddress", limit_per_address))

    def take(self, key: LimitKey | None, *, is_known: bool) -> Permit:
        self.total += 1
        self._unknown += not is_known
        if key is not None:
            self.by_address[key] = self.by_address.get(key, 0) + 1
        return Permit(lambda: self._release(key, is_known=is_known))

    def _release(self, key: LimitKey | None, *, is_known: bool) -> None:
        self.total -= 1
        self._unknown -= not is_known
        if key is not None:
            _decrement(self.by_address, key)


class KnownAddresses:
    """The addresses of the latest connections, for ``seconds``; beyond ``max_addresses`` the oldest is forgotten."""

    def __init__(self, *, seconds: float = KNOWN_SECONDS, max_addresses: int = MAX_KNOWN_ADDRESSES) -> None:
        self._seconds = seconds
        self._max_addresses = max_addresses
        self._connected_at: dict[LimitKey, float] = {}  # in the order of these times

    def __len__(self) -> int:
        return len(self._connected_at)

    def add(self, key: LimitKey, now: float) -> None:
        """Know an address from ``now`` on."""
        self._connected_at.pop(key, None)
        self._connected_at[key] = now
        while len(self._connected_at) > self._max_addresses or not self.contains(next(iter(self._connected_at)), now):
            del self._connected_at[next(iter(self._connected_at))]

    def contains(self, key: LimitKey, now: float) -> bool:
        """Whether the address is known."""
        connected_at = self._connected_at.get(key)
        return connected_at is not None and now - connected_at <= self._seconds


def _decrement(counts: dict[LimitKey, int], key: LimitKey) -> None:
    """Count one less; a count of zero has no entry."""
    count = counts[key] - 1
    if count:
        counts[key] = count
    else:
        del counts[key]


class HandshakeRate:
    """One token bucket per address: ``handshake_burst`` handshakes at once, then ``handshakes_per_second``.

    With another rate and burst, a bucket keeps its tokens, up to the burst.

    A bucket that is full again is deleted. At ``buckets`` the least recently used one is deleted early. An attacker
    with so many addresses gains a burst by that, but a new address would give the same. Refusing new addresses instead
    would let the attacker lock out all other clients.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        # (tokens, time of the count), in the order of these times
        self._buckets: dict[LimitKey, tuple[float, float]] = {}
        self._latest = float("-inf")

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: LimitKey, now: float) -> bool:
        """Take a token at ``now``, or return False. If ``now`` goes back, the latest time counts."""
        if not self._limits().handshakes_per_second:
            return True
        now = self._latest = max(now, self._latest)
        tokens = self._tokens(key, now)
        if tokens < 1:
            return False
        self._buckets.pop(key, None)
        self._delete_buckets(now)
        self._buckets[key] = (tokens - 1, now)
        return True

    def _tokens(self, key: LimitKey, now: float) -> float:
        limits = self._limits()
        tokens, counted_at = self._buckets.get(key, (limits.handshake_burst, now))
        return min(limits.handshake_burst, tokens + (now - counted_at) * limits.handshakes_per_second)

    def _delete_buckets(self, now: float) -> None:
        while self._buckets:
            oldest = next(iter(self._buckets))
            limits = self._limits()
            if len(self._buckets) < limits.buckets and self._tokens(oldest, now) < limits.handshake_burst:
                return
            del self._buckets[oldest]
