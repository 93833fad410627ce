"""The sink of the server route with the simulated engine: each micro-batch is in the stream exactly once.

``test_server_exactly_once`` shows the same with Spark's engine.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError, RefusedError, SetupError, TransportError
from aeron_spark.protocol.keypair import public_text
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import Transaction
from tests.spark.simulated_engine import Query, Sink, Task, make_numbered_batch, read_numbers, read_table
from tests.spark.stream_server import FailingCommit, StreamServer, commit_values, format_server_list
from tests.stream_requests import create_request


@pytest.fixture
def target(server: StreamServer) -> Stream:
    return server.create_stream(2)


def make_tasks(first: int, last: int, count: int = 2) -> list[Task]:
    """Return numbered values, distributed over ``count`` tasks."""
    rows_per_task = (last - first) // count
    bounds = [first + rows_per_task * task for task in range(count)] + [last]
    return [[make_numbered_batch(*pair)] for pair in pairwise(bounds)]


def committed_numbers(server: StreamServer, stream: Stream) -> list[int]:
    return sorted(read_numbers(server.options(stream)))


@pytest.mark.parametrize("tasks", [2, 3], ids=["with the same tasks", "with other tasks"])
def test_a_repeated_micro_batch_adds_no_rows(server: StreamServer, target: Stream, tasks: int) -> None:
    sink = Sink(server.options(target))
    sink.write(0, *make_tasks(0, 200))
    before = target.states()
    sink.restart()
    sink.write(0, *make_tasks(0, 200, tasks))
    assert target.states() == before
    sink.write(1, *make_tasks(200, 250))
    assert committed_numbers(server, target) == list(range(250))
    assert target.last_committed(sink.query_id).transaction == 1


@pytest.mark.parametrize("after_commit", [False, True], ids=["before the commit", "after the commit"])
def test_rows_are_written_once_when_a_commit_fails_and_is_repeated(
    server: StreamServer, target: Stream, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    failing = FailingCommit(target.commit, after_commit=after_commit)
    monkeypatch.setattr(target, "commit", failing)
    sink = Sink(server.options(target))
    with pytest.raises(TransportError, match="the commit failed, for a test"):
        sink.write(0, *make_tasks(0, 200))
    assert failing.has_failed
    assert len(committed_numbers(server, target)) == (
        200 if after_commit else 0
    )  # an abort after the commit has no effect
    sink.restart()
    sink.write(0, *make_tasks(0, 200))
    assert committed_numbers(server, target) == list(range(200))


def test_staged_rows_are_not_visible_before_the_commit(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target))
    messages = sink.stage(0, *make_tasks(0, 200))
    assert committed_numbers(server, target) == []
    sink.commit(0, messages)
    assert committed_numbers(server, target) == list(range(200))


def test_a_micro_batch_without_rows_is_a_transaction(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target), writerId="empty")
    sink.write(0, [make_numbered_batch(0, 0)], [])
    assert target.last_committed("empty").transaction == 0
    assert [state.end for state in target.states()] == [0, 0]


def test_a_later_run_fences_the_earlier_run_of_a_query(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target), writerId="w")
    sink.write(0, *make_tasks(0, 200))
    # As a query on another cluster that has a copy of the checkpoint.
    target.begin(Transaction("w", "the later run", 1))
    with pytest.raises(RefusedError, match="the later run"):
        sink.write(1, *make_tasks(200, 250))
    assert committed_numbers(server, target) == list(range(200))
    sink.restart()
    sink.write(1, *make_tasks(200, 250))
    assert committed_numbers(server, target) == list(range(250))
    with pytest.raises(RefusedError, match="fenced"):
        target.begin(Transaction("w", "the later run", 2))


def test_a_micro_batch_of_another_query_with_the_same_number_is_refused_and_one_after_a_restart_is_a_repeat(
    server: StreamServer, target: Stream
) -> None:
    """Writer id and batch number are equal, so the server tells the queries apart by their query ids."""
    first, other = (Sink(server.options(target), writerId="shared") for _ in range(2))
    first.write(0, *make_tasks(0, 200))
    for batch in (make_tasks(100, 150), [[make_numbered_batch(0, 0)]]):
        with pytest.raises(RefusedError, match=rf"'shared' is committed by another producer's run '{first.run_id}'"):
            other.write(0, *batch)
    first.restart()
    first.write(0, *make_tasks(0, 200))
    assert committed_numbers(server, target) == list(range(200))


def test_a_query_that_starts_from_an_older_copy_of_its_checkpoint_is_refused_and_no_row_is_lost(
    server: StreamServer, target: Stream
) -> None:
    sink = Sink(server.options(target))
    for batch in range(3):
        sink.write(batch, *make_tasks(100 * batch, 100 * batch + 100))
    sink.restart()
    with pytest.raises(RefusedError, match="an older copy of its checkpoint"):
        sink.write(1, *make_tasks(100, 300))
    assert committed_numbers(server, target) == list(range(300))


def test_the_query_that_starts_later_fences_another_query_with_the_same_writer_id(
    server: StreamServer, target: Stream
) -> None:
    older, newer = (Sink(server.options(target), writerId="w") for _ in range(2))
    older.write(0, *make_tasks(0, 100))
    newer.restart(acceptGap="true")  # its earlier micro-batches went to another stream
    newer.write(3, *make_tasks(100, 200))
    with pytest.raises(RefusedError) as fenced:
        older.write(1, *make_tasks(200, 300))
    assert f"run '{older.run_id}' of writer 'w' is fenced: the later run '{newer.run_id}'" in str(fenced.value)
    assert committed_numbers(server, target) == list(range(200))


def test_micro_batches_alternate_between_two_servers_and_are_read_once(
    server: StreamServer, second_server: StreamServer
) -> None:
    streams = [one.endpoint.streams.create(create_request("turns", 2)) for one in (server, second_server)]
    both = server.options(
        "turns",
        server=",".join(one.endpoint.addresses[0] for one in (server, second_server)),
        serverKey=",".join(public_text(one.endpoint.public_key) for one in (server, second_server)),
    )
    sink = Sink(both)
    for batch in range(5):
        sink.write(batch, *make_tasks(40 * batch, 40 * batch + 40))
    assert sorted(stream.last_committed(sink.query_id).transaction for stream in streams) == [3, 4]
    before = [stream.states() for stream in streams]
    sink.restart()
    sink.write(4, *make_tasks(160, 200))
    assert [stream.states() for stream in streams] == before
    assert sorted(read_numbers(both)) == list(range(200))
    numbers_by_server = [read_numbers(one.options("turns")) for one in (server, second_server)]
    assert sorted(map(len, numbers_by_server)) == [80, 120]


def test_queries_read_and_write_a_server_that_is_added_to_the_file_of_servers(
    server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    streams = [one.endpoint.streams.create(create_request("grown", 2)) for one in (server, second_server)]
    file = tmp_path / "servers"
    file.write_text(format_server_list(server))
    options = server.options("grown", server=f"@{file}")
    del options["serverKey"]
    commit_values(streams[0], 0, 50)
    commit_values(streams[1], 100, 150)
    query = Query(options, maxRowsPerTrigger=30)
    assert sorted(one for batch in query.run_batches() for one in batch) == list(range(50))
    sink = Sink(options)
    sink.write(0, *make_tasks(200, 210))
    sink.write(1, *make_tasks(210, 220))
    assert [stream.last_committed(sink.query_id).transaction for stream in streams] == [1, -1]
    file.write_text("# two servers\n" + format_server_list(server, second_server))
    assert sorted(one for batch in query.run_batches() for one in batch) == [*range(100, 150), *range(200, 220)]
    sink.write(2, *make_tasks(220, 230))
    sink.write(3, *make_tasks(230, 240))
    assert sorted(stream.last_committed(sink.query_id).transaction for stream in streams) == [2, 3]
    assert sorted(one for batch in query.run_batches() for one in batch) == list(range(220, 240))


def test_an_unreadable_or_wrong_file_of_servers_is_an_error_when_the_query_is_built(
    server: StreamServer, tmp_path: Path
) -> None:
    options = server.options("any", server=f"@{tmp_path / 'servers'}")
    del options["serverKey"]
    with pytest.raises(SetupError, match=r"option 'server': .*servers cannot be read: No such file"):
        read_table(options)
    (tmp_path / "servers").write_text(f"{format_server_list(server)}feeds.example\n")
    with pytest.raises(OptionError, match=r"option 'server': .*servers: line 2: the line is not 'host:port key'"):
        read_table(options)
