"""Allocates random ids from a range, and ports, for a server's links. Each is allocated to one user at a time.

Late packets of an ended link still carry its ids. An allocator therefore does not reuse a released id for some time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.sources import ReachedLimit, Refusal

Entropy = Callable[[int], bytes]

LARGEST_ID: Final = (1 << 31) - 1

# Aeron chooses its own session ids outside this reserved range, and skips the whole range. Hence it is narrow.
FIRST_SESSION_ID: Final = 0x60000000

LAST_SESSION_ID: Final = 0x600FFFFF

HANDSHAKE_STREAM_ID: Final = 0x41530001

FIRST_STREAM_ID: Final = 1_000_000  # people choose lower ids for their own streams

REUSE_DELAY_S: Final = 30.0  # twice Aeron's image liveness (10 s) and linger (5 s)

EXHAUSTED: Final = Refusal("ids", "Connection error! No ids are left")

MAX_DRAWS: Final = 64  # random draws before a linear search; with half of the ids in use, all fail once in 2 ** 64


class IdAllocator:
    """Allocates ids from ``first`` to ``last``, both included, except those in ``excluding``."""

    def __init__(
        self,
        first: int,
        last: int,
        entropy: Entropy,
        *,
        excluding: Collection[int] = (),
        reuse_delay_s: float = REUSE_DELAY_S,
    ) -> None:
        if not 0 < first <= last <= LARGEST_ID:
            raise OptionError(
                f"invalid range of ids {first} to {last}", remedy=f"Use a range within 1 to {LARGEST_ID}."
            )
        if not 0 <= reuse_delay_s < float("inf"):
            raise OptionError(f"invalid reuse delay of ids {reuse_delay_s} s", remedy="Use 0 or more seconds.")
        self._first = first
        self._size = last - first + 1
        self._entropy = entropy
        self._excluded = frozenset(number for number in excluding if first <= number <= last)
        self._reuse_delay_s = reuse_delay_s
        self._allocated: set[int] = set()
        self._delayed: set[int] = set()
        self._reusable_at: deque[tuple[float, int]] = deque()  # time and id, earliest first
        self._latest = float("-inf")  # time of any call; the caller's clock may go back

    @property
    def in_use(self) -> int:
        """Number of allocated ports."""
        return len(self._allocated)

    def allocated(self) -> tuple[int, ...]:
        """Return the allocated ids in ascending order, to find leaks."""
        return tuple(sorted(self._allocated))

    def take(self, now: float) -> int | Refusal:
        """Allocate an id, or return a refusal with the code ``ids``. ``now`` is in monotonic seconds."""
        self._end_delays(now)
        if len(self._allocated) + len(self._delayed) + len(self._excluded) >= self._size:
            return EXHAUSTED.at(ReachedLimit("sessionIdRange", self._size))
        number = self._find_free()
        self._allocated.add(number)
        return number

    def release(self, number: int, now: float) -> None:
        """Return an id; its reuse delay starts at ``now``. Raises UsageError if the id is not allocated."""
        if number not in self._allocated:
            raise UsageError(f"id {number} is not allocated and cannot be released", remedy="Release each id once.")
        self._end_delays(now)
        self._allocated.remove(number)
        if self._reuse_delay_s:
            self._delayed.add(number)
            self._reusable_at.append((self._latest + self._reuse_delay_s, number))

    def _end_delays(self, now: float) -> None:
        self._latest = max(now, self._latest)
        while self._reusable_at and self._reusable_at[0][0] <= self._latest:
            self._delayed.remove(self._reusable_at.popleft()[1])

    def _find_free(self) -> int:
        index = 0
        for _ in range(MAX_DRAWS):
            index = draw_below(self._size, self._entropy)
            if self._is_free(self._first + index):
                return self._first + index
        # Nearly all ids are in use. The caller has counted at least one free id; a search from the last draw finds it.
        while not self._is_free(self._first + index):
            index = (index + 1) % self._size
        return self._first + index

    def _is_free(self, number: int) -> bool:
        return number not in self._allocated and number not in self._delayed and number not in self._excluded


def stream_ids(entropy: Entropy) -> IdAllocator:
    """Return an allocator of Aeron stream ids of links."""
    return IdAllocator(FIRST_STREAM_ID, LARGEST_ID, entropy, excluding={HANDSHAKE_STREAM_ID})


def draw_below(size: int, entropy: Entropy) -> int:
    """Return a uniformly distributed random number from 0 to ``size - 1``."""
    bits = (size - 1).bit_length()
    while True:
        drawn = int.from_bytes(entropy((bits + 7) // 8), "big") & ((1 << bits) - 1)
        if drawn < size:
            return drawn


NO_PORTS: Final = Refusal("ids", "Connection error! No ports are left")

LARGEST_PORT: Final = 65535


class PortAllocator:
    """Allocates ``count`` ports, the first of which is ``base``, in a random order.

    A released port is reused after all other free ports.
    """

    def __init__(self, base: int, count: int, entropy: Entropy) -> None:
        last = base + count - 1
        if not 0 < base <= LARGEST_PORT:
            raise OptionError(f"invalid base port {base}", remedy=f"Use a port from 1 to {LARGEST_PORT}.")
        if count < 1:
            raise OptionError(f"invalid number of ports {count}", remedy="Use at least 1.")
        if last > LARGEST_PORT:
            raise OptionError(
                f"the last of {count} ports from {base} would be {last}, and the largest port is {LARGEST_PORT}",
                remedy=f"Use a base port of at most {LARGEST_PORT - count + 1}.",
            )
        ports = list(range(base, last + 1))
        for remaining in range(count, 1, -1):  # Fisher-Yates shuffle
            chosen = draw_below(remaining, entropy)
            ports[remaining - 1], ports[chosen] = ports[chosen], ports[remaining - 1]
        self._free = deque(ports)
        self._allocated: set[int] = set()

    @property
    def in_use(self) -> int:
        """Number of allocated ports."""
        return len(self._allocated)

    def allocated(self) -> tuple[int, ...]:
        """Return the allocated ports in ascending order, to find leaks."""
        return tuple(sorted(self._allocated))

    def take(self, count: int) -> tuple[int, ...] | Refusal:
        """Allocate ``count`` ports, or none and return a refusal with the code ``ids``."""
        if count < 1:
            raise OptionError(f"invalid number of ports to allocate: {count}", remedy="Allocate at least 1.")
        if count > len(self._free):
            return NO_PORTS.at(ReachedLimit("mdcPorts", len(self._free) + len(self._allocated)))
        taken = tuple(self._free.popleft() for _ in range(count))
        self._allocated.update(taken)
        return taken

    def release(self, ports: Sequence[int]) -> None:
        """Return ports. Raises UsageError, and releases none, if one is not allocated or is listed twice."""
        released = set(ports)
        if not released <= self._allocated or len(released) != len(ports):
            raise UsageError(
                f"not all of the ports {', '.join(map(str, ports))} are allocated; none is released",
                remedy="Release each port once.",
            )
        self._allocated -= released
        self._free.extend(ports)
