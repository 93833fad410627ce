"""A server runs the periodic work of its store, such as retention."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.stream_store.rows import write
from tests.aeron.streams import TIMEOUT_S
from tests.server_processes import serving
from tests.stream_requests import create_request

SEGMENT = 64 << 10


def test_retention_deletes_segments_of_a_server_without_requests(node_of_64k: NodeHandle, tmp_path: Path) -> None:
    """Other tests call `tick` themselves, so they do not notice a server that does not call it."""
    with serving(node_of_64k, tmp_path) as server:
        stream = server.streams.create(create_request("kept-short", 1, retention_bytes=SEGMENT, segment_bytes=SEGMENT))
        end = 0
        for transaction in range(4):
            write(stream, transaction, {0: [bytes(8_000)] * 8})
            begin, end = end, stream.states()[0].end
        wait_for(lambda: stream.states()[0].start == begin, TIMEOUT_S, "the earlier transactions to be unreadable")
        assert end - begin <= SEGMENT
        server.streams.delete("kept-short")


def test_a_closed_server_leaves_no_transfer_thread(node_of_64k: NodeHandle, tmp_path: Path) -> None:
    """Regression: a closed server kept its transfer threads as long as an object referred to it."""
    with serving(node_of_64k, tmp_path) as server:
        found: Future[threading.Thread] = Future()
        server._stream_service.pool.submit("owner", lambda: found.set_result(threading.current_thread()))
        thread = found.result(TIMEOUT_S)
        assert thread.is_alive()
    wait_for(lambda: not thread.is_alive(), TIMEOUT_S, "the thread to end")
