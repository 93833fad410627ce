"""Selects connections by what their reports say."""

from __future__ import annotations

from dataclasses import dataclass

from aeron_spark.protocol.grants import matches
from aeron_spark.protocol.sources import Network, canonical_address
from aeron_spark.server.connection_report import ConnectionReport


@dataclass(frozen=True, slots=True)
class ConnectionFilter:
    """Selects the connections that meet all conditions; None is no condition.

    ``ids`` are those of reports. ``tag`` is a pattern, as in the clients file. No network has a connection over shared
    memory.
    """

    ids: frozenset[str] | None = None
    name: str | None = None
    key: bytes | None = None
    tag: str | None = None
    network: Network | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no condition, and selects every connection."""
        return all(one is None for one in (self.ids, self.name, self.key, self.tag, self.network))

    def selects(self, report: ConnectionReport) -> bool:
        """Return whether the connection meets all conditions."""
        return (
            (self.ids is None or report.id in self.ids)
            and self.name in (None, report.name)
            and self.key in (None, report.key)
            and (self.tag is None or matches(report.tag, [self.tag]))
            and (self.network is None or has_address(self.network, report.address))
        )


def has_address(network: Network, address: str) -> bool:
    """Return whether a network has an address; False for the empty address of shared memory."""
    return bool(address) and network.matches(canonical_address(address))
