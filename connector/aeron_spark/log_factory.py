"""Opens the log or the streams of a route: the only module that knows the classes of both routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aeron_spark.log.api import Log
from aeron_spark.log.several import SeveralLog
from aeron_spark.log.writing import LogWriter
from aeron_spark.options import DirectRoute, ReadOptions, ServerRoute, WriteOptions
from aeron_spark.options.values import is_pattern
from aeron_spark.pool import POOL

if TYPE_CHECKING:
    from aeron_spark.aeron.recording import ReplaysAhead
    from aeron_spark.client.named_streams import ServerStreams
    from aeron_spark.direct.catalog import DirectStreams
    from aeron_spark.log.facade import Running
    from aeron_spark.stream_client.session import StreamSession


def open_log(
    route: DirectRoute | ServerRoute,
    *,
    framed: bool,
    idle_timeout: float,
    read_path: str = "auto",
    fail_on_data_loss: bool = True,
    sessions: Mapping[str, StreamSession] | None = None,
    ahead: ReplaysAhead | None = None,
) -> Log:
    """Return the log of ``route``; start this machine's media driver and archive if the route needs them.

    ``idle_timeout`` is in seconds. ``fail_on_data_loss`` is the option of that name. ``sessions`` are
    connections from ``POOL.borrow``; by default those of the process. Of one stream of archives, replays may be started
    ``ahead``.
    """
    if route.several:

        def open_one(name: str) -> Log:
            return open_log(
                route.of_one(name),
                framed=framed,
                idle_timeout=idle_timeout,
                read_path=read_path,
                fail_on_data_loss=fail_on_data_loss,
                sessions=sessions,
            )

        return SeveralLog(lambda: _names(route, sessions), open_one, framed=framed, identity=route)
    if isinstance(route, DirectRoute):
        from aeron_spark.direct.archive_log import ArchiveLog
        from aeron_spark.direct.archive_recordings import StreamAddress, archives_of

        address = StreamAddress(
            route.channel, route.stream_id, archives_of(route).archives, idle_timeout, read_path, fail_on_data_loss
        )
        if route.cluster is not None:
            from aeron_spark.direct.cluster_log import ClusterLog

            return ClusterLog(address, framed=framed, uncommitted=route.cluster_uncommitted)
        return ArchiveLog(address, framed=framed, ahead=ahead)
    from aeron_spark.stream_client.server_log import ServerLog

    keys = {server.name: server.key for server in route.servers}
    connections = dict(sessions) if sessions else POOL.sessions(route)
    fails = fail_on_data_loss
    return ServerLog(
        connections, route.stream, framed=framed, idle_timeout=idle_timeout, keys=keys, fail_on_data_loss=fails
    )


def _names(route: DirectRoute | ServerRoute, sessions: Mapping[str, StreamSession] | None) -> Sequence[str]:
    """Return the streams of a route to several: those that the route names, and those of the servers that match."""
    if isinstance(route, DirectRoute) or not any(map(is_pattern, route.several)):
        return route.several
    from aeron_spark.protocol.grants import matches
    from aeron_spark.wire.stream_requests import ListStreams

    patterns = [one for one in route.several if is_pattern(one)]
    servers = (sessions or POOL.sessions(route)).values()
    # A stream of several servers is created on one after the other: it joins when all have it.
    listed = [{one.name for one in session.call(ListStreams()).streams} for session in servers]
    found = {name for name in set.intersection(*listed) if matches(name, patterns)}
    return sorted(found.union(one for one in route.several if not is_pattern(one)))


def log_of(options: ReadOptions, framed: bool) -> Log:
    """Return the log of a reader's options, with the connections of the process; for planning in the Spark driver."""
    return open_log(
        options.route, framed=framed, idle_timeout=options.idle_timeout, fail_on_data_loss=options.fail_on_data_loss
    )


@contextmanager
def open_writer(
    options: WriteOptions, route: DirectRoute | ServerRoute, partition: int | None = None
) -> Iterator[LogWriter]:
    """Yield the writer of ``route``. Server connections are borrowed from the pool until the block ends.

    ``route`` is that of the options, with server names and key files resolved. With ``handshake=partition`` the
    connections are those of this Spark ``partition``. Nothing is opened before the writer is used.
    """
    if isinstance(route, DirectRoute):
        from aeron_spark.direct.writing import ArchiveWriter

        yield ArchiveWriter(options)
        return
    from aeron_spark.stream_client.server_writer import ServerWriter

    with POOL.borrow(route, partition) as sessions:
        yield ServerWriter(
            sessions, route.stream, max_message_bytes=options.max_message_bytes, evolve_schema=options.evolve_schema
        )


def streams_of(options: Mapping[str, str], running: Running) -> DirectStreams | ServerStreams:
    """Return the streams of the route that a command's options choose. Starts and connects nothing."""
    if "server" in options:
        from aeron_spark.client.named_streams import ServerStreams

        return ServerStreams(options, running)
    from aeron_spark.direct.catalog import DirectStreams

    return DirectStreams(options, running, log_of)
