"""The plaintext of a frame: literal bytes, every truncation, every violated rule, and any encoded records."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.protocol.frames import (
    FRAME_HEAD,
    MAX_RECORDS,
    MIN_BATCH_RECORDS,
    RECORD_HEAD,
    RECORD_KINDS,
    OutgoingRecord,
    RecordKind,
    decode,
    encode,
    is_sequenced,
)

HEAD = bytes.fromhex("0000000000000005 0000000000000007")
PING_THEN_MESSAGE = HEAD + bytes.fromhex("42 00 00000008 0000000000000001   01 80 00000003 616263")
BATCH = HEAD + bytes.fromhex(
    "0c 01 0000002b   01 000000 00000008"
    " 00000001 00000001 00000001 00000000 00000000 00000000 00000000 00000000   616263"
)
BATCH_RECORDS: list[OutgoingRecord] = [(1, 1, b"a"), (1, 1, b"b"), (1, 1, b"c"), *[(1, 1, b"")] * 5]

RECORDS = st.tuples(st.sampled_from(sorted(RECORD_KINDS)), st.integers(0, 3), st.binary(max_size=20))


def encoded(records: list[OutgoingRecord], ack: int = 5, first: int = 7) -> bytes:
    return b"".join(encode(ack, first, records))


def test_records_are_encoded_as_these_bytes() -> None:
    records: list[OutgoingRecord] = [(RecordKind.PING, 0, (1).to_bytes(8, "big")), (RecordKind.MESSAGE, 0x80, b"abc")]
    assert encoded(records) == PING_THEN_MESSAGE
    frame = decode(PING_THEN_MESSAGE)
    assert (frame.ack, frame.first, frame.records, frame.sequenced) == (5, 7, records, 1)


def test_a_batch_is_encoded_as_these_bytes() -> None:
    assert encoded(BATCH_RECORDS) == BATCH
    frame = decode(BATCH)
    assert (frame.ack, frame.first, frame.records, frame.sequenced) == (5, 7, BATCH_RECORDS, 8)


def test_payloads_are_views_of_the_frame() -> None:
    for data in (bytearray(PING_THEN_MESSAGE), bytearray(BATCH)):
        frame = decode(data)
        assert all(payload.obj is data for _, _, payload in frame.records)


def test_payloads_are_not_copied_when_encoded() -> None:
    payloads = [bytes(200) for _ in range(20)]
    buffers = encode(0, 0, [(RecordKind.MESSAGE, 0, payload) for payload in payloads])
    assert [id(buffer) for buffer in buffers[-20:]] == [id(payload) for payload in payloads]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.lists(RECORDS, min_size=1, max_size=40))
def test_encoded_records_can_be_decoded(ack: int, first: int, records: list[OutgoingRecord]) -> None:
    data = encoded(records, ack, first)
    frame = decode(data)
    assert (frame.ack, frame.first, frame.records) == (ack, first, records)
    assert frame.sequenced == sum(is_sequenced(kind) for kind, _, _ in records)
    assert len(data) <= FRAME_HEAD.size + sum(RECORD_HEAD.size + len(payload) for _, _, payload in records)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_frame_or_a_format_error(data: bytes) -> None:
    try:
        frame = decode(data)
    except DataFormatError:
        return
    assert frame.records


@given(st.lists(RECORDS, min_size=1, max_size=20), st.data())
def test_a_frame_with_one_changed_byte_is_a_frame_or_a_format_error(
    records: list[OutgoingRecord], data: st.DataObject
) -> None:
    changed = bytearray(encoded(records))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = decode(changed)
    except DataFormatError:
        return
    assert sum(len(payload) for _, _, payload in frame.records) <= len(changed)


@pytest.mark.parametrize("whole", [PING_THEN_MESSAGE, BATCH], ids=["records", "batch"])
def test_a_truncated_frame_is_an_error_unless_it_ends_between_records(whole: bytes) -> None:
    decode(whole)
    between = {16 + 6 + 8} if whole == PING_THEN_MESSAGE else set()
    for length in set(range(len(whole))) - between:
        with pytest.raises(DataFormatError, match="invalid at byte"):
            decode(whole[:length])


@pytest.mark.parametrize("extra", [b"\0", b"\1\0\0\0\0", b"\1\0\0\0\0\1"])
def test_trailing_bytes_are_an_error_with_their_offset(extra: bytes) -> None:
    for whole in (PING_THEN_MESSAGE, BATCH):
        with pytest.raises(DataFormatError, match=f"at byte {len(whole)}:"):
            decode(whole + extra)


def test_a_frame_without_records_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="at byte 16: the frame has no record"):
        decode(HEAD)


@pytest.mark.parametrize("kind", sorted(set(range(256)) - RECORD_KINDS - {RecordKind.BATCH}))
def test_an_unknown_kind_is_an_error(kind: int) -> None:
    with pytest.raises(DataFormatError, match=f"at byte 16: unknown record kind {kind}"):
        decode(HEAD + RECORD_HEAD.pack(kind, 0, 0))


@pytest.mark.parametrize("length", [4, 2**31, 2**32 - 1])
def test_a_length_beyond_the_frame_is_an_error(length: int) -> None:
    with pytest.raises(DataFormatError, match=f"at byte 16: the record has {length} bytes, but the frame ends after 3"):
        decode(HEAD + RECORD_HEAD.pack(RecordKind.MESSAGE, 0, length) + b"abc")


def batch(body: str) -> bytes:
    inner = bytes.fromhex(body)
    return HEAD + RECORD_HEAD.pack(RecordKind.BATCH, 0, len(inner)) + inner


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("01 000000 000000", "the batch has 7 bytes, expected at least 8"),
        ("01 000000 00000000", "the batch announces 0 records"),
        ("01 000000 ffffffff 00000000", "the batch announces 4294967295 records"),
        ("01 000000 00000002 00000000", "the batch announces 2 records"),
        ("01 000000 00000001 00000001", "end at 13, and the batch at 12"),
        ("01 000000 00000001 00000000 00", "end at 12, and the batch at 13"),
        ("01 000000 00000002 ffffffff 00000001 ", "end at 4294967312, and the batch at 16"),
        ("01 000100 00000001 00000000", "invalid head of a batch"),
        ("0c 000000 00000001 00000000", "invalid head of a batch"),
        ("42 000000 00000001 00000000", "invalid head of a batch"),
        ("00 000000 00000001 00000000", "invalid head of a batch"),
    ],
)
def test_an_inconsistent_batch_is_an_error(body: str, message: str) -> None:
    with pytest.raises(DataFormatError, match=f"at byte 22: .*{message}"):
        decode(batch(body))


def test_a_batch_of_one_record_can_be_decoded_but_is_not_encoded() -> None:
    assert decode(batch("01 000000 00000001 00000002 6869")).records == [(1, 0, b"hi")]
    assert RecordKind.BATCH not in encoded([(1, 0, b"")] * (MIN_BATCH_RECORDS - 1))[16::6]


def test_unsequenced_records_are_never_in_a_batch() -> None:
    pings: list[OutgoingRecord] = [(RecordKind.PING, 0, bytes(8))] * 20
    frame = decode(encoded(pings))
    assert (frame.records, frame.sequenced) == (pings, 0)


def test_the_number_of_records_in_a_frame_has_a_limit() -> None:
    assert decode(encoded([(1, 0, b"")] * MAX_RECORDS)).sequenced == MAX_RECORDS
    with pytest.raises(DataFormatError, match=f"the batch announces {MAX_RECORDS + 1} records"):
        decode(encoded([(1, 0, b"")] * (MAX_RECORDS + 1)))
    with pytest.raises(DataFormatError, match=f"more than {MAX_RECORDS} records"):
        decode(encoded([(64, 0, b"")] * (MAX_RECORDS + 1)))
    single = struct.pack(">BBI", RecordKind.ACK, 0, 0)
    with pytest.raises(DataFormatError, match=f"the batch announces {MAX_RECORDS} records"):
        decode(HEAD + single + encoded([(1, 0, b"")] * MAX_RECORDS)[16:])
