"""Checks the frames of a recording in a segment file, and the checksums of the messages that have one. Pure.

A frame has a header of 32 bytes, all numbers little-endian, and is aligned to 32 bytes:

    offset width name         checked against
    0      4     length       the frame is within its term, and not longer than the MTU
    4      1     version      0
    5      1     flags        BEGIN and END of messages follow each other; the others are 0
    6      2     type         data or padding
    8      4     term offset  the frame's place
    12     4     session      the publication that wrote it; frames of one are together
    16     4     stream id    the recording's
    20     4     term id      the frame's place
    24     8     reserved     -

The bytes after a frame up to its alignment are 0. Messages of the contents ``framed`` and ``arrow`` are chunks, whose
CRC-32 covers the whole message. Messages of content ``raw`` have no checksum: another byte in a value is not found.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aeron_spark.aeron.archive_catalog import signed_crc32c
from aeron_spark.aeron.recording import BEGIN, DATA, END, FRAME_HEADER_LENGTH, PADDING
from aeron_spark.transport.channel import FRAME_ALIGNMENT
from aeron_spark.wire.chunks import CRC_BEGIN, CRC_END, FIXED_BYTES

WORDS: Final = FRAME_ALIGNMENT // 4  # 32-bit numbers in the alignment
CHUNKS: Final = frozenset({"framed", "arrow"})  # contents whose messages are chunks
_OFFSETS: Final = np.arange(FRAME_ALIGNMENT)

Words = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]  # of frames, in bytes


@dataclass(frozen=True, slots=True)
class RecordingLayout:
    """The facts of a recording that its frames repeat. Lengths are in bytes."""

    initial_term_id: int
    term_length: int
    mtu: int
    stream_id: int
    content: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged range of a recording: readers lose the rows from ``position`` up to ``end``."""

    position: int
    end: int
    what: str


def check_term(data: memoryview, position: int, layout: RecordingLayout) -> Fault | None:
    """Check the frames of one term, or of its committed part; ``data`` begins at ``position``.

    Returns the first fault. Rows are lost from there up to the end of ``data``, because a wrong length hides the frames
    after it.
    """
    starts = _find_frames(data, position, layout)
    fault = _check_headers(data, position, layout, starts) or _check_end(data, starts)
    if fault is None and layout.content in CHUNKS:
        fault = _check_chunks(data, starts)
    if fault is None:
        return None
    offset, what = fault
    return Fault(position + offset, position + len(data), what)


