"""More readers than an archive can replay at the same time wait for their turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.aeron.archive import MAX_REPLAYS, ReplayedRange
from aeron_spark.aeron.java_calls import archive_error_code
from aeron_spark.aeron.row_sources import ReplaySource, drain
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, number, numbered, open_stream, own_node

RECORDINGS = 50
MAX_CONCURRENT_REPLAYS = 20
MESSAGES = 50  # of each recording


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with Aeron's default limit of replays."""
    with own_node(run_name, max_replays=MAX_CONCURRENT_REPLAYS, term_length="64k", ipc_term_length="64k") as handle:
        yield handle


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of one test."""
    for one in open_stream(node):
        yield one.record()


def test_50_readers_share_20_replays(stream: Stream) -> None:
    publishers = [stream.publisher() for _ in range(RECORDINGS)]
    for index, publisher in enumerate(publishers):
        # more than a replay's window, so that the replay cannot end before its reader reads
        publisher.send(numbered(100 * index, 100 * index + MESSAGES, 2_000))
    lock, may_read = threading.Lock(), threading.Event()
    open_replays = peak = 0

    def read(publishing: PublishedRecording) -> list[int]:
        nonlocal open_replays, peak
        with ReplayedRange(stream.archive, publishing.descriptor, 0, publishing.position, TIMEOUT_S) as opened:
            with lock:
                open_replays += 1
                peak = max(peak, open_replays)
            assert may_read.wait(TIMEOUT_S)
            found = list(drain(ReplaySource(opened), publishing.descriptor))
            with lock:
                open_replays -= 1
        return [number(value) for rows in found for value in rows.values.to_pylist()]

    with ThreadPoolExecutor(RECORDINGS) as readers:
        try:
            reading = [readers.submit(read, publisher) for publisher in publishers]
            wait_for(lambda: open_replays == MAX_CONCURRENT_REPLAYS, TIMEOUT_S, "the maximum of replays")
            # the archive refuses another replay, so the other readers wait
            channel, first = "aeron:ipc", publishers[0]
            with pytest.raises(Exception, match="max concurrent replays") as raised:
                stream.archive.java.startReplay(first.recording_id, 0, first.position, channel, 7_777)
            assert archive_error_code(raised.value) == MAX_REPLAYS
            assert peak == MAX_CONCURRENT_REPLAYS
        finally:
            may_read.set()
        found = [one.result(TIMEOUT_S) for one in reading]
    assert found == [list(range(100 * index, 100 * index + MESSAGES)) for index in range(RECORDINGS)]
