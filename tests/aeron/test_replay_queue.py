"""More readers than an archive replays at once: they wait for their turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from aeron_spark.aeron.archive import MAX_REPLAYS
from aeron_spark.aeron.exceptions import archive_error_code
from aeron_spark.aeron.replay import replay
from aeron_spark.aeron.row_sources import ReplaySource, drain
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, number, numbered, open_stream, own_node

RECORDINGS = 50
LIMIT = 20
EACH = 50


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with Aeron's own default limit."""
    with own_node(run_name, max_replays=LIMIT, term_length="64k", ipc_term_length="64k") as handle:
        yield handle


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    """A recorded stream of the test's own."""
    for one in open_stream(node):
        yield one.record()


def test_50_readers_share_20_replays(stream: Stream) -> None:
    publishers = [stream.publisher() for _ in range(RECORDINGS)]
    for index, publisher in enumerate(publishers):
        # more than a replay's window, so that it cannot end before somebody reads
        publisher.send(numbered(100 * index, 100 * index + EACH, 2_000))
    lock, gate = threading.Lock(), threading.Event()
    now = peak = 0

    def read(publishing: PublishedRecording) -> list[int]:
        nonlocal now, peak
        with replay(stream.archive, publishing.descriptor, 0, publishing.position, timeout=TIMEOUT_S) as opened:
            with lock:
                now += 1
                peak = max(peak, now)
            assert gate.wait(TIMEOUT_S)
            found = list(drain(ReplaySource(opened, TIMEOUT_S), publishing.descriptor))
            with lock:
                now -= 1
        return [number(value) for rows in found for value in rows.values.to_pylist()]

    with ThreadPoolExecutor(RECORDINGS) as readers:
        try:
            reading = [readers.submit(read, publisher) for publisher in publishers]
            wait_for(lambda: now == LIMIT, TIMEOUT_S, "all places to be taken")
            # nobody else can come in: that is what the others wait for
            channel, first = "aeron:ipc", publishers[0]
            with pytest.raises(Exception, match="max concurrent replays") as raised:
                stream.archive.java.startReplay(first.recording_id, 0, first.position, channel, 7_777)
            assert archive_error_code(raised.value) == MAX_REPLAYS
            assert peak == LIMIT
        finally:
            gate.set()
        found = [one.result(TIMEOUT_S) for one in reading]
    assert found == [list(range(100 * index, 100 * index + EACH)) for index in range(RECORDINGS)]
