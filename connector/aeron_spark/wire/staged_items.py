"""What a writer stages, as bytes: items one after the other. Shared by the client and the server of a named stream.

All numbers are little-endian. Every part begins at a multiple of 8, so that a mapped stage is read where it lies.

    item    offset width name      meaning
            0      1     kind      1 VALUES, 2 GROUP
            1      3               zeros
            4      4     rows      rows of the item
            8      8     length    bytes of the body
            16           body, then zeros up to a multiple of 8

    VALUES  each value is published as one message, as it is
            0      4     count     values, the same as rows
            4      1     reserved  1 where each value has a reserved value, else 0
            5      3               zeros
            8            offsets   int32[count + 1], the first 0, the last the bytes of data; then zeros to 8
                         reserved  int64[count], if any
                         data      the values one after the other

    GROUP   one group of the wire format (docs/wire-format.md), which the server splits into chunks for its own channel
            0      1     content         1 bytes, 2 arrow
            1      1     writer_length   bytes of the writer's id in UTF-8
            2      2                     zeros
            4      4     partition       -1 none
            8      8     published       ns since 1970, UTC
            16     8     batch           -1 none
            24     8     row             index of the first row within its batch and partition
            32           writer          the id, then zeros to 8
                         payload         to the end of the body

There is no checksum in here: a stage as a whole has one, and the chunks get theirs when they are published.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.wire.chunk import Content, Header, Payload, writer_bytes

ALIGNMENT: Final = 8  # bytes
MAX_ITEM_BYTES: Final = 2**31 - 1  # bytes of the values of one item, whose offsets are int32
MAX_ITEM_ROWS: Final = 2**32 - 1

ITEM: Final = struct.Struct(
    "<"
    "B"  # kind
    "3x"
    "I"  # rows
    "Q"  # length
)
VALUES_HEAD: Final = struct.Struct(
    "<"
    "I"  # count
    "B"  # reserved
    "3x"
)
GROUP_HEAD: Final = struct.Struct(
    "<"
    "B"  # content
    "B"  # writer_length
    "2x"
    "i"  # partition
    "q"  # published
    "q"  # batch
    "q"  # row
)


class ItemKind(IntEnum):
    """What an item holds."""

    VALUES = 1
    GROUP = 2


@dataclass(frozen=True, slots=True)
class StagedValues:
    """Messages to be published as they are; both arrays are views of the stage."""

    values: pa.Array[Any]  # binary, without nulls
    reserved: pa.Array[Any] | None  # int64, as many

    @property
    def rows(self) -> int:
        """How many messages, each of which is one row."""
        return len(self.values)

    @property
    def longest(self) -> int:
        """Bytes of the longest value; 0 where there is none."""
        offsets = _offsets(self.values)
        return int(np.diff(offsets).max()) if len(offsets) > 1 else 0


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """One group to be split into chunks: its header (``total`` is the payload's) and a view of its payload."""

    header: Header
    payload: pa.Buffer

    @property
    def rows(self) -> int:
        """Rows of the group."""
        return self.header.rows


Item = StagedValues | StagedGroup


def encode_values_item(values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> list[pa.Buffer]:
    """Encode a binary or string array as buffers that follow each other; the values themselves are not copied.

    ``reserved``, int64 and as many, gives each message's reserved value. Raises DataFormatError for nulls, which a
    message cannot be; OptionError for more than ``MAX_ITEM_BYTES`` bytes of values, which the caller must slice.
    """
    if values.null_count:
        raise DataFormatError(
            f"{values.null_count} of {len(values)} values are null, which a message cannot be",
            remedy="Filter the nulls out before writing, or write all columns with payload=arrow",
        )
    offsets = _offsets(values)
    begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    if size > MAX_ITEM_BYTES:
        raise OptionError(
            f"{len(values)} values of {size} bytes do not fit one item of a stage, which takes {MAX_ITEM_BYTES}",
            remedy="Stage them in slices",
        )
    rebased = (offsets - begin).astype("<i4").tobytes()
    head = VALUES_HEAD.pack(len(values), reserved is not None) + _padded(rebased)
    if reserved is not None:
        head += _reserved(reserved, len(values))
    data = values.buffers()[2]
    return _item(ItemKind.VALUES, len(values), head, [] if data is None else [data.slice(begin, size)])


def encode_group_item(header: Header, payload: Payload | Sequence[pa.Buffer]) -> list[pa.Buffer]:
    """Encode a group as buffers that follow each other; its payload, in one buffer or several, is not copied.

    Of ``header`` the place fields (total, offset, group_position, first, last) are ignored. Raises OptionError if the
    writer's id is too long.
    """
    if isinstance(payload, (bytes, bytearray, memoryview)):
        payload = pa.py_buffer(payload)
    parts = [payload] if isinstance(payload, pa.Buffer) else list(payload)
    writer = writer_bytes(header.writer)
    head = GROUP_HEAD.pack(
        header.content, len(writer), header.partition, header.published_ns, header.batch, header.row
    ) + _padded(writer)
    return _item(ItemKind.GROUP, header.rows, head, parts)


def _item(kind: ItemKind, rows: int, head: bytes, parts: list[pa.Buffer]) -> list[pa.Buffer]:
    length = len(head) + sum(part.size for part in parts)
    gap = bytes(-length % ALIGNMENT)
    buffers = [pa.py_buffer(ITEM.pack(kind, rows, length) + head), *(part for part in parts if part.size)]
    return [*buffers, pa.py_buffer(gap)] if gap else buffers


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def _offsets(values: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    kind = values.type
    narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not narrow and not pa.types.is_large_string(kind) and not pa.types.is_large_binary(kind):
        raise DataFormatError(f"values are {kind}", remedy="Give a column of BINARY or STRING")
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(1, np.int64)  # Arrow may leave the offsets out where there are no values
    width = np.dtype(np.int32 if narrow else np.int64)
    found = np.frombuffer(memoryview(buffer), width, len(values) + 1, values.offset * width.itemsize)
    rising: np.ndarray[Any, np.dtype[np.int64]] = found.astype(np.int64)
    return rising


def _reserved(reserved: pa.Array[Any], count: int) -> bytes:
    if reserved.type != pa.int64() or len(reserved) != count or reserved.null_count:
        raise DataFormatError(
            f"reserved values are {len(reserved)} of {reserved.type} with {reserved.null_count} nulls,"
            f" where {count} of int64 are needed",
            remedy="Give each value one BIGINT that is not null",
        )
    return bytes(reserved.to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def read_items(stage: Payload, begin: int = 0) -> Iterator[Item]:
    """Yield the items of a whole stage as views of ``stage``, which they keep alive; every bound is checked first.

    ``begin`` is the byte where the first of them begins.

    Raises DataFormatError, naming the byte at which the item begins, at the first one that is not right.
    """
    whole = stage if isinstance(stage, pa.Buffer) else pa.py_buffer(stage)
    at = begin
    for end, item in items_so_far(whole, begin):
        yield item
        at = end
    left = whole.size - at
    if left >= ITEM.size:
        _, _, length = ITEM.unpack_from(whole, at)
        raise _broken(at, f"its body has {length} bytes, but only {left - ITEM.size} are left")
    if left:
        raise _broken(at, f"the {left} bytes left are fewer than the {ITEM.size} of a header")


def items_so_far(stage: pa.Buffer, begin: int = 0) -> Iterator[tuple[int, Item]]:
    """Yield the items of a stage that may still grow, from its byte ``begin`` on, each with the byte where it ends.

    It stops before the first one that is not all there; see :func:`read_items` for the rest.
    """
    at = begin
    while stage.size - at >= ITEM.size:
        kind, rows, length = ITEM.unpack_from(stage, at)
        body = at + ITEM.size
        end = body + length + -length % ALIGNMENT
        if end > stage.size:
            return
        yield end, _read_body(at, kind, rows, stage.slice(body, length))
        at = end


def _read_body(at: int, kind: int, rows: int, body: pa.Buffer) -> Item:
    if kind == ItemKind.VALUES:
        return _read_values(at, rows, body)
    if kind == ItemKind.GROUP:
        return _read_group(at, rows, body)
    raise _broken(at, f"its kind is {kind}, neither 1 (values) nor 2 (group)")


def _read_values(at: int, rows: int, body: pa.Buffer) -> StagedValues:
    if body.size < VALUES_HEAD.size:
        raise _broken(at, f"its values have {body.size} bytes, fewer than the {VALUES_HEAD.size} of their header")
    count, has_reserved = VALUES_HEAD.unpack_from(body)
    if count != rows or has_reserved > 1:
        raise _broken(at, f"it says {rows} rows, but {count} values, and {has_reserved} for reserved values")
    width = 4 * (count + 1)
    numbers = VALUES_HEAD.size + width + -width % ALIGNMENT
    begin = numbers + 8 * count * has_reserved
    if begin > body.size:
        raise _broken(at, f"its values have {body.size} bytes, fewer than the {begin} that {count} of them need")
    offsets = _aligned(body.slice(VALUES_HEAD.size, width))
    ends = np.frombuffer(memoryview(offsets), "<i4")
    if ends[0] != 0 or ends[-1] != body.size - begin or (ends[1:] < ends[:-1]).any():
        raise _broken(at, f"the offsets of its values do not rise from 0 to {body.size - begin}")
    data = body.slice(begin, body.size - begin)
    values: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])
    if not has_reserved:
        return StagedValues(values, None)
    reserved: pa.Array[Any] = pa.Array.from_buffers(pa.int64(), count, [None, _aligned(body.slice(numbers, 8 * count))])
    return StagedValues(values, reserved)


def _read_group(at: int, rows: int, body: pa.Buffer) -> StagedGroup:
    if body.size < GROUP_HEAD.size:
        raise _broken(at, f"its group has {body.size} bytes, fewer than the {GROUP_HEAD.size} of its header")
    content, writer_length, partition, published, batch, row = GROUP_HEAD.unpack_from(body)
    begin = GROUP_HEAD.size + writer_length + -writer_length % ALIGNMENT
    if begin > body.size:
        raise _broken(at, f"its group has {body.size} bytes, fewer than the {begin} of its header with its writer's id")
    if content not in (Content.BYTES, Content.ARROW):
        raise _broken(at, f"its content is {content}, neither 1 (bytes) nor 2 (arrow)")
    if content == Content.BYTES and rows != 1:
        raise _broken(at, f"it holds one value, but says {rows} rows")
    try:
        writer = str(memoryview(body)[GROUP_HEAD.size : GROUP_HEAD.size + writer_length], "utf-8")
    except UnicodeDecodeError:
        raise _broken(at, "its writer's id is not UTF-8") from None
    payload = body.slice(begin, body.size - begin)
    header = Header(
        Content(content),
        total=payload.size,
        rows=rows,
        published_ns=published,
        batch=batch,
        row=row,
        partition=partition,
        writer=writer,
    )
    return StagedGroup(header, payload)


def _aligned(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer, or a copy where it does not lie as Arrow wants: a stage in memory may begin anywhere."""
    return buffer if buffer.address % ALIGNMENT == 0 else pa.py_buffer(buffer.to_pybytes())


def _broken(at: int, why: str) -> DataFormatError:
    return DataFormatError(
        f"the item of a stage that begins at byte {at} is not right: {why}",
        remedy="Use the same release of aeron-spark on both sides, and stage the rows anew",
    )
