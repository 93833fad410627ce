"""The limited resources of a server: permits, ids, ports and tickets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from aeron_spark.protocol.limits import Admission
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.pools import PooledIds, Pools
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.server_sessions import ServerMachineOptions, ServerSession
from aeron_spark.protocol.tickets import TicketStore


class ServerResources:
    """Resources of one server. For one thread, except ``statistics``."""

    def __init__(self, options: Callable[[], ServerMachineOptions], entropy: Entropy) -> None:
        at_start = options()
        self.admission: Final = Admission(lambda: options().admission)
        self.pools: Final = Pools(entropy, at_start.session_id_range, at_start.mdc_ports, at_start.id_reuse_delay)
        self.tickets: Final[TicketStore[ServerSession]] = TicketStore(
            entropy,
            at_start.times.retention_seconds,
            max_sessions=lambda: options().max_sessions,
            max_connections_per_key=lambda: options().max_connections_per_key,
            confirm_seconds=at_start.timing.authenticating_s + at_start.times.setup_seconds,
        )
        self.refused: Final[Counter[str]] = Counter()
        self._bulk: Final[set[PooledIds]] = set()

    def take_bulk_ids(self, now: float) -> PooledIds | Refusal:
        """Take the ids of a bulk link. The caller must release them when it closes the link."""
        ids = self.pools.take(now)
        if not isinstance(ids, Refusal):
            self._bulk.add(ids)
        return ids

    def release_bulk_ids(self, ids: PooledIds, now: float) -> None:
        """Release the ids of a bulk link. Raises KeyError for ids that are not taken."""
        self._bulk.remove(ids)
        self.pools.release(ids, now)

    def statistics(self) -> dict[str, int]:
        """Return counts of used resources, and of refusals by code. Thread-safe."""
        return {
            "admitted": self.admission.connections,
            "pending": self.admission.pending,
            "addresses": self.admission.addresses,
            **self.pools.in_use,
            **{f"refused-{code}": number for code, number in dict(self.refused).items()},
        }
