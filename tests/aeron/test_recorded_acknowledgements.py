"""Messages are acknowledged after they are recorded; a restarted archive gets a new recording request."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from aeron_spark import node as nodes
from aeron_spark.direct.archive_recordings import this_host
from aeron_spark.direct.writing import DirectAppender
from aeron_spark.errors import ConnectError, TransportError, WaitTimeout
from aeron_spark.log.query import QueryPlanner
from aeron_spark.log.writing import Source
from aeron_spark.log_factory import log_of
from aeron_spark.node import NodeHandle
from aeron_spark.node.locks import is_locked
from aeron_spark.options import ReadOptions, WriteOptions, direct_route
from aeron_spark.spark.writer import WriteTask
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, close_everything, own_node
from tests.waiting import suspend

SHORT_TIMEOUT = {"offerTimeout": "2s"}  # after this time a missing acknowledgement is an error
LENGTH = 64  # bytes of the log for a message of up to 32 bytes


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name) as handle:
        yield handle


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    one = Stream(node)
    yield one
    one.close()


@contextmanager
def stopped(handle: NodeHandle) -> Iterator[None]:
    """Suspend the driver and the archive in the block; a publication still accepts messages."""
    suspend(handle.pid)
    try:
        yield
    finally:
        os.kill(handle.pid, signal.SIGCONT)


def written(stream: Stream, **more: str) -> WriteOptions:
    return WriteOptions.parse({**stream.options, "record": "auto", **more}, streaming=False)


def values(text: bytes) -> pa.Array:
    return pa.array([text], pa.binary())


def recorded_bytes(stream: Stream) -> int:
    (recording,) = stream.archive.recordings(stream.id)
    return stream.archive.position(recording.id)


@pytest.mark.parametrize("ack", ["archive", "auto"])
def test_an_appender_finishes_only_after_the_archive_has_recorded_its_messages(
    node: NodeHandle, stream: Stream, ack: str
) -> None:
    waiting, appender = (
        DirectAppender(written(stream, ack=ack, **more), Source("test")) for more in ({}, SHORT_TIMEOUT)
    )
    appender.raw(values(b"first"))  # the appender finds its recording now, because a suspended archive cannot name it
    waiting.raw(values(b"second"))  # both use the one publication of their process
    waiting.finish()
    assert recorded_bytes(stream) == 2 * LENGTH
    with stopped(node):
        appender.raw(values(b"third"))
        with pytest.raises(WaitTimeout, match=rf"to reach position {3 * LENGTH} \(it is at {2 * LENGTH}\)"):
            appender.finish()
        appender.raw(values(b"fourth"))
        with pytest.raises(WaitTimeout, match=rf"to reach position .* \(it is at {2 * LENGTH}\)"):
            appender.finish()
    waiting.finish()
    assert recorded_bytes(stream) == 4 * LENGTH


def test_the_confirmed_rows_are_those_that_are_recorded(node: NodeHandle, stream: Stream) -> None:
    """``send`` printed 17,993 sent rows in its error, of which 13,270 were recorded."""
    appender = DirectAppender(written(stream, ack="archive", **SHORT_TIMEOUT), Source("test"))
    appender.raw(values(b"first"))
    appender.finish()
    with stopped(node):
        appender.raw(values(b"second"))
        appender.check_confirmed()
        appender.raw(values(b"third"))
        appender.check_confirmed()
        assert (appender.rows, appender.confirmed) == (3, 1)

    def confirmed() -> int:
        appender.check_confirmed()
        return appender.confirmed

    wait_for(lambda: confirmed() == 3, TIMEOUT_S, "the recorded rows")


def test_the_error_of_a_closed_publication_says_what_a_user_can_do(stream: Stream) -> None:
    """``send`` printed "the publication is closed. Try again, with a new publication"."""
    publication = stream.record().publisher().publication
    publication.close()
    with pytest.raises(
        TransportError, match=rf"publishing failed: the publication on .* stream {stream.id} was closed"
    ):
        publication.offer_values(values(b"x"), None, 0)


@pytest.mark.parametrize("late", ["the options' stream", "a row's own stream"])
def test_an_appender_waits_for_the_recording_of_each_stream_that_it_wrote_to(
    node: NodeHandle, stream: Stream, late: str
) -> None:
    """No other test notices an appender that waits for its first stream only."""
    other = Stream(node)
    streams = {"the options' stream": (stream.channel, stream.id), "a row's own stream": (other.channel, other.id)}
    appender = DirectAppender(written(stream, ack="archive", **SHORT_TIMEOUT), Source("test"))
    for at in streams.values():
        appender.raw(values(b"recorded"), at=at)
    appender.finish()
    with stopped(node):
        appender.raw(values(b"late"), at=streams[late])
        with pytest.raises(WaitTimeout, match=rf"to reach position {2 * LENGTH} \(it is at {LENGTH}\)"):
            appender.finish()
    appender.finish()
    assert sorted(recorded_bytes(one) for one in (stream, other)) == [LENGTH, 2 * LENGTH]
    other.close()


def test_the_next_publication_starts_only_after_the_archive_has_recorded_the_whole_previous_one(
    node: NodeHandle, stream: Stream
) -> None:
    """No other test notices a publisher that closed a publication before all of it was recorded."""
    last_term = 2**31 - 1  # of a publication whose initial term id is 0
    ending = f"aeron:ipc?term-length=64k|init-term-id=0|term-id={last_term}|term-offset={(64 << 10) - 2 * LENGTH}"
    end = (last_term + 1) * (64 << 10)
    stream.record()
    appender = DirectAppender(written(stream, channel=ending, ack="archive", **SHORT_TIMEOUT), Source("test"))
    appender.raw(values(b"recorded"))
    appender.finish()
    with stopped(node):
        appender.raw(values(b"the last one"))
        with pytest.raises(WaitTimeout, match=rf"to reach position {end} \(it is at {end - LENGTH}\)"):
            appender.raw(values(b"of the next publication"))
    appender.finish()
    appender.raw(values(b"of the next publication"))
    appender.finish()
    assert sorted(stream.archive.position(one.id) for one in stream.archive.recordings(stream.id)) == [LENGTH, end]


def test_a_task_of_the_sink_finishes_only_after_the_archive_has_recorded_its_rows(
    node: NodeHandle, stream: Stream
) -> None:
    options = written(stream, ack="archive", archiveTimeout="1ms", connectTimeout="1s", **SHORT_TIMEOUT)
    task = WriteTask(options, direct_route(options.route), "raw", "test", this_host())
    with ExitStack() as stopping:

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"value": values(b"first")})
            stopping.enter_context(stopped(node))
            yield pa.record_batch({"value": values(b"second")})

        with pytest.raises(ConnectError, match=r"the archive embedded of .* was away for 0\.001 s") as error:
            task.write(batches())
    assert isinstance(error.value.__cause__, WaitTimeout)
    assert "to reach position" in error.value.__cause__.what
    again = replace(task, options=written(stream, ack="archive"))
    assert again.write(iter([pa.record_batch({"value": values(b"third")})])).rows == 1
    assert recorded_bytes(stream) == 3 * LENGTH


@pytest.mark.sampled
def test_a_query_requests_recording_again_after_a_restart_of_the_archive(run_name: str) -> None:
    with own_node(run_name) as first:
        stream = Stream(first)
        options = ReadOptions.parse({**stream.options, "startingOffsets": "earliest"}, streaming=True)
        query = QueryPlanner(options, log_of, framed=False)
        with pytest.warns(UserWarning, match="records it from now on"):
            assert query.followed() == []
        stream.publisher().send([b"before"])
        assert [state.end for state in query.followed()] == [LENGTH]
        os.kill(first.pid, signal.SIGKILL)
        wait_for(
            lambda: not is_locked(nodes.local_node_paths(first.aeron_dir).alive_lock),
            TIMEOUT_S,
            "the killed node to end",
        )
        close_everything()
        with nodes.ensure(first.aeron_dir) as second:
            again = Stream(second)
            again.id = stream.id
            with pytest.warns(UserWarning, match="was no longer recorded"):
                assert len(query.followed()) == 1
            again.publisher().send([b"after"])  # waits for its recording
            assert sorted(state.end for state in query.followed()) == [LENGTH, LENGTH]
            close_everything()
