"""Random ids of a range, each in one hand at a time, and none handed out again soon.

Late packets of a connection that has gone still carry its ids; an id therefore rests for a while before it is given to
somebody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from aeron_spark.errors import OptionError, UsageError
from aeron_spark.protocol.refusals import Refusal

Entropy = Callable[[int], bytes]

LARGEST_ID: Final = (1 << 31) - 1

# Narrow, because Aeron takes its own session ids outside of it, and jumps over it as a whole.
FIRST_SESSION_ID: Final = 0x60000000

LAST_SESSION_ID: Final = 0x600FFFFF

HANDSHAKE_STREAM_ID: Final = 0x41530001

FIRST_STREAM_ID: Final = 1_000_000  # below are the ids that people choose

REST: Final = 30.0  # seconds: Aeron's image liveness (10) and linger (5), twice

EXHAUSTED: Final = Refusal("ids", "Connection error! No ids are left")

PROBES: Final = 64  # random draws before a search in order: with half of all ids gone, all 64 miss once in 2 ** 64


class IdAllocator:
    """Ids of ``first`` to ``last``, both included, without those of ``excluding``."""

    def __init__(
        self, first: int, last: int, entropy: Entropy, *, excluding: Collection[int] = (), rest: float = REST
    ) -> None:
        if not 0 < first <= last <= LARGEST_ID:
            raise OptionError(f"ids cannot be of {first} to {last}", remedy=f"Use a range within 1 to {LARGEST_ID}.")
        if not 0 <= rest < float("inf"):
            raise OptionError(f"an id cannot rest for {rest} s", remedy="Use 0 or more seconds.")
        self._first = first
        self._size = last - first + 1
        self._entropy = entropy
        self._excluded = frozenset(one for one in excluding if first <= one <= last)
        self._rest = rest
        self._held: set[int] = set()
        self._resting: set[int] = set()
        self._wakes: deque[tuple[float, int]] = deque()  # in the order of their times
        self._latest = float("-inf")

    @property
    def in_use(self) -> int:
        """How many are in somebody's hand."""
        return len(self._held)

    def held(self) -> tuple[int, ...]:
        """Return the ids in somebody's hand, for who looks for a leak."""
        return tuple(sorted(self._held))

    def take(self, now: float) -> int | Refusal:
        """Return an id that nobody has, or a refusal with the code ``ids``. ``now`` is in monotonic seconds."""
        self._wake(now)
        if len(self._held) + len(self._resting) + len(self._excluded) >= self._size:
            return EXHAUSTED
        found = self._find()
        self._held.add(found)
        return found

    def release(self, taken: int, now: float) -> None:
        """Give an id back; it rests from ``now`` on. Raises UsageError where it is in nobody's hand."""
        if taken not in self._held:
            raise UsageError(f"the id {taken} is given back, but nobody has it", remedy="Give each id back once.")
        self._wake(now)
        self._held.remove(taken)
        if self._rest:
            self._resting.add(taken)
            self._wakes.append((self._latest + self._rest, taken))

    def _wake(self, now: float) -> None:
        self._latest = max(now, self._latest)
        while self._wakes and self._wakes[0][0] <= self._latest:
            self._resting.remove(self._wakes.popleft()[1])

    def _find(self) -> int:
        at = 0
        for _ in range(PROBES):
            at = below(self._size, self._entropy)
            if self._is_free(self._first + at):
                return self._first + at
        # Nearly all are gone. One is left (the caller has counted), and the search from a random place on finds it.
        while not self._is_free(self._first + at):
            at = (at + 1) % self._size
        return self._first + at

    def _is_free(self, one: int) -> bool:
        return one not in self._held and one not in self._resting and one not in self._excluded


def session_ids(entropy: Entropy) -> IdAllocator:
    """Return an allocator of session ids, in the range that our drivers reserve."""
    return IdAllocator(FIRST_SESSION_ID, LAST_SESSION_ID, entropy)


def stream_ids(entropy: Entropy) -> IdAllocator:
    """Return an allocator of stream ids of duologues."""
    return IdAllocator(FIRST_STREAM_ID, LARGEST_ID, entropy, excluding={HANDSHAKE_STREAM_ID})


def below(size: int, entropy: Entropy) -> int:
    """Return a number of 0 to ``size - 1``, each as likely as any other."""
    bits = (size - 1).bit_length()
    while True:
        drawn = int.from_bytes(entropy((bits + 7) // 8), "big") & ((1 << bits) - 1)
        if drawn < size:
            return drawn


NO_PORTS: Final = Refusal("ids", "Connection error! No ports are left")

LARGEST_PORT: Final = 65535


class PortAllocator:
    """``count`` ports from ``base`` on, in an order drawn from ``entropy``."""

    def __init__(self, base: int, count: int, entropy: Entropy) -> None:
        top = base + count - 1
        if not 0 < base <= LARGEST_PORT:
            raise OptionError(f"Base port {base} is not a port", remedy=f"Use one of 1 to {LARGEST_PORT}.")
        if count < 1:
            raise OptionError(f"{count} ports are no range", remedy="Use 1 at least.")
        if top > LARGEST_PORT:
            raise OptionError(
                f"Uppermost port {top} is not a port", remedy=f"Use a base port of {LARGEST_PORT - count + 1} at most."
            )
        ports = list(range(base, top + 1))
        for left in range(count, 1, -1):  # Fisher and Yates
            chosen = below(left, entropy)
            ports[left - 1], ports[chosen] = ports[chosen], ports[left - 1]
        self._free = deque(ports)
        self._held: set[int] = set()

    @property
    def in_use(self) -> int:
        """How many are in somebody's hand."""
        return len(self._held)

    def held(self) -> tuple[int, ...]:
        """Return the ports in somebody's hand, for who looks for a leak."""
        return tuple(sorted(self._held))

    def take(self, count: int) -> tuple[int, ...] | Refusal:
        """Return ``count`` different ports, or none of them and a refusal with the code ``ids``."""
        if count < 1:
            raise OptionError(f"{count} ports cannot be taken", remedy="Take 1 at least.")
        if count > len(self._free):
            return NO_PORTS
        taken = tuple(self._free.popleft() for _ in range(count))
        self._held.update(taken)
        return taken

    def release(self, ports: Sequence[int]) -> None:
        """Give ports back. Raises UsageError, and gives none back, where one is in nobody's hand or named twice."""
        given = set(ports)
        if not given <= self._held or len(given) != len(ports):
            raise UsageError(
                f"the ports {', '.join(map(str, ports))} are given back, but nobody has all of them",
                remedy="Give each port back once.",
            )
        self._held -= given
        self._free.extend(ports)
