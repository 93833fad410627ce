"""A server over the transport that a test gives it: without a node, streams, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from aeron_spark.endpoint.access import ClientAccess, LogSpace
from aeron_spark.endpoint.bulk_opening import BulkLinkService
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.errors import AeronSparkError
from aeron_spark.facts import Bus
from aeron_spark.keys.bans import StoredBans
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.access import PeerStore
from aeron_spark.server.event_log import EventLog
from aeron_spark.transport.api import ServerAddress, ServerTransport


class MessageServer(Endpoint[ServerEndpoint]):
    """Composes the endpoint of a server as ``Server`` does, and has its methods for messages and calls."""

    def __init__(
        self,
        open_transport: Callable[[], ServerTransport],
        store: PeerStore,
        options: LiveOptions,
        connection_class: type[Connection] = Connection,
        bans: StoredBans | None = None,
        log_space: LogSpace | None = None,
        events: EventLog | None = None,
        loop: Loop | None = None,
    ) -> None:
        self.events: Final = events or EventLog(Bus())
        self.facts: Final = self.events.facts
        loop = loop or Loop("aeron-spark-server")
        self.endpoint: Final = ServerEndpoint(
            loop,
            open_transport,
            ClientAccess(store, options, bans or StoredBans(), loop),
            options,
            self.facts,
            connection_class,
        )
        self.endpoint.log_space = log_space
        self.endpoint.add_service(lambda connection: BulkLinkService(self.endpoint, connection).offer())
        super().__init__(self.endpoint)

    @property
    def addresses(self) -> tuple[ServerAddress, ...]:
        return tuple(self.endpoint.addresses.values())

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(connection.for_program for connection in self.endpoint.connected)

    @property
    def sessions(self) -> list[ConnectionCore]:
        return self.endpoint.connections

    @property
    def public_key(self) -> bytes:
        return self.endpoint.public_key

    @property
    def statistics(self) -> dict[str, int]:
        return self.endpoint.statistics

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        self.endpoint.message_listeners.add(kind, listener)

    def start(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress] = ()) -> None:
        self.endpoint.start(addresses, optional)

    def close(self, error: AeronSparkError | None = None) -> None:
        self.endpoint.close(error)
