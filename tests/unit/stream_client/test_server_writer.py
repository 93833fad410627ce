"""The ``LogWriter`` of the route through a server."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import UsageError
from aeron_spark.log.writing import Source
from aeron_spark.stream_client.server_writer import ServerWriter
from aeron_spark.wire.stream_requests import BeginTransaction, CommitEmptyTransaction, Transaction
from tests.unit.stream_client.faults import Fault
from tests.unit.stream_client.joined import World

TRANSACTION = Transaction("query", "run", 0, producer="query")


def server_writer(world: World) -> ServerWriter:
    return ServerWriter({"server": world.stream_session()}, "s")


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def test_the_rows_of_two_tasks_become_visible_at_the_commit(world: World) -> None:
    writer = server_writer(world)
    parts = []
    for task in (0, 1):
        appender = writer.begin(TRANSACTION, Source("query", 0, task), "raw")
        appender.append(rows(b"a%d" % task, b"b"))
        parts += appender.finish()
    assert world.committed() == [[], []]
    assert not writer.commit(TRANSACTION, "server", parts, 4, token="t").repeated
    assert world.committed() == [[b"a0", b"b"], [b"a1", b"b"]]
    assert writer.commit(TRANSACTION, "server", parts, 4).repeated
    last = writer.last_committed(TRANSACTION, "server")
    assert (last.transaction, last.token) == (0, "t")


def test_an_appender_drops_the_rows_of_a_committed_transaction(world: World) -> None:
    writer = server_writer(world)
    writer.commit(TRANSACTION, "server", (), 0)
    appender = writer.begin(TRANSACTION, Source("query", 0, 0), "raw")
    appender.append(rows(b"a"))
    assert (appender.committed, appender.rows, appender.finish()) == (True, 1, [])


def test_a_commit_without_rows_tells_the_server_that_the_writer_is_single_use(world: World) -> None:
    writer = server_writer(world)
    writer.commit(Transaction("batch-1", "run", 0, single_use=True), "server", (), 0)
    first, second = (request for request, _, _ in world.sent_requests[-2:])
    assert isinstance(first, BeginTransaction)
    assert first.transaction.single_use  # so that the server forgets the writer some day
    assert isinstance(second, CommitEmptyTransaction)


def test_an_abort_discards_staged_rows_and_ignores_an_outage(world: World) -> None:
    writer = server_writer(world)
    appender = writer.begin(TRANSACTION, Source("query", 0, 0), "framed")
    appender.append(rows(b"a"))
    appender.discard()
    with pytest.raises(UsageError, match="the staged rows were discarded"):
        appender.finish()
    writer.abort(TRANSACTION, "server")
    world.downtime_s = 100.0
    world.faults.append(Fault.KILL)
    writer.abort(TRANSACTION, "server")
    world.end_faults()
    assert world.committed() == [[], []]


def test_micro_batches_take_turns_at_the_servers_and_single_use_writers_are_spread(world: World) -> None:
    session = world.stream_session()
    writer = ServerWriter({"one": session, "two": session}, "s")
    assert [writer.server_of(Transaction("query", "run", number)) for number in range(3)] == ["one", "two", "one"]
    single_use = {writer.server_of(Transaction(f"batch-{number}", "run", 0, single_use=True)) for number in range(9)}
    assert single_use == {"one", "two"}
