"""Queries of Spark over a server's stream that is renamed, ended, reopened, or continued in new recordings."""

from __future__ import annotations

import pytest

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.streams.definition import Definition
from aeron_spark.streams.stream import Stream
from tests.spark.simulated_engine import Query, Sink, make_numbered_batch, read_numbers
from tests.spark.stream_server import StreamServer, commit_values
from tests.stream_requests import create_request


def end(server: StreamServer, name: str) -> None:
    server.endpoint.streams.alter(name, lambda definition: definition.ended(1))


def move_to_new_recordings(stream: Stream) -> None:
    """Purge all rows of a stream, and check that its partitions continue in new recordings."""
    before = stream.states()
    assert [held for report in stream.purge(before_position=1 << 40) for held in report.held] == []
    for old, new in zip(before, stream.states(), strict=True):
        assert new.shape.recording_id != old.shape.recording_id
        assert (new.start, new.end, new.recording.start, new.recording.identity) == (
            *[old.end] * 3,
            old.recording.identity,
        )


def test_a_query_continues_from_its_checkpoint_under_the_new_name(server: StreamServer) -> None:
    stream = server.create_stream(2)
    old = stream.definition.name
    commit_values(stream, 0, 10)
    query = Query(server.options(stream))
    assert query.run_batch() == list(range(10))
    commit_values(stream, 10, 20, partition=1)
    assert query.plan_batch()  # a batch of the old name, which is not committed before the rename
    renamed = server.endpoint.streams.rename(old, f"{old}-new")
    with pytest.raises(OptionError, match=f"stream '{old}' was renamed to '{old}-new'"):
        query.read_planned_batch()
    query.restart(stream=renamed.definition.name)
    assert query.run_batch() == list(range(10, 20))
    commit_values(renamed, 20, 30)
    assert [number for batch in query.run_batches() for number in batch] == list(range(20, 30))
    assert query.last_offset["stream"]["name"] == f"{old}-new"
    other = server.endpoint.streams.create(create_request(old, 2))
    commit_values(other, 0, 5)
    query.restart()
    assert list(query.run_batches()) == []


def test_a_checkpoint_of_another_stream_is_refused_after_a_rename_too(server: StreamServer) -> None:
    one, other = server.create_stream(), server.create_stream()
    commit_values(one, 0, 10)
    query = Query(server.options(one))
    assert query.run_batch() == list(range(10))
    renamed = server.endpoint.streams.rename(other.definition.name, f"{other.definition.name}-new")
    query.restart(stream=renamed.definition.name)
    with pytest.raises(OptionError, match="the checkpoint is of stream"):
        query.run_batch()


def test_a_query_over_an_ended_stream_idles_and_goes_on_after_it_is_reopened(server: StreamServer) -> None:
    stream = server.create_stream()
    commit_values(stream, 0, 10)
    query = Query(server.options(stream))
    end(server, stream.definition.name)
    assert query.run_batch() == list(range(10))
    for _ in range(3):
        assert query.run_batch() is None
    query.restart()
    assert query.run_batch() is None
    server.endpoint.streams.alter(stream.definition.name, Definition.reopened)
    commit_values(stream, 10, 20)
    assert query.run_batch() == list(range(10, 20))


def test_a_sink_of_an_ended_stream_fails_and_writes_the_batch_once_after_it_is_reopened(server: StreamServer) -> None:
    stream = server.create_stream()
    name = stream.definition.name
    sink = Sink(server.options(stream))
    sink.write(0, [make_numbered_batch(0, 10)])
    end(server, name)
    sink.restart()
    sink.write(0, [make_numbered_batch(0, 10)])  # a repeated batch is committed already
    with pytest.raises(RefusedError, match=f"stream '{name}' was ended at") as error:
        sink.write(1, [make_numbered_batch(10, 20)])
    assert error.value.reason == "ended"
    server.endpoint.streams.alter(name, Definition.reopened)
    sink.restart()
    sink.write(1, [make_numbered_batch(10, 20)])
    assert read_numbers(sink.options) == list(range(20))


def test_a_sink_continues_under_the_new_name(server: StreamServer) -> None:
    stream = server.create_stream()
    sink = Sink(server.options(stream))
    sink.write(0, [make_numbered_batch(0, 10)])
    renamed = server.endpoint.streams.rename(stream.definition.name, f"{stream.definition.name}-new")
    sink.options = server.options(renamed)
    sink.restart()
    sink.write(0, [make_numbered_batch(0, 10)])
    sink.write(1, [make_numbered_batch(10, 20)])
    assert read_numbers(sink.options) == list(range(20))


def test_a_query_reads_on_in_the_new_recordings_of_its_partitions(server: StreamServer) -> None:
    stream = server.create_stream(2)
    commit_values(stream, 0, 10)
    commit_values(stream, 10, 20, partition=1)
    query = Query(server.options(stream))
    assert sorted(query.run_batch() or []) == list(range(20))
    move_to_new_recordings(stream)
    assert query.run_batch() is None
    commit_values(stream, 20, 30)
    assert query.run_batch() == list(range(20, 30))
    commit_values(stream, 30, 40, partition=1)
    assert query.plan_batch()  # it begins before the restart, and at the start of a recording
    query.restart()
    assert query.run_batch() == list(range(30, 40))
    move_to_new_recordings(stream)
    query.restart()
    assert query.run_batch() is None
    commit_values(stream, 40, 50, partition=1)
    assert query.run_batch() == list(range(40, 50))
