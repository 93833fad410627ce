"""One message: golden vectors, every flipped bit, every truncation, every violated rule with a valid checksum."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.chunks import (
    FIXED_BYTES,
    Content,
    DecodedChunk,
    Header,
    decode,
    encode,
    encode_header,
    is_framed,
    payload_limit,
    writer_bytes,
)
from tests.unit.wire import golden

VECTORS: list[dict[str, Any]] = json.loads(golden.VECTORS.read_text())
NAMES = [vector["name"] for vector in VECTORS]

# The vector "writer, batch, partition and row" as a literal
LITERAL = bytes.fromhex(
    "41734631 01 01 03 0c 5ba74179 01000000"
    " ffffffffffffffff 0500000000000000 0000000000000000 00002a36fe9c9717"
    " 0700000000000000 2900000000000000 02000000 00000000"
    " 71756572792d376633613263 00000000 68656c6c6f"
)
LITERAL_HEADER = Header(
    Content.BYTES, 5, published_ns=1_700_000_000_000_000_000, batch=7, row=41, partition=2, writer="query-7f3a2c"
)


def header_of(vector: dict[str, Any]) -> Header:
    return Header(
        content=Content(vector["content"]),
        total=vector["total"],
        rows=vector["rows"],
        offset=vector["offset"],
        group_position=vector["group_position"],
        published_ns=vector["published"],
        batch=vector["batch"],
        row=vector["row"],
        partition=vector["partition"],
        writer=vector["writer"],
        first=bool(vector["flags"] & 1),
        last=bool(vector["flags"] & 2),
    )


def changed(at: int, data: bytes, message: bytes = LITERAL) -> bytes:
    """Return ``message`` with ``data`` at offset ``at``, and a valid checksum."""
    result = message[:at] + data + message[at + len(data) :]
    crc = zlib.crc32(result[12:], zlib.crc32(result[:8]))
    return result[:8] + crc.to_bytes(4, "little") + result[12:]


# Messages that are not a whole valid value.
DAMAGED: Final = (
    b"",
    LITERAL[:71],
    LITERAL[:80],
    b"raw bytes of another program, longer than the header of a chunk ..............",
    bytes(200),
    changed(0, bytes(8)),
    changed(4, b"\x02"),
    changed(5, b"\x02"),
    changed(6, b"\x01"),
    changed(6, b"\x07"),
    changed(12, b"\x02"),
    changed(16, bytes(8)),
    changed(24, b"\x04"),
    changed(32, b"\x01"),
    changed(72, b"\xff"),
    changed(72, b"\xed\xa0\x80"),  # half of a surrogate pair
    LITERAL[:-1] + b"0",
)


def test_a_literal_message_is_encoded_and_decoded() -> None:
    assert decode(LITERAL) == DecodedChunk(LITERAL_HEADER, memoryview(b"hello"))
    assert encode(LITERAL_HEADER, b"hello") == LITERAL
    assert encode_header(LITERAL_HEADER, b"hello") + b"hello" == LITERAL


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_a_golden_vector_is_encoded_and_decoded(vector: dict[str, Any]) -> None:
    message, payload = bytes.fromhex(vector["message"]), bytes.fromhex(vector["payload"])
    header = header_of(vector)
    assert encode(header, payload) == message
    assert decode(message) == DecodedChunk(header, memoryview(payload))


def test_the_vectors_on_the_page_are_those_of_the_file() -> None:
    assert golden.vectors() == VECTORS, "the committed vectors define version 1 and must not change"
    text = golden.DOCUMENT.read_text()
    assert text == golden.document(text, VECTORS)
    assert all(f"**{name}**" in text for name in golden.SHOWN)


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_every_flipped_bit_is_an_error(vector: dict[str, Any]) -> None:
    message = bytearray.fromhex(vector["message"])
    decode(message)
    for bit in range(8 * len(message)):
        message[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataFormatError):
            decode(message)
        message[bit // 8] ^= 1 << bit % 8
    decode(message)


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_every_truncated_message_is_an_error(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["message"])
    decode(message)
    for length in range(len(message)):
        with pytest.raises(DataFormatError):
            decode(message[:length])
    with pytest.raises(DataFormatError):
        decode(message + b"\0")


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (b"", "it has 0 bytes, expected at least 72"),
        (LITERAL[:71], "it has 71 bytes, expected at least 72"),
        (LITERAL[:80], "it has 80 bytes, expected at least 88 for the header and the writer id"),
        (changed(0, b"AsF2"), "it begins with b'AsF2', expected b'AsF1'"),
        (changed(4, b"\x02"), "it has the version 2, expected 1"),
        (LITERAL[:-1] + b"0", "its checksum is 0x7941a75b, computed is 0x"),
        (changed(5, b"\x00"), "its content is 0, expected 1"),
        (changed(5, b"\x03"), "its content is 3, expected 1"),
        (changed(6, b"\x07"), "it has the flags 0x07"),
        (changed(72, b"\xff"), "its writer id is not UTF-8"),
        (changed(6, b"\x02"), "its FIRST flag is False, but its offset is 0 and its group position -1"),
        (changed(16, b"\x00" * 8), "its FIRST flag is True, but its offset is 0 and its group position 0"),
        (changed(32, b"\x01"), "its FIRST flag is True, but its offset is 1"),
        (changed(6, b"\x02", changed(16, b"\xfe", changed(32, b"\x01", changed(24, b"\x06")))), "position is -2"),
        (changed(6, b"\x01"), "its LAST flag is False, but its payload ends at 5 of 5"),
        (changed(24, b"\x04"), "its LAST flag is True, but its payload ends at 5 of 4"),
        (changed(24, b"\x06"), "its LAST flag is True, but its payload ends at 5 of 6"),
        (changed(6, b"\x01", changed(24, b"\x06", LITERAL[:88])), "it is an empty chunk of a group"),
        (changed(12, b"\x02"), "it has one value, but announces 2 rows"),
    ],
)
def test_the_error_names_the_fault_of_a_message(message: bytes, fault: str) -> None:
    with pytest.raises(DataFormatError) as raised:
        decode(message)
    assert fault in str(raised.value)
    assert raised.value.remedy


def test_the_mark_of_a_checked_group_is_encoded_and_decoded() -> None:
    header = replace(LITERAL_HEADER, checked=True)
    assert decode(changed(68, b"\x01")) == DecodedChunk(header, memoryview(b"hello"))
    assert encode(header, b"hello") == changed(68, b"\x01")


def test_unknown_marks_and_padding_are_ignored() -> None:
    assert decode(changed(68, b"\xfe\x02\x03\x04")) == DecodedChunk(LITERAL_HEADER, memoryview(b"hello"))
    assert decode(changed(84, b"\xff\xff")) == DecodedChunk(LITERAL_HEADER, memoryview(b"hello"))


@pytest.mark.parametrize(
    ("message", "framed"),
    [
        (LITERAL, True),
        (changed(4, b"\x09"), True),
        (b"AsF1" + bytes(68), True),
        (b"AsF1" + bytes(67), False),
        (b"AsF1", False),
        (b"", False),
        (bytes(100), False),
        (pa.py_buffer(LITERAL), True),
        (memoryview(LITERAL), True),
    ],
)
def test_a_message_with_the_magic_and_the_size_of_a_header_is_framed(message: bytes, framed: bool) -> None:
    assert is_framed(message) is framed


def test_a_payload_is_a_view_and_can_be_any_buffer() -> None:
    message = bytearray(LITERAL)
    frame = decode(memoryview(message))
    message[-1] = ord("y")
    assert bytes(frame.payload) == b"helly"
    for payload in (b"hello", bytearray(b"hello"), memoryview(b"hello"), pa.py_buffer(b"hello")):
        assert encode(LITERAL_HEADER, payload) == LITERAL
    assert decode(pa.py_buffer(LITERAL)).header == LITERAL_HEADER


@pytest.mark.parametrize(
    ("first", "last", "whole"), [(True, True, True), (True, False, False), (False, True, False), (False, False, False)]
)
def test_a_chunk_is_a_whole_group_if_it_is_first_and_last(first: bool, last: bool, whole: bool) -> None:
    assert Header(Content.BYTES, 1, first=first, last=last).is_whole is whole


def test_a_writer_has_at_most_255_bytes() -> None:
    assert decode(encode(Header(Content.BYTES, 0, writer="é" * 127 + "x"), b"")).header.writer == "é" * 127 + "x"
    with pytest.raises(OptionError, match="has 256 bytes in UTF-8, and the limit is 255"):
        writer_bytes("é" * 128)
    assert writer_bytes("\ud800") == b"?"


@pytest.mark.parametrize(
    ("max_message_bytes", "writer", "limit"), [(73, "", 1), (1376, "", 1304), (1376, "w", 1296), (1376, "w" * 9, 1288)]
)
def test_the_limit_of_a_payload_is_the_message_size_minus_its_header(
    max_message_bytes: int, writer: str, limit: int
) -> None:
    assert payload_limit(max_message_bytes, writer) == limit
    assert len(encode(Header(Content.BYTES, limit, writer=writer), bytes(limit))) == max_message_bytes


def test_a_message_size_without_room_for_payload_is_an_error() -> None:
    with pytest.raises(OptionError, match="no room for payload, because the header has 72"):
        payload_limit(FIXED_BYTES)


@given(
    payload=st.binary(max_size=300),
    content=st.sampled_from(Content),
    rows=st.integers(0, 2**32 - 1),
    published_ns=st.integers(-(2**63), 2**63 - 1),
    batch=st.integers(-(2**63), 2**63 - 1),
    row=st.integers(-(2**63), 2**63 - 1),
    partition=st.integers(-(2**31), 2**31 - 1),
    writer=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
def test_any_group_of_one_message_can_be_encoded_and_decoded(
    payload: bytes, content: Content, rows: int, **fields: Any
) -> None:
    header = Header(content, len(payload), rows=1 if content is Content.BYTES else rows, **fields)
    message = encode(header, payload)
    assert decode(message) == DecodedChunk(header, memoryview(payload))
    assert (len(message) - len(payload)) % 8 == 0
    assert is_framed(message)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_format_error(message: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode(message)
    with pytest.raises(DataFormatError):
        decode(LITERAL[:5] + message)
