"""The sink through a server, driven by hand: each micro-batch once, whatever is repeated, lost or left behind.

``test_server_exactly_once`` shows the same with Spark.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from aeron_spark.errors import OptionError, RefusedError, SetupError, TransportError
from aeron_spark.protocol.keypair import public_text
from aeron_spark.streams.stream import Stream
from tests.spark.simulated_engine import Query, Sink, Task, make_numbered_batch, read_numbers, read_table
from tests.spark.stream_server import FailingCommit, StreamServer, commit_values, format_server_list


@pytest.fixture
def target(server: StreamServer) -> Stream:
    return server.create_stream(2)


def rows(first: int, last: int, tasks: int = 2) -> list[Task]:
    """Return numbered values in so many tasks."""
    each = (last - first) // tasks
    ends = [first + each * task for task in range(tasks)] + [last]
    return [[make_numbered_batch(*bounds)] for bounds in pairwise(ends)]


def found(server: StreamServer, stream: Stream) -> list[int]:
    return sorted(read_numbers(server.options(stream)))


@pytest.mark.parametrize("tasks", [2, 3], ids=["in the same tasks", "in other tasks"])
def test_a_batch_that_is_repeated_is_dropped(server: StreamServer, target: Stream, tasks: int) -> None:
    sink = Sink(server.options(target))
    sink.write(0, *rows(0, 200))
    before = target.states()
    sink.restart()
    sink.write(0, *rows(0, 200, tasks))
    assert target.states() == before
    sink.write(1, *rows(200, 250))
    assert found(server, target) == list(range(250))
    assert target.last_transaction(sink.query_id) == 1


@pytest.mark.parametrize("done", [False, True], ids=["before it was done", "after it was done"])
def test_the_rows_of_a_commit_that_fails_come_once(
    server: StreamServer, target: Stream, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    failing = FailingCommit(target.commit, after_commit=done)
    monkeypatch.setattr(target, "commit", failing)
    sink = Sink(server.options(target))
    with pytest.raises(TransportError, match="the commit failed, for a test"):
        sink.write(0, *rows(0, 200))
    assert failing.has_failed
    assert len(found(server, target)) == (200 if done else 0)  # an abort after the commit changes nothing
    sink.restart()
    sink.write(0, *rows(0, 200))
    assert found(server, target) == list(range(200))


def test_staged_rows_are_not_there_before_the_commit(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target))
    messages = sink.stage(0, *rows(0, 200))
    assert found(server, target) == []
    sink.commit(0, messages)
    assert found(server, target) == list(range(200))


def test_a_batch_without_rows_is_a_transaction(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target), writerId="empty")
    sink.write(0, [make_numbered_batch(0, 0)], [])
    assert target.last_transaction("empty") == 0
    assert [state.end for state in target.states()] == [0, 0]


def test_a_later_run_fences_off_the_earlier_one(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target), writerId="w")
    sink.write(0, *rows(0, 200))
    target.begin("w", "the later run", 1)  # as another cluster would that was given the checkpoint
    with pytest.raises(RefusedError, match="the later run"):
        sink.write(1, *rows(200, 250))
    assert found(server, target) == list(range(200))
    sink.restart()
    sink.write(1, *rows(200, 250))
    assert found(server, target) == list(range(250))
    with pytest.raises(RefusedError, match="fenced"):
        target.begin("w", "the later run", 2)


def test_an_equal_batch_of_another_query_is_refused_and_a_restart_is_a_repeat(
    server: StreamServer, target: Stream
) -> None:
    """Both have batch 0 only: by writer and batch they cannot be told apart."""
    first, other = (Sink(server.options(target), writerId="shared") for _ in range(2))
    first.write(0, *rows(0, 200))
    for batch in (rows(100, 150), [[make_numbered_batch(0, 0)]]):
        with pytest.raises(RefusedError, match=rf"'shared' is committed by another producer's run '{first.run_id}'"):
            other.write(0, *batch)
    first.restart()
    first.write(0, *rows(0, 200))
    assert found(server, target) == list(range(200))


def test_an_older_copy_of_a_checkpoint_is_refused_and_nothing_is_dropped(server: StreamServer, target: Stream) -> None:
    sink = Sink(server.options(target))
    for batch in range(3):
        sink.write(batch, *rows(100 * batch, 100 * batch + 100))
    sink.restart()
    with pytest.raises(RefusedError, match="an older copy of its checkpoint"):
        sink.write(1, *rows(100, 300))
    assert found(server, target) == list(range(300))


def test_of_two_queries_of_one_name_the_one_that_is_behind_is_fenced_off(server: StreamServer, target: Stream) -> None:
    older, newer = (Sink(server.options(target), writerId="w") for _ in range(2))
    older.write(0, *rows(0, 100))
    newer.restart(acceptGap="true")  # it wrote elsewhere before
    newer.write(3, *rows(100, 200))
    with pytest.raises(RefusedError) as fenced:
        older.write(1, *rows(200, 300))
    assert f"run '{older.run_id}' of writer 'w' is fenced: the later run '{newer.run_id}'" in str(fenced.value)
    assert found(server, target) == list(range(200))


def test_micro_batches_take_turns_on_two_servers_and_are_read_once(
    server: StreamServer, second_server: StreamServer
) -> None:
    parts = [one.endpoint.streams.create("turns", 2) for one in (server, second_server)]
    both = server.options(
        "turns",
        server=",".join(one.endpoint.addresses[0] for one in (server, second_server)),
        serverKey=",".join(public_text(one.endpoint.public_key) for one in (server, second_server)),
    )
    sink = Sink(both)
    for batch in range(5):
        sink.write(batch, *rows(40 * batch, 40 * batch + 40))
    assert sorted(part.last_transaction(sink.query_id) for part in parts) == [3, 4]
    before = [part.states() for part in parts]
    sink.restart()
    sink.write(4, *rows(160, 200))
    assert [part.states() for part in parts] == before
    assert sorted(read_numbers(both)) == list(range(200))
    alone = [read_numbers(server.options("turns")), read_numbers(second_server.options("turns"))]
    assert sorted(map(len, alone)) == [80, 120]


def test_a_server_that_is_added_is_read_and_written(
    server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    streams = [one.endpoint.streams.create("grown", 2) for one in (server, second_server)]
    file = tmp_path / "servers"
    file.write_text(format_server_list(server))
    options = server.options("grown", server=f"@{file}")
    del options["serverKey"]
    commit_values(streams[0], 0, 50)
    commit_values(streams[1], 100, 150)
    query = Query(options, maxRowsPerTrigger=30)
    assert sorted(one for batch in query.run_batches() for one in batch) == list(range(50))
    sink = Sink(options)
    sink.write(0, *rows(200, 210))
    sink.write(1, *rows(210, 220))
    assert [stream.last_transaction(sink.query_id) for stream in streams] == [1, -1]
    file.write_text("# two by now\n" + format_server_list(server, second_server))
    assert sorted(one for batch in query.run_batches() for one in batch) == [*range(100, 150), *range(200, 220)]
    sink.write(2, *rows(220, 230))
    sink.write(3, *rows(230, 240))
    assert sorted(stream.last_transaction(sink.query_id) for stream in streams) == [2, 3]
    assert sorted(one for batch in query.run_batches() for one in batch) == list(range(220, 240))


def test_a_file_of_servers_that_cannot_be_read_is_told_when_the_query_is_built(
    server: StreamServer, tmp_path: Path
) -> None:
    options = server.options("any", server=f"@{tmp_path / 'servers'}")
    del options["serverKey"]
    with pytest.raises(SetupError, match=r"option 'server': .*servers cannot be read: No such file"):
        read_table(options)
    (tmp_path / "servers").write_text(f"{format_server_list(server)}feeds.example\n")
    with pytest.raises(OptionError, match=r"option 'server': .*servers: line 2: the line is not 'host:port key'"):
        read_table(options)
