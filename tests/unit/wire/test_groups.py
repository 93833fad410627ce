"""Groups: any payload can be split and reassembled, also with unfinished groups between complete ones."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.chunks import Chunk, Content, DecodedChunk, Group, Header, Reassembler, decode, encode, split
from tests.unit.wire.test_chunk import VECTORS

HEADER = Header(Content.BYTES, 0, published_ns=5, batch=3, row=9, partition=1, writer="w")
ROOM = 80  # bytes of a header with a writer of 1 to 8 bytes
PAYLOAD = bytes(range(32))


def messages(payload: bytes, room: int, position: int = 0, header: Header = HEADER) -> list[bytes]:
    """Return the messages of a group that is published from ``position`` on."""
    return [
        chunk.encode_header(position) + chunk.payload.to_pybytes()
        for chunk in split(payload, header, max_message_bytes=ROOM + room)
    ]


def feed(reassembler: Reassembler, sent: list[bytes], position: int = 0) -> list[Group]:
    groups = [reassembler.feed(decode(message), position + 128 * i) for i, message in enumerate(sent)]
    return [group for group in groups if group is not None]


def test_a_payload_is_split_into_full_chunks() -> None:
    chunks = list(split(b"abcdefgh", HEADER, max_message_bytes=ROOM + 3))
    assert chunks == [
        Chunk(replace(HEADER, total=8, offset=0, first=True, last=False), pa.py_buffer(b"abc")),
        Chunk(replace(HEADER, total=8, offset=3, first=False, last=False), pa.py_buffer(b"def")),
        Chunk(replace(HEADER, total=8, offset=6, first=False, last=True), pa.py_buffer(b"gh")),
    ]


@pytest.mark.parametrize(
    ("length", "count"), [(0, 1), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3)], ids=lambda value: str(value)
)
def test_a_group_has_the_minimum_of_chunks(length: int, count: int) -> None:
    sent = messages(bytes(length), 10)
    assert len(sent) == count
    assert all(len(message) <= ROOM + 10 for message in sent)
    assert [group.payload.size for group in feed(Reassembler(), sent)] == [length]


def test_a_payload_is_not_copied_into_its_chunks() -> None:
    payload = pa.py_buffer(PAYLOAD)
    addresses = [chunk.payload.address for chunk in split(payload, HEADER, max_message_bytes=ROOM + 10)]
    assert addresses == [payload.address + offset for offset in (0, 10, 20, 30)]


@given(sizes=st.lists(st.integers(0, 12), max_size=6), room=st.integers(1, 20))
def test_a_payload_in_several_buffers_is_split_like_one_buffer(sizes: list[int], room: int) -> None:
    whole = bytes(range(sum(sizes)))
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    buffers = [pa.py_buffer(whole[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    assert list(split(buffers, HEADER, max_message_bytes=ROOM + room)) == list(
        split(whole, HEADER, max_message_bytes=ROOM + room)
    )


def test_only_a_chunk_that_spans_two_buffers_is_copied() -> None:
    first, second = pa.py_buffer(PAYLOAD[:15]), pa.py_buffer(PAYLOAD[15:])
    chunks = list(split([first, second], HEADER, max_message_bytes=ROOM + 10))
    assert chunks[0].payload.address == first.address
    assert [chunk.payload.address - second.address for chunk in chunks[2:]] == [5, 15]


def test_later_chunks_have_the_position_of_their_group() -> None:
    sent = [decode(message).header.group_position for message in messages(PAYLOAD, 12, 4096)]
    assert sent == [-1, 4096, 4096]


def test_the_golden_chunks_are_one_group() -> None:
    reassembler = Reassembler()
    sent = [bytes.fromhex(vector["message"]) for vector in VECTORS if vector["name"].endswith("of three chunks")]
    (group,) = feed(reassembler, sent, 4096)
    assert group.payload == pa.py_buffer(bytes(range(1, 33)))
    assert (group.position, group.header.total, group.header.batch, group.header.writer) == (4096, 32, 3, "w")
    assert (reassembler.discarded, reassembler.skipped, reassembler.unfinished) == (0, 0, None)


def test_a_message_size_without_room_is_an_error_before_the_first_chunk() -> None:
    with pytest.raises(OptionError, match="no room"):
        split(b"x", HEADER, max_message_bytes=ROOM)


def test_a_group_of_one_chunk_is_a_view_of_the_message() -> None:
    message = pa.py_buffer(encode(replace(HEADER, total=32), PAYLOAD))
    group = Reassembler().feed(decode(message), 64)
    assert group == Group(replace(HEADER, total=32), 64, pa.py_buffer(PAYLOAD))
    assert group.payload.address == message.address + ROOM


def test_a_new_group_discards_an_unfinished_one() -> None:
    reassembler = Reassembler()
    assert feed(reassembler, messages(PAYLOAD, 10)[:2], 256) == []
    assert reassembler.unfinished == 256
    (group,) = feed(reassembler, messages(b"the next one", 5), 1024)
    assert (group.payload.to_pybytes(), group.position) == (b"the next one", 1024)
    assert [reassembler.discarded, reassembler.unfinished] == [1, None]
    reassembler.interrupt()
    assert reassembler.discarded == 1, "no group was unfinished"


def test_a_group_of_one_chunk_discards_an_unfinished_group() -> None:
    reassembler = Reassembler()
    feed(reassembler, messages(PAYLOAD, 10)[:1])
    assert len(feed(reassembler, messages(b"whole", 10), 1024)) == 1
    assert (reassembler.discarded, reassembler.unfinished) == (1, None)


def test_later_chunks_of_a_group_that_began_before_the_start_are_skipped() -> None:
    reassembler = Reassembler(start=500)
    assert feed(reassembler, messages(PAYLOAD, 10, position=499)[1:], 512) == []
    assert reassembler.skipped == 3
    assert len(feed(reassembler, messages(b"next", 10), 1024)) == 1


def test_later_chunks_of_a_group_whose_first_chunk_is_missing_are_an_error() -> None:
    reassembler = Reassembler(start=500)
    with pytest.raises(DataFormatError, match="began at or after position 500, but its first chunk is missing"):
        feed(reassembler, messages(PAYLOAD, 10, position=500)[1:], 512)
    assert reassembler.skipped == 0


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ({"offset": 9}, "offset is 9, expected 10"),
        ({"offset": 11}, "offset is 11, expected 10"),
        ({"total": 33}, "total is 33, expected 32"),
        ({"content": Content.ARROW}, "content is 'ARROW', expected 'BYTES'"),
        ({"rows": 2}, "rows is 2, expected 1"),
        ({"published_ns": 6}, "published is 6, expected 5"),
        ({"writer": "v"}, "writer is 'v', expected 'w'"),
        ({"batch": 4}, "batch is 4, expected 3"),
        ({"partition": 2}, "partition is 2, expected 1"),
        ({"row": 10}, "row is 10, expected 9"),
        ({"group_position": 257}, "group position is 257, after 256"),
    ],
)
def test_a_chunk_of_another_group_is_an_error_and_changes_no_state(fields: dict[str, Any], difference: str) -> None:
    reassembler = Reassembler()
    sent = [decode(message) for message in messages(PAYLOAD, 10, position=224)]
    reassembler.feed(sent[0], 256)
    with pytest.raises(DataFormatError) as raised:
        reassembler.feed(DecodedChunk(replace(sent[1].header, **fields), sent[1].payload), 384)
    assert difference in str(raised.value)
    assert "does not continue the group that began at 256" in str(raised.value)
    groups = [reassembler.feed(frame, 512) for frame in sent[1:]]
    assert groups[-1] is not None
    assert groups[-1].payload == pa.py_buffer(PAYLOAD)


@pytest.mark.parametrize("total", [2**33, 2**60, 2**64 - 1])
def test_a_large_announced_total_allocates_no_memory(total: int) -> None:
    first = decode(encode(replace(HEADER, total=total, last=False), bytes(1000)))
    second = decode(encode(replace(HEADER, total=total, offset=1000, first=False, last=False, group_position=0), b"x"))
    reassembler = Reassembler()
    tracemalloc.start()
    try:
        assert reassembler.feed(first, 0) is None
        assert reassembler.feed(second, 1088) is None
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    assert reassembler.unfinished == 0


def test_a_large_group_needs_little_more_memory_than_its_payload() -> None:
    payload = bytes(8 << 20)
    frames = [decode(message) for message in messages(payload, 64 << 10)]
    reassembler = Reassembler()
    tracemalloc.start()
    try:
        found = [group for frame in frames if (group := reassembler.feed(frame, 0)) is not None]
        assert tracemalloc.get_traced_memory()[1] < 1.3 * len(payload)
    finally:
        tracemalloc.stop()
    assert found[0].payload == pa.py_buffer(payload)
    assert reassembler.unfinished is None


def test_finished_groups_do_not_share_memory() -> None:
    reassembler = Reassembler()
    (first,) = feed(reassembler, messages(PAYLOAD, 10))
    feed(reassembler, messages(b"something else altogether", 10), 1024)
    assert first.payload == pa.py_buffer(PAYLOAD)


@given(payload=st.binary(max_size=400), room=st.integers(1, 100), position=st.integers(0, 2**62))
def test_any_payload_can_be_split_and_reassembled(payload: bytes, room: int, position: int) -> None:
    (group,) = feed(Reassembler(), messages(payload, room, position), position)
    assert group == Group(
        replace(HEADER, total=len(payload), last=len(payload) <= room), position, pa.py_buffer(payload)
    )


@given(st.lists(st.tuples(st.binary(max_size=60), st.integers(1, 20), st.integers(0, 60)), max_size=12))
def test_complete_groups_are_reassembled_between_unfinished_ones(groups: list[tuple[bytes, int, int]]) -> None:
    """Only the first ``sent_chunks`` chunks of each group are sent; complete groups arrive, others are counted."""
    reassembler = Reassembler()
    arrived, expected, discarded = [], [], 0
    position, unfinished = 0, None
    for payload, room, sent_chunks in groups:
        sent = messages(payload, room, position)
        discarded += unfinished is not None and sent_chunks > 0
        arrived += feed(reassembler, sent[:sent_chunks], position)
        if sent_chunks >= len(sent):
            expected.append(payload)
            unfinished = None
        elif sent_chunks > 0:
            unfinished = position
        position += 128 * len(sent)
    assert [group.payload.to_pybytes() for group in arrived] == expected
    assert (reassembler.discarded, reassembler.skipped, reassembler.unfinished) == (discarded, 0, unfinished)
