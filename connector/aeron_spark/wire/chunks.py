"""Encodes, decodes, splits and reassembles chunks: a chunk is one Aeron message, a group of chunks one payload.

All numbers are little-endian.

    offset width name            meaning
    0      4     magic           b"AsF1"
    4      1     version         1
    5      1     content         1 bytes: a group is one value; 2 arrow: a group is one Arrow IPC stream
    6      1     flags           bit 0 FIRST chunk of its group, bit 1 LAST chunk; the others 0
    7      1     writer_length   bytes of the writer's id in UTF-8
    8      4     crc             CRC-32 (zlib's) of bytes 0..7, continued over bytes 12..end of the message
    12     4     rows            rows of the whole group; 1 for bytes
    16     8     group_position  -1 in the FIRST chunk; else a stream position at or before the group's first chunk,
                                 without another message between them
    24     8     total           payload bytes of the whole group
    32     8     offset          position of this chunk's payload in the group's payload
    40     8     published       ns since 1970, UTC
    48     8     batch           the writer's batch or transaction; -1: none
    56     8     row             index of the group's first row within its batch and partition
    64     4     partition       -1: none
    68     4     marks           bit 0 CHECKED: a server has checked all values of an arrow group before it published
                                 the group; the others 0, ignored by readers
    72           writer          the id, then zeros up to the payload, which begins at a multiple of 8

The CRC covers every byte of the message except its own four, so any flipped bit is detected.

The chunks of a group are consecutive on one exclusive publication, so a reader has at most one unfinished group of each
recording. docs/wire-format.md, "Groups", has the rules.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError

Payload = bytes | bytearray | memoryview | pa.Buffer
Crc32 = Callable[[Payload, int], int]  # of a payload, continued from the CRC of the bytes before it

MAGIC: Final = b"AsF1"
VERSION: Final = 1
FIRST: Final = 1  # bit 0 of the flags
LAST: Final = 2  # bit 1 of the flags
CHECKED: Final = 1  # bit 0 of the marks
NOT_CONTINUED: Final = -1  # group_position of a FIRST chunk
MAX_WRITER_BYTES: Final = 255  # the length has one byte
CONTENT_AT: Final = 5  # offset of the byte with the content
MARKS_AT: Final = 68  # offset of the byte with the known marks
CRC_BEGIN: Final = 8
CRC_END: Final = 12

LAYOUT: Final = struct.Struct(
    "<"
    "4s"  # magic
    "B"  # version
    "B"  # content
    "B"  # flags
    "B"  # writer_length
    "I"  # crc
    "I"  # rows
    "q"  # group_position
    "Q"  # total
    "Q"  # offset
    "q"  # published
    "q"  # batch
    "q"  # row
    "i"  # partition
    "I"  # marks
)
FIXED_BYTES: Final = LAYOUT.size


class Content(IntEnum):
    """The kind of a group's payload."""

    BYTES = 1
    ARROW = 2


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a chunk. Names and units are those of the table above."""

    content: Content
    total: int
    rows: int = 1
    offset: int = 0
    group_position: int = NOT_CONTINUED
    published_ns: int = 0
    batch: int = -1
    row: int = 0
    partition: int = -1
    writer: str = ""
    first: bool = True
    last: bool = True
    checked: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether this chunk is a complete group."""
        return self.first and self.last


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """A decoded chunk; ``payload`` is a view of the message it was decoded from."""

    header: Header
    payload: memoryview


def writer_bytes(writer: str) -> bytes:
    """Return the encoded writer id. Raises OptionError if it is longer than MAX_WRITER_BYTES."""
    data = writer.encode("utf-8", "replace")
    if len(data) > MAX_WRITER_BYTES:
        raise OptionError(
            f"the writer id {writer[:40]!r}... has {len(data)} bytes in UTF-8, and the limit is {MAX_WRITER_BYTES}",
            remedy="Choose a shorter writerId.",
        )
    return data


def header_bytes(writer_length: int) -> int:
    """Return the offset of the payload, after a writer id of ``writer_length`` bytes."""
    return FIXED_BYTES + (writer_length + 7) // 8 * 8


def payload_limit(max_message_bytes: int, writer: str = "") -> int:
    """Return the maximum payload of a message of ``max_message_bytes``. Raises OptionError if there is no room."""
    needed = header_bytes(len(writer_bytes(writer)))
    if max_message_bytes <= needed:
        raise OptionError(
            f"messages of at most {max_message_bytes} bytes have no room for payload, because the header has {needed}"
            " bytes",
            remedy="Raise maxMessageBytes, or the channel's term-length, of which a message is at most an eighth.",
        )
    return max_message_bytes - needed


