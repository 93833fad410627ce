"""Opens a client's transport over Aeron, on this machine's media driver."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
from aeron_spark.transport.addresses import ip_of


class AeronDialer:
    """Opens the transport of a client on this machine's media driver; keeps the node and the Aeron clients until close.

    :meth:`start` makes one. The first :meth:`dial` has until ``deadline`` (monotonic seconds).
    """

    def __init__(
        self, options: ClientOptions, settings: ClientSettings, store: PeerStore, handle: NodeHandle,
        deadline: float | None,
    ) -> None:  # fmt: skip
        self.settings: Final = settings
        """The settings of the client."""
        self.store: Final = store
        """The key store of the client."""
        self._options: Final = options
        self._node = handle
        self._deadline = deadline
        self._leases: list[ClientLease] = []
        self._lock: Final = threading.Lock()  # close() can be called during a later dial()
        self._is_closed = False

    @classmethod
    def start(
        cls, address: str, store: PeerStore | None, options: Mapping[str, object], deadline: float | None
    ) -> AeronDialer:
        """Return a dialer. Start a node if no media driver runs and one belongs there.

        Raises OptionError for wrong options, SetupError for key files that cannot be used, DataFormatError for a wrong
        line in the file of known servers, ConnectError without the shared memory that the options require, and the
        errors of ``node.ensure``.
        """
        parsed = ClientOptions.parse(address, options)
        settings, peers = ClientSettings.of(parsed), store or _peer_store(parsed)
        wait_s = min(settings.connect_seconds or node.START_TIMEOUT, _seconds_until(deadline))
        handle = node.ensure(parsed.aeron_dir, timeout=_seconds_until(deadline), wait_s=wait_s)
        try:
            if parsed.ipc == "only":
                _require_shared_memory(handle.aeron_dir)
            return cls(parsed, settings, peers, handle, deadline)
        except BaseException:
            handle.close()
            raise

    @property
    def server_name(self) -> ServerName:
        """The name under which key stores know the server: its address, also if shared memory leads to it."""
        address = self._options.server_address
        if address.media == "ipc":
            return ipc_server(Path(self._node.aeron_dir))
        return network_server(address.host, address.data_port)

    def dial(self) -> AeronClientTransport:
        """Open a transport; start the node if it does not run. Does not wait for another program's media driver.

        Raises ConnectError if none runs where no node belongs, and EndedError after ``close``.
        """
        # A killed node leaves its directory. Only ``ensure`` finds out whether the node lives, and starts another one.
        deadline, self._deadline = self._deadline, None  # a later dial replaces a lost driver: without a deadline
        fresh = node.ensure(self._options.aeron_dir, timeout=_seconds_until(deadline), wait_s=0.0)
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
        options, channel_settings = self._options, self.settings.link.channel_settings
        may_be_ipc = options.ipc == "only" or (options.ipc == "auto" and is_own_address(options.server_address.host))
        return AeronClientTransport(
            lease.client,
            options.server_address,
            channel_settings=channel_settings,
            ports=options.bind,
            idle=options.idle,
            max_message=channel_settings.for_bulk_link(is_ipc=may_be_ipc).max_message,
            shares_memory=partial(_shares_memory, options, fresh.aeron_dir) if may_be_ipc else lambda: False,
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
            on_closed=dialer.close,
        )  # fmt: skip
    except BaseException:
        dialer.close(is_loop_ended=True)
        raise


def _seconds_until(deadline: float | None) -> float:
    """Return how many seconds the media driver may take to start."""
    return node.START_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic())


def _shares_memory(options: ClientOptions, aeron_dir: str) -> bool:
    """Whether a client's next path uses the driver's shared memory: the wanted server says that it listens there."""
    if options.ipc == "only":
        return True
    ports = ports_of_server(aeron_dir)
    return ports is not None and options.server_address.data_port in ports


def is_own_address(host: str) -> bool:
    """Whether ``host`` is an IP address of this machine. No name is looked up."""
    address = ip_of(host)
    if address is None or address.is_loopback:
        return address is not None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _require_shared_memory(aeron_dir: str) -> None:
    if ports_of_server(aeron_dir) is None:
        raise ConnectError(
            f"no server listens over the shared memory of the media driver in {aeron_dir}, and without an address "
            "fallback is unavailable",
            remedy="Give host:port, or start the server on the same aeronDir with ipc=always.",
        )


def _peer_store(options: ClientOptions) -> PeerStore:
    paths = KeyPaths.below(node.config_home(os.environ))
    if options.known_servers:
        paths = replace(paths, known_servers=Path(options.known_servers))
    store = FilePeerStore(paths, None if options.identity is None else load_identity(options.identity))
    store.servers()  # raises DataFormatError for a wrong line now, not after the start of the media driver
    return store
