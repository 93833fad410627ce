"""FrameDecryptor a branch from the client's side."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from aeron_spark.connection.bulk_links import SERVICE, BulkLink, BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.protocol.bulk import PART_BYTES, bulk_link_keys
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.transport.api import ClientTransport, LinkIds
from aeron_spark.waiting import result_within


def open_bulk_link(
    connection: Connection, bulk_links: BulkLinks, dialing: Callable[[], ClientTransport], settings: LinkSettings,
    on_agent: Callable[[Callable[[], BulkLink]], Future[BulkLink]], timeout: float,
) -> BulkLink:  # fmt: skip
    """Ask the server for a branch, open its ways and wait for it. Raises WaitTimeout, RefusedError, TransportError."""
    end = time.monotonic() + timeout
    own = secrets.token_bytes(PART_BYTES)
    answer = connection.remote(SERVICE).with_timeout(timeout).open(own)
    ids = LinkIds(
        answer["session_in"], answer["stream_in"], answer["session_out"], answer["stream_out"], answer["port"] or None
    )

    def begin() -> BulkLink:
        return _begin(connection, bulk_links, dialing(), settings, ids, own, answer)

    bulk_link = result_within(
        on_agent(begin), end - time.monotonic(), "the client's event loop to open a branch", remedy="Try again."
    )
    try:
        bulk_link.wait_open(max(0.0, end - time.monotonic()))
    except BaseException:
        bulk_link.close()
        raise
    return bulk_link


def _begin(
    connection: Connection,
    bulk_links: BulkLinks,
    dialing: ClientTransport,
    settings: LinkSettings,
    ids: LinkIds,
    own: bytes,
    answer: dict[str, Any],
) -> BulkLink:
    now = time.monotonic()
    ours, theirs = bulk_link_keys(own, answer["part"], (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out))
    channel_settings = settings.channel_settings.for_bulk_link(is_ipc=connection.is_ipc)
    pair = dialing.open_link(ids, channel_settings)
    most = min(channel_settings.max_message, answer["max_message"])
    link = LinkEnds(
        pair, FrameEncryptor(ours, settings.keys), FrameDecryptor(theirs, settings.keys), settings.times, most, now
    )
    label = f"branch {ids.session_in:08x} of {connection.label}"
    bulk_link = BulkLink(bulk_links, connection, link, ids.session_in, label, begins=True)
    bulk_links.add(bulk_link)
    return bulk_link
