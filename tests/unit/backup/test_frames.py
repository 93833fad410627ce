"""The frames of a term: each rule of a header is checked, and healthy frames of all kinds have no fault."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import pytest

from aeron_spark.aeron.archive_catalog import signed_crc32c
from aeron_spark.backup.frames import Fault, RecordingLayout, check_term

TERM: Final = 1 << 16
POSITION: Final = 3 * TERM
LAYOUT: Final = RecordingLayout(initial_term_id=7, term_length=TERM, mtu=1408, stream_id=5, content="raw")
FRAME: Final = struct.Struct("<ibBHiiiiq")


def term(*bodies: bytes, sessions: tuple[int, ...] = (), is_padded: bool = False) -> bytearray:
    """Return frames of these bodies, each a message."""
    data = bytearray()
    for index, body in enumerate(bodies):
        session = sessions[index] if sessions else 77
        data += FRAME.pack(32 + len(body), 0, 0xC0, 1, len(data), session, 5, 10, 0) + body + bytes(-len(body) % 32)
    if is_padded:
        data += FRAME.pack(TERM - len(data), 0, 0xC0, 0, len(data), 77, 5, 10, 0)
        data += bytes(TERM - len(data))
    return data


def check(data: bytearray, layout: RecordingLayout = LAYOUT) -> Fault | None:
    return check_term(memoryview(data), POSITION, layout)


def test_healthy_frames_have_no_fault() -> None:
    assert check(term(b"", b"x" * 1376, b"y")) is None
    assert check(term(b"x", is_padded=True)) is None
    fragments = term(b"a" * 1376, b"b" * 1376, b"c")
    for at, flags in ((0, 0x80), (1408, 0), (2816, 0x40)):
        fragments[at + 5] = flags
    assert check(fragments) is None
    assert check(term(b"a", b"b", b"c", sessions=(1, 1, 2))) is None  # another publication went on


def test_a_body_that_looks_like_a_frame_of_its_place_is_not_one() -> None:
    body = FRAME.pack(4, 9, 9, 9, 32, 1, 5, 10, 0)
    assert check(term(body, b"x")) is None


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (32 * 2 + 4, 1, "version"), (32 * 2 + 5, 0xE0, "flags"), (32 * 2 + 5, 0x40, "not complete before"),
        (32 * 2 + 6, 2, "type"), (32 * 2 + 8, 9, "term offset"), (32 * 2 + 16, 6, "another stream"),
        (32 * 2 + 20, 11, "another term"), (32 * 2 + 12, 78, "session"), (32 * 3 + 5, 1, "not zero"),
        (32 * 4 + 5, 0x80, "shorter than the MTU"), (32 * 2, 31, "no frame begins here"),
    ],
)  # fmt: skip
def test_a_wrong_byte_is_found_at_its_frame(offset: int, value: int, what: str) -> None:
    data = term(b"a", b"b", b"c")
    data[offset] = value
    fault = check(data)
    assert what in fault.what
    assert fault.position == POSITION + offset // 64 * 64
    assert fault.end == POSITION + len(data)


def test_a_message_without_its_end_is_found() -> None:
    data = term(b"a", b"b" * 1376)
    data[64 + 5] = 0x80
    fault = check(data)
    assert (fault.position, "not complete after" in fault.what) == (POSITION + 64, True)


def test_an_empty_end_of_a_message_at_the_end_of_the_rows_is_checked() -> None:
    body = bytearray(range(256)) * 8
    body[8:12] = zlib.crc32(body[12:1376], zlib.crc32(body[:8])).to_bytes(4, "little")
    data = term(bytes(body[:1376]), b"")
    data[5], data[1408 + 5] = 0x80, 0x40
    assert check(data, RecordingLayout(7, TERM, 1408, 5, "framed")) is None


@pytest.mark.parametrize("length", [1409, TERM])
def test_a_frame_that_is_too_long_is_found(length: int) -> None:
    data = term(b"a", b"b" * 2_000)
    data[64:68] = length.to_bytes(4, "little")
    fault = check(data)
    assert fault.position == POSITION + 64


def test_the_checksum_of_a_chunk_is_checked_also_over_several_frames() -> None:
    body = bytearray(range(256)) * 8
    body[8:12] = zlib.crc32(body[12:], zlib.crc32(body[:8])).to_bytes(4, "little")
    data = term(bytes(body[:1376]), bytes(body[1376:]), b"x" * 40)
    data[5], data[1408 + 5] = 0x80, 0x40
    layout = RecordingLayout(7, TERM, 1408, 5, "framed")
    assert check(data[: 1408 + 704], layout) is None
    fault = check(data, layout)
    assert (fault.position, fault.what) == (POSITION + 1408 + 704, "the message is too short for a chunk")
    data[2_000] ^= 1
    fault = check(data[: 1408 + 704], layout)
    assert (fault.position, fault.what) == (POSITION, "the checksum of the message is wrong")


def test_the_checksums_that_an_archive_wrote_in_place_of_sessions_are_no_fault() -> None:
    bodies = (b"a" * 32, b"b" * 32, b"a" * 32)
    sums = tuple(signed_crc32c(body) for body in bodies)
    assert check(term(*bodies, sessions=sums)) is None
    fault = check(term(*bodies, sessions=(sums[0], sums[1] ^ 1, sums[2])))
    assert "session" in fault.what