def _check_end(data: memoryview, starts: Offsets) -> tuple[int, str] | None:
    """Return the offset and the text of a fault if the frames do not lead to the end of ``data``."""
    last = int(starts[-1]) if len(starts) else 0
    end = last + int(_aligned(np.int64(data.cast("i")[last // 4]))) if len(starts) else 0
    if end < len(data):
        return end, "no frame begins here"
    return (last, "the frame is longer than the committed rows") if end > len(data) else None


def _find_frames(data: memoryview, position: int, layout: RecordingLayout) -> Offsets:
    """Return the offsets of the frames, up to the first one whose length cannot be.

    Nearly always the headers that repeat their own place are the frames. Only if their lengths do not lead from one to
    the next, each length is followed in turn, which takes thirty times as long.
    """
    rows: Words = np.frombuffer(data, "<i4").reshape(-1, WORDS)
    places = np.arange(len(rows), dtype=np.int64) * FRAME_ALIGNMENT
    found = np.flatnonzero(
        (rows[:, 2] == places + position % layout.term_length)
        & (rows[:, 4] == layout.stream_id)
        & (rows[:, 5] == _signed(_term_id(position, layout)))
    )
    starts = found * FRAME_ALIGNMENT
    ends = starts + _aligned(rows[found, 0].astype(np.int64))
    if len(found) and starts[0] == 0 and ends[-1] == len(data) and (ends[:-1] == starts[1:]).all():
        return starts
    return _walk(data)


def _walk(data: memoryview) -> Offsets:
    words = data.cast("i")
    starts = []
    at, size = 0, len(words)
    while at < size:
        length = words[at]
        if length < FRAME_HEADER_LENGTH:
            break
        starts.append(at * 4)
        at += (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * WORDS
    return np.array(starts, np.int64)


def _check_headers(data: memoryview, position: int, layout: RecordingLayout, starts: Offsets) -> tuple[int, str] | None:
    """Return the offset and the text of the first wrong header, or None."""
    if not len(starts):
        return None
    rows: Words = np.frombuffer(data, "<i4").reshape(-1, WORDS)[starts // FRAME_ALIGNMENT]
    length, kinds, offset, session, stream, term = (rows[:, index] for index in range(6))
    flags, kind = kinds >> 8 & 0xFF, kinds >> 16 & 0xFFFF
    begins, ends = (flags & BEGIN) != 0, (flags & END) != 0
    first = position % layout.term_length
    is_data = kind == DATA
    checks: tuple[tuple[str, npt.NDArray[Any]], ...] = (
        ("its version is wrong", (kinds & 0xFF) != 0),
        ("its type is wrong", ~is_data & (kind != PADDING)),
        ("its flags are wrong", (flags & ~(BEGIN | END)) != 0),
        ("its term offset is wrong", offset != first + starts),
        ("it is of another term", term != _signed(_term_id(position, layout))),
        ("it is of another stream", stream != layout.stream_id),
        ("it is longer than the MTU", is_data & (length > layout.mtu)),
        ("it is a part of a message, and shorter than the MTU", is_data & ~ends & (length != layout.mtu)),
        ("a message is not complete before it", begins != np.concatenate(([True], ends[:-1]))),
        ("a message is not complete after it", np.arange(len(ends)) == (-1 if ends[-1] else len(ends) - 1)),
        ("its session is not that of the frames around it", _strange_sessions(session, data, starts)),
        ("the bytes after it are not zero", _has_bytes_after(data, starts, length, is_data)),
    )
    wrong = [(int(np.argmax(found)), what) for what, found in checks if found.any()]
    if not wrong:
        return None
    index, what = min(wrong, key=lambda one: one[0])
    return int(starts[index]), f"the header of the frame is damaged: {what}"


def _strange_sessions(session: Words, data: memoryview, starts: Offsets) -> npt.NDArray[np.bool_]:
    """Return which frames have another session than the frames before and after, which have the same one.

    An archive with the setting of a checksum writes it in place of the session: then the frame is right if it fits.
    """
    found = np.zeros(len(session), np.bool_)
    found[1:-1] = (session[1:-1] != session[:-2]) & (session[:-2] == session[2:])
    for index in np.flatnonzero(found).tolist():
        begin, end = int(starts[index]) + FRAME_HEADER_LENGTH, int(starts[index + 1])
        found[index] = int(session[index]) != signed_crc32c(data[begin:end])
    return found


def _has_bytes_after(
    data: memoryview, starts: Offsets, length: Words, is_data: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return after which data frames there are bytes other than 0 up to the alignment."""
    rest = length % FRAME_ALIGNMENT
    found = np.zeros(len(starts), np.bool_)
    chosen = np.flatnonzero(is_data & (rest != 0))
    last = (starts[chosen] + length[chosen]) // FRAME_ALIGNMENT
    chosen = chosen[last < len(data) // FRAME_ALIGNMENT]  # a frame that is too long is reported otherwise
    slots = np.frombuffer(data, np.uint8).reshape(-1, FRAME_ALIGNMENT)[last[: len(chosen)]]
    found[chosen] = ((slots != 0) & (rest[chosen, None] <= _OFFSETS)).any(axis=1)
    return found


def _check_chunks(data: memoryview, starts: Offsets) -> tuple[int, str] | None:
    """Return the offset and the text of the first message whose checksum is wrong, or None.

    Takes most of the time, so the loop does nothing that numpy can do for all frames at once.
    """
    rows: Words = np.frombuffer(data, "<i4").reshape(-1, WORDS)[starts // FRAME_ALIGNMENT]
    is_data = rows[:, 1] >> 16 & 0xFFFF == DATA
    rows, bodies = rows[is_data], starts[is_data] + FRAME_HEADER_LENGTH
    flags, ends = rows[:, 1] >> 8 & 0xFF, bodies + rows[:, 0] - FRAME_HEADER_LENGTH
    is_first = flags & BEGIN != 0
    short = is_first & (ends - bodies < FIXED_BYTES)
    if short.any():
        return int(bodies[np.argmax(short)]) - FRAME_HEADER_LENGTH, "the message is too short for a chunk"
    # the bytes before the checksum; few different ones. An empty end of a message has none
    heads = np.frombuffer(data, np.uint64)[np.where(is_first, bodies, 0) // 8]
    sums = np.frombuffer(data, "<u4")[(np.where(is_first, bodies, 0) + CRC_BEGIN) // 4]
    crc32, view, known = zlib.crc32, data, _Prefixes()
    begin = expected = value = 0
    frames = zip(
        bodies.tolist(),
        ends.tolist(),
        is_first.tolist(),
        (flags & END != 0).tolist(),
        heads.tolist(),
        sums.tolist(),
        strict=True,
    )
    for body, end, first, last, head, checksum in frames:
        if first:
            begin, expected = body, checksum
            value = crc32(view[body + CRC_END : end], known[head])
        else:
            value = crc32(view[body:end], value)
        if last and value != expected:
            return begin - FRAME_HEADER_LENGTH, "the checksum of the message is wrong"
    return None


class _Prefixes(dict[int, int]):
    """The CRC-32 of eight bytes, computed once for each value of them."""

    def __missing__(self, head: int) -> int:
        value = self[head] = zlib.crc32(head.to_bytes(CRC_BEGIN, sys.byteorder))
        return value


def _term_id(position: int, layout: RecordingLayout) -> int:
    return layout.initial_term_id + position // layout.term_length


def _signed(number: int) -> int:
    """Return the number as an int of Java, in which term ids wrap around."""
    return (number + 2**31) % 2**32 - 2**31


def _aligned(length: Any) -> Any:
    """Return the length of a frame, or of many, with the bytes up to the alignment."""
    return (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
