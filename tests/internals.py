"""The runners of connections and the parts of servers, which programs do not see."""

from __future__ import annotations

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.server.parts import ServerParts
from aeron_spark.server.server import Server


def runner_of(connection: Connection) -> ConnectionRunner:
    """Return the runner of a connection."""
    runner = connection._runner
    assert isinstance(runner, ConnectionRunner)
    return runner


def parts_of(server: Server) -> ServerParts:
    """Return the parts of a server."""
    return server._parts
