"""A server over any transport: listens, admits clients, and exchanges messages and calls with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

from aeron_spark.endpoint.access import ClientAccess, LogSpace
from aeron_spark.endpoint.bulk_link_service import BulkLinkService
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.endpoint import Endpoint
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.runtime import Runtime
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.endpoint.server_sessions import GrantChanged
from aeron_spark.endpoint.usage import Rates
from aeron_spark.errors import AeronSparkError, EndedError, RefusedError, UsageError
from aeron_spark.facts import Bus
from aeron_spark.keys.bans import StoredBans
from aeron_spark.options import LiveOptions
from aeron_spark.protocol.access import Candidate, PeerStore
from aeron_spark.protocol.sources import Refusal
from aeron_spark.server.event_log import EventLog
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import ServerAddress, ServerTransport

DRAIN_TIMEOUT_S: Final = 0.2  # for one connection to take its unsent messages when the server closes


class MessageServer(Endpoint):
    """A server over any transport. :class:`aeron_spark.Server` has one, and adds the node, key files and streams.

    It opens a transport when it starts, and another one after the loss of the media driver.
    """

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
        """``log_space`` has the room of the media driver's logs; None: no limit.

        ``events`` reports the facts of the server, and has those of its other parts.
        """
        self.events: Final = events or EventLog(Bus())
        """The events of the server."""
        self.facts: Final = self.events.facts
        """The facts of the server. Subscribe before the start."""
        self._options: Final = options
        runtime = Runtime(loop or Loop("aeron-spark-server"), lambda: options.value, self.facts)
        self._connection_class: Final = connection_class
        self._services: Final[list[Callable[[ConnectionCore], None]]] = []
        access = ClientAccess(
            store, options, bans or StoredBans(), runtime.loop.executor(options.value.deciders, "aeron-spark-decider")
        )
        self._endpoint: Final = ServerEndpoint(runtime, open_transport, access, options, self._make, log_space)
        runtime.bind(self._endpoint)
        runtime.holds.rates_of = self._rates_of
        super().__init__(runtime)
        self._drain_mark = 0
        self.add_service(lambda connection: BulkLinkService(self._endpoint, runtime.bulk_links, connection).offer())

    @property
    def runtime(self) -> Runtime:
        """The runtime, for an endpoint that has this server."""
        return self._runtime

    @property
    def addresses(self) -> tuple[ServerAddress, ...]:
        """The addresses at which the server listens now."""
        return tuple(self._endpoint.addresses.values())

    @property
    def address_texts(self) -> tuple[str, ...]:
        """The addresses at which the server listens now: ``host:port:control``, or ``ipc:``."""
        return tuple(
            "ipc:" if address.media == "ipc" else f"{HostPort(address.host, address.data_port)}:{address.control_port}"
            for address in self.addresses
        )

    def add_service(self, serve: Callable[[ConnectionCore], None]) -> None:
        """Have ``serve`` offer a service on each new connection. Call it before ``start``."""
        self._services.append(serve)

    def apply_grants(self) -> None:
        """Apply the present grants and bans to all connections: end those whose client is not admitted any more.

        Raises what the key store raises.
        """
        for connection in self._endpoint.connections:
            with suppress(EndedError):  # it ends meanwhile
                self._apply_grant(connection)

    def end_connection(self, connection: ConnectionCore, error: AeronSparkError) -> None:
        """End a connection and its session. The client gets ``error`` as the reason; unsent messages are lost."""
        self._runtime.disconnect(connection, keep_session=False, error=error)

    def _make(self, peer: PeerInfo, number: int) -> ConnectionCore:
        """Make a connection with its services. Raises what the program's class raises."""
        connection = ConnectionCore(self._runtime, peer, number, self._connection_class)
        for serve in self._services:
            serve(connection)
        return connection

    def _rates_of(self, connection: ConnectionCore) -> Rates:
        """Return the limits of the client's key: its own, or else those of all keys."""
        options, own = self._options.value, connection.grant.limits
        return Rates(
            options.bytes_in if own.bytes_in is None else own.bytes_in,
            options.bytes_out if own.bytes_out is None else own.bytes_out,
            options.messages_in if own.messages_in is None else own.messages_in,
        )

    def _apply_grant(self, connection: ConnectionCore) -> None:
        address = ip_address(connection.peer.address) if connection.peer.address else None
        decision = self._endpoint.access.current(Candidate(address, connection.peer.tag, connection.peer.key))
        if isinstance(decision, Refusal):
            error = RefusedError(decision.text, remedy=decision.advice.remedy, reason=decision.code)
            self.facts.emit(GrantChanged(connection, error))
            self.end_connection(connection, error)
        elif decision != connection.grant:
            connection.grant = decision
            self.facts.emit(GrantChanged(connection))

    @property
    def sessions(self) -> list[ConnectionCore]:
        """The connections of all clients, also of those that are not connected and may resume their sessions."""
        return self._endpoint.connections

    @property
    def public_key(self) -> bytes:
        """The server's public key, by which clients know it."""
        return self._endpoint.identity.keys.public

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections whose link is connected."""
        return tuple(connection.for_program for connection in self._connected)

    @property
    def _connected(self) -> list[ConnectionCore]:
        return [connection for connection in self._endpoint.connections if connection.connected]

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        """Call ``listener(connection, message)`` for each message of this class or a subclass, of all connections."""
        self._runtime.listeners.on_message(kind, listener)

    def start(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress] = ()) -> None:
        """Listen at all of ``addresses``, or at none. Works once; after an error it can be called again.

        Of the ``optional`` addresses, the server leaves out those that another program uses.

        Raises InUseError if another program uses one of the addresses, TransportError if the server cannot listen at
        one of them for another reason, UsageError if the server listens already or is closed.
        """
        self.require_startable(addresses)
        self._endpoint.listen(addresses, optional)
        self._runtime.loop.start()

    def require_startable(self, addresses: Sequence[ServerAddress]) -> None:
        """Raise UsageError if the server listens already or is closed, or if ``addresses`` is empty."""
        if self._runtime.loop.is_closing or self._endpoint.is_listening:
            what = "is closed" if self._runtime.loop.is_closing else "listens already"
            raise UsageError(f"the server {what}", remedy="Create another server.")
        if not addresses:
            raise UsageError("the server has no address to listen at", remedy="Give it an address.")

    @property
    def has_driver(self) -> bool:
        """Whether the media driver is not lost."""
        return self._endpoint.has_driver

    @property
    def statistics(self) -> dict[str, int]:
        """Counts of used resources, and of refusals by code."""
        of_connections: dict[str, int] = {}
        for connection in self._endpoint.connections:
            for name, count in connection.usage.items():
                of_connections[name] = of_connections.get(name, 0) + count
        return {
            "connections": len(self.connections),
            "bulk_links": len(self._runtime.bulk_links),
            **self._endpoint.statistics(),
            **of_connections,
            "tampered": self._runtime.tampered,
        }

    def begin_drain(self) -> None:
        """Refuse new clients, also those that resume. Calls and messages of the connections continue."""
        self._drain_mark = self._runtime.worker_pool.mark()
        self._runtime.loop.run_soon(self._endpoint.refuse_handshakes)

    @property
    def unfinished_calls(self) -> int:
        """The number of calls that were received before ``begin_drain``, and that wait or run."""
        return self._runtime.worker_pool.unfinished(self._drain_mark)

    def close(self, error: AeronSparkError | None = None) -> None:
        """Send the unsent messages and CLOSE to every client, and end. Unacknowledged messages are lost.

        ``error`` is the reason for the clients. With a reason that passes soon, they connect again.
        """
        loop = self._runtime.loop
        if not loop.begin_closing():
            return
        begin, close_s = loop.clock(), self._options.value.close_timeout
        connections = self._connected
        for connection in connections:  # they drain at the same time; a stuck one delays the others a little
            connection.sender.drain(min(begin + close_s / 2, loop.clock() + DRAIN_TIMEOUT_S))
        for connection in connections:
            self._runtime.disconnect(connection, keep_session=False, error=error)
        loop.run_soon(lambda: self._endpoint.shut_down(loop.clock()))
        loop.wait_until(
            lambda: not (loop.is_running and self._endpoint.has_clients), max(0.0, begin + close_s - loop.clock())
        )
        self._runtime.stop()
        self._endpoint.close()
