"""What is too large for one record, and files: the records, and the sending half, in bounded memory.

    START      i64 stream id, u8 purpose, u16 type id (MESSAGE: of the message; else 0), u64 total bytes,
               then a name in UTF-8 (FILE: the file's; else empty)
    DATA       i64 stream id, u64 offset, then the bytes, at least one
    FINISHED   i64 stream id, SHA-256 of all bytes
    FAILED     i64 stream id, u8 who gave up (0 the sender of the stream, 1 its receiver), then a text in UTF-8

Numbers are big-endian. The content of a MESSAGE is its body (``typed.Encoded``), that of a CALL, RETURN or OBJECT the
record's payload. Each direction of a connection has stream ids of its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from aeron_spark.endpoint.typed import Buffer
from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, SetupError

CHUNK_BYTES: Final = 64 * 1024  # of content in a DATA record: large against its head, small against a term
MAX_NAME_BYTES: Final = 1024
MAX_TEXT_BYTES: Final = 1000
DIGEST_BYTES: Final = hashlib.sha256().digest_size

START: Final = struct.Struct(
    ">"
    "q"  # stream id
    "B"  # purpose
    "H"  # type id
    "Q"  # total bytes
)
DATA: Final = struct.Struct(
    ">"
    "q"  # stream id
    "Q"  # offset
)
FINISHED: Final = struct.Struct(f">q{DIGEST_BYTES}s")
FAILED: Final = struct.Struct(
    ">"
    "q"  # stream id
    "B"  # who gave up
)


class Purpose(IntEnum):
    """What a stream's content is."""

    MESSAGE = 1
    FILE = 2
    CALL = 3
    RETURN = 4
    OBJECT = 5


class Kind(IntEnum):
    """Which of the four records."""

    START = 1
    DATA = 2
    FINISHED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Start:
    """The announcement of a stream. ``total`` is in bytes, and a claim until it has arrived."""

    stream_id: int
    purpose: Purpose
    total: int
    type_id: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The end of a stream that did not arrive. ``by_receiver``: it was ours, and the other side refused it."""

    stream_id: int
    by_receiver: bool
    text: str


Record = tuple[Kind, bytes]
Read = Callable[[int], Buffer]


def encode_start(start: Start) -> bytes:
    """Return a START record. Raises OptionError for a name that is too long or no text."""
    try:
        name = start.name.encode()
    except UnicodeEncodeError:
        raise OptionError(f"the name {start.name!r} is not UTF-8", remedy="Send the file under another name") from None
    if len(name) > MAX_NAME_BYTES:
        raise OptionError(f"a stream's name has {len(name)} bytes", remedy=f"Use at most {MAX_NAME_BYTES}")
    return START.pack(start.stream_id, start.purpose, start.type_id, start.total) + name


def decode_start(payload: Buffer) -> Start:
    """Read a START record. Raises DataFormatError."""
    if not START.size <= len(payload) <= START.size + MAX_NAME_BYTES:
        raise broken(f"its START has {len(payload)} bytes")
    stream_id, purpose, type_id, total = START.unpack_from(payload)
    try:
        return Start(stream_id, Purpose(purpose), total, type_id, str(memoryview(payload)[START.size :], "utf-8"))
    except UnicodeDecodeError:
        raise broken("its name is not UTF-8") from None
    except ValueError:
        raise broken(f"its purpose is {purpose}") from None


def encode_failed(stream_id: int, text: str, *, by_receiver: bool = False) -> bytes:
    """Return a FAILED record; a text that is too long is cut."""
    cut = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return FAILED.pack(stream_id, by_receiver) + cut


def decode_failed(payload: Buffer) -> GivenUp:
    """Read a FAILED record. Raises DataFormatError."""
    if not FAILED.size <= len(payload) <= FAILED.size + MAX_TEXT_BYTES or payload[FAILED.size - 1] > 1:
        raise broken(f"its FAILED of {len(payload)} bytes is not one")
    stream_id, by_receiver = FAILED.unpack_from(payload)
    return GivenUp(stream_id, bool(by_receiver), str(memoryview(payload)[FAILED.size :], "utf-8", "replace"))


def broken(why: str) -> DataFormatError:
    """The error for a stream that is not as it should be."""
    return DataFormatError(f"a stream cannot be received: {why}", remedy="Have it sent again, with the same release")


def send_buffer(start: Start, content: Buffer, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Record]:
    """Yield the records of a stream whose content is in memory; only one chunk of it is copied at a time.

    ``content`` must stay as it is until the last record was taken. Raises OptionError if its size is not ``total``.
    """
    view = memoryview(content).cast("B")
    if len(view) != start.total:
        raise OptionError(f"{start.total} bytes were announced, and {len(view)} are given", remedy="Announce the size")
    position = 0

    def read(count: int) -> Buffer:
        nonlocal position
        position += count
        return view[position - count : position]

    return send_from(start, read, chunk_bytes=chunk_bytes)


def send_from(start: Start, read: Read, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Record]:
    """Yield the records of a stream whose content comes from ``read(count)``, which gives ``count`` bytes or fewer.

    If it raises, or ends before ``total`` bytes, the last record is FAILED, and the next step raises SetupError; an
    error of this package is raised as it is. What ``read`` holds beyond ``total`` is not sent.
    """
    if chunk_bytes < 1:
        raise OptionError(f"chunks of {chunk_bytes} bytes were asked for", remedy="Give at least 1")
    yield Kind.START, encode_start(start)
    digest = hashlib.sha256()
    offset = 0
    while offset < start.total:
        try:
            chunk = _chunk(start, read, offset, min(chunk_bytes, start.total - offset))
        except Exception as error:
            yield Kind.FAILED, encode_failed(start.stream_id, "its content could not be read to the end")
            if isinstance(error, AeronSparkError):
                raise
            what = f"the content of {start.name or 'a stream'} could not be read: {error}"
            raise SetupError(what, remedy="Check the file, then send it again") from error
        digest.update(chunk)
        yield Kind.DATA, b"".join((DATA.pack(start.stream_id, offset), chunk))
        offset += len(chunk)
    yield Kind.FINISHED, FINISHED.pack(start.stream_id, digest.digest())


def _chunk(start: Start, read: Read, offset: int, count: int) -> Buffer:
    chunk = read(count)
    if 0 < len(chunk) <= count:
        return chunk
    raise SetupError(
        f"the content of {start.name or 'a stream'} gave {len(chunk)} bytes at {offset} of {start.total}",
        remedy="Send it again when nobody changes it meanwhile",
    )
