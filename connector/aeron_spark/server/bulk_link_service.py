"""What a client asks when it wants another duologue on the connection that it has proved."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from aeron_spark.connection.bulk_links import METHODS, SERVICE, Branch, Branches
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import Link
from aeron_spark.errors import RefusedError, WaitTimeout
from aeron_spark.protocol.bulk import PART_BYTES, branch_keys
from aeron_spark.protocol.frame_cipher import Opening, Sealing
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.server.reception import Reception
from aeron_spark.transport.api import DuologueIds, Pair
from aeron_spark.waiting import result_within

OnAgent = Callable[[Callable[[], Any]], Future[Any]]
READY_POLL: Final = 0.0005  # seconds between two looks at whether the driver has opened both ways


class Desk(Protocol):
    """Something that a server does for each of its connections."""

    def serve(self, connection: Connection) -> None:
        """Let the client of a connection ask."""


class BranchDesk:
    """Makes branches for the connections of a server. ``image_of`` says how a client is heard now, or raises."""

    def __init__(
        self, reception: Reception, branches: Branches, on_agent: OnAgent, image_of: Callable[[Connection], int]
    ) -> None:
        self._reception = reception
        self._branches = branches
        self._on_agent = on_agent
        self._image_of = image_of
        self._ids: dict[Branch, DuologueIds] = {}

    def serve(self, connection: Connection) -> None:
        """Let the client of a connection ask for branches."""
        connection.serve(BranchService(self, connection), METHODS, SERVICE)

    def open(self, connection: Connection, part: bytes) -> dict[str, Any]:
        """Open both ways of a branch, and return its ids, our part of its keys, and how long a message may be."""
        own = secrets.token_bytes(PART_BYTES)
        settings = self._reception.settings.link
        seconds = settings.times.setup_seconds
        begun = self._on_agent(lambda: self._begin(connection, part, own))
        branch, ids = result_within(
            begun, seconds, "the server's event loop to open a branch", remedy="Connect again, or look at its load."
        )
        try:
            self._await_ready(branch.link.pair, time.monotonic() + seconds)
        except BaseException:
            branch.close()
            raise
        return {
            "session_in": ids.session_in,
            "stream_in": ids.stream_in,
            "session_out": ids.session_out,
            "stream_out": ids.stream_out,
            "port": ids.mdc_port or 0,
            "part": own,
            "max_message": settings.wishes.of_branch(is_ipc=connection.is_ipc).max_message,
        }

    def gone(self, branch: Branch) -> None:
        """Take back the ids of one that ended; on the agent."""
        ids = self._ids.pop(branch, None)
        if ids is not None:
            self._reception.pools.release(ids, time.monotonic())

    def _begin(self, connection: Connection, part: bytes, own: bytes) -> tuple[Branch, DuologueIds]:
        reception, now = self._reception, time.monotonic()
        settings, most = reception.settings.link, reception.settings.max_branches
        wishes = settings.wishes.of_branch(is_ipc=connection.is_ipc)
        if self._branches.count(connection) >= most:
            raise RefusedError(
                f"{connection.label} has {most} branches, and may have no more",
                remedy="Close some, or raise the server's maxBranches",
                reason="full",
            )
        image = self._image_of(connection)
        ids = reception.pools.take(now)
        if isinstance(ids, Refusal):
            raise RefusedError(ids.text, remedy=ids.advice.remedy, reason=ids.code)
        try:
            theirs, ours = branch_keys(part, own, (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out))
            pair = reception.listening.open_duologue(image, ids, wishes)
        except BaseException:
            reception.pools.release(ids, now)
            raise
        link = Link(
            pair, Sealing(ours, settings.keys), Opening(theirs, settings.keys), settings.times,
            wishes.max_message, now, owner=connection.who.address,
        )  # fmt: skip
        label = f"branch {ids.session_in:08x} of {connection.label}"
        branch = Branch(self._branches, connection, link, ids.session_in, label, begins=False)
        self._ids[branch] = ids
        self._branches.add(branch)
        return branch, ids

    def _await_ready(self, pair: Pair, end: float) -> None:
        inbox = self._reception.listening.inbox
        while not (inbox.ready(pair.token) and pair.outgoing.ready):
            if pair.outgoing.failure or time.monotonic() >= end:
                raise WaitTimeout(
                    f"the media driver did not open a branch in time ({pair.outgoing.failure or 'no answer'})",
                    remedy="Look at the driver's errors: aeron-spark errors",
                )
            time.sleep(READY_POLL)


class BranchService:
    """What a client calls remotely, of its own connection."""

    def __init__(self, desk: BranchDesk, connection: Connection) -> None:
        self._desk = desk
        self._connection = connection

    def open(self, part: bytes) -> dict[str, Any]:
        """Open a branch."""
        return self._desk.open(self._connection, part)
