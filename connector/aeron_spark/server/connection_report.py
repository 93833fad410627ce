"""Describes the connections of a server for its operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import EndedError
from aeron_spark.keys.clients_file import key_name
from aeron_spark.protocol.grants import Grant

ConnectionState = Literal["connected", "paused", "throttled", "disconnected"]
"""``paused``: the server acknowledges nothing, because what the client sent before waits, or for want of memory.
``throttled``: the client has used up a rate of its key. ``disconnected``: the client may resume the session."""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """One connection at one time. The client chose its ``tag``: escape it before you print it.

    ``id`` is as in the logs of both ends. ``name`` is that of the client's key. ``address`` is empty over shared
    memory. ``since`` is in seconds since 1970. ``idle_seconds``: since the last message, call or data of a bulk link.
    ``calls`` wait or run. ``waiting_bytes`` were received, and wait for listeners, workers or the rest of a transfer;
    ``unacknowledged_bytes`` were sent, or wait to be sent. ``streams`` are those that the client used in the last
    minute. ``received_bytes`` and ``sent_bytes`` count the frames of the connection and of its bulk links.
    """

    id: str
    name: str
    key: bytes
    tag: str
    address: str
    port: int
    since: float
    state: ConnectionState
    idle_seconds: float
    round_trip_seconds: float | None
    calls: int
    waiting_bytes: int
    unacknowledged_bytes: int
    streams: tuple[str, ...]
    bulk_links: int
    received_bytes: int
    sent_bytes: int


class ConnectionReporter:
    """Makes reports of connections. Thread-safe.

    ``grant_of`` returns the grant of a connection's client, and raises EndedError for one that has ended.
    """

    def __init__(
        self, runtime: Runtime, grant_of: Callable[[Connection], Grant],
        streams_of: Callable[[ConnectionRunner], Sequence[str]],
    ) -> None:  # fmt: skip
        self._runtime: Final = runtime
        self._grant_of: Final = grant_of
        self._streams_of: Final = streams_of

    def reports(self, connections: Iterable[ConnectionRunner]) -> list[ConnectionReport]:
        """Return the reports of those connections that have not ended."""
        bulk_links, now = self._runtime.bulk_links.counts(), time.monotonic()
        found = []
        for connection in connections:
            try:
                grant = self._grant_of(connection.for_program)
            except EndedError:
                continue
            found.append(self._report(connection, grant, bulk_links[id(connection)], now))
        return found

    def _report(self, connection: ConnectionRunner, grant: Grant, bulk_links: int, now: float) -> ConnectionReport:
        peer, (received_bytes, sent_bytes) = connection.peer, connection.traffic.totals()
        return ConnectionReport(
            id=connection.id_text,
            name=key_name(peer.key, grant),
            key=peer.key,
            tag=peer.tag,
            address=peer.address,
            port=peer.port,
            since=connection.connected_at,
            state=self._state(connection),
            idle_seconds=connection.idle_seconds(now),
            round_trip_seconds=connection.machine.round_trip,
            calls=connection.running_calls,
            waiting_bytes=connection.waiting_bytes,
            unacknowledged_bytes=connection.unacknowledged_bytes,
            streams=tuple(self._streams_of(connection)),
            bulk_links=bulk_links,
            received_bytes=received_bytes,
            sent_bytes=sent_bytes,
        )

    def _state(self, connection: ConnectionRunner) -> ConnectionState:
        if not connection.connected:
            return "disconnected"
        if connection in self._runtime.holds.throttled:
            return "throttled"
        return "paused" if connection.is_paused else "connected"
