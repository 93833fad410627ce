"""Opens a client's transport over Aeron, on this machine's media driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from aeron_spark import node
from aeron_spark.aeron.client import ClientLease, lease_client
from aeron_spark.aeron.driver_server import ports_of_server
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.client.runner import ClientRunner
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.errors import ConnectError, EndedError
from aeron_spark.keys.identity import load_identity
from aeron_spark.keys.known_servers import ipc_server, network_server
from aeron_spark.keys.stores import FilePeerStore, KeyPaths
from aeron_spark.node import NodeHandle
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.transport.api import ServerAddress


class AeronDialer:
    """Opens the transport of a client on this machine's media driver; keeps the node and the Aeron clients until close.

    :meth:`start` makes one. The first :meth:`dial` has until ``deadline`` (monotonic seconds).
    """

    def __init__(
        self, options: ClientOptions, settings: ClientSettings, store: PeerStore, handle: NodeHandle,
        server: ServerAddress, deadline: float | None,
    ) -> None:  # fmt: skip
        self.settings: Final = settings
        """The settings of the client."""
        self.store: Final = store
        """The key store of the client."""
        self._options: Final = options
        self._node = handle
        self._address: Final = server
        self._deadline = deadline
        self._leases: list[ClientLease] = []
        self._lock: Final = threading.Lock()  # close() can be called during a later dial()
        self._is_closed = False

    @classmethod
    def start(
        cls, address: str, store: PeerStore | None, options: Mapping[str, object], deadline: float | None
    ) -> AeronDialer:
        """Start the media driver if none runs, find out whether the server uses its shared memory; return a dialer.

        Raises OptionError for wrong options, SetupError for key files that cannot be used, ConnectError without the
        shared memory that the options require, and the errors of ``node.ensure``.
        """
        parsed = ClientOptions.parse(address, options)
        settings, peers = ClientSettings.of(parsed), store or _peer_store(parsed)
        handle = node.ensure(parsed.aeron_dir, timeout=_seconds_until(deadline))
        try:
            return cls(parsed, settings, peers, handle, _server_address(parsed, handle.aeron_dir), deadline)
        except BaseException:
            handle.close()
            raise

    @property
    def is_ipc(self) -> bool:
        """Whether the client connects over shared memory."""
        return self._address.media == "ipc"

    @property
    def server_name(self) -> ServerName:
        """The name under which key stores know the server."""
        if self.is_ipc:
            return ipc_server(Path(self._node.aeron_dir))
        return network_server(self._address.host, self._address.data_port)

    def dial(self) -> AeronClientTransport:
        """Open a transport; start the media driver if it does not run. Raises EndedError after ``close``."""
        # A killed node leaves its directory. Only ``ensure`` finds out whether the node lives, and starts another one.
        deadline, self._deadline = self._deadline, None  # a later dial replaces a lost driver: without a deadline
        fresh = node.ensure(self._options.aeron_dir, timeout=_seconds_until(deadline))
        try:
            lease = lease_client(fresh.aeron_dir)
        except BaseException:
            fresh.close()
            raise
        with self._lock:
            if self._is_closed:
                lease.close()
                fresh.close()
                raise EndedError("the client is closed", remedy="Create another client.")
            self._leases.append(lease)
            former, self._node = self._node, fresh
        former.close()
        channel_settings = self.settings.link.channel_settings
        return AeronClientTransport(
            lease.client,
            self._address,
            channel_settings=channel_settings,
            ports=self._options.bind,
            idle=self._options.idle,
            max_message=channel_settings.for_bulk_link(is_ipc=self.is_ipc).max_message,
        )

    def close(self, is_loop_ended: bool) -> None:
        """Release the node and the Aeron clients. An event loop that has not ended may use its client, which stays."""
        with self._lock:
            self._is_closed = True
        if is_loop_ended:
            for lease in self._leases:
                lease.close()
        self._node.close()


def make_runner(
    address: str, store: PeerStore | None, connection_class: type[Connection], options: Mapping[str, object],
    deadline: float | None,
) -> ClientRunner:  # fmt: skip
    """Make the runner of a client; the arguments are those of :func:`aeron_spark.connect`.

    ``deadline`` (monotonic seconds) is for the start of the media driver.
    """
    dialer = AeronDialer.start(address, store, options, deadline)
    try:
        return ClientRunner(
            dialer.dial, dialer.server_name, dialer.store, dialer.settings, connection_class,
            is_ipc=dialer.is_ipc, on_closed=dialer.close,
        )  # fmt: skip
    except BaseException:
        dialer.close(is_loop_ended=True)
        raise


def _seconds_until(deadline: float | None) -> float:
    """Return how many seconds the media driver may take to start."""
    return node.START_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic())


def _server_address(options: ClientOptions, aeron_dir: str) -> ServerAddress:
    """Return the shared memory's address if the wanted server says that it listens there, else that of the options."""
    if options.ipc == "never" or not options.may_be_ipc:
        return options.server_address
    ports = ports_of_server(aeron_dir)
    if options.ipc == "only" and ports is None:
        raise ConnectError(
            f"no server listens over the shared memory of the media driver in {aeron_dir}, and without an address "
            "fallback is unavailable",
            remedy="Give host:port, or start the server on the same aeronDir with ipc=true.",
        )
    if options.ipc == "only" or (ports is not None and options.server_address.data_port in ports):
        return ServerAddress(media="ipc")
    return options.server_address


def _peer_store(options: ClientOptions) -> PeerStore:
    paths = KeyPaths.below(node.config_home(os.environ))
    if options.known_servers:
        paths = replace(paths, known_servers=Path(options.known_servers))
    return FilePeerStore(paths, None if options.identity is None else load_identity(options.identity))
