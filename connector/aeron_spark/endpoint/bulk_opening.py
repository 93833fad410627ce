"""Opens bulk links: the client's end with the largest packets that the network carries, and the server's service.

The client calls the service over its connection. Each call opens the server's end of one link. Then the client opens
its own end, and the two ends exchange OPEN.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.endpoint.bulk_links import METHODS, SERVICE, BulkLink
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.endpoint import EndpointCore
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.packet_watch import PacketWatch, alive_times
from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError, RemoteError, WaitTimeout
from aeron_spark.protocol.frame_cipher import RANDOM_BYTES, FrameDecryptor, FrameEncryptor, bulk_link_keys
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.rpc_dispatch import UNKNOWN_METHOD
from aeron_spark.protocol.sources import Refusal
from aeron_spark.transport.api import MTU_BYTES, ChannelPair, ChannelSettings, LinkIds
from aeron_spark.transport.channel import FRAME_ALIGNMENT
from aeron_spark.transport.packet_sizes import NetworkPath, PacketSizes, network_path, open_bytes

if TYPE_CHECKING:
    from aeron_spark.endpoint.server_endpoint import ServerEndpoint

ANSWER_S: Final = 2.0
"""How long a full packet and the server's answer may take. Aeron sends a lost packet again after 20 ms."""

MIN_STEP_S: Final = 0.1
"""For each wait of an attempt that begins just before the deadline."""

SIZES: Final = PacketSizes()
"""The packet sizes of this process."""


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of one end. ``open_bytes`` and ``watch``: see :class:`Link` and :class:`BulkLink`."""

    channel_settings: ChannelSettings
    max_message: int
    times: Times
    open_bytes: int = 0
    watch: PacketWatch | None = None


def _add_end(
    endpoint: EndpointCore,
    connection: ConnectionCore,
    ids: LinkIds,
    pair: ChannelPair,
    keys: tuple[bytes, bytes],
    parameters: _Parameters,
    *,
    begins: bool,
) -> BulkLink:
    """Make this end of a bulk link: ``keys`` are its own one and the peer's. ``begins``: the client's end."""
    limits = endpoint.options.key_limits
    link = Link(
        pair,
        FrameEncryptor(keys[0], limits),
        FrameDecryptor(keys[1], limits),
        parameters.times,
        parameters.max_message,
        endpoint.loop.clock(),
        source_address="" if begins else connection.peer.address,
        open_bytes=parameters.open_bytes,
    )
    label = f"bulk link {ids.session_in:08x} of {connection.label}"
    number, watch = ids.session_in, parameters.watch
    bulk_link = BulkLink(endpoint.bulk_links, connection, link, number, label, begins=begins, watch=watch)
    endpoint.bulk_links.add(bulk_link)
    return bulk_link


def _keys(client_part: bytes, server_part: bytes, ids: LinkIds) -> tuple[bytes, bytes]:
    """Return the key with which the client encrypts, then that of the server."""
    return bulk_link_keys(client_part, server_part, (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out))


@dataclass(frozen=True, slots=True)
class _Response:
    """The link that the server opened. ``mtu_bytes`` is its MTU, or None if the server's release does not pad OPEN."""

    content: dict[str, Any]
    own_part: bytes
    mtu_bytes: int | None


def open_bulk_link(endpoint: ClientEndpoint, connection: ConnectionCore, timeout_s: float) -> BulkLink:
    """Request a bulk link from the server, open its publication and subscription, and wait until it is verified.

    If ``mtu`` is ``auto``, a full packet of each direction must arrive: if it does not, a smaller size takes its place.
    Raises WaitTimeout, RefusedError or TransportError.
    """
    clock = endpoint.loop.clock
    end = clock() + timeout_s
    channel = endpoint.options.channel
    is_first, late = True, None
    while clock() < end:
        path = network_path(endpoint.server.host) if channel.finds_mtu and not connection.peer.is_ipc else None
        size = channel.mtu_bytes if path is None else SIZES.choose(path, clock())
        try:
            bulk_link = _begin(endpoint, connection, size, path, end)
        except WaitTimeout as error:
            if is_first or clock() < end:
                raise
            late = error  # the server has answered before, so the packets are the cause
            break
        is_first = False
        if _passes(bulk_link, path, size, end, clock):
            return bulk_link
    raise WaitTimeout(
        f"waited {timeout_s:.3g} s for a bulk link of {connection.label} whose packets pass",
        remedy="Check the network, or set 'mtu' at both ends to a size that always passes.",
    ) from late


def _passes(bulk_link: BulkLink, path: NetworkPath | None, size: int, end: float, clock: Callable[[], float]) -> bool:
    """Wait until a bulk link is verified; False: it is closed, because packets of ``size`` bytes do not pass.

    Raises the error of a bulk link for which a smaller size is no help.
    """
    may_shrink = path is not None and size > MTU_BYTES
    try:
        bulk_link.wait_open(max(MIN_STEP_S, end - clock()), ANSWER_S if may_shrink else inf)
    except BaseException as error:
        bulk_link.close()
        if path is None or not may_shrink or not _is_of_packets(bulk_link, error) or clock() >= end:
            raise
        SIZES.add_lost(path, size, clock())
        return False
    # A router may have reported that OPEN is too large. Linux then sent it again in fragments.
    found = None if path is None else network_path(path.target)
    if found is not None and bulk_link.watch is not None and found.mtu_bytes < bulk_link.watch.mtu_bytes:
        bulk_link.close()
        return False
    return True


