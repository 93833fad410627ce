"""The runners of the connections of a test, which the programs under test do not see."""

from __future__ import annotations

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.runner import ConnectionRunner


def runner_of(connection: Connection) -> ConnectionRunner:
    """Return the runner of a connection."""
    runner = connection._runner
    assert isinstance(runner, ConnectionRunner)
    return runner
