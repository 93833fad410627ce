"""Opening a log: the one place that knows which kind of log a way leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aeron_spark.log.api import Log
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute
from aeron_spark.pool import POOL

if TYPE_CHECKING:
    from aeron_spark.stream_client.session import StreamSession


def open_log(
    way: DirectRoute | ServerRoute, *, framed: bool, idle_timeout: float, read_path: str = "auto",
    hosts: Mapping[str, StreamSession] | None = None,
) -> Log:  # fmt: skip
    """Return the log of ``way`` as this process reaches it; what has to run on this machine is started where absent.

    ``idle_timeout`` is in seconds. ``hosts``: what ``POOL.borrow`` gave, else the connections of the whole process.
    """
    if isinstance(way, DirectRoute):
        from aeron_spark.direct.archive_log import ArchiveLog
        from aeron_spark.direct.archives import StreamAddress, archives_of

        address = StreamAddress(way.channel, way.stream_id, archives_of(way).archives, idle_timeout, read_path)
        return ArchiveLog(address, framed=framed)
    from aeron_spark.stream_client.server_log import ServerLog

    known = dict(hosts) if hosts else POOL.sessions(way)
    keys = {server.name: server.key for server in way.servers}
    return ServerLog(known, way.stream, framed=framed, idle_timeout=idle_timeout, keys=keys)


def log_of(options: ReadOptions, framed: bool) -> Log:
    """Return the log that a reader's options lead to, for whoever plans."""
    return open_log(options.route, framed=framed, idle_timeout=options.idle_timeout)
