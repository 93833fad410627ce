"""A stream of many small rows holds its retention by bytes, and its files are at most two segments larger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from aeron_spark.node import NodeHandle
from aeron_spark.streams.store import StreamStore
from aeron_spark.waiting import wait_for
from tests.aeron.stream_store.rows import write
from tests.aeron.stream_store.test_retention import segment_files
from tests.aeron.streams import TIMEOUT_S, own_node
from tests.stream_requests import create_request

RETENTION: Final = 64 << 20
SEGMENT: Final = RETENTION // 8  # the default of `streams create` for this retention
ROWS: Final = 50_000  # of a transaction: two of them are a second of 100,000 rows
TRANSACTION_BYTES: Final = ROWS * 96  # a row of 64 bytes has a header of 32 bytes


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    with own_node(run_name, term_length="1m", ipc_term_length="1m", segment_length="1m") as handle:
        yield handle


@pytest.mark.parametrize(
    "seconds", [12, pytest.param(180, marks=pytest.mark.full("it writes 1.7 GB; make test writes 115 MB"))]
)
def test_rows_of_64_bytes_at_100_000_a_second_hold_the_retention_by_bytes(
    streams: StreamStore, node: NodeHandle, seconds: int
) -> None:
    stream = streams.create(create_request("small", 1, segment_bytes=SEGMENT, retention_bytes=RETENTION))
    values = [b"%064d" % number for number in range(ROWS)]
    for transaction in range(2 * seconds):
        write(stream, transaction, {0: values})
        assert streams.tick() == []
        (state,) = stream.states()
        readable = state.end - state.start
        assert readable <= RETENTION * 1.002 + TRANSACTION_BYTES
        assert readable >= min(state.end, RETENTION - TRANSACTION_BYTES), "rows within the retention are gone"
    (state,) = stream.states()
    assert state.start > SEGMENT
    # The segments with the first and with the last readable byte have other bytes, too.
    limit = RETENTION + TRANSACTION_BYTES + 2 * SEGMENT
    wait_for(
        lambda: sum(path.stat().st_size for path in segment_files(node, [state.shape.recording_id])) <= limit,
        TIMEOUT_S, f"at most {limit} bytes of files",
        state=lambda: str([path.name for path in segment_files(node, [state.shape.recording_id])]),
    )  # fmt: skip
