"""The metrics of the media driver and its archive have the values of Aeron's counters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aeron_spark.aeron.archive import replay
from aeron_spark.aeron.counters import read_counters
from aeron_spark.aeron.jvm import jclass
from aeron_spark.node import NodeHandle
from aeron_spark.server import metrics
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, numbered, open_stream, own_node


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


def test_the_types_and_labels_of_the_counters_are_those_of_aeron(node: NodeHandle) -> None:
    aeron = jclass("io.aeron.AeronCounters")
    assert metrics.RECORDING_POSITION == aeron.ARCHIVE_RECORDING_POSITION_TYPE_ID
    assert metrics.REPLAY_SESSIONS == aeron.ARCHIVE_REPLAY_SESSION_COUNT_TYPE_ID
    assert metrics.SYSTEM_COUNTER == aeron.DRIVER_SYSTEM_COUNTER_TYPE_ID
    labels = [one.label for one in read_counters(node.aeron_dir) if one.type_id == metrics.SYSTEM_COUNTER]
    for beginning in metrics.DRIVER_TOTALS.values():
        assert len([label for label in labels if label.startswith(beginning)]) == 1, beginning
