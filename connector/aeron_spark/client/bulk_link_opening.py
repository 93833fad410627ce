"""Opens the client's end of a bulk link."""

from __future__ import annotations

import secrets
import time
from typing import Any

from aeron_spark.client.runner import ClientRunner
from aeron_spark.connection.bulk_links import SERVICE, BulkLink
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.runtime import Runtime
from aeron_spark.protocol.bulk import RANDOM_BYTES, bulk_link_keys
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.transport.api import LinkIds
from aeron_spark.waiting import result_within


def open_bulk_link(runtime: Runtime, runner: ClientRunner, connection: Connection, timeout_s: float) -> BulkLink:
    """Request a bulk link from the server, open its publication and subscription, and wait until it is verified.

    Raises WaitTimeout, RefusedError or TransportError.
    """
    end = time.monotonic() + timeout_s
    own_part = secrets.token_bytes(RANDOM_BYTES)
    response = connection.remote(SERVICE).with_timeout(timeout_s).open(own_part)
    bulk_link: BulkLink = result_within(
        runtime.call_on_loop(lambda: _open_link(runtime, runner, connection, own_part, response)),
        end - time.monotonic(),
        "the client's event loop to open a bulk link",
        remedy="Try again.",
    )
    try:
        bulk_link.wait_open(max(0.0, end - time.monotonic()))
    except BaseException:
        bulk_link.close()
        raise
    return bulk_link


def _open_link(
    runtime: Runtime, runner: ClientRunner, connection: Connection, own_part: bytes, response: dict[str, Any]
) -> BulkLink:
    settings, now = runtime.settings, time.monotonic()
    ids = LinkIds(
        response["session_in"],
        response["stream_in"],
        response["session_out"],
        response["stream_out"],
        response["port"] or None,
    )
    own_key, peer_key = bulk_link_keys(
        own_part, response["part"], (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out)
    )
    channel_settings = settings.channel_settings.for_bulk_link(is_ipc=connection.is_ipc)
    link = LinkEnds(
        runner.transport.open_link(ids, channel_settings),
        FrameEncryptor(own_key, settings.keys),
        FrameDecryptor(peer_key, settings.keys),
        settings.times,
        min(channel_settings.max_message, response["max_message"]),
        now,
    )
    label = f"bulk link {ids.session_in:08x} of {connection.label}"
    bulk_link = BulkLink(runtime.bulk_links, connection, link, ids.session_in, label, begins=True)
    runtime.bulk_links.add(bulk_link)
    return bulk_link
