"""Encodes and decodes the plaintext of a frame: a head, then records. docs/endpoint-link.md is normative.

All numbers are big-endian.

    frame   offset width name      meaning
            0      8     ack       the sender has received every sequenced record below this number
            8      8     first     sequence number of the first sequenced record of the frame; later ones count up
            16           records   at least one, up to the end of the frame

    record  0      1     kind      see RecordKind; below 64: sequenced
            1      1     flags     depend on the kind; 0 if it has none
            2      4     length    of the payload
            6            payload

    batch   0      1     kind      BATCH; contains `count` records of one kind, each with its own sequence number
            1      1     flags     of each of them
            2      4     length    of the rest
            6      1     each      their kind: sequenced, and not BATCH
            7      3               zero
            10     4     count     at least 1
            14     4n    lengths   of each payload
            14+4n        payloads

A batch is the fast form of many small records: all lengths are packed and unpacked in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from aeron_spark.errors import AeronSparkError, DataFormatError, decode_error, encode_error

Buffer = bytes | bytearray | memoryview
Record = tuple[int, int, memoryview]  # kind, flags, payload: a view of the received frame
OutgoingRecord = tuple[int, int, Buffer]  # kind, flags, payload; a memoryview has format "B"

FRAME_HEAD: Final = struct.Struct(
    ">"
    "Q"  # ack
    "Q"  # first
)
RECORD_HEAD: Final = struct.Struct(
    ">"
    "B"  # kind
    "B"  # flags
    "I"  # length
)
BATCH_HEAD: Final = struct.Struct(
    ">"
    "B"  # each
    "3s"  # zero
    "I"  # count
)
LENGTH_BYTES: Final = 4  # of one entry in a batch's table of lengths
MIN_BATCH_RECORDS: Final = 8  # from this number of records on, a batch is never longer than its single records
MAX_RECORDS: Final = 16_384  # of a frame; a record can need 4 bytes in the frame, and 250 bytes when decoded
NUMBER_BYTES: Final = 8  # of a ping, and of a message whose delivery is confirmed
_KEEP_SESSION: Final = b"\x01"  # first byte of CLOSE
_CLOSE_ALL: Final = b"\x00"
_ZERO: Final = bytes(3)


class RecordKind(IntEnum):
    """The kind of a record. Sequenced records are kept until they are acknowledged, and sent again after a resume."""

    MESSAGE = 1
    MESSAGE_ACK_WANTED = 2
    DELIVERED = 3
    CALL = 4
    RETURN = 5
    OBJECT = 6
    TRANSFER_START = 7
    TRANSFER_DATA = 8
    TRANSFER_FINISHED = 9
    TRANSFER_FAILED = 10
    REFUSED = 11
    BATCH = 12
    OPEN = 64
    ACK = 65
    PING = 66
    PONG = 67
    CLOSE = 68


FIRST_UNSEQUENCED: Final = 64
RECORD_KINDS: Final = frozenset(int(kind) for kind in RecordKind) - {
    int(RecordKind.BATCH)
}  # kinds of records outside a batch
_BATCH: Final = int(RecordKind.BATCH)


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame. ``sequenced`` is the number of its sequenced records."""

    ack: int
    first: int
    records: list[Record]
    sequenced: int


def is_sequenced(kind: int) -> bool:
    """Whether records of this kind are numbered, and arrive once and in order over successive links."""
    return kind < FIRST_UNSEQUENCED


def encode(ack: int, first: int, records: Iterable[OutgoingRecord]) -> list[Buffer]:
    """Return the buffers whose concatenation is the frame. Does not copy payloads.

    The caller passes 1 to MAX_RECORDS records. The frame's length is at most FRAME_HEAD.size plus, for each record,
    RECORD_HEAD.size and its payload.
    """
    buffers: list[Buffer] = [FRAME_HEAD.pack(ack, first)]
    for (kind, flags), group in groupby(records, itemgetter(0, 1)):
        payloads = [payload for _, _, payload in group]
        if len(payloads) < MIN_BATCH_RECORDS or not is_sequenced(kind):
            for payload in payloads:
                buffers.append(RECORD_HEAD.pack(kind, flags, len(payload)))
                buffers.append(payload)
        else:
            buffers += _batch_heads(kind, flags, payloads)
            buffers += payloads
    return buffers


def _batch_heads(kind: int, flags: int, payloads: Sequence[Buffer]) -> tuple[bytes, bytes, bytes]:
    count = len(payloads)
    lengths = [*map(len, payloads)]
    length = BATCH_HEAD.size + LENGTH_BYTES * count + sum(lengths)
    return (
        RECORD_HEAD.pack(_BATCH, flags, length),
        BATCH_HEAD.pack(kind, _ZERO, count),
        struct.pack(f">{count}I", *lengths),
    )