def encode_header(header: Header, payload: Payload, crc32: Crc32 = zlib.crc32) -> bytes:
    """Encode the header, which precedes the unchanged payload in a message.

    Reads the payload for the checksum, and does not copy it. ``crc32`` is zlib's function, or a faster equivalent.
    """
    writer = writer_bytes(header.writer)
    head = LAYOUT.pack(
        MAGIC,
        VERSION,
        header.content,
        FIRST * header.first | LAST * header.last,
        len(writer),
        0,
        header.rows,
        header.group_position,
        header.total,
        header.offset,
        header.published_ns,
        header.batch,
        header.row,
        header.partition,
        CHECKED * header.checked,
    )
    tail = head[CRC_END:] + writer.ljust(header_bytes(len(writer)) - FIXED_BYTES, b"\0")
    crc = crc32(payload, zlib.crc32(tail, zlib.crc32(head[:CRC_BEGIN])))
    return head[:CRC_BEGIN] + crc.to_bytes(4, "little") + tail


def encode(header: Header, payload: Payload) -> bytes:
    """Encode one complete message. Copies the payload; ``encode_header`` does not."""
    return b"".join((encode_header(header, payload), payload))


def is_framed(message: Payload) -> bool:
    """Whether a message begins like one of any version of this format, so that ``decode`` should check it."""
    return len(message) >= FIXED_BYTES and bytes(memoryview(message)[:4]) == MAGIC


def decode(message: Payload) -> DecodedChunk:
    """Decode and check one message. Raises DataFormatError that names the fault."""
    view = memoryview(message).cast("B")
    if len(view) < FIXED_BYTES:
        raise _format_error(f"it has {len(view)} bytes, expected at least {FIXED_BYTES}")
    (magic, version, content, flags, writer_length, crc, rows, group_position, total, offset, published, batch, row,
     partition, marks) = LAYOUT.unpack_from(view)  # fmt: skip
    check_prefix(magic, version)
    begin = header_bytes(writer_length)
    if len(view) < begin:
        raise _format_error(f"it has {len(view)} bytes, expected at least {begin} for the header and the writer id")
    computed = zlib.crc32(view[CRC_END:], zlib.crc32(view[:CRC_BEGIN]))
    if computed != crc:
        raise _format_error(
            f"its checksum is {crc:#010x}, computed is {computed:#010x}: it was altered after the writer encoded it"
        )
    frame = DecodedChunk(
        Header(
            content=_content(content),
            total=total,
            rows=rows,
            offset=offset,
            group_position=group_position,
            published_ns=published,
            batch=batch,
            row=row,
            partition=partition,
            writer=_writer(view[FIXED_BYTES : FIXED_BYTES + writer_length]),
            first=bool(flags & FIRST),
            last=bool(flags & LAST),
            checked=bool(marks & CHECKED),
        ),
        view[begin:],
    )
    if flags & ~(FIRST | LAST):
        raise _format_error(f"it has the flags {flags:#04x}, and version {VERSION} knows only {FIRST | LAST:#04x}")
    _check_position(frame)
    return frame


def check_prefix(magic: bytes, version: int) -> None:
    """Raise DataFormatError unless these are the magic and the version of this format."""
    if magic != MAGIC:
        raise _format_error(
            f"it begins with {bytes(magic)!r}, expected {MAGIC!r}", remedy="Read the stream with payload=raw."
        )
    if version != VERSION:
        raise _format_error(
            f"it has the version {version}, expected {VERSION}",
            remedy="Read it with the release of aeron-spark that wrote it, or a newer one.",
        )


def _check_position(frame: DecodedChunk) -> None:
    header, length = frame.header, len(frame.payload)
    if header.first != (header.offset == 0) or header.first != (header.group_position == NOT_CONTINUED):
        raise _format_error(
            f"its FIRST flag is {header.first}, but its offset is {header.offset} and its group position"
            f" {header.group_position}"
        )
    if header.group_position < NOT_CONTINUED:
        raise _format_error(f"its group position is {header.group_position}")
    end = header.offset + length
    if end > header.total or header.last != (end == header.total):
        raise _format_error(
            f"its LAST flag is {header.last}, but its payload ends at {end} of {header.total} bytes of its group"
        )
    if not length and not header.is_whole:
        raise _format_error("it is an empty chunk of a group with several chunks")
    if header.content is Content.BYTES and header.rows != 1:
        raise _format_error(f"it has one value, but announces {header.rows} rows")


def _content(code: int) -> Content:
    try:
        return Content(code)
    except ValueError:
        raise _format_error(f"its content is {code}, expected 1 (bytes) or 2 (arrow)") from None


