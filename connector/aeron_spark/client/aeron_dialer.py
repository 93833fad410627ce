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
from aeron_spark.aeron.driver import ports_of_server
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import Connection
from aeron_spark.errors import ConnectError, EndedError
from aeron_spark.keys.key_files import ipc_server, network_server
from aeron_spark.keys.stores import FilePeerStore, KeyPaths, load_identity
from aeron_spark.node import NodeHandle
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.transport.addresses import ip_of


class AeronDialer:
    """Opens a client's transport on this machine's media driver; keeps the node and the Aeron clients until close."""

    def __init__(self, address: str, store: PeerStore | None, options: Mapping[str, object]) -> None:
        """Check the arguments, which are those of :func:`aeron_spark.connect`; open nothing.

        Raises OptionError for wrong options, SetupError for key files that cannot be used, and DataFormatError for a
        wrong line in the file of known servers.
        """
        self.options: Final = ClientOptions.parse(address, options)
        """The options of the client."""
        self.store: Final = store or _peer_store(self.options)
        """The key store of the client."""
        self._node: NodeHandle | None = None
        self._leases: list[ClientLease] = []
        self._lock: Final = threading.Lock()  # close() can be called during a dial()
        self._is_closed = False

    @property
    def server_name(self) -> ServerName:
        """The name under which key stores know the server: its address, also if shared memory leads to it."""
        address = self.options.server_address
        if address.media == "ipc":
            return ipc_server(node.running_aeron_dir(self.options.aeron_dir))
        return network_server(address.host, address.data_port)

    def dial(self) -> AeronClientTransport:
        """Open a transport; start the node if none runs and one belongs there.

        Does not wait for another program's media driver, and has no deadline. Raises ConnectError if none runs where no
        node belongs, or without the shared memory that the options require, EndedError after ``close``, and the errors
        of ``node.ensure``.
        """
        return self._dial(node.START_TIMEOUT, 0.0)

    def dial_until(self, deadline: float | None) -> AeronClientTransport:
        """Open a transport as :meth:`dial` does, by ``deadline`` (monotonic seconds); wait for a media driver, too."""
        timeout_s = node.START_TIMEOUT if deadline is None else max(0.0, deadline - time.monotonic())
        return self._dial(timeout_s, min(self.options.connect_timeout or node.START_TIMEOUT, timeout_s))

    def _dial(self, timeout_s: float, wait_s: float) -> AeronClientTransport:
        self._refuse_closed()  # a pool may run what it got before the client's end: no node is started then
        # A killed node leaves its directory. Only ``ensure`` finds out whether the node lives, and starts another one.
        options = self.options
        fresh = node.ensure(options.aeron_dir, timeout=timeout_s, wait_s=wait_s)
        try:
            if options.ipc == "only":
                _require_shared_memory(fresh.aeron_dir)
            lease = lease_client(fresh.aeron_dir)
        except BaseException:
            fresh.close()
            raise
        with self._lock:
            if self._is_closed:
                lease.close()
                fresh.close()
            self._refuse_closed()
            self._leases.append(lease)
            former, self._node = self._node, fresh
        if former is not None:
            former.close()
        may_be_ipc = options.ipc == "only" or (options.ipc == "auto" and is_own_address(options.server_address.host))
        return AeronClientTransport(
            lease.client,
            options.server_address,
            channel_settings=options.channel,
            ports=options.bind,
            idle=options.idle,
            max_message=options.channel.for_bulk_link(is_ipc=may_be_ipc).max_message,
            shares_memory=partial(_shares_memory, options, fresh.aeron_dir) if may_be_ipc else lambda: False,
        )

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise EndedError("the client is closed", remedy="Create another client.")

    def close(self, is_loop_ended: bool) -> None:
        """Release the node and the Aeron clients. An event loop that has not ended may use its client, which stays."""
        with self._lock:
            self._is_closed = True
            ended, self._leases = (self._leases, []) if is_loop_ended else ([], self._leases)
        for lease in ended:
            lease.close()
        if self._node is not None:
            self._node.close()


def make_aeron_endpoint(
    address: str,
    store: PeerStore | None,
    connection_class: type[Connection],
    options: Mapping[str, object],
    deadline: float | None,
    *,
    opens: bool = True,
) -> ClientEndpoint:
    """Make the endpoint of a client over Aeron; the arguments are those of :func:`aeron_spark.connect`.

    With ``opens``, open its transport by ``deadline`` (monotonic seconds); else its event loop does so, when it
    connects.
    """
    dialer = AeronDialer(address, store, options)
    try:
        endpoint = ClientEndpoint(dialer.dial, dialer.server_name, dialer.store, dialer.options, connection_class)
        endpoint.on_closed = dialer.close
        if opens:
            endpoint.open(partial(dialer.dial_until, deadline))
    except BaseException:
        dialer.close(is_loop_ended=True)
        raise
    return endpoint


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
