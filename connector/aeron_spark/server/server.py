"""``aeron_spark.Server``: the server with keys, a media driver and Aeron, made from an address and options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Endpoint
from aeron_spark.keys.client_table import ClientsChange
from aeron_spark.process_end import ExitHook
from aeron_spark.protocol.access import PeerStore
from aeron_spark.protocol.grants import Grant
from aeron_spark.server.event_log import EventLog
from aeron_spark.server.parts import ServerParts
from aeron_spark.server.readiness import Readiness
from aeron_spark.streams.store import StreamStore
from aeron_spark.transport.api import ServerAddress

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aeron_spark.options.keywords import ServerOptions as Keywords


class Server(Endpoint):
    """A server of the secure endpoint on this machine's media driver.

    ``address`` is ``host:port`` or ``host:port:control``; ``*:port`` is every IPv4 and IPv6 address. ``options`` are
    those of docs/options.md, written as there or with underscores. Examples: ``identity``, the file of the server's
    key, which is created if it is missing, or ``env:NAME``; ``authorized_keys``, the file of the only client keys that
    the server admits; ``max_connections``.

    Until ``close``, the server locks its ports at the media driver and its store of streams. Raises OptionError for a
    wrong option, InUseError if another process uses a port or the store. The media driver starts with the server, or
    at the first use of ``streams``.

    ``run`` serves until ``close``; ``start`` returns at once.
    """

    def __init__(
        self,
        address: str = "",
        *,
        store: PeerStore | None = None,
        connection_class: type[Connection] = Connection,
        **options: Unpack[Keywords],
    ) -> None:
        self._parts: Final = ServerParts(address, options, store, connection_class)
        super().__init__(self._parts.message_server.runtime)
        self._exit_hook: Final = ExitHook(self.close)

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return self._parts.aeron_dir

    @property
    def streams(self) -> StreamStore:
        """The server's streams, stored beside its archive. Raises SetupError if no aeron-spark node runs its driver."""
        return self._parts.streams

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses on which the server listens: ``host:port:control``, or ``ipc:``."""
        return self._parts.message_server.address_texts

    @property
    def public_key(self) -> bytes:
        """The server's public key, by which clients know it."""
        return self._parts.message_server.public_key

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections whose link is connected."""
        return self._parts.message_server.connections

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    @property
    def statistics(self) -> dict[str, int]:
        """Counts of used resources, and of refusals by code."""
        return self._parts.message_server.statistics

    @property
    def events(self) -> EventLog:
        """The events of the server, which it logs (docs/events.md)."""
        return self._parts.events

    def grant_of(self, connection: Connection) -> Grant:
        """Return the grant of the client of a connection. Raises EndedError if it is closed."""
        return self._parts.message_server.grant_of(connection)

    def reload(self) -> ClientsChange | None:
        """Read the clients file again now, and apply it to all clients; return the changes, or None without a file.

        Raises SetupError or DataFormatError if the file is missing or wrong; then the last good version stays.
        """
        return self._parts.reload()

    def on_message(self, kind: type, listener: Callable[[Connection, Any], object]) -> None:
        """Call ``listener(connection, message)`` for each message of this class or a subclass, of all connections."""
        self._parts.message_server.on_message(kind, listener)

    def start(self, addresses: Sequence[ServerAddress] = ()) -> None:
        """Start the media driver, recover the streams, then listen on all addresses, or on none.

        ``addresses`` replace those of the options. Reports a media driver without the guard to the error listeners,
        once. Raises InUseError if another process uses one of the ports or the admin socket, TransportError if
        listening on an address fails for another reason, SetupError if the media driver cannot start, and the errors
        of opening the store and the file of the bans. A stream that is damaged does not end the start; a store whose
        streams are all of another time than the archive does: DataLossError.
        """
        self._parts.start(addresses)

    def run(self) -> None:
        """Serve until the server is closed; Ctrl-C closes it."""
        try:
            self.start()
            self.wait_closed()
        except KeyboardInterrupt:
            pass
        finally:
            self.close()

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new clients, transactions, stages and commits, and wait until the running commits and calls end.

        Return whether they ended within ``timeout`` seconds, by default ``drainTimeout``. The server is not ready
        any more. A later ``close`` asks the clients to connect again, each after a random pause.
        """
        return self._parts.drain(timeout)

    @property
    def readiness(self) -> Readiness:
        """Whether the server is ready, and why not."""
        return self._parts.state.readiness

    def close(self) -> None:
        """Send CLOSE to every client and end. The media driver stops after its last user."""
        self._exit_hook.cancel()
        self._parts.close()

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def http_address(self) -> str | None:
        """The address of the pages ``/metrics``, ``/healthz`` and ``/readyz``; None while it serves none."""
        return self._parts.http_address
