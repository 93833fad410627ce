"""``aeron_spark.Server``: the server with keys, a media driver and Aeron, made from an address and options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from aeron_spark import node
from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.endpoint_transport import AeronServerTransport
from aeron_spark.aeron.guard import has_guard
from aeron_spark.connection.connection import Connection
from aeron_spark.direct.archives import embedded
from aeron_spark.errors import DataFormatError, OptionError, SetupError
from aeron_spark.keys.authorized_keys import read_authorized
from aeron_spark.keys.identity import load_identity
from aeron_spark.keys.stores import FilePeerStore, KeyPaths
from aeron_spark.node.locks import is_locked
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.access import PeerStore
from aeron_spark.server.locks import ServerLocks, address_lock_path, check_ports_free
from aeron_spark.server.server import TransportServer
from aeron_spark.server.settings import ServerSettings
from aeron_spark.server.stream_service import StoreHousekeeper, StreamService
from aeron_spark.streams.model import StreamSettings
from aeron_spark.streams.store import Streams, has_streams
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import ServerAddress

GUARD_RISK: Final = (
    "a sender that reaches the server's ports can fill its memory with logs of any length, make it send packets to "
    "addresses of other hosts, and slow down or end connections; their messages stay secret and unchanged"
)
GUARD_REMEDY: Final = "Let aeron-spark start the driver, or load the guard into it: docs/driver-guard.md"


class Server(TransportServer):
    """A server of the secure endpoint on this machine's media driver.

    ``address`` is ``host:port`` or ``host:port:control``; ``*:port`` is every IPv4 and IPv6 address. ``options`` are
    those of docs/options.md, written as there or with underscores. Examples: ``identity``, the file of the server's
    key, which is created if it is missing, or ``env:NAME``; ``authorized_keys``, the file of the only client keys that
    the server admits; ``max_connections``.

    Until ``close``, the server locks its ports at the media driver and its store of streams. Raises OptionError for a
    wrong option, InUseError if another process uses a port or the store.

    ``run`` serves until ``close``; ``start`` returns at once.
    """

    def __init__(
        self,
        address: str = "",
        *,
        store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
        **options: Any,
    ) -> None:
        parsed = ServerOptions.parse(address, options)
        settings = ServerSettings.of(parsed)
        peers = store or _peer_store(parsed)
        self._options: ServerOptions = parsed
        self._locks = ServerLocks()
        try:
            self._lock_resources()
            self._node = node.ensure(parsed.aeron_dir)
        except BaseException:
            self._locks.release()
            raise
        self._housekeeper = StoreHousekeeper(
            self._open_streams, lambda connection, error: self._runtime.report(connection, error)
        )
        try:
            if self._streams_folder is not None:
                self._locks.lock_store(self._streams_folder)  # another process may have started the node meanwhile
            super().__init__(self._listen_aeron, peers, settings, connection_class)
            self._stream_service = StreamService(lambda: self.streams, self._runtime.bulk_links, self.grant_of)
            self._runner.services.append(self._stream_service)
        except BaseException:
            self._node.close()
            self._locks.release()
            raise

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._node.aeron_dir

    @property
    def streams(self) -> Streams:
        """The server's streams, stored beside its archive. Raises SetupError if no aeron-spark node runs its driver."""
        return self._housekeeper.store

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses on which the server listens: ``host:port:control``, or ``ipc:``."""
        return tuple(
            "ipc:" if address.media == "ipc" else f"{HostPort(address.host, address.data_port)}:{address.control_port}"
            for address in self._runner.addresses.values()
        )

    def start(self, addresses: Sequence[ServerAddress] = ()) -> None:
        """Listen on all addresses, or on none; by default on those of the options.

        Reports a media driver without the guard to the error listeners, once. Raises InUseError if another program
        uses one of the ports, TransportError if listening on an address fails for another reason.
        """
        addresses = addresses or self._options.addresses
        self._locks.lock_addresses(self.aeron_dir, addresses)
        super().start(addresses)
        self._check_guard()
        if self._streams_folder is not None and has_streams(self._streams_folder):
            self._housekeeper.open_soon()  # recovery and retention of stored streams do not wait for a client

    def run(self) -> None:
        """Serve until the server is closed; Ctrl-C closes it."""
        try:
            self.start()
            self.wait_closed()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Send CLOSE to every client and end. The media driver stops after its last user."""
        super().close()
        self._stream_service.close()
        self._housekeeper.close()
        self._node.close()
        self._locks.release()

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_guard(self) -> None:
        # after listening: a driver shows its guard only once it has guarded a channel
        is_on_network = any(address.media == "udp" for address in self._runner.addresses.values())
        if is_on_network and not has_guard(self.aeron_dir):
            what = f"the media driver in {self.aeron_dir} has no guard: {GUARD_RISK}"
            self._runtime.report(None, SetupError(what, remedy=GUARD_REMEDY))

    @property
    def _streams_folder(self) -> Path | None:
        return self._store_folder(self._node.archive_dir)

    def _store_folder(self, archive_dir: str) -> Path | None:
        if self._options.streams_dir is not None:
            return Path(self._options.streams_dir)
        return Path(f"{archive_dir}.streams") if archive_dir else None

    def _lock_resources(self) -> None:
        """Lock the addresses and the store. Runs before a media driver or a JVM starts, so that a refusal is quick."""
        status = node.status(self._options.aeron_dir)
        self._locks.lock_addresses(status.aeron_dir, self._options.addresses)
        store = self._store_folder("" if status.state == "foreign" else status.archive_dir)
        if store is not None:
            self._locks.lock_store(store)
        if status.state in ("absent", "stale"):
            check_ports_free(self._options.addresses)

    def _open_streams(self, is_ending: Callable[[], bool]) -> Streams:
        folder = self._streams_folder
        if folder is None or not self._node.archive_dir:
            raise SetupError(
                f"the server cannot store streams: the media driver in {self._node.aeron_dir} belongs to another "
                "program and has no archive of aeron-spark",
                remedy="Start the server with a separate aeronDir.",
            )
        lock = self._locks.lock_store(folder)
        settings = StreamSettings(max_stage_bytes=self._options.stage_bytes)
        return Streams(folder, embedded(self._node), settings, lock=lock, is_closing=is_ending)

    @property
    def _max_message_bytes(self) -> int:
        """The longest message of any link or bulk link."""
        is_ipc = any(address.media == "ipc" for address in self._options.addresses)
        return self._settings.link.channel_settings.for_bulk_link(is_ipc=is_ipc).max_message

    def _listen_aeron(self) -> AeronServerTransport:
        # A killed node leaves its directory behind. ``ensure`` checks whether the node lives, and starts another.
        restarted = node.ensure(self._options.aeron_dir)
        self._node.close()
        self._node = restarted
        return AeronServerTransport(
            client_of(self._node.aeron_dir),
            idle=self._options.idle,
            max_message=self._max_message_bytes,
            ipc_lock=address_lock_path(self._node.aeron_dir, ServerAddress(media="ipc")),
            is_locked=is_locked,
        )


def _peer_store(options: ServerOptions) -> PeerStore:
    defaults = KeyPaths.below(node.config_home(os.environ))
    paths = replace(defaults, identity=defaults.server_identity)
    if options.identity is not None and not options.identity.startswith("env:"):
        paths = replace(paths, identity=Path(options.identity))
    if options.authorized_keys is not None:
        paths = replace(paths, authorized_keys=Path(options.authorized_keys))
        try:  # reports a missing or wrong file at the start, not at each handshake
            read_authorized(paths.authorized_keys)
        except (SetupError, DataFormatError) as error:
            raise OptionError(f"option 'authorizedKeys': {error.what}", remedy=error.remedy) from None
    is_from_environment = options.identity is not None and options.identity.startswith("env:")
    return FilePeerStore(paths, load_identity(options.identity) if is_from_environment and options.identity else None)
