"""The four walks of docs/architecture.md as tests, to step through in a debugger.

Reader, writer, client and server are real and run in the test's process. The media driver and the archive run in a
node process. ``tests/spark/simulated_engine.py`` replaces Spark's engine: it makes the same calls, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import aeron_spark
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from aeron_spark.waiting import wait_for
from tests.aeron.streams import Stream, open_stream
from tests.spark.simulated_engine import Query, Sink, make_numbered_batch, read_numbers, save
from tests.spark.stream_server import StreamServer

TIMEOUT_S = 30.0


@pytest.fixture
def recorded(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


class Catalog:
    """A remote object: clients call its method on the server."""

    def describe(self, name: str) -> dict[str, object]:
        return {"name": name, "partitions": 2}


def test_walk_1_from_a_recording_to_a_spark_row(recorded: Stream) -> None:
    save({"record": "auto", **recorded.options}, [make_numbered_batch(0, 100)])
    query = Query(recorded.options)
    assert query.plan_batch()  # in the driver: latestOffset searches for the end of the last complete message
    assert query.read_planned_batch() == list(range(100))  # in a task: rows of the range as Arrow record batches
    query.commit()
    assert not query.plan_batch()


def test_walk_2_from_a_micro_batch_to_a_committed_transaction(server: StreamServer) -> None:
    options = server.options(server.create_stream(partitions=2))
    sink = Sink(options)
    messages = sink.stage(0, [make_numbered_batch(0, 40)], [make_numbered_batch(40, 80)])  # two tasks, a stage each
    assert read_numbers(options) == []  # staged rows are not visible
    sink.commit(0, messages)  # in the driver: one request makes both stages visible
    assert sorted(read_numbers(options)) == list(range(80))
    sink.commit(0, messages)  # a repeated commit adds no rows
    assert sorted(read_numbers(options)) == list(range(80))


def test_walk_3_from_hello_to_an_established_connection(server: StreamServer) -> None:
    connected: list[str] = []
    with aeron_spark.Client.to(
        server.endpoint.addresses[0],
        identity=str(server.key_file()),
        server_key=public_text(server.endpoint.public_key),
        aeron_dir=server.endpoint.aeron_dir,
    ) as client:
        client.on_connect(lambda connection: connected.append(connection.label))
        client.connect(TIMEOUT_S)
        wait_for(lambda: bool(connected), TIMEOUT_S, "the connect listener")
        (at_server,) = [one for one in server.endpoint.connections if one.label == client.connection.label]
        assert connected == [at_server.label]
        assert client.ping() > 0


def test_walk_4_from_a_remote_call_to_its_response(server: StreamServer) -> None:
    server.endpoint.register("walk-4", Catalog(), ["describe"])
    with aeron_spark.connect(
        server.endpoint.addresses[0],
        identity=str(server.key_file()),
        server_key=public_text(server.endpoint.public_key),
        aeron_dir=server.endpoint.aeron_dir,
    ) as client:
        assert client.remote("walk-4").describe("flights") == {"name": "flights", "partitions": 2}
