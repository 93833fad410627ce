"""Marks: a checksum of the bytes before a query's position, to detect a recording that was truncated and extended.

After an extension beyond the query's position, neither the recording's end nor the catalog shows the truncation: the
bytes before the position do. A mark is of at least the last frame. It is the same if another publication wrote equal
messages: the files of an archive with checksums have no Aeron session ids. Bytes that were purged, or are not in files
of this machine, cannot be compared. Pure, given the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from aeron_spark.log.api import FRAME_ALIGNMENT, Mark, RecordedBytes, RecordingState
from aeron_spark.log.packing import ByteReader, pack_values, unpack_values, varint

_CHECKSUM_BYTES: Final = 4


def mark_before(log: RecordedBytes, state: RecordingState, position: int) -> Mark | None:
    """Return the mark of a position; None if the recording has no bytes before it, or its bytes cannot be read."""
    begin = max(state.start, position - state.mtu, _term_before(state, position))
    length = position - begin
    if length <= 0 or length % FRAME_ALIGNMENT:
        return None
    data = log.recorded_bytes(state.key, begin, length)
    return None if data is None else Mark(length, zlib.crc32(data))


def is_rewritten(log: RecordedBytes, state: RecordingState, position: int, mark: Mark | None) -> bool:
    """Whether the recording has other bytes before ``position`` than when the mark was made, as far as is known."""
    if mark is None or position - mark.length < state.start or position > state.end:
        return False
    data = log.recorded_bytes(state.key, position - mark.length, mark.length)
    return data is not None and zlib.crc32(data) != mark.checksum


def _term_before(state: RecordingState, position: int) -> int:
    """Return the begin of the term with the byte before ``position``."""
    return (position - 1) // state.term_length * state.term_length


def pack_marks(marks: Mapping[str, Mark]) -> str:
    """Return marks by recording as a text; equal marks have the same text."""
    return pack_values(marks, _encode)


def unpack_marks(text: str) -> dict[str, Mark]:
    """Return the marks of a text of ``pack_marks``. Raises ValueError for other texts."""
    return unpack_values(text, _decode, _encode)


def _encode(mark: Mark) -> bytes:
    return varint(mark.length // FRAME_ALIGNMENT) + mark.checksum.to_bytes(_CHECKSUM_BYTES, "big")


def _decode(reader: ByteReader) -> Mark:
    return Mark(reader.length(), int.from_bytes(reader.bytes(_CHECKSUM_BYTES), "big"))
