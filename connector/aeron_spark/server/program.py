"""``aeron_spark.Server``: from an address to a running server, with keys, a media driver and Aeron."""

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
from aeron_spark.node.locks import is_held
from aeron_spark.options import ServerOptions
from aeron_spark.protocol.access import PeerStore
from aeron_spark.server.locks import ServerLocks, place_lock, refuse_taken_ports
from aeron_spark.server.server import ServerCore
from aeron_spark.server.settings import ServerSettings
from aeron_spark.server.stream_service import StreamKeeper, StreamService
from aeron_spark.streams.model import StreamSettings
from aeron_spark.streams.store import Streams, holds_streams
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import ServerAddress

UNGUARDED: Final = (
    "whoever reaches the server's ports can fill its memory with logs of any length, have it send to addresses that "
    "never asked, and slow down or end the duologues of others; what is said in them stays secret and unchanged"
)
GUARD_IT: Final = "Let aeron-spark start the driver, or load the guard into it: docs/driver-guard.md"


class Server(ServerCore):
    """A server of the secure endpoint on this machine's media driver.

    ``address`` is ``host:port`` or ``host:port:control``; ``*:port`` is every IPv4 and IPv6 address. ``options`` are
    those of docs/options.md, written as there or with underscores: ``identity``, the file of its key, made the first
    time, or ``env:NAME``; ``authorized_keys``, with which only clients in that file may come; ``max_connections``.

    The server's ports at its media driver, and its store of streams, belong to it alone from here to ``close``. Raises
    OptionError for a wrong option, InUseError where another process has a port or the store.

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
        given = ServerOptions.parse(address, options)
        settings = ServerSettings.of(given)
        peers = store or _store(given)
        self._options: ServerOptions = given
        self._locks = ServerLocks()
        try:
            self._take_locks()
            self._node = node.ensure(given.aeron_dir)
        except BaseException:
            self._locks.release()
            raise
        self._keeper = StreamKeeper(self._open_streams, self.report)
        try:
            if self._streams_folder is not None:
                self._locks.take_store(self._streams_folder)  # the node may have begun with another archive meanwhile
            super().__init__(self._listen_aeron, peers, settings, connection_class)
            self._stream_service = StreamService(lambda: self.streams, self.bulk_links, self.grant_of)
            self._desks.append(self._stream_service)
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
        """The named streams, which it keeps beside its archive. Raises SetupError where its driver has none of ours."""
        return self._keeper.store

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens: ``host:port:control``, or ``ipc:``."""
        return tuple(
            "ipc:" if place.media == "ipc" else f"{HostPort(place.host, place.data_port)}:{place.control_port}"
            for place in self._runner.places.values()
        )

    def start(self, places: Sequence[ServerAddress] = ()) -> None:
        """Listen at every place of the address, or at none.

        A media driver without the guard, such as another program's, is reported to the error listeners, once. Raises
        InUseError where another program has one of the ports, TransportError where one cannot be listened on for
        another reason.
        """
        places = places or self._options.places
        self._locks.take_places(self.aeron_dir, places)
        super().start(places)
        self._look_for_guard()
        if self._streams_folder is not None and holds_streams(self._streams_folder):
            self._keeper.open_soon()  # stored streams are recovered and retained also where no client asks for one

    def run(self) -> None:
        """Serve until it is closed; Ctrl-C closes it."""
        try:
            self.start()
            self.wait_closed()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Tell every client and end; the media driver stops when nobody uses it any more."""
        super().close()
        self._stream_service.close()
        self._keeper.close()
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

    def _look_for_guard(self) -> None:
        # only a driver that was asked to guard a channel shows whether it can
        on_network = any(place.media == "udp" for place in self._runner.places.values())
        if on_network and not has_guard(self.aeron_dir):
            what = f"the media driver in {self.aeron_dir} has no guard: {UNGUARDED}"
            self.report(None, SetupError(what, remedy=GUARD_IT))

    @property
    def _streams_folder(self) -> Path | None:
        return self._store_beside(self._node.archive_dir)

    def _store_beside(self, archive_dir: str) -> Path | None:
        if self._options.streams_dir is not None:
            return Path(self._options.streams_dir)
        return Path(f"{archive_dir}.streams") if archive_dir else None

    def _take_locks(self) -> None:
        """Take what this server needs for itself, before a media driver or a JVM is started for it."""
        found = node.status(self._options.aeron_dir)
        self._locks.take_places(found.aeron_dir, self._options.places)
        store = self._store_beside("" if found.state == "foreign" else found.archive_dir)
        if store is not None:
            self._locks.take_store(store)
        if found.state in ("absent", "stale"):
            refuse_taken_ports(self._options.places)

    def _open_streams(self, ending: Callable[[], bool]) -> Streams:
        folder = self._streams_folder
        if folder is None or not self._node.archive_dir:
            raise SetupError(
                f"streams are kept in an archive of this package, and the media driver in {self._node.aeron_dir} is "
                "another program's",
                remedy="Start the server with an aeronDir of its own.",
            )
        lock = self._locks.take_store(folder)
        settings = StreamSettings(stage_limit=self._options.stage_bytes)
        return Streams(folder, embedded(self._node), settings, lock=lock, ending=ending)

    @property
    def _longest_message(self) -> int:
        """Bytes of the longest message that comes from anybody."""
        is_ipc = any(place.media == "ipc" for place in self._options.places)
        return self.settings.channel_settings.for_bulk_link(is_ipc=is_ipc).max_message

    def _listen_aeron(self) -> AeronServerTransport:
        # A killed node leaves its directory behind: only asking tells whether it lives, and starts another.
        fresh = node.ensure(self._options.aeron_dir)
        self._node.close()
        self._node = fresh
        return AeronServerTransport(
            client_of(self._node.aeron_dir),
            idle=self._options.idle,
            max_message=self._longest_message,
            ipc_lock=place_lock(self._node.aeron_dir, ServerAddress(media="ipc")),
            is_held=is_held,
        )


def _store(given: ServerOptions) -> PeerStore:
    home = KeyPaths.below(node.config_home(os.environ))
    places = replace(home, identity=home.server_identity)
    if given.identity is not None and not given.identity.startswith("env:"):
        places = replace(places, identity=Path(given.identity))
    if given.authorized_keys is not None:
        places = replace(places, authorized_keys=Path(given.authorized_keys))
        try:  # a file that is missing or wrong is said now, and not to every client
            read_authorized(places.authorized_keys)
        except (SetupError, DataFormatError) as error:
            raise OptionError(f"option 'authorizedKeys': {error.what}", remedy=error.remedy) from None
    from_environment = given.identity is not None and given.identity.startswith("env:")
    return FilePeerStore(places, load_identity(given.identity) if from_environment and given.identity else None)
