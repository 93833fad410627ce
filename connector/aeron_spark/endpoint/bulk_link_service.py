"""The server's service that opens bulk links for an authenticated client."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from aeron_spark.endpoint.bulk_links import METHODS, SERVICE, BulkLink
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.packet_watch import PacketWatch, alive_times
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.errors import DataFormatError, RefusedError, WaitTimeout
from aeron_spark.protocol.frame_cipher import RANDOM_BYTES, FrameDecryptor, FrameEncryptor, bulk_link_keys
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.sources import Refusal
from aeron_spark.transport.api import MTU_BYTES, ChannelPair, ChannelSettings, LinkIds
from aeron_spark.transport.channel import FRAME_ALIGNMENT
from aeron_spark.transport.packet_sizes import network_path, open_bytes


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of one bulk link. ``open_bytes`` and ``watch``: see :class:`Link` and :class:`BulkLink`."""

    channel_settings: ChannelSettings
    times: Times
    open_bytes: int = 0
    watch: PacketWatch | None = None


class BulkLinkService:
    """The remote object whose methods a client calls to open bulk links on its own connection.

    They run on worker threads. They raise RefusedError if the connection or the server has no bulk link left, or its
    shared memory no room; WaitTimeout if the event loop or the media driver does not open it in time.
    """

    def __init__(self, endpoint: ServerEndpoint, connection: ConnectionCore) -> None:
        self._endpoint = endpoint
        self._bulk_links = endpoint.runtime.bulk_links
        self._loop = endpoint.runtime.loop
        self._connection = connection

    def offer(self) -> None:
        """Let the client call the methods."""
        self._connection.serve(self, METHODS, SERVICE)

    def open(self, part: bytes) -> dict[str, Any]:
        """Open a bulk link for a client that does not fill OPEN up, or in shared memory; see :meth:`open_with_mtu`."""
        options = self._endpoint.options
        channel_settings = options.channel.for_bulk_link(is_ipc=self._connection.peer.is_ipc)
        return self._open(part, _Parameters(channel_settings, options.times))

    def open_with_mtu(self, part: bytes, mtu: int) -> dict[str, Any]:
        """Open a bulk link. Return its ids, the server's part of its keys, its longest message and MTU in bytes.

        ``part`` is the client's part of the keys, and ``mtu`` is the Aeron MTU that the client would use.
        """
        if not isinstance(mtu, int):
            raise DataFormatError(
                f"the MTU of a bulk link is {type(mtu).__name__}, expected a whole number",
                remedy="Use the same release of aeron-spark at both ends.",
            )
        options, watch = self._endpoint.options, None
        channel_settings, address = options.channel.for_bulk_link(is_ipc=False), self._connection.peer.address
        if channel_settings.finds_mtu:
            path = network_path(address)
            allowed = MTU_BYTES if path is None else path.mtu_bytes
            own_mtu = max(MTU_BYTES, min(allowed, mtu - mtu % FRAME_ALIGNMENT))
            channel_settings = replace(channel_settings, mtu_bytes=own_mtu)
            watch = PacketWatch.of(address, own_mtu, self._loop.clock())
        own_mtu = channel_settings.mtu_bytes
        parameters = _Parameters(channel_settings, alive_times(options.times), open_bytes(own_mtu), watch)
        return self._open(part, parameters) | {"mtu": own_mtu}

    def _open(self, part: bytes, parameters: _Parameters) -> dict[str, Any]:
        server_part = secrets.token_bytes(RANDOM_BYTES)
        timeout_s = parameters.times.setup_seconds
        opening = self._loop.call(lambda: self._begin(part, server_part, parameters))
        bulk_link, ids = self._loop.wait(
            opening,
            timeout_s,
            "the server's event loop to open a bulk link",
            remedy="Connect again, or look at the server's load.",
        )
        try:
            self._await_ready(bulk_link.link.pair, timeout_s)
        except BaseException:
            bulk_link.close()
            raise
        return {
            "session_in": ids.session_in,
            "stream_in": ids.stream_in,
            "session_out": ids.session_out,
            "stream_out": ids.stream_out,
            "port": ids.mdc_port or 0,
            "part": server_part,
            "max_message": parameters.channel_settings.max_message,
            "longest_term": parameters.channel_settings.longest_peer_term,
        }

    def _begin(self, client_part: bytes, server_part: bytes, parameters: _Parameters) -> tuple[BulkLink, LinkIds]:
        endpoint, connection, now = self._endpoint, self._connection, self._loop.clock()
        keys, limit = endpoint.options.key_limits, endpoint.options.max_bulk_links
        if self._bulk_links.count(connection) >= limit:
            raise RefusedError(
                f"{connection.label} has {limit} bulk links, and the server allows no more",
                remedy="Close some, or raise the server's maxBulkLinks.",
                reason="full",
            )
        image = endpoint.image_of(connection)
        refusal = endpoint.take_log_space(connection.peer.key, parameters.channel_settings)
        if refusal is not None:
            raise refusal
        ids = endpoint.pools.take(now)
        if isinstance(ids, Refusal):
            raise RefusedError(ids.text_for_client, remedy=ids.advice.remedy, reason=ids.code)
        try:
            client_keys, server_keys = bulk_link_keys(
                client_part, server_part, (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out)
            )
            pair = endpoint.transport.open_link(image, ids, parameters.channel_settings)
        except BaseException:
            endpoint.pools.release(ids, now)
            raise
        link = Link(
            pair,
            FrameEncryptor(server_keys, keys),
            FrameDecryptor(client_keys, keys),
            parameters.times,
            parameters.channel_settings.max_message,
            now,
            source_address=connection.peer.address,
            open_bytes=parameters.open_bytes,
        )
        label = f"bulk link {ids.session_in:08x} of {connection.label}"
        bulk_link = BulkLink(
            self._bulk_links, connection, link, ids.session_in, label, begins=False, watch=parameters.watch
        )
        bulk_link.on_removed = lambda: endpoint.pools.release(ids, self._loop.clock())
        self._bulk_links.add(bulk_link)
        return bulk_link, ids

    def _await_ready(self, pair: ChannelPair, timeout_s: float) -> None:
        inbox, publication = self._endpoint.transport.inbox, pair.publication

        def is_ready() -> bool:
            return inbox.ready(pair.token) and publication.ready

        if not self._loop.wait_until(lambda: is_ready() or bool(publication.failure), timeout_s) or not is_ready():
            raise WaitTimeout(
                f"the media driver did not open a bulk link in time ({publication.failure or 'no response'})",
                remedy="See the media driver's errors: aeron-spark errors.",
            )
