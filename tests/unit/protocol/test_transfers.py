"""The sender of transfers: the order of the records, bounded memory, and a source that fails."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError, SetupError, TransportError
from aeron_spark.protocol.message_types import Buffer
from aeron_spark.protocol.transfers import (
    DATA,
    FINISHED,
    START,
    EncodedTransferRecord,
    Purpose,
    TransferFailed,
    TransferRecord,
    TransferStart,
    decode_failed,
    decode_start,
    encode_failed,
    encode_start,
    send_buffer,
    send_from,
)

IDS = st.integers(-(2**63), 2**63 - 1)
STARTS = st.builds(
    TransferStart,
    IDS,
    st.sampled_from(Purpose),
    st.integers(0, 2**64 - 1),
    st.integers(0, 65535),
    st.text(max_size=200),
)


@given(STARTS)
def test_a_start_record_can_be_encoded_and_decoded(start: TransferStart) -> None:
    assert decode_start(encode_start(start)) == start


@given(IDS, st.booleans(), st.text(max_size=200))
def test_a_failed_record_can_be_encoded_and_decoded(transfer_id: int, by_receiver: bool, text: str) -> None:
    assert decode_failed(encode_failed(transfer_id, text, by_receiver=by_receiver)) == TransferFailed(
        transfer_id, by_receiver, text
    )


@given(st.binary(max_size=1100))
def test_arbitrary_bytes_are_a_record_or_a_format_error(payload: bytes) -> None:
    for decode in (decode_start, decode_failed):
        try:
            decoded = decode(payload)
        except DataFormatError:
            continue
        assert isinstance(decoded, TransferStart | TransferFailed)


def test_names_and_texts_have_a_maximum_length() -> None:
    with pytest.raises(OptionError, match="1025 bytes"):
        encode_start(TransferStart(1, Purpose.FILE, 1, name="x" * 1025))
    with pytest.raises(OptionError, match="cannot be encoded in UTF-8"):
        encode_start(TransferStart(1, Purpose.FILE, 1, name="\udcff"))
    for payload in (START.pack(1, 2, 0, 1) + b"x" * 1025, START.pack(1, 2, 0, 1) + b"\xff", START.pack(1, 9, 0, 1)):
        with pytest.raises(DataFormatError):
            decode_start(payload)
    assert len(decode_failed(encode_failed(1, "x" * 5000)).text) == 1000


@given(st.binary(max_size=500), st.integers(1, 100))
def test_the_records_are_the_start_the_chunks_in_order_and_the_digest(content: bytes, chunk_bytes: int) -> None:
    start = TransferStart(-7, Purpose.MESSAGE, len(content), 64)
    first, *middle, last = send_buffer(start, content, chunk_bytes=chunk_bytes)
    assert first == (TransferRecord.START, encode_start(start))
    assert last == (TransferRecord.FINISHED, FINISHED.pack(-7, hashlib.sha256(content).digest()))
    offsets = [DATA.unpack_from(payload) for _, payload in middle]
    assert offsets == [(-7, offset) for offset in range(0, len(content), chunk_bytes)]
    assert b"".join(payload[DATA.size :] for _, payload in middle) == content
    assert all(kind is TransferRecord.DATA and len(payload) <= DATA.size + chunk_bytes for kind, payload in middle)


def test_an_announced_size_that_differs_from_the_content_is_an_error() -> None:
    with pytest.raises(OptionError, match="the content has 3 bytes, announced are 4"):
        list(send_buffer(TransferStart(1, Purpose.MESSAGE, 4), b"abc"))
    with pytest.raises(OptionError, match="invalid chunk size 0 bytes"):
        list(send_buffer(TransferStart(1, Purpose.MESSAGE, 3), b"abc", chunk_bytes=0))


def kinds_and_error(records: Iterator[EncodedTransferRecord]) -> tuple[list[TransferRecord], Exception]:
    """Return the kinds of the records before the error, and the error."""
    kinds = []
    try:
        for kind, _ in records:
            kinds.append(kind)
    except (SetupError, TransportError) as error:
        return kinds, error
    raise AssertionError("the transfer ended without an error")


def test_row_64_a_source_that_fails_ends_with_a_failed_record_and_an_error() -> None:
    def raising(count: int) -> Buffer:
        raise OSError("the disk is gone")

    kinds, error = kinds_and_error(send_from(TransferStart(1, Purpose.FILE, 10, name="f"), raising))
    assert kinds == [TransferRecord.START, TransferRecord.FAILED]
    assert "content of f could not be read: the disk is gone" in str(error)

    parts = iter([b"12345", b""])
    kinds, error = kinds_and_error(send_from(TransferStart(1, Purpose.FILE, 10), lambda count: next(parts)))
    assert kinds == [TransferRecord.START, TransferRecord.DATA, TransferRecord.FAILED]
    assert "returned 0 bytes at offset 5 of 10" in str(error)

    kinds, error = kinds_and_error(send_from(TransferStart(1, Purpose.FILE, 10), lambda count: bytes(count + 1)))
    assert kinds == [TransferRecord.START, TransferRecord.FAILED]


def test_an_error_of_this_package_is_raised_unchanged() -> None:
    def raising(count: int) -> Buffer:
        raise TransportError("closed")

    _, error = kinds_and_error(send_from(TransferStart(1, Purpose.FILE, 10), raising))
    assert str(error) == "closed"


def test_a_source_with_short_reads_and_more_bytes_is_sent_up_to_the_total() -> None:
    source = bytes(range(100))
    position = 0

    def read(count: int) -> Buffer:
        nonlocal position
        part = source[position : position + min(count, 7)]
        position += len(part)
        return part

    records = list(send_from(TransferStart(1, Purpose.FILE, 50), read, chunk_bytes=20))
    assert b"".join(payload[DATA.size :] for kind, payload in records if kind is TransferRecord.DATA) == source[:50]


def test_sending_needs_memory_for_one_chunk_only() -> None:
    content = memoryview(bytes(50_000_000))
    tracemalloc.start()
    try:
        for _ in send_buffer(TransferStart(1, Purpose.MESSAGE, len(content)), content):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
