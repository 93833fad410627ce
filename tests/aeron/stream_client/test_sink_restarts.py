"""A server is killed and restarted in a task of the sink: its micro-batch is in the stream, each row once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from tests.server_processes import ServerProcess, connect, started_server
from tests.spark.simulated_engine import Sink, make_numbered_batch, read_numbers

ROWS = 2_000  # of a batch: too many for the request that opens a stage
LENGTH = 100  # bytes of a row


@dataclass(frozen=True)
class Killing:
    """Three batches of numbered rows; the server is killed and restarted after the first one."""

    server: ServerProcess

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield make_numbered_batch(0, ROWS, LENGTH)
        self.server.kill()
        self.server.start()
        yield make_numbered_batch(ROWS, 2 * ROWS, LENGTH)
        yield make_numbered_batch(2 * ROWS, 3 * ROWS, LENGTH)


@pytest.fixture
def server(node: NodeHandle, tmp_path: Path) -> Iterator[ServerProcess]:
    with started_server(node, tmp_path) as one:
        yield one
        POOL.close()


def options(server: ServerProcess, node: NodeHandle, folder: Path) -> dict[str, str]:
    """Create a stream, and return the options with which Spark writes and reads it."""
    with connect(server.address, node.aeron_dir) as client:
        client.create_stream("restarted")
    ensure_identity(folder / "client.key")
    return {
        "server": server.address, "stream": "restarted", "identity": str(folder / "client.key"),
        "serverKey": public_text(ensure_identity(folder / "server.key").public), "aeronDir": node.aeron_dir,
        "connectTimeout": "60s",
    }  # fmt: skip


def test_a_micro_batch_is_written_once_if_its_server_is_killed_in_a_task_and_before_the_commit(
    server: ServerProcess, node: NodeHandle, tmp_path: Path
) -> None:
    given = options(server, node, tmp_path)
    task = [make_numbered_batch(3 * ROWS, 4 * ROWS, LENGTH)]
    sink, schema = Sink(given), from_arrow_schema(task[0].schema)
    messages = sink.stage(0, Killing(server), task, schema=schema)
    server.kill()
    server.start()
    sink.commit(0, messages)
    assert sorted(read_numbers(given)) == list(range(4 * ROWS))
