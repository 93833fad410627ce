"""Pauses connections that use too much: reads nothing from them, or sends nothing to them, until they use less.

The event loop calls ``review`` from time to time. A paused connection is not closed: Aeron's window fills, so its
peer waits. At the memory limit, the connection that holds the most memory is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from aeron_spark.endpoint.bulk_links import BulkLinks
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.usage import MemoryAccount, RateLimits, Rates, Used
from aeron_spark.errors import REFUSALS, RefusedError
from aeron_spark.facts import Bus

Reason = Literal["memory", "rate"]
NO_RATES: Final = Rates()
NOTHING: Final = Used(0, 0, 0)


@dataclass(frozen=True, slots=True)
class HoldChanged:
    """A connection is paused for this reason from now on, or no longer. Emitted on the event loop."""

    connection: ConnectionCore
    reason: Reason
    is_held: bool


class ConnectionHolds:
    """The connections of an endpoint that are paused, by reason. For the event loop.

    ``end`` closes a connection with an error for its peer.
    """

    def __init__(
        self,
        memory: MemoryAccount[ConnectionCore],
        bulk_links: BulkLinks,
        end: Callable[[ConnectionCore, RefusedError], object],
        facts: Bus,
    ) -> None:
        self.memory: Final = memory
        self.rates_of: Callable[[ConnectionCore], Rates] = lambda _: NO_RATES
        """Returns the limits of the key of a connection."""
        self.throttled: frozenset[ConnectionCore] = frozenset()
        """The connections that are paused for a rate."""
        self._bulk_links: Final = bulk_links
        self._end: Final = end
        self._facts: Final = facts
        self._rates: Final[RateLimits[bytes]] = RateLimits()
        self._charged: dict[ConnectionCore, Used] = {}  # totals of the connections with rates at the last review
        self._reviewed: frozenset[ConnectionCore] = frozenset()  # by the last review

    def review(self, connections: Collection[ConnectionCore], now: float) -> None:
        """Pause the connections that use too much at ``now`` (monotonic seconds), and resume the others."""
        paused_before, throttled_before = self.memory.paused, self.throttled
        largest = self._review_memory(connections, now)
        not_read, not_sent = self._review_rates(connections, now)
        self._reviewed = frozenset(connections)
        self.throttled = not_read | not_sent
        self._apply(connections, not_read | self.memory.paused, not_sent)
        self._notify("memory", paused_before, self.memory.paused)
        self._notify("rate", throttled_before, self.throttled)
        if largest is not None:
            self._end(largest, self._memory_error(largest))

    def _review_memory(self, connections: Collection[ConnectionCore], now: float) -> ConnectionCore | None:
        if not self.memory.limit and not self.memory.paused:
            return None
        in_bulk_links = self._bulk_links.held_bytes()
        return self.memory.review({one: one.held_bytes + in_bulk_links.get(one, 0) for one in connections}, now)

    def _review_rates(
        self, connections: Collection[ConnectionCore], now: float
    ) -> tuple[frozenset[ConnectionCore], frozenset[ConnectionCore]]:
        limited = {one: rates for one in connections if (rates := self.rates_of(one)) != NO_RATES}
        if not limited and not len(self._rates):
            return frozenset(), frozenset()
        totals = {one: _totals(one) for one in limited}
        for one, rates in limited.items():
            # A connection that existed before its key had rates pays for nothing that it used earlier.
            before = self._charged.get(one, totals[one] if one in self._reviewed else NOTHING)
            self._rates.charge(one.peer.key, rates, totals[one] - before, now)
        self._charged = totals
        self._rates.keep({one.peer.key for one in limited}, now)
        return (
            frozenset(one for one in limited if not self._rates.may_receive(one.peer.key)),
            frozenset(one for one in limited if not self._rates.may_send(one.peer.key)),
        )

    def _apply(
        self,
        connections: Collection[ConnectionCore],
        not_read: frozenset[ConnectionCore],
        not_sent: frozenset[ConnectionCore],
    ) -> None:
        for one in connections:
            if one in not_read or one.is_held:  # again at each review: it may have another link, or more bulk links
                one.hold(one in not_read)
                self._bulk_links.hold(one, one in not_read)
            if (one in not_sent) != one.sender.is_held:
                one.sender.hold(one in not_sent)
                self._bulk_links.hold_sending(one, one in not_sent)

    def _notify(self, reason: Reason, before: frozenset[ConnectionCore], after: frozenset[ConnectionCore]) -> None:
        for connection in before ^ after:
            self._facts.emit(HoldChanged(connection, reason, connection in after))

    def _memory_error(self, largest: ConnectionCore) -> RefusedError:
        return RefusedError(
            f"{largest.label} held the most memory of all connections, which are at or near the limit"
            f" of {self.memory.limit} bytes (memoryLimit)",
            remedy=REFUSALS["memory"].remedy,
            reason="memory",
        )


def _totals(connection: ConnectionCore) -> Used:
    received, sent = connection.traffic.totals()
    return Used(received, sent, connection.messages_received)
