"""UDP ports of a range, several at a time, the one given back longest ago first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from aeron_spark.endpoint.ids import Entropy, below
from aeron_spark.endpoint.refusal import Refusal
from aeron_spark.errors import OptionError, UsageError

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
