"""One chunk on the wire: one Aeron message. docs/wire-format.md is normative; this file is version 1 of it.

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
                                 with no other message between
    24     8     total           payload bytes of the whole group
    32     8     offset          where this chunk's payload lies in the group's
    40     8     published       ns since 1970, UTC
    48     8     batch           the writer's batch or transaction; -1 none
    56     8     row             index of the group's first row within its batch and partition
    64     4     partition       -1 none
    68     4     reserved        0, ignored by readers
    72           writer          the id, then zeros up to the payload, which begins at a multiple of 8

The CRC covers every byte of the message but its own four, so that a flipped bit shows wherever it is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError

Payload = bytes | bytearray | memoryview | pa.Buffer
Crc32 = Callable[[Payload, int], int]  # of a payload, continued from what comes before it

MAGIC: Final = b"AsF1"
VERSION: Final = 1
FIRST: Final = 1  # bit 0 of the flags
LAST: Final = 2  # bit 1 of the flags
NOT_CONTINUED: Final = -1  # group_position of a FIRST chunk
MAX_WRITER_BYTES: Final = 255  # the length has one byte
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
    "I"  # reserved
)
FIXED_BYTES: Final = LAYOUT.size


class Content(IntEnum):
    """What a group holds."""

    BYTES = 1
    ARROW = 2


@dataclass(frozen=True, slots=True)
class Header:
    """What a chunk says about itself and its group; names and units as in the table above."""

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

    @property
    def whole(self) -> bool:
        """Whether this chunk is its whole group."""
        return self.first and self.last


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded chunk; ``payload`` is a view of the message it was decoded from."""

    header: Header
    payload: memoryview


def writer_bytes(writer: str) -> bytes:
    """The writer's id as it stands in a message. Raises OptionError if it is longer than its length can say."""
    data = writer.encode("utf-8", "replace")
    if len(data) > MAX_WRITER_BYTES:
        raise OptionError(
            f"the writer's id {writer[:40]!r}... has {len(data)} bytes of UTF-8, more than {MAX_WRITER_BYTES}",
            remedy="Choose a shorter writerId",
        )
    return data


def header_bytes(writer_length: int) -> int:
    """Where the payload begins, after a writer's id of ``writer_length`` bytes."""
    return FIXED_BYTES + (writer_length + 7) // 8 * 8


def payload_limit(max_message_bytes: int, writer: str = "") -> int:
    """The most payload a message of ``max_message_bytes`` carries. Raises OptionError if that is none."""
    needed = header_bytes(len(writer_bytes(writer)))
    if max_message_bytes <= needed:
        raise OptionError(
            f"messages of at most {max_message_bytes} bytes have no room for payload beside the wire format's header of"
            f" {needed}",
            remedy="Raise maxMessageBytes, or the channel's term-length (a message is at most an eighth of it)",
        )
    return max_message_bytes - needed


def encode_header(header: Header, payload: Payload, crc32: Crc32 = zlib.crc32) -> bytes:
    """Encode everything before the payload, which follows it on the wire as it is.

    The payload is only read, for the checksum, so that it can be published from where it lies. ``crc32`` computes it:
    zlib's function, or a faster one that gives the same.
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
        0,
    )
    rest = head[CRC_END:] + writer.ljust(header_bytes(len(writer)) - FIXED_BYTES, b"\0")
    crc = crc32(payload, zlib.crc32(rest, zlib.crc32(head[:CRC_BEGIN])))
    return head[:CRC_BEGIN] + crc.to_bytes(4, "little") + rest


def encode(header: Header, payload: Payload) -> bytes:
    """Encode one whole message. Copies the payload once; ``encode_header`` does not copy it at all."""
    return b"".join((encode_header(header, payload), payload))


def is_framed(message: Payload) -> bool:
    """Whether a message says that it is in this format, of whatever version, so that ``decode`` should judge it."""
    return len(message) >= FIXED_BYTES and bytes(memoryview(message)[:4]) == MAGIC


def decode(message: Payload) -> Frame:
    """Decode and check one message. Raises DataFormatError that names what is wrong with it."""
    view = memoryview(message).cast("B")
    if len(view) < FIXED_BYTES:
        raise _broken(f"it has {len(view)} bytes, fewer than the {FIXED_BYTES} of a header")
    (magic, version, content, flags, writer_length, crc, rows, group_position, total, offset, published, batch, row,
     partition, _) = LAYOUT.unpack_from(view)  # fmt: skip
    check_prefix(magic, version)
    begin = header_bytes(writer_length)
    if len(view) < begin:
        raise _broken(f"it has {len(view)} bytes, fewer than the {begin} of its header with its writer's id")
    computed = zlib.crc32(view[CRC_END:], zlib.crc32(view[:CRC_BEGIN]))
    if computed != crc:
        raise _broken(f"its checksum is {crc:#010x}, that of its bytes {computed:#010x}: it was changed on its way")
    frame = Frame(
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
        ),
        view[begin:],
    )
    if flags & ~(FIRST | LAST):
        raise _broken(f"it has the flags {flags:#04x}, of which version {VERSION} knows only {FIRST | LAST:#04x}")
    _check_place(frame)
    return frame


def check_prefix(magic: bytes, version: int) -> None:
    """Raise DataFormatError unless a message with this beginning is one of this format and version."""
    if magic != MAGIC:
        raise _broken(f"it begins with {bytes(magic)!r}, not with {MAGIC!r}", remedy="Read the stream with payload=raw")
    if version != VERSION:
        raise _broken(
            f"it has the version {version}, this reader knows {VERSION}",
            remedy="Read it with the release of aeron-spark that wrote it, or a newer one",
        )


def _check_place(frame: Frame) -> None:
    header, length = frame.header, len(frame.payload)
    if header.first != (header.offset == 0) or header.first != (header.group_position == NOT_CONTINUED):
        raise _broken(
            f"its FIRST flag is {header.first}, but its offset {header.offset} and its group's position"
            f" {header.group_position}"
        )
    if header.group_position < NOT_CONTINUED:
        raise _broken(f"its group's position is {header.group_position}")
    end = header.offset + length
    if end > header.total or header.last != (end == header.total):
        raise _broken(
            f"its LAST flag is {header.last}, but its payload ends at {end} of {header.total} bytes of its group"
        )
    if not length and not header.whole:
        raise _broken("it is one of several chunks, and empty")
    if header.content is Content.BYTES and header.rows != 1:
        raise _broken(f"it holds one value, but says {header.rows} rows")


def _content(code: int) -> Content:
    try:
        return Content(code)
    except ValueError:
        raise _broken(f"its content is {code}, neither 1 (bytes) nor 2 (arrow)") from None


def _writer(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise _broken("its writer's id is not UTF-8") from None


def _broken(
    why: str, *, remedy: str = "Somebody else may publish to this stream; give each its own"
) -> DataFormatError:
    return DataFormatError(f"a message is not in aeron-spark's wire format: {why}", remedy=remedy)
