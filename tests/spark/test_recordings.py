"""Recordings of the direct route that this package starts: when, which, and how they end (finding U2)."""

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
from tests.aeron.archives import free_port
from tests.aeron.streams import TIMEOUT_S, Stream, close_everything, numbered, own_node
from tests.spark.simulated_engine import Query, make_source, read_table


def udp_stream(node: NodeHandle) -> Stream:
    return Stream(node, f"aeron:udp?endpoint=localhost:{free_port()}")


def listed(stream: Stream) -> list[ListedRecording]:
    return list_recordings([stream.address], stream.channel, stream.id)


def test_load_schema_inference_and_a_batch_query_start_no_recording(node: NodeHandle) -> None:
    """Finding U2: a typing mistake in a channel started a standing recording, even in ``load()``."""
    stream = udp_stream(node)
    make_source(stream.options, payload="auto").schema()
    make_source({**stream.options, "startingOffsets": "latest"}, payload="auto").schema()
    source = make_source(stream.options)
    source.streamReader(source.schema())
    with pytest.raises(OptionError, match="has no recording of stream"):
        read_table(stream.options)
    assert listed(stream) == []
    assert stream.archive.subscriptions(stream.id) == []


def test_a_streaming_query_starts_a_recording_says_how_to_end_it_and_it_is_listed(node: NodeHandle) -> None:
    """Finding U2: the recording is announced when the query starts, and listed before any publisher has come."""
    stream = udp_stream(node)
    query = Query(stream.options, queryName="flights, all")
    with pytest.warns(RecordingWarning) as said:
        query.request_initial_offset()
    command = f"aeron-spark recordings stop --channel '{stream.channel}' --stream-id {stream.id}"
    assert len(said) == 1
    assert command in str(said[0].message)
    (waiting,) = listed(stream)
    assert (waiting.id, waiting.channel, waiting.standing, waiting.active) == (None, stream.channel, True, False)
    assert waiting.started is not None
    assert waiting.started.query == "flights, all"
    assert "@" in waiting.started.by

    publisher = stream.publisher()
    publisher.send(numbered(0, 3))
    (recorded,) = listed(stream)
    assert (recorded.id, recorded.active, recorded.standing) == (publisher.recording_id, True, True)
    assert recorded.started == waiting.started
    assert query.run_batch() == [0, 1, 2]
    (channel,) = set(read_table(stream.options)["channel"].to_pylist())
    assert channel == stream.channel, "rows show the channel as it was given"
    stream.close()


def test_a_recording_that_is_stopped_ends_with_its_standing_subscription(node: NodeHandle) -> None:
    """Finding U2: no command ended a recording; without its subscription no later publisher is recorded, either."""
    stream = udp_stream(node)
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
    assert listed(stream) == []


def test_a_subscription_that_met_no_publisher_is_stopped_by_its_channel(node: NodeHandle) -> None:
    """Finding U2: a recording of a mistaken channel has no id yet; ``stop --channel --stream-id`` ends it."""
    stream, other = udp_stream(node), udp_stream(node)
    for one in (stream, other):
        with pytest.warns(RecordingWarning):
            Query(one.options).request_initial_offset()
    (ended,) = stop_recordings([stream.address], channel=stream.channel, stream_id=stream.id)
    assert (ended.id, ended.channel, ended.stream_id) == (None, stream.channel, stream.id)
    assert listed(stream) == []
    assert len(listed(other)) == 1
    with pytest.raises(OptionError, match="has no recording of stream"):
        stop_recordings([stream.address], channel=stream.channel, stream_id=stream.id)
    with pytest.raises(OptionError, match="only one of channel and stream id is given"):
        stop_recordings([other.address], channel=other.channel)
    stop_recordings([other.address], channel=other.channel, stream_id=other.id)


def test_an_unknown_recording_is_an_error_that_names_the_known_ones(node: NodeHandle) -> None:
    stream = Stream(node).record()
    known = stream.publisher().recording_id
    for verb in (stop_recordings, delete_recordings):
        with pytest.raises(OptionError, match=rf"has no recording 4711\. .*: (\d+, )*{known}\."):
            verb([stream.address], [4711])
    stream.close()


def test_the_recordings_of_a_servers_stream_are_neither_listed_nor_touched(node: NodeHandle) -> None:
    stream = Stream(node, "aeron:ipc?alias=aeron-spark:flights:0:18ff3a").record()
    publisher = stream.publisher()
    address = stream.address
    assert publisher.recording_id not in [one.id for one in list_recordings([address])]
    for verb in (stop_recordings, delete_recordings):
        with pytest.raises(RefusedError, match="is a partition of the server's stream 'flights'"):
            verb([address], [publisher.recording_id])
    assert archive_of(address).find_stop_position(publisher.recording_id) is None
    stream.archive.stop_recording(stream.channel, stream.id)
    stream.close()


def test_node_stop_names_the_recordings_that_keep_the_node(run_name: str) -> None:
    """Finding U2: ``node stop`` said "1 recordings are active" and nothing that ends them."""
    with own_node(run_name) as handle:
        stream = udp_stream(handle).record()
        address = stream.address
        close_everything()
        handle.close()
        with pytest.raises(RefusedError) as refused:
            nodes.stop(handle.aeron_dir, timeout=TIMEOUT_S / 60)
        assert f"1 recordings are active: the recording subscription to {stream.channel}" in str(refused.value)
        here = f"--aeron-dir {handle.aeron_dir}"
        for command in ("stop ID", "stop --channel URI --stream-id N", "list"):
            assert f"'aeron-spark recordings {command} {here}'" in str(refused.value)
        with nodes.ensure(handle.aeron_dir):
            assert stop_recordings([address], channel=stream.channel, stream_id=stream.id)
            close_everything()
        assert nodes.stop(handle.aeron_dir, timeout=TIMEOUT_S)
