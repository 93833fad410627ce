"""A server of the secure endpoint: listens, lets in who may, and talks to each alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.owner import PeerInfo
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import AeronSparkError, EndedError, UsageError
from aeron_spark.protocol.access import Grant, PeerStore
from aeron_spark.protocol.rpc_messages import Target
from aeron_spark.protocol.rpc_objects import FIRST_SERVICE
from aeron_spark.server.bulk_link_service import BulkLinkHandler, ConnectionService
from aeron_spark.server.runner import ServerRunner
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import Inbox, ServerAddress, ServerTransport, TransportEvent

STUCK_SECONDS: Final = 0.2  # for one connection to take what it was sent, when the server closes


class ServerCore(Runtime):
    """The server over any transport; :class:`aeron_spark.Server` brings Aeron, keys and settings together."""

    def __init__(
        self,
        open_transport: Callable[[], ServerTransport],
        store: PeerStore,
        settings: ServerSettings | None = None,
        connection_class: type[Connection] = Connection,
    ) -> None:
        self._server_settings = settings or ServerSettings()
        super().__init__("aeron-spark-server", self._server_settings.link, connection_class)
        self._runner = ServerRunner(open_transport, store, self._server_settings, self.types, self, self.listening)
        bulk_link_handler = BulkLinkHandler(self._runner, self.bulk_links, self.on_agent)
        self.bulk_links.gone = bulk_link_handler.release_ids
        self._services: list[ConnectionService] = [bulk_link_handler]

    @property
    def public_key(self) -> bytes:
        """What clients know this server by."""
        return self._runner.public_key

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are connected now."""
        return tuple(connection for connection in self._connections_now() if connection.connected)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    def start(self, places: Sequence[ServerAddress]) -> None:
        """Listen at all of ``places``, or at none. Works once.

        Raises InUseError where another program has one of the addresses, TransportError where the server cannot listen
        at one of them for another reason, UsageError where the server listens already or was closed.
        """
        if self._closing_begun or self._runner.is_listening:
            what = "is closed" if self._closing_begun else "listens already"
            raise UsageError(f"the server {what}", remedy="Make another one")
        if not places:
            raise UsageError("the server has no address to listen at", remedy="Give it one")
        self._runner.listen(places)
        self._agent.start()

    @property
    def statistics(self) -> dict[str, int]:
        """What is in use, and what was refused by code."""
        held: dict[str, int] = {}
        for connection in self._connections_now():
            for name, count in connection.held.items():
                held[name] = held.get(name, 0) + count
        return {
            "connections": len(self.connections),
            "branches": len(self.bulk_links),
            **self._runner.statistics(),
            **held,
            "tampered": self.tampered,
        }

    def grant_of(self, connection: Connection) -> Grant | None:
        """What a client may do; None for everything. Raises EndedError where it has gone."""
        return self._runner.grant_of(connection)

    def close(self) -> None:
        """Tell every client, send what was sent, and end; what clients had not acknowledged is lost."""
        if not self._begin_closing():
            return
        begun = time.monotonic()
        end, half = begun + self._settings.close_seconds, begun + self._settings.close_seconds / 2
        connections = self.connections
        for connection in connections:  # they drain at the same time, but for those that are stuck
            connection.sender.drain(min(half, time.monotonic() + STUCK_SECONDS))
        for connection in connections:
            self._leave(connection, keep_session=False)
        self._later(self._shut)
        while self._agent.alive and self._runner.has_clients and time.monotonic() < end:
            time.sleep(0.002)
        self._stop()
        self._runner.close()

    def permitted(self, connection: Connection, target: Target, method: str) -> bool:
        try:
            grant = self._runner.grant_of(connection)
        except EndedError:
            return False
        # our own services judge for themselves; grants are about the program's objects
        own = isinstance(target, int) and target >= FIRST_SERVICE
        return own or grant is None or grant.may_call(f"{target}.{method}")

    # What follows is ``ServerRuntime``, for the runner.

    def make_connection(self, who: PeerInfo, number: int) -> Connection:
        """Make the connection object of a new session, and let its client ask for what the server offers."""
        connection = self._connection_class(self, who, number)
        for service in self._services:
            service.serve(connection)
        return connection

    def add_link(self, connection: Connection, link: LinkEnds) -> None:
        """Hand the frames of a link to a connection."""
        self._join(connection, link)

    def remove_link(self, link: LinkEnds) -> None:
        """Close both directions of a link."""
        self._drop(link)

    # What follows is for ``Runtime``.

    def _shut(self) -> None:
        self._runner.shut_down(time.monotonic())

    def _end_all(self) -> None:
        self._runner.end_all(time.monotonic())

    @property
    def _transport(self) -> ServerTransport:
        return self._runner.transport

    def _inbox(self) -> Inbox:
        return self._transport.inbox

    def _connections_now(self) -> list[Connection]:
        return self._runner.connections

    def _other_event(self, event: TransportEvent, now: float) -> None:
        self._runner.handle(event, now)

    def _other_work(self, now: float) -> bool:
        return self._runner.work(now)

    def _other_calm(self) -> bool:
        return self._runner.is_idle and not any(connection.asks for connection in self._connections_now())

    def _tick(self, now: float) -> None:
        super()._tick(now)
        self._runner.run_due(now)

    def _opened(self, connection: Connection, link: LinkEnds, received: int, now: float) -> None:
        self._runner.link_verified(link, received, now)

    def _unproved(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        self._runner.link_failed(link, error, now)

    def _interrupted(self, connection: Connection, why: AeronSparkError, now: float, *, silent: bool = False) -> None:
        self._runner.interrupted(connection, why, now, expired=silent)

    def _over(self, connection: Connection, error: AeronSparkError) -> None:
        self._runner.session_failed(connection, error, time.monotonic())

    def _left(self, connection: Connection, keep_session: bool) -> None:
        self._runner.close_connection(connection, keep_session, time.monotonic())

    def _was_left(self, connection: Connection, keep_session: bool, now: float) -> None:
        self._runner.peer_closed(connection, keep_session, now)
