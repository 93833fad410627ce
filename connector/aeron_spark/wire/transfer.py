"""What goes over a branch for streams: pieces of a recording's log to a reader, pieces of a stage from a writer.

All numbers are little-endian.

    offset width name      meaning
    0      4     request   the number its asker gave it; others are left over from before, and ignored
    4      1     kind      see BulkMessageKind
    5      3     reserved  0
    8      8     position  LOG: stream position of the first byte; END: where it ended; STAGE: bytes staged before
    16           payload   LOG, STAGE: bytes; FAILED: what errors.encode_error gives
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from aeron_spark.errors import DataFormatError

HEAD: Final = struct.Struct(
    "<"
    "I"  # request
    "B"  # kind
    "3x"
    "q"  # position
)


class BulkMessageKind(IntEnum):
    """What a piece is."""

    LOG = 1
    END = 2
    FAILED = 3
    STAGE = 4


class BulkMessage(NamedTuple):
    """One of them; ``payload`` is a view of the message it came in."""

    request: int
    kind: BulkMessageKind
    position: int
    payload: memoryview


def encode_head(request: int, kind: BulkMessageKind, position: int) -> bytes:
    """Encode everything before the payload."""
    return HEAD.pack(request & 0xFFFFFFFF, kind, position)


def decode(message: memoryview) -> BulkMessage:
    """Decode a piece. Raises DataFormatError for what is none."""
    if message.nbytes < HEAD.size:
        raise _broken(f"{message.nbytes} bytes are fewer than its head has")
    request, kind, position = HEAD.unpack_from(message)
    if kind not in set(BulkMessageKind) or position < 0:
        raise _broken(f"its kind is {kind}, its position {position}")
    return BulkMessage(request, BulkMessageKind(kind), position, message[HEAD.size :])


def _broken(why: str) -> DataFormatError:
    return DataFormatError(f"a piece of a transfer is not right: {why}", remedy="Use the same release at both ends")
