"""When queries of the direct route start recordings, and how a user lists, stops and deletes them."""

from __future__ import annotations

import pytest

from aeron_spark import node as nodes
from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.recordings import (
    ListedRecording,
    RecordingWarning,
    delete_recordings,
    list_recordings,
    stop_recordings,
)
from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.node import NodeHandle
from tests.aeron.streams import TIMEOUT_S, Stream, close_client, numbered, own_node
from tests.ports import free_port
from tests.spark.simulated_engine import Query, make_source, read_table


def make_udp_stream(node: NodeHandle) -> Stream:
    return Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}")


def recordings_of(stream: Stream) -> list[ListedRecording]:
    return list_recordings([stream.address], stream.channel, stream.id)


def test_load_schema_inference_and_batch_queries_start_no_recording(node: NodeHandle) -> None:
    """Regression: a typing mistake in a channel started a recording subscription, even in ``load()``."""
    stream = make_udp_stream(node)
    make_source(stream.options, payload="auto").schema()
    make_source({**stream.options, "startingOffsets": "latest"}, payload="auto").schema()
    source = make_source(stream.options)
    source.streamReader(source.schema())
    with pytest.raises(OptionError, match="has no recording of stream"):
        read_table(stream.options)
    assert recordings_of(stream) == []
    assert stream.archive.subscriptions(stream.id) == []


def test_a_streaming_query_starts_a_recording_and_its_warning_names_the_command_that_stops_it(node: NodeHandle) -> None:
    """The query warns when it starts a recording, which is listed before there is a publisher."""
    stream = make_udp_stream(node)
    query = Query(stream.options, queryName="flights, all")
    with pytest.warns(RecordingWarning) as warned:
        query.request_initial_offset()
    command = f"aeron-spark recordings stop --channel '{stream.channel}' --stream-id {stream.id}"
    assert len(warned) == 1
    assert command in str(warned[0].message)
    (waiting,) = recordings_of(stream)
    assert (waiting.id, waiting.channel, waiting.standing, waiting.active) == (None, stream.channel, True, False)
    assert waiting.started.query == "flights, all"
    assert "@" in waiting.started.by

    publisher = stream.publisher()
    publisher.send(numbered(0, 3))
    (recorded,) = recordings_of(stream)
    assert (recorded.id, recorded.active, recorded.standing) == (publisher.recording_id, True, True)
    assert recorded.started == waiting.started
    assert query.run_batch() == [0, 1, 2]
    (channel,) = set(read_table(stream.options)["channel"].to_pylist())
    assert channel == stream.channel, "rows must show the channel as the option gives it"
    stream.close()


def test_stopping_a_recording_also_ends_its_recording_subscription(node: NodeHandle) -> None:
    """Regression: no command stopped a recording. Without the subscription, later publishers are not recorded."""
    stream = make_udp_stream(node)
    with pytest.warns(RecordingWarning):
        Query(stream.options).request_initial_offset()
    first = stream.publisher()
    first.send(numbered(0, 3))
    with pytest.raises(RefusedError, match=f"recording {first.recording_id} .* is still being recorded"):
        delete_recordings([stream.address], [first.recording_id])
    (ended,) = stop_recordings([stream.address], [first.recording_id])
    assert (ended.id, ended.active, ended.standing, ended.end) == (first.recording_id, False, False, first.position)
    assert stream.archive.subscriptions(stream.id) == []
    assert stop_recordings([stream.address], [first.recording_id]) == []
    stream.close()
    assert [one.id for one in delete_recordings([stream.address], [first.recording_id])] == [first.recording_id]
    assert recordings_of(stream) == []


def test_a_recording_subscription_without_a_publisher_is_stopped_by_channel_and_stream_id(node: NodeHandle) -> None:
    """A subscription to a mistyped channel has no recording id; ``stop --channel --stream-id`` ends it."""
    stream, other = make_udp_stream(node), make_udp_stream(node)
    for one in (stream, other):
        with pytest.warns(RecordingWarning):
            Query(one.options).request_initial_offset()
    (ended,) = stop_recordings([stream.address], channel=stream.channel, stream_id=stream.id)
    assert (ended.id, ended.channel, ended.stream_id) == (None, stream.channel, stream.id)
    assert recordings_of(stream) == []
    assert len(recordings_of(other)) == 1
    with pytest.raises(OptionError, match="has no recording of stream"):
        stop_recordings([stream.address], channel=stream.channel, stream_id=stream.id)
    with pytest.raises(OptionError, match="only one of channel and stream id is given"):
        stop_recordings([other.address], channel=other.channel)
    stop_recordings([other.address], channel=other.channel, stream_id=other.id)


def test_the_error_for_an_unknown_recording_id_lists_the_known_ids(node: NodeHandle) -> None:
    stream = Stream(node).record()
    known = stream.publisher().recording_id
    for action in (stop_recordings, delete_recordings):
        with pytest.raises(OptionError, match=rf"has no recording 4711\. .*: (\d+, )*{known}\."):
            action([stream.address], [4711])
    stream.close()


def test_the_recordings_of_a_servers_stream_are_not_listed_and_cannot_be_stopped_or_deleted(node: NodeHandle) -> None:
    stream = Stream(node, "aeron:ipc?alias=aeron-spark:flights:0:18ff3a").record()
    publisher = stream.publisher()
    address = stream.address
    assert publisher.recording_id not in [one.id for one in list_recordings([address])]
    for action in (stop_recordings, delete_recordings):
        with pytest.raises(RefusedError, match="is a partition of the server's stream 'flights'"):
            action([address], [publisher.recording_id])
    assert archive_of(address).find_stop_position(publisher.recording_id) is None
    stream.archive.stop_recording(stream.channel, stream.id)
    stream.close()


def test_node_stop_names_the_recordings_that_prevent_it(run_name: str) -> None:
    """Regression: ``node stop`` said "1 recordings are active" and named no command that stops them."""
    with own_node(run_name) as handle:
        stream = make_udp_stream(handle).record()
        address = stream.address
        close_client(handle.aeron_dir)  # the clients of servers that other tests share stay open
        handle.close()
        with pytest.raises(RefusedError) as refused:
            nodes.stop(handle.aeron_dir, timeout=TIMEOUT_S / 60)
        assert f"1 recordings are active: the recording subscription to {stream.channel}" in str(refused.value)
        option = f"--aeron-dir {handle.aeron_dir}"
        for command in ("stop ID", "stop --channel URI --stream-id N", "list"):
            assert f"'aeron-spark recordings {command} {option}'" in str(refused.value)
        with nodes.ensure(handle.aeron_dir):
            assert stop_recordings([address], channel=stream.channel, stream_id=stream.id)
            close_client(handle.aeron_dir)
        assert nodes.stop(handle.aeron_dir, timeout=TIMEOUT_S)
