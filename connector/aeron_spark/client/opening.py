"""``aeron_spark.connect``: from an address to a connected client, with keys, a media driver and Aeron."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aeron_spark import node
from aeron_spark.aeron.client import ClientLease, lease_client
from aeron_spark.aeron.driver_server import ports_of_server
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.client.settings import ClientSettings
from aeron_spark.client.streaming import StreamingClient
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import ConnectError
from aeron_spark.keys.identity import load_identity
from aeron_spark.keys.known_servers import ipc_server, network_server
from aeron_spark.keys.stores import FilePeerStore, KeyPaths
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.transport.api import ServerAddress

SHORTEST_SECONDS: Final = 0.1  # for the handshake, however little time the start of the media driver has left


class Client(StreamingClient):
    """A client on this machine's media driver; ``close`` or ``with`` ends it.

    :func:`connect` makes one that is connected. :meth:`to` makes one that is not yet, for listeners, types and objects
    that must be there by then; ``connect`` connects it.
    """

    def __init__(
        self, place: ServerAddress, store: PeerStore, settings: ClientSettings, options: ClientOptions,
        connection_class: type[Connection], *, by: float | None = None,
    ) -> None:  # fmt: skip
        self._node = node.ensure(options.aeron_dir, timeout=_seconds_to_start(by))
        self._by = by
        self._leases: list[ClientLease] = []
        self._options = options
        self._at = place
        name = _name(place, self._node.aeron_dir)
        try:
            super().__init__(
                self._dial_aeron, name, store, settings, connection_class,
                is_ipc=place.media == "ipc",
            )  # fmt: skip
        except BaseException:
            self._give_back()
            raise
        self._by = None  # a driver that is lost later is opened again without regard to the first connect

    @classmethod
    def to(
        cls,
        address: str = "",
        *,
        store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
        **options: Any,
    ) -> Client:
        """Make a client of the server at ``address`` that is not connected yet; all as for :func:`connect`."""
        return cls._made(address, store, connection_class, options)

    @classmethod
    def _made(
        cls, address: str, store: PeerStore | None, connection_class: type[Connection], options: dict[str, Any],
        by: float | None = None,
    ) -> Client:  # fmt: skip
        """Make a client; ``by``: when the media driver must be there, by the monotonic clock."""
        given = ClientOptions.parse(address, options)
        settings = ClientSettings.of(given)
        peers = store or _store(given)
        with node.ensure(given.aeron_dir, timeout=_seconds_to_start(by)) as held:
            return cls(_place(given, held.aeron_dir), peers, settings, given, connection_class, by=by)

    def close(self) -> None:
        """Send what was sent, tell the server, and end; the media driver stops when nobody uses it any more."""
        super().close()
        if self._agent.alive:  # it did not end in time, and may be in the middle of Aeron: the Aeron client stays
            self._node.close()
        else:
            self._give_back()

    def _give_back(self) -> None:
        for lease in self._leases:
            lease.close()
        self._node.close()

    def _dial_aeron(self) -> AeronClientTransport:
        # A killed node leaves its directory behind: only asking tells whether it lives, and starts another.
        fresh = node.ensure(self._options.aeron_dir, timeout=_seconds_to_start(self._by))
        self._node.close()
        self._node = fresh
        link = self._client_settings.link
        lease = lease_client(self._node.aeron_dir)
        self._leases.append(lease)
        return AeronClientTransport(
            lease.client,
            self._at,
            channel_settings=link.channel_settings,
            ports=self._options.bind,
            idle=self._options.idle,
            max_message=link.channel_settings.for_bulk_link(is_ipc=self._at.media == "ipc").max_message,
        )


def connect(
    address: str = "",
    *,
    store: PeerStore | None = None,
    connection_class: type[Connection] = Connection,
    timeout: float | None = None,
    wait: bool = True,
    **options: Any,
) -> Client:
    """Connect to the server at ``address`` (``host:port``, ``host:port:control``, or ``ipc:``) and return the client.

    Whoever must hear of the connection itself, or of the first messages, makes a ``Client.to(address)``, adds the
    listeners, and connects that.

    ``options`` are those of docs/options.md, written as there or with underscores: ``identity``, the file of this
    side's key or ``env:NAME`` (without one the user's own is used, and made the first time), ``tag``, ``server_key``.
    ``wait=False`` returns at once, with a client that tries to connect until it is closed: for a program whose server
    may be down, and that writes through a buffer (:meth:`StreamingClient.writer`); ``client.connect(seconds)`` waits
    later. A server that listens over this machine's shared memory, too, is reached there, unless ``ipc='never'``.

    ``timeout`` is in seconds. It bounds the start of this machine's media driver, too, which has ten minutes without
    it; a start that is slow goes on, and the next call waits for the same one. With 0 the client tries until it is
    closed.

    Raises OptionError for what is wrong here, RefusedError with the server's reason, IdentityError for a wrong key, and
    ConnectError or WaitTimeout where nobody answers.
    """
    by = time.monotonic() + timeout if timeout else None
    client = Client._made(address, store, connection_class, options, by)
    try:
        if wait:
            client.connect(timeout if by is None else max(SHORTEST_SECONDS, by - time.monotonic()))
        else:
            client.begin_connecting()
    except BaseException:
        client.close()
        raise
    return client


def _seconds_to_start(by: float | None) -> float:
    """Return how long this machine's media driver may take to be there."""
    return node.START_TIMEOUT if by is None else max(0.0, by - time.monotonic())


def _place(given: ClientOptions, aeron_dir: str) -> ServerAddress:
    """Where to go: shared memory where the wanted server says that it listens there, else the network."""
    if given.ipc == "never" or not given.may_be_ipc:
        return given.server_address
    ports = ports_of_server(aeron_dir)
    if given.ipc == "only" and ports is None:
        raise ConnectError(
            f"no server listens over the shared memory of the media driver in {aeron_dir}, and without an address "
            "fallback is unavailable",
            remedy="Give host:port, or start the server on the same aeronDir with ipc=true.",
        )
    if given.ipc == "only" or (ports is not None and given.server_address.data_port in ports):
        return ServerAddress(media="ipc")
    return given.server_address


def _store(given: ClientOptions) -> PeerStore:
    places = KeyPaths.below(node.config_home(os.environ))
    if given.known_servers:
        places = replace(places, known_servers=Path(given.known_servers))
    return FilePeerStore(places, None if given.identity is None else load_identity(given.identity))


def _name(place: ServerAddress, aeron_dir: str) -> ServerName:
    return ipc_server(Path(aeron_dir)) if place.media == "ipc" else network_server(place.host, place.data_port)
