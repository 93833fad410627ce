"""Opening a branch from the client's side."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from aeron_spark.connection.bulk_links import SERVICE, Branch, Branches
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.link import Link
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.protocol.bulk import PART_BYTES, branch_keys
from aeron_spark.protocol.frame_cipher import Opening, Sealing
from aeron_spark.transport.api import Dialing, DuologueIds
from aeron_spark.waiting import result_within


def open_branch(
    connection: Connection, branches: Branches, dialing: Callable[[], Dialing], settings: LinkSettings,
    on_agent: Callable[[Callable[[], Branch]], Future[Branch]], timeout: float,
) -> Branch:  # fmt: skip
    """Ask the server for a branch, open its ways and wait for it. Raises WaitTimeout, RefusedError, TransportError."""
    end = time.monotonic() + timeout
    own = secrets.token_bytes(PART_BYTES)
    answer = connection.remote(SERVICE).with_timeout(timeout).open(own)
    ids = DuologueIds(
        answer["session_in"], answer["stream_in"], answer["session_out"], answer["stream_out"], answer["port"] or None
    )

    def begin() -> Branch:
        return _begin(connection, branches, dialing(), settings, ids, own, answer)

    branch = result_within(
        on_agent(begin), end - time.monotonic(), "the client's event loop to open a branch", remedy="Try again."
    )
    try:
        branch.wait_open(max(0.0, end - time.monotonic()))
    except BaseException:
        branch.close()
        raise
    return branch


def _begin(
    connection: Connection, branches: Branches, dialing: Dialing, settings: LinkSettings, ids: DuologueIds, own: bytes,
    answer: dict[str, Any],
) -> Branch:  # fmt: skip
    now = time.monotonic()
    ours, theirs = branch_keys(own, answer["part"], (ids.session_in, ids.stream_in, ids.session_out, ids.stream_out))
    wishes = settings.wishes.of_branch(is_ipc=connection.is_ipc)
    pair = dialing.open_duologue(ids, wishes)
    most = min(wishes.max_message, answer["max_message"])
    link = Link(pair, Sealing(ours, settings.keys), Opening(theirs, settings.keys), settings.times, most, now)
    label = f"branch {ids.session_in:08x} of {connection.label}"
    branch = Branch(branches, connection, link, ids.session_in, label, begins=True)
    branches.add(branch)
    return branch