def _is_of_packets(bulk_link: BulkLink, error: BaseException) -> bool:
    """Whether OPEN was not answered, or the media driver refused packets of this size."""
    if isinstance(error, WaitTimeout):
        return bulk_link.is_open_sent
    return isinstance(error, AeronSparkError) and bool(bulk_link.link.pair.publication.failure)


def _begin(
    endpoint: ClientEndpoint, connection: ConnectionCore, size: int, path: NetworkPath | None, end: float
) -> BulkLink:
    loop = endpoint.loop
    response = _request(connection, size, max(MIN_STEP_S, end - loop.clock()))
    return loop.wait(
        loop.call(lambda: _open_link(endpoint, connection, response, size, path)),
        max(MIN_STEP_S, end - loop.clock()),
        "the client's event loop to open a bulk link",
        remedy="Try again.",
    )


def _request(connection: ConnectionCore, size: int, timeout_s: float) -> _Response:
    own_part = secrets.token_bytes(RANDOM_BYTES)
    service = connection.for_program.remote(SERVICE).with_timeout(timeout_s)
    if connection.peer.is_ipc:
        return _Response(service.open(own_part), own_part, None)
    try:
        content = service.open_with_mtu(own_part, size)
    except RemoteError as error:
        if error.code != UNKNOWN_METHOD:
            raise
        return _Response(service.open(own_part), own_part, None)  # an older server
    return _Response(content, own_part, int(content["mtu"]))


def _open_link(
    endpoint: ClientEndpoint, connection: ConnectionCore, response: _Response, size: int, path: NetworkPath | None
) -> BulkLink:
    options, content = endpoint.options, response.content
    ids = LinkIds(
        content["session_in"],
        content["stream_in"],
        content["session_out"],
        content["stream_out"],
        content["port"] or None,
    )
    is_filled = response.mtu_bytes is not None
    mtu_bytes = options.channel.mtu_bytes
    if path is not None and response.mtu_bytes is not None:
        mtu_bytes = max(MTU_BYTES, min(size, response.mtu_bytes))
    channel_settings = options.channel.for_bulk_link(is_ipc=connection.peer.is_ipc)
    longest_term = content.get("longest_term", channel_settings.term_bytes)  # an older server takes every term
    channel_settings = replace(
        channel_settings, mtu_bytes=mtu_bytes, term_bytes=min(channel_settings.term_bytes, longest_term)
    )
    parameters = _Parameters(
        channel_settings,
        min(channel_settings.max_message, content["max_message"]),
        alive_times(options.times) if is_filled else options.times,
        open_bytes(mtu_bytes) if is_filled else 0,
        None if path is None else PacketWatch.of(path.target, mtu_bytes, endpoint.loop.clock()),
    )
    keys = _keys(response.own_part, content["part"], ids)
    pair = endpoint.transport.open_link(ids, channel_settings)
    return _add_end(endpoint, connection, ids, pair, keys, parameters, begins=True)


class BulkLinkService:
    """The remote object whose methods a client calls to open bulk links on its own connection.

    They run on worker threads. They raise RefusedError if the connection or the server has no bulk link left, or its
    shared memory no room; WaitTimeout if the event loop or the media driver does not open it in time.
    """

    def __init__(self, endpoint: ServerEndpoint, connection: ConnectionCore) -> None:
        self._endpoint = endpoint
        self._loop = endpoint.loop
        self._connection = connection

    def offer(self) -> None:
        """Let the client call the methods."""
        self._connection.serve(self, METHODS, SERVICE)

    def open(self, part: bytes) -> dict[str, Any]:
        """Open a bulk link for a client that does not fill OPEN up, or in shared memory; see :meth:`open_with_mtu`."""
        options = self._endpoint.options
        channel_settings = options.channel.for_bulk_link(is_ipc=self._connection.peer.is_ipc)
        return self._open(part, _Parameters(channel_settings, channel_settings.max_message, options.times))

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
        times, longest = alive_times(options.times), channel_settings.max_message
        parameters = _Parameters(channel_settings, longest, times, open_bytes(own_mtu), watch)
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
        limit = endpoint.options.max_bulk_links
        if endpoint.bulk_links.count(connection) >= limit:
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
            client_key, server_key = _keys(client_part, server_part, ids)
            pair = endpoint.transport.open_link(image, ids, parameters.channel_settings)
        except BaseException:
            endpoint.pools.release(ids, now)
            raise
        keys = (server_key, client_key)
        bulk_link = _add_end(endpoint, connection, ids, pair, keys, parameters, begins=False)
        bulk_link.on_removed = lambda: endpoint.pools.release(ids, self._loop.clock())
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
