"""The runners of connections, the parts of servers and their tables, which programs do not see."""

from __future__ import annotations

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.connection.runtime import Runtime
from aeron_spark.server.parts import ServerParts
from aeron_spark.server.server import Server
from aeron_spark.server.stream_service import StreamRequestHandler


def runner_of(connection: Connection) -> ConnectionRunner:
    """Return the runner of a connection."""
    runner = connection._runner
    assert isinstance(runner, ConnectionRunner)
    return runner


def parts_of(server: Server) -> ServerParts:
    """Return the parts of a server."""
    return server._parts


def tables_of(runtime: Runtime) -> dict[str, int]:
    """Return the sizes of the tables of an endpoint's links and waits, without the empty ones."""
    tables = {"links": runtime._links, "bulk links": runtime.bulk_links, "deadlines": runtime.deadlines}
    return {name: len(table) for name, table in tables.items() if len(table)}


def in_use(handler: StreamRequestHandler) -> dict[str, int]:
    """Return the sizes of the tables of one connection's stream requests, without the empty ones."""
    stages = handler._stages
    tables = {"stages": stages, "links": stages._links, "reads": handler._reads, "waits": handler._waits}
    return {name: len(table) for name, table in tables.items() if len(table)}
