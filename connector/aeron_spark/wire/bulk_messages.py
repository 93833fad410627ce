"""The messages that carry the rows of reads and stages over a bulk link.

Each has a head and a payload. The bulk link encrypts messages, keeps their order, and does not acknowledge them.
All numbers are little-endian:

    offset width name      meaning
    0      4     request   the client's number of the read or stage; the receiver ignores messages of earlier requests
    4      1     kind      see BulkMessageKind
    5      3     reserved  0
    8      8     position  LOG: position of the first byte in the partition; END: end of the read; STAGE: bytes before
    16           payload   LOG, STAGE: bytes; FAILED: the error, encoded by errors.encode_error
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from aeron_spark.errors import DataFormatError

BULK_HEAD: Final = struct.Struct(
    "<"
    "I"  # request
    "B"  # kind
    "3x"
    "q"  # position
)
# Bytes before the payload of a message that ``BulkLink.send_from`` sends: the first byte of the frame, then the head.
PAYLOAD_OFFSET: Final = 1 + BULK_HEAD.size


class BulkMessageKind(IntEnum):
    """The kind of a message on a bulk link: LOG, END and FAILED from the server, STAGE from the client."""

    LOG = 1  # bytes of the log
    END = 2  # the read is complete
    FAILED = 3  # the read failed
    STAGE = 4  # bytes of a stage


class BulkMessage(NamedTuple):
    """A decoded message; ``payload`` is a view of the received bytes."""

    request: int
    kind: BulkMessageKind
    position: int
    payload: memoryview


def encode_bulk_head(request: int, kind: BulkMessageKind, position: int) -> bytes:
    """Encode the head of a message, to which the payload is appended."""
    return BULK_HEAD.pack(request & 0xFFFFFFFF, kind, position)


def message_memory(room: int) -> memoryview:
    """Return memory for a message on a bulk link that has room for so many bytes; the payload is at PAYLOAD_OFFSET."""
    return memoryview(bytearray(PAYLOAD_OFFSET + room - BULK_HEAD.size))


def write_bulk_head(memory: memoryview, request: int, kind: BulkMessageKind, position: int) -> None:
    """Write the head of a message into its memory, before the payload."""
    BULK_HEAD.pack_into(memory, PAYLOAD_OFFSET - BULK_HEAD.size, request & 0xFFFFFFFF, kind, position)


def decode_bulk_message(data: memoryview) -> BulkMessage:
    """Decode a message. Raises DataFormatError for bytes that are not a message."""
    if data.nbytes < BULK_HEAD.size:
        raise _not_a_message(f"it has {data.nbytes} bytes, expected at least {BULK_HEAD.size}")
    request, kind, position = BULK_HEAD.unpack_from(data)
    if kind not in set(BulkMessageKind) or position < 0:
        raise _not_a_message(f"it has kind {kind} and position {position}")
    return BulkMessage(request, BulkMessageKind(kind), position, data[BULK_HEAD.size :])


def _not_a_message(reason: str) -> DataFormatError:
    return DataFormatError(
        f"a message on a bulk link cannot be decoded: {reason}",
        remedy="Use the same release of aeron-spark in the client and the server.",
    )
