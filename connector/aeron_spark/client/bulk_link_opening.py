"""Opens the client's end of a bulk link, with the largest packets that the network carries."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from aeron_spark.endpoint.bulk_links import SERVICE, BulkLink
from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.connection import ConnectionCore
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.packet_watch import PacketWatch, alive_times
from aeron_spark.errors import AeronSparkError, RemoteError, WaitTimeout
from aeron_spark.protocol.frame_cipher import RANDOM_BYTES, FrameDecryptor, FrameEncryptor, bulk_link_keys
from aeron_spark.protocol.rpc_dispatch import UNKNOWN_METHOD
from aeron_spark.transport.api import MTU_BYTES, LinkIds
from aeron_spark.transport.packet_sizes import NetworkPath, PacketSizes, network_path, open_bytes

ANSWER_S: Final = 2.0
"""How long a full packet and the server's answer may take. Aeron sends a lost packet again after 20 ms."""

MIN_STEP_S: Final = 0.1
"""For each wait of an attempt that begins just before the deadline."""

SIZES: Final = PacketSizes()
"""The packet sizes of this process."""


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
    options, now, content = endpoint.options, endpoint.loop.clock(), response.content
    ids = LinkIds(
        content["session_in"],
        content["stream_in"],
        content["session_out"],
        content["stream_out"],
        content["port"] or None,
    )
    own_key, peer_key = bulk_link_keys(
        response.own_part, content["part"], (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out)
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
    link = Link(
        endpoint.transport.open_link(ids, channel_settings),
        FrameEncryptor(own_key, options.key_limits),
        FrameDecryptor(peer_key, options.key_limits),
        alive_times(options.times) if is_filled else options.times,
        min(channel_settings.max_message, content["max_message"]),
        now,
        open_bytes=open_bytes(mtu_bytes) if is_filled else 0,
    )
    label = f"bulk link {ids.session_in:08x} of {connection.label}"
    watch = None if path is None else PacketWatch.of(path.target, mtu_bytes, now)
    bulk_link = BulkLink(endpoint.runtime.bulk_links, connection, link, ids.session_in, label, begins=True, watch=watch)
    endpoint.runtime.bulk_links.add(bulk_link)
    return bulk_link
