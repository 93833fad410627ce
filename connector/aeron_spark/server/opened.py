"""A server's transport that listens at every place of the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from aeron_spark.transport.api import ServerAddress, ServerTransport


@dataclass(slots=True)
class Opened:
    """A transport that listens, and its places by the token of each."""

    transport: ServerTransport
    places: dict[int, ServerAddress] = field(default_factory=dict)

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()