def decode(plaintext: Buffer) -> Frame:
    """Decode one frame. The payloads are views of ``plaintext``. Raises DataFormatError with the fault's offset."""
    view = memoryview(plaintext)
    end = len(view)
    if end < FRAME_HEAD.size:
        raise _format_error(0, f"the frame has {end} bytes, expected at least {FRAME_HEAD.size}")
    ack, first = FRAME_HEAD.unpack_from(view)
    records: list[Record] = []
    sequenced = 0
    offset = FRAME_HEAD.size
    while offset < end:
        if end - offset < RECORD_HEAD.size:
            raise _format_error(offset, f"a record has {end - offset} bytes, expected at least {RECORD_HEAD.size}")
        kind, flags, length = RECORD_HEAD.unpack_from(view, offset)
        begin = offset + RECORD_HEAD.size
        if length > end - begin:
            raise _format_error(offset, f"the record has {length} bytes, but the frame ends after {end - begin}")
        if len(records) >= MAX_RECORDS:
            raise _format_error(offset, f"the frame has more than {MAX_RECORDS} records")
        if kind == _BATCH:
            sequenced += _decode_batch(view[begin : begin + length], begin, flags, records)
        elif kind in RECORD_KINDS:
            records.append((kind, flags, view[begin : begin + length]))
            sequenced += is_sequenced(kind)
        else:
            raise _format_error(offset, f"unknown record kind {kind}")
        offset = begin + length
    if not records:
        raise _format_error(offset, "the frame has no record")
    return Frame(ack, first, records, sequenced)


def _decode_batch(view: memoryview, offset: int, flags: int, records: list[Record]) -> int:
    """Append the records of a batch to ``records``, and return their number. ``view`` is at ``offset`` of its frame."""
    if len(view) < BATCH_HEAD.size:
        raise _format_error(offset, f"the batch has {len(view)} bytes, expected at least {BATCH_HEAD.size}")
    kind, zero, count = BATCH_HEAD.unpack_from(view)
    if kind not in RECORD_KINDS or not is_sequenced(kind) or zero != _ZERO:
        raise _format_error(offset, f"invalid head of a batch: {bytes(view[: BATCH_HEAD.size]).hex()}")
    table_end = BATCH_HEAD.size + LENGTH_BYTES * count
    # checked before anything of this size is allocated, because the peer chose the count
    if not count or table_end > len(view) or len(records) + count > MAX_RECORDS:
        raise _format_error(offset, f"the batch announces {count} records in {len(view) - BATCH_HEAD.size} bytes")
    lengths = struct.unpack_from(f">{count}I", view, BATCH_HEAD.size)
    ends = [*accumulate(lengths, initial=table_end)]
    if ends[-1] != len(view):
        raise _format_error(offset, f"the records of the batch end at {ends[-1]}, and the batch at {len(view)}")
    records += [(kind, flags, view[begin:end]) for begin, end in pairwise(ends)]
    return int(count)


class PeerClose(NamedTuple):
    """The CLOSE of a peer: whether it keeps its session, and the reason that it gave."""

    keep_session: bool
    error: AeronSparkError | None


def number_of(payload: memoryview) -> int:
    """Return the number with which the payload of a record begins."""
    return int.from_bytes(payload[:NUMBER_BYTES], "big")


def encode_number(number: int) -> bytes:
    """Return the bytes of the number of a ping, or of a message whose delivery is confirmed."""
    return number.to_bytes(NUMBER_BYTES, "big")


def encode_close(keep_session: bool, error: AeronSparkError | None = None) -> bytes:
    """Return the payload of CLOSE. ``error`` is the reason for the peer."""
    flag = _KEEP_SESSION if keep_session else _CLOSE_ALL
    return flag if error is None else flag + encode_error(error)


def decode_close(payload: memoryview) -> PeerClose:
    """Decode the payload of CLOSE. Never raises, because the peer has left in any case."""
    try:
        error = decode_error(payload[1:]) if len(payload) > 1 else None
    except DataFormatError:
        error = None
    return PeerClose(bytes(payload[:1]) == _KEEP_SESSION, error)


def encode_refused(number: int, error: AeronSparkError) -> bytes:
    """Return the payload of REFUSED: the number of a message, 0 if its sender does not wait, and why it is refused."""
    return encode_number(number) + encode_error(error)


def decode_refused(payload: memoryview) -> tuple[int, AeronSparkError]:
    """Return the number of a message, and why the peer refused it. Raises DataFormatError."""
    return number_of(payload), decode_error(payload[NUMBER_BYTES:])


def _format_error(offset: int, reason: str) -> DataFormatError:
    return DataFormatError(
        f"a frame of the endpoint protocol is invalid at byte {offset}: {reason}",
        remedy="Use the same release of aeron-spark at both ends.",
    )
