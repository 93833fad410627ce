"""The cores of connections, which programs do not see.

The tests of connections import this, so it imports no module of servers and streams.
"""

from __future__ import annotations

from aeron_spark.endpoint.connection import Connection, ConnectionCore


def core_of(connection: Connection) -> ConnectionCore:
    core = connection._core
    assert isinstance(core, ConnectionCore)
    return core
