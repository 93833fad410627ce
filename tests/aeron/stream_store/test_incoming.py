"""A large stage that arrives over a bulk link is published ahead of its commit; a small one is not."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from aeron_spark.server.stream_transfers import PUBLISH_AHEAD_BYTES, IncomingStage
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.bulk_messages import BulkMessage, BulkMessageKind
from aeron_spark.wire.staged_items import encode_values_item
from tests.aeron.stream_store.rows import ends, read_values, write
from tests.stream_requests import commit_request, create_request, stage_request

ROW = b"r" * 1_000
MIB = 1 << 20


def encode_item(rows: int) -> bytes:
    return b"".join(part.to_pybytes() for part in encode_values_item(pa.array([ROW] * rows, pa.binary())))


@pytest.fixture
def stream(streams: StreamStore) -> Stream:
    return streams.create(create_request("a", 2))


@pytest.fixture
def publish_results(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each call of ``publish_ahead`` appends its result."""
    results: list[int] = []
    publish_ahead = Stream.publish_ahead

    def record_result(self: Stream, stage: object, published: int) -> int:
        results.append(publish_ahead(self, stage, published))
        return results[-1]

    monkeypatch.setattr(Stream, "publish_ahead", record_result)
    return results


def open_incoming(stream: Stream) -> IncomingStage:
    return IncomingStage(stream, stream.open_stage(stage_request("w", "r", 0, 0, 0, "raw")))


def append(incoming: IncomingStage, data: bytes, offset: int = 0, size: int = MIB // 2) -> tuple[int, int]:
    """Append ``data`` in messages of ``size`` bytes; publish ahead when requested.

    Return the bytes so far, and how often publishing was requested.
    """
    requests = 0
    for begin in range(0, len(data), size):
        payload = data[begin : begin + size]
        if incoming.append(BulkMessage(1, BulkMessageKind.STAGE, offset, memoryview(payload))):
            requests += 1
            incoming.publish_ahead()
        offset += len(payload)
    return offset, requests


def commit(stream: Stream, incoming: IncomingStage, size: int) -> None:
    assert not stream.commit(commit_request("w", "r", 0, [incoming.finish(size)])).repeated


def test_a_small_stage_is_published_only_by_its_commit(stream: Stream, publish_results: list[int]) -> None:
    incoming = open_incoming(stream)
    size, requests = append(incoming, encode_item(PUBLISH_AHEAD_BYTES // 2_000))
    assert (requests, publish_results) == (0, [])
    commit(stream, incoming, size)
    assert read_values(stream, 0) == [ROW] * (PUBLISH_AHEAD_BYTES // 2_000)


def test_a_large_stage_is_published_while_it_arrives(stream: Stream, publish_results: list[int]) -> None:
    incoming = open_incoming(stream)
    size, _ = append(incoming, encode_item(1_000) * 30)
    assert publish_results == sorted(publish_results)
    assert size - publish_results[-1] < 2 * PUBLISH_AHEAD_BYTES
    assert ends(stream) == [0, 0]
    commit(stream, incoming, size)
    assert read_values(stream, 0) == [ROW] * 30_000


def test_each_message_of_an_incomplete_item_causes_one_attempt_to_publish(
    stream: Stream, publish_results: list[int]
) -> None:
    incoming = open_incoming(stream)
    data = encode_item(20_000)
    size, requests = append(incoming, data)
    assert set(publish_results[:-1]) == {0}  # nothing, until the item is complete
    # Attempts without a new message would be a busy loop.
    assert len(publish_results) == requests <= len(data) // (MIB // 2) + 1
    commit(stream, incoming, size)
    assert read_values(stream, 0) == [ROW] * 20_000


def test_publishing_ahead_ends_after_another_commit_truncated_the_published_bytes(
    stream: Stream, publish_results: list[int]
) -> None:
    incoming = open_incoming(stream)
    offset, requests = append(incoming, encode_item(1_000) * 12)
    assert requests
    write(stream, 0, {0: [b"other"]}, writer="x")
    offset, requests = append(incoming, encode_item(1_000) * 12, offset)
    assert requests == 1  # it found the bytes truncated; a later commit could truncate them again
    offset, requests = append(incoming, encode_item(1_000) * 12, offset)
    assert requests == 0
    commit(stream, incoming, offset)
    assert read_values(stream, 0) == [b"other", *[ROW] * 36_000]


def test_a_commit_to_another_partition_does_not_wait_for_publishing_ahead(stream: Stream) -> None:
    incoming = open_incoming(stream)
    data = encode_item(1_000) * 100
    for offset in range(0, len(data), MIB):
        incoming.append(BulkMessage(1, BulkMessageKind.STAGE, offset, memoryview(data[offset : offset + MIB])))
    publishing = threading.Thread(target=incoming.publish_ahead)
    publishing.start()
    write(stream, 0, {1: [b"small"]}, writer="x")
    assert incoming._published < len(data)
    publishing.join(20.0)
    commit(stream, incoming, len(data))
    assert read_values(stream, 0) == [ROW] * 100_000
    assert read_values(stream, 1) == [b"small"]
