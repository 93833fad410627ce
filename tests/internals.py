"""The runners of connections, which programs do not see.

The tests of connections import this, so it imports no module of servers and streams.
"""

from __future__ import annotations

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner


def runner_of(connection: Connection) -> ConnectionRunner:
    runner = connection._runner
    assert isinstance(runner, ConnectionRunner)
    return runner