def _writer(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise _format_error("its writer id is not UTF-8") from None


def _format_error(
    reason: str, *, remedy: str = "Check whether another program publishes to this stream, and use separate streams."
) -> DataFormatError:
    return DataFormatError(f"a message is not in aeron-spark's wire format: {reason}", remedy=remedy)


_REMEDY: Final = "Check whether another program publishes to this stream with the same Aeron session id."


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to publish as one message, which consists of ``encode_header(...)`` and ``payload``."""

    header: Header
    payload: pa.Buffer

    def encode_header(self, group_position: int, crc32: Crc32 = zlib.crc32) -> bytes:
        """Return the encoded header.

        ``group_position`` is the position of the publication just before the offer of the group's first chunk. The
        first chunk ignores it. ``crc32`` is that of ``chunk.encode_header``.
        """
        if self.header.first:
            return encode_header(self.header, self.payload, crc32)
        return encode_header(replace(self.header, group_position=group_position), self.payload, crc32)


def split(
    payload: Payload | Sequence[pa.Buffer], header: Header, *, max_message_bytes: int, checked: bool = False
) -> Iterator[Chunk]:
    """Split a group's payload into chunks whose messages have at most ``max_message_bytes``.

    Copies only a chunk that spans two buffers of the payload. ``header`` describes the group; this function sets its
    total, offset, group_position, first, last and ``checked``. An empty payload is one chunk. A publisher that begins a
    new publication within a group must publish the group again from its first chunk, because a group cannot continue in
    another recording. Raises OptionError if a message has no room for payload.
    """
    limit = payload_limit(max_message_bytes, header.writer)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        payload = pa.py_buffer(payload)
    return _chunks(_JoinedBuffers([payload] if isinstance(payload, pa.Buffer) else payload), header, limit, checked)


class _JoinedBuffers:
    """Several buffers that are used like their concatenation."""

    def __init__(self, buffers: Sequence[pa.Buffer]) -> None:
        self._buffers = [buffer for buffer in buffers if buffer.size]
        self._ends = list(accumulate(buffer.size for buffer in self._buffers))
        self.size = self._ends[-1] if self._ends else 0

    def slice(self, offset: int, length: int) -> pa.Buffer:
        """Return a part: a view if it is within one buffer, else a copy."""
        parts = []
        index, end = bisect_right(self._ends, offset), offset + length
        while offset < end:
            begin = self._ends[index] - self._buffers[index].size
            part_end = min(end, self._ends[index])
            parts.append(self._buffers[index].slice(offset - begin, part_end - offset))
            offset, index = part_end, index + 1
        return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))


def _chunks(payload: _JoinedBuffers, header: Header, limit: int, checked: bool) -> Iterator[Chunk]:
    for offset in range(0, max(1, payload.size), limit):
        part = payload.slice(offset, min(limit, payload.size - offset))
        yield Chunk(
            replace(
                header,
                total=payload.size,
                offset=offset,
                group_position=NOT_CONTINUED,
                first=offset == 0,
                last=offset + part.size == payload.size,
                checked=checked,
            ),
            part,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A complete group: the header and the position of its first chunk, and its payload."""

    header: Header
    position: int
    payload: pa.Buffer


class Reassembler:
    """Reassembles the groups of one recording, which is read from the position ``start``.

    The caller feeds every message in order. Keeps at most one unfinished group, and allocates memory only for received
    bytes, whatever size a header announces. ``discarded`` counts groups that a new group interrupted, ``skipped``
    chunks of a group that began before ``start``.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.discarded = 0
        self.skipped = 0
        self._first: Header | None = None
        self._position = 0
        self._data = bytearray()

    @property
    def unfinished(self) -> int | None:
        """Position of the unfinished group, or None. A reader that stops now must start there next time."""
        return None if self._first is None else self._position

    def feed(self, frame: DecodedChunk, position: int) -> Group | None:
        """Process the message at ``position``. Returns its group if the group is now complete.

        A group of one chunk is a view of the message. Raises DataFormatError, and changes no state, if the chunk
        neither begins a group nor continues the unfinished one.
        """
        header = frame.header
        if header.first:
            self.interrupt()
            if header.last:
                return Group(header, position, pa.py_buffer(frame.payload))
            self._first, self._position, self._data = header, position, bytearray(frame.payload)
            return None
        first = self._first
        if first is None:
            self._skip(header, position)
            return None
        self._check_continues(first, header, position)
        self._data += frame.payload
        if not header.last:
            return None
        group = Group(first, self._position, pa.py_buffer(self._data))
        self._reset()
        return group

    def interrupt(self) -> None:
        """Discard and count the unfinished group. Its writer died or abandoned it."""
        if self._first is not None:
            self.discarded += 1
            self._reset()

    def _reset(self) -> None:
        # A new bytearray, not clear(), because the complete group uses the memory of the old one.
        self._first, self._data = None, bytearray()

    def _skip(self, header: Header, position: int) -> None:
        if header.group_position >= self.start:
            raise DataFormatError(
                f"the chunk at position {position} continues a group that began at or after position"
                f" {header.group_position}, but its first chunk is missing, although reading began at {self.start}",
                remedy=_REMEDY,
            )
        self.skipped += 1

    def _check_continues(self, first: Header, header: Header, position: int) -> None:
        differences = [
            f"{name} is {actual!r}, expected {expected!r}"
            for name, actual, expected in (
                ("offset", header.offset, len(self._data)),
                ("total", header.total, first.total),
                ("content", header.content.name, first.content.name),
                ("rows", header.rows, first.rows),
                ("published", header.published_ns, first.published_ns),
                ("writer", header.writer, first.writer),
                ("batch", header.batch, first.batch),
                ("partition", header.partition, first.partition),
                ("row", header.row, first.row),
            )
            if actual != expected
        ]
        if header.group_position > self._position:
            differences.append(f"group position is {header.group_position}, after {self._position}")
        if differences:
            raise DataFormatError(
                f"the chunk at position {position} does not continue the group that began at {self._position}:"
                f" its {', its '.join(differences)}",
                remedy=_REMEDY,
            )
