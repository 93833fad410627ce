"""The metrics of the media driver and its archive have the values of Aeron's counters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import jpype
import pytest

from aeron_spark.aeron.archive import NO_REPLAY, replay
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.jvm import jclass
from aeron_spark.node import NodeHandle
from aeron_spark.server import metrics
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, numbered, open_stream, own_node

CHANNEL: Final = "aeron:ipc"
UNREAD: Final = 9_999  # an Aeron stream that has a subscription, which is not polled


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node on which nothing else is recorded or replayed."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k") as handle:
        yield handle


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    for one in open_stream(node):
        yield one.record()


def test_active_recordings_and_replays_are_counted(node: NodeHandle, stream: Stream) -> None:
    def active(kind: str) -> float:
        return metrics.driver_state(node.aeron_dir)[f"archive_{kind}_active"][()]

    assert (active("recordings"), active("replays")) == (0, 0)
    publishing = stream.publisher()
    publishing.send(numbered(0, 50, 2_000))  # more than a replay's window, so that the replays stay active
    assert active("recordings") == 1
    with (
        replay(stream.archive, publishing.descriptor, 0, publishing.position, timeout=TIMEOUT_S),
        replay(stream.archive, publishing.descriptor, 0, publishing.position, timeout=TIMEOUT_S),
    ):
        wait_for(lambda: active("replays") == 2, TIMEOUT_S, "two replays in the metric")
    wait_for(lambda: active("replays") == 0, TIMEOUT_S, "the end of the replays in the metric")
    publishing.stop()
    wait_for(lambda: active("recordings") == 0, TIMEOUT_S, "the end of the recording in the metric")


def test_replays_of_an_interrupted_request_are_stopped(node: NodeHandle, stream: Stream) -> None:
    def active() -> float:
        return metrics.driver_state(node.aeron_dir)["archive_replays_active"][()]

    publishing = stream.publisher()
    publishing.send(numbered(0, 50, 2_000))  # more than a replay's window, so that the replays stay active
    recording, client, address = publishing.descriptor.id, stream.archive.client, stream.archive.address
    subscription = client.subscription(CHANNEL, UNREAD)
    context = jclass("io.aeron.archive.client.AeronArchive$Context")().aeron(client.aeron).ownsAeronClient(False)
    context.controlRequestChannel(address.control_channel).controlRequestStreamId(address.control_stream_id)
    context.controlResponseChannel(CHANNEL)
    with closing(jclass("io.aeron.archive.client.AeronArchive").connect(context)) as session:
        requests, longs = jclass("io.aeronspark.client.ReplayRequests")(session), jpype.JArray(jpype.JLong)
        jclass("java.lang.Thread").currentThread().interrupt()  # so that the first look for a response is the last
        with pytest.raises(jpype.JException, match="interrupt"):
            requests.start(CHANNEL, UNREAD, longs([recording] * 2), longs([0, 0]), longs([publishing.position] * 2))
        wait_for(lambda: active() == 2, TIMEOUT_S, "two replays without a reader")
        wait_for(lambda: requests.error(NO_REPLAY) is None and active() == 0, TIMEOUT_S, "the end of these replays")
    subscription.close()
    publishing.stop()


def test_the_types_and_labels_of_the_counters_are_those_of_aeron(node: NodeHandle) -> None:
    aeron = jclass("io.aeron.AeronCounters")
    assert metrics.RECORDING_POSITION == aeron.ARCHIVE_RECORDING_POSITION_TYPE_ID
    assert metrics.REPLAY_SESSIONS == aeron.ARCHIVE_REPLAY_SESSION_COUNT_TYPE_ID
    assert metrics.SYSTEM_COUNTER == aeron.DRIVER_SYSTEM_COUNTER_TYPE_ID
    labels = [one.label for one in read_counters(node.aeron_dir) if one.type_id == metrics.SYSTEM_COUNTER]
    for beginning in metrics.DRIVER_TOTALS.values():
        assert len([label for label in labels if label.startswith(beginning)]) == 1, beginning
