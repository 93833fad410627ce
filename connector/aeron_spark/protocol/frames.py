"""The plaintext of one duologue frame: a head, then records. docs/endpoint-protocol.md is normative.

All numbers are big-endian.

    frame   offset width name      meaning
            0      8     ack       the sender has received every sequenced record below this number
            8      8     first     sequence number of the first sequenced record here; later ones count up
            16           records   at least one, up to the end of the frame

    record  0      1     kind      see RecordKind: below 64 sequenced, from 64 on not
            1      1     flags     the kind's own; 0 where it has none
            2      4     length    of what follows
            6            payload

    batch   0      1     kind      BATCH; it stands for `count` records of one kind, each with its own sequence number
            1      1     flags     of each of them
            2      4     length    of what follows
            6      1     each      their kind: sequenced, and no batch
            7      3               zero
            10     4     count     at least 1
            14     4n    lengths   of each payload
            14+4n        payloads

A batch is the fast form of many small records: n numbers are packed and unpacked in one step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Final

from aeron_spark.errors import DataFormatError

Buffer = bytes | bytearray | memoryview
Record = tuple[int, int, memoryview]  # kind, flags, payload: a view of the frame it came in
OutgoingRecord = tuple[int, int, Buffer]  # kind, flags, payload; a memoryview counts bytes (format "B")

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
LENGTH_BYTES: Final = 4  # one number in a batch's table of lengths
MIN_BATCH_RECORDS: Final = 8  # records: from here on a batch is never longer than the records it stands for
MAX_RECORDS: Final = 16_384  # in a frame: a decoded record costs some 250 bytes here, and only 4 on the wire
_ZERO: Final = bytes(3)


class RecordKind(IntEnum):
    """What a record is. The sequenced ones are kept until they are acknowledged, and sent again on resume."""

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
    BATCH = 12
    OPEN = 64
    ACK = 65
    PING = 66
    PONG = 67
    CLOSE = 68


FIRST_UNSEQUENCED: Final = 64
RECORD_KINDS: Final = frozenset(int(kind) for kind in RecordKind) - {
    int(RecordKind.BATCH)
}  # what a record outside a batch may be
_BATCH: Final = int(RecordKind.BATCH)


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame. ``sequenced`` is how many of the records have a sequence number."""

    ack: int
    first: int
    records: list[Record]
    sequenced: int


def is_sequenced(kind: int) -> bool:
    """Whether records of this kind are numbered, and arrive once and in order over any number of duologues."""
    return kind < FIRST_UNSEQUENCED


def encode(ack: int, first: int, records: Iterable[OutgoingRecord]) -> list[Buffer]:
    """Return the buffers which, one after the other, are the frame. Payloads are not copied.

    There is at least one record, and at most MAX_RECORDS. The frame's length is at most FRAME_HEAD.size plus
    RECORD_HEAD.size and the payload of each record.
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
    """Decode one frame; the payloads are views of ``plaintext``. Raises DataFormatError that names the offset."""
    view = memoryview(plaintext)
    end = len(view)
    if end < FRAME_HEAD.size:
        raise _broken(0, f"the frame has {end} bytes, fewer than the {FRAME_HEAD.size} of its head")
    ack, first = FRAME_HEAD.unpack_from(view)
    records: list[Record] = []
    sequenced = 0
    at = FRAME_HEAD.size
    while at < end:
        if end - at < RECORD_HEAD.size:
            raise _broken(at, f"{end - at} bytes are left, fewer than the {RECORD_HEAD.size} of a record's head")
        kind, flags, length = RECORD_HEAD.unpack_from(view, at)
        begin = at + RECORD_HEAD.size
        if length > end - begin:
            raise _broken(at, f"the record has {length} bytes, of which the frame holds {end - begin}")
        if len(records) >= MAX_RECORDS:
            raise _broken(at, f"the frame has more than {MAX_RECORDS} records")
        if kind == _BATCH:
            sequenced += _decode_batch(view[begin : begin + length], begin, flags, records)
        elif kind in RECORD_KINDS:
            records.append((kind, flags, view[begin : begin + length]))
            sequenced += is_sequenced(kind)
        else:
            raise _broken(at, f"no record has the kind {kind}")
        at = begin + length
    if not records:
        raise _broken(at, "the frame has no record")
    return Frame(ack, first, records, sequenced)


def _decode_batch(view: memoryview, at: int, flags: int, records: list[Record]) -> int:
    """Append the records of a batch to ``records``; ``at`` is where in its frame the view begins."""
    if len(view) < BATCH_HEAD.size:
        raise _broken(at, f"the batch has {len(view)} bytes, fewer than the {BATCH_HEAD.size} of its head")
    kind, zero, count = BATCH_HEAD.unpack_from(view)
    if kind not in RECORD_KINDS or not is_sequenced(kind) or zero != _ZERO:
        raise _broken(at, f"no batch begins with {bytes(view[: BATCH_HEAD.size]).hex()}")
    table_end = BATCH_HEAD.size + LENGTH_BYTES * count
    # before anything of that size is made: the count is the peer's
    if not count or table_end > len(view) or len(records) + count > MAX_RECORDS:
        raise _broken(at, f"the batch says {count} records, and has {len(view) - BATCH_HEAD.size} bytes for them")
    lengths = struct.unpack_from(f">{count}I", view, BATCH_HEAD.size)
    ends = [*accumulate(lengths, initial=table_end)]
    if ends[-1] != len(view):
        raise _broken(at, f"the records of the batch end at {ends[-1]}, the batch at {len(view)}")
    records += [(kind, flags, view[begin:end]) for begin, end in pairwise(ends)]
    return int(count)


def _broken(at: int, why: str) -> DataFormatError:
    return DataFormatError(
        f"a frame of the endpoint's protocol is broken at byte {at}: {why}",
        remedy="The other side breaks the protocol: use the same release of aeron-spark at both ends",
    )
