"""A server is killed while an empty partition moves to a new recording: no row is lost, and no recording is left."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.client.client import Client
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import AeronSparkError
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.server_processes import ServerProcess, connect

TIMEOUT_S = 120.0  # for a restart of the server on a busy machine
CALLS = 800  # of functions in a purge that moves a partition
KILLED = "tests.aeron.stream_client.killed_server"
STREAM = "moved"


@pytest.fixture
def server(node: NodeHandle, tmp_path: Path) -> Iterator[ServerProcess]:
    one = ServerProcess(node.aeron_dir, tmp_path)
    yield one
    one.kill()


def write(client: Client, first: int) -> None:
    with client.writer(STREAM) as out:
        out.write(pa.record_batch({"n": list(range(first, first + 10))}))


def rows(client: Client) -> list[int]:
    return [n for batch in client.reader(STREAM) for n in batch.column("n").to_pylist()]


def purge_until_killed(server: ServerProcess, node: NodeHandle) -> None:
    """Purge all rows of the stream; the server kills itself meanwhile."""
    with connect(server.address, node.aeron_dir) as client:

        def purge() -> None:
            with suppress(AeronSparkError):  # the connection is lost
                client.purge_stream(STREAM, 1 << 40)

        purging = threading.Thread(target=purge)
        purging.start()
        server.await_killed(TIMEOUT_S)
    purging.join(TIMEOUT_S)
    assert not purging.is_alive()


def recording_ids(node: NodeHandle) -> set[int]:
    """Return the ids of the recordings of the node, which other tests use, too."""
    return {one.id for one in archive_of(embedded(node)).recordings()}


def check_and_write_on(server: ServerProcess, node: NodeHandle, before: list[int], others: set[int]) -> list[int]:
    """Check the stream, which had these rows ``before`` the purge, and write ten rows; return the stream's rows.

    ``others`` are the recordings of other tests.
    """
    with connect(server.address, node.aeron_dir) as client:
        (partition,) = client.stream(STREAM).partitions
        kept = rows(client)
        assert kept == ([] if partition.start == partition.end else before)
        wait_for(
            lambda: len(recording_ids(node) - others) == 1, TIMEOUT_S, "one recording",
            state=lambda: repr(archive_of(embedded(node)).recordings()),
        )  # fmt: skip
        first = before[-1] + 1
        write(client, first)
        found = rows(client)
        assert found == [*kept, *range(first, first + 10)]
        return found


def kill_in_moves(server: ServerProcess, node: NodeHandle, calls: list[int]) -> None:
    """Kill the server in one purge after another, at these calls of functions."""
    others = recording_ids(node)
    server.start(KILLED, str(calls[0]))
    with connect(server.address, node.aeron_dir) as client:
        client.create_stream(STREAM)
        write(client, 0)
        found = rows(client)
    for call in [*calls[1:], 0]:
        purge_until_killed(server, node)
        server.start(*([KILLED, str(call)] if call else []))
        found = check_and_write_on(server, node, found, others)
    with connect(server.address, node.aeron_dir) as client:
        client.purge_stream(STREAM, 1 << 40)
        assert rows(client) == []
        client.delete_stream(STREAM)


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(3))
def test_a_server_killed_in_the_move_of_a_partition_keeps_its_rows_and_one_recording(
    server: ServerProcess, node: NodeHandle, rng: random.Random, part: int
) -> None:
    kill_in_moves(server, node, [(CALLS * part + rng.randrange(CALLS)) // 3 + 1])


@pytest.mark.full("it starts a server for each of many kills; make test does so for three")
def test_a_server_killed_in_many_moves_keeps_its_rows_and_one_recording(
    server: ServerProcess, node: NodeHandle, rng: random.Random
) -> None:
    kill_in_moves(server, node, [rng.randrange(1, CALLS) for _ in range(20)])
