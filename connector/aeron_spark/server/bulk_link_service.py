"""What a client asks when it wants another duologue on the connection that it has proved."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from aeron_spark.connection.bulk_links import METHODS, SERVICE, BulkLink, BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import LinkEnds
from aeron_spark.errors import RefusedError, WaitTimeout
from aeron_spark.protocol.bulk import PART_BYTES, bulk_link_keys
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.server.runner import ServerRunner
from aeron_spark.transport.api import ChannelPair, LinkIds
from aeron_spark.waiting import result_within

OnAgent = Callable[[Callable[[], Any]], Future[Any]]
READY_POLL: Final = 0.0005  # seconds between two looks at whether the driver has opened both ways


class BulkLinkTarget(Protocol):
    """Something that a server does for each of its connections."""

    def serve(self, connection: Connection) -> None:
        """Let the client of a connection ask."""


class BulkLinkHandler:
    """Makes branches for the connections of a server."""

    def __init__(self, runner: ServerRunner, bulk_links: BulkLinks, on_agent: OnAgent) -> None:
        self._runner = runner
        self._bulk_links = bulk_links
        self._on_agent = on_agent
        self._ids: dict[BulkLink, LinkIds] = {}

    def serve(self, connection: Connection) -> None:
        """Let the client of a connection ask for branches."""
        connection.serve(BulkLinkService(self, connection), METHODS, SERVICE)

    def open(self, connection: Connection, part: bytes) -> dict[str, Any]:
        """Open both ways of a branch, and return its ids, our part of its keys, and how long a message may be."""
        own = secrets.token_bytes(PART_BYTES)
        settings = self._runner.settings.link
        seconds = settings.times.setup_seconds
        begun = self._on_agent(lambda: self._begin(connection, part, own))
        bulk_link, ids = result_within(
            begun, seconds, "the server's event loop to open a branch", remedy="Connect again, or look at its load."
        )
        try:
            self._await_ready(bulk_link.link.pair, time.monotonic() + seconds)
        except BaseException:
            bulk_link.close()
            raise
        return {
            "session_in": ids.session_in,
            "stream_in": ids.stream_in,
            "session_out": ids.session_out,
            "stream_out": ids.stream_out,
            "port": ids.mdc_port or 0,
            "part": own,
            "max_message": settings.channel_settings.for_bulk_link(is_ipc=connection.is_ipc).max_message,
        }

    def gone(self, bulk_link: BulkLink) -> None:
        """Take back the ids of one that ended; on the agent."""
        ids = self._ids.pop(bulk_link, None)
        if ids is not None:
            self._runner.release_bulk_ids(ids, time.monotonic())

    def _begin(self, connection: Connection, part: bytes, own: bytes) -> tuple[BulkLink, LinkIds]:
        runner, now = self._runner, time.monotonic()
        settings, most = runner.settings.link, runner.settings.max_bulk_links
        channel_settings = settings.channel_settings.for_bulk_link(is_ipc=connection.is_ipc)
        if self._bulk_links.count(connection) >= most:
            raise RefusedError(
                f"{connection.label} has {most} branches, and may have no more",
                remedy="Close some, or raise the server's maxBulkLinks",
                reason="full",
            )
        image = runner.image_of(connection)
        ids = runner.take_bulk_ids(now)
        if isinstance(ids, Refusal):
            raise RefusedError(ids.text, remedy=ids.advice.remedy, reason=ids.code)
        try:
            theirs, ours = bulk_link_keys(part, own, (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out))
            pair = runner.transport.open_link(image, ids, channel_settings)
        except BaseException:
            runner.release_bulk_ids(ids, now)
            raise
        link = LinkEnds(
            pair, FrameEncryptor(ours, settings.keys), FrameDecryptor(theirs, settings.keys), settings.times,
            channel_settings.max_message, now, owner=connection.who.address,
        )  # fmt: skip
        label = f"branch {ids.session_in:08x} of {connection.label}"
        bulk_link = BulkLink(self._bulk_links, connection, link, ids.session_in, label, begins=False)
        self._ids[bulk_link] = ids
        self._bulk_links.add(bulk_link)
        return bulk_link, ids

    def _await_ready(self, pair: ChannelPair, end: float) -> None:
        inbox = self._runner.transport.inbox
        while not (inbox.ready(pair.token) and pair.publication.ready):
            if pair.publication.failure or time.monotonic() >= end:
                raise WaitTimeout(
                    f"the media driver did not open a branch in time ({pair.publication.failure or 'no answer'})",
                    remedy="Look at the driver's errors: aeron-spark errors",
                )
            time.sleep(READY_POLL)


class BulkLinkService:
    """What a client calls remotely, of its own connection."""

    def __init__(self, desk: BulkLinkHandler, connection: Connection) -> None:
        self._desk = desk
        self._connection = connection

    def open(self, part: bytes) -> dict[str, Any]:
        """Open a branch."""
        return self._desk.open(self._connection, part)
