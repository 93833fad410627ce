"""The parts of servers, which programs do not see."""

from __future__ import annotations

from aeron_spark.server.parts import ServerParts
from aeron_spark.server.server import Server


def parts_of(server: Server) -> ServerParts:
    """Return the parts of a server."""
    return server._parts
