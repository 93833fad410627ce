"""A stage as it comes over a branch: what is published ahead of it, when, and when not."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from aeron_spark.server.incoming_stage import LARGE, IncomingStage
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.staged_items import encode_values_item
from aeron_spark.wire.stream_rpc import BulkMessage, BulkMessageKind
from tests.aeron.stream_store.rows import ends, values, write

ROW = b"r" * 1_000
MIB = 1 << 20


def item(rows: int) -> bytes:
    return b"".join(part.to_pybytes() for part in encode_values_item(pa.array([ROW] * rows, pa.binary())))


@pytest.fixture
def stream(streams: Streams) -> Stream:
    return streams.create("a", 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each attempt to publish ahead has found."""
    found: list[int] = []
    publish_ahead = Stream.publish_ahead

    def noted(self: Stream, stage: object, published: int) -> int:
        found.append(publish_ahead(self, stage, published))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(Stream, "publish_ahead", noted)
    return found


def incoming(stream: Stream) -> IncomingStage:
    return IncomingStage(stream, stream.open_stage("w", "r", 0, 0, 0, "raw"), 1, 1)


def come(one: IncomingStage, data: bytes, at: int = 0, size: int = MIB // 2) -> tuple[int, int]:
    """Have ``data`` come in pieces, publishing where that is wanted; return the bytes so far, and how often it was."""
    wanted = 0
    for begin in range(0, len(data), size):
        piece = data[begin : begin + size]
        if one.take(BulkMessage(1, BulkMessageKind.STAGE, at, memoryview(piece))):
            wanted += 1
            one.publish_ahead()
        at += len(piece)
    return at, wanted


def commit(stream: Stream, one: IncomingStage, size: int) -> None:
    assert not stream.commit("w", "r", 0, [one.finish(size, 5.0)]).already


def test_what_is_small_is_left_to_the_commit(stream: Stream, asked: list[int]) -> None:
    one = incoming(stream)
    size, wanted = come(one, item(LARGE // 2_000))
    assert (wanted, asked) == (0, [])
    commit(stream, one, size)
    assert values(stream, 0) == [ROW] * (LARGE // 2_000)


def test_much_is_published_as_it_comes(stream: Stream, asked: list[int]) -> None:
    one = incoming(stream)
    size, _ = come(one, item(1_000) * 30)
    assert asked == sorted(asked)
    assert size - asked[-1] < 2 * LARGE
    assert ends(stream) == [0, 0]
    commit(stream, one, size)
    assert values(stream, 0) == [ROW] * 30_000


def test_a_row_of_which_a_part_is_there_is_asked_for_once_a_piece(stream: Stream, asked: list[int]) -> None:
    one = incoming(stream)
    data = item(20_000)
    size, wanted = come(one, data)
    assert set(asked[:-1]) == {0}  # and nobody turned round and round meanwhile
    assert len(asked) == wanted <= len(data) // (MIB // 2) + 1
    commit(stream, one, size)
    assert values(stream, 0) == [ROW] * 20_000


def test_a_stage_that_was_overtaken_is_not_published_ahead_again(stream: Stream, asked: list[int]) -> None:
    one = incoming(stream)
    at, wanted = come(one, item(1_000) * 12)
    assert wanted
    write(stream, 0, {0: [b"other"]}, writer="x")
    at, wanted = come(one, item(1_000) * 12, at)
    assert wanted == 1  # it was cut off, and restarting would go on like that
    at, wanted = come(one, item(1_000) * 12, at)
    assert wanted == 0
    commit(stream, one, at)
    assert values(stream, 0) == [b"other", *[ROW] * 36_000]


def test_a_commit_to_another_partition_has_its_turn(stream: Stream) -> None:
    one = incoming(stream)
    data = item(1_000) * 100
    for at in range(0, len(data), MIB):
        one.take(BulkMessage(1, BulkMessageKind.STAGE, at, memoryview(data[at : at + MIB])))
    publishing = threading.Thread(target=one.publish_ahead)
    publishing.start()
    write(stream, 0, {1: [b"small"]}, writer="x")
    assert one._published < len(data)
    publishing.join(20.0)
    commit(stream, one, len(data))
    assert values(stream, 0) == [ROW] * 100_000
    assert values(stream, 1) == [b"small"]
