"""Encodes and decodes the items of a stage, for the client and the server of a stream.

All numbers are little-endian. Every part begins at a multiple of 8, so a mapped stage is read without a copy.

    item    offset width name      meaning
            0      1     kind      1 VALUES, 2 GROUP
            1      3               zeros
            4      4     rows      rows of the item
            8      8     length    bytes of the body
            16           body, then zeros up to a multiple of 8

    VALUES  each value is published unchanged as one message
            0      4     count     values, the same as rows
            4      1     reserved  1 if each value has a reserved value, else 0
            5      3               zeros
            8            offsets   int32[count + 1], the first 0, the last the bytes of data; then zeros to 8
                         reserved  int64[count], if any
                         data      the concatenated values

    GROUP   one group of the wire format (docs/wire-format.md), which the server splits into chunks for its own channel
            0      1     content         1 bytes, 2 arrow
            1      1     writer_length   bytes of the writer's id in UTF-8
            2      2                     zeros
            4      4     partition       -1: none
            8      8     published       ns since 1970, UTC
            16     8     batch           -1: none
            24     8     row             index of the first row within its batch and partition
            32           writer          the id, then zeros to 8
                         payload         to the end of the body

Items have no checksum: a stage has one, and the server adds those of the chunks when it publishes them.
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
from aeron_spark.wire.chunks import (
    CHECKED,
    CONTENT_AT,
    FIXED_BYTES,
    MAGIC,
    MARKS_AT,
    Content,
    Header,
    Payload,
    writer_bytes,
)

ALIGNMENT: Final = 8  # bytes
MAX_ITEM_BYTES: Final = 2**31 - 1  # bytes of the values of one item, whose offsets are int32

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
    """Whether an item holds values or the payload of a group."""

    VALUES = 1
    GROUP = 2


@dataclass(frozen=True, slots=True)
class StagedValues:
    """Values to publish unchanged as messages. Both arrays are views of the stage."""

    values: pa.Array[Any]  # binary, without nulls
    reserved: pa.Array[Any] | None  # int64, one for each value

    @property
    def rows(self) -> int:
        """Number of values; each is one row."""
        return len(self.values)

    @property
    def longest(self) -> int:
        """Bytes of the longest value; 0 if there are no values."""
        offsets = _offsets(self.values)
        return int(np.diff(offsets).max()) if len(offsets) > 1 else 0

    @property
    def is_marked(self) -> bool:
        """Whether a value is a chunk with Arrow rows and the mark that only a server sets."""
        offsets = _offsets(self.values)
        data = np.frombuffer(memoryview(self.values.buffers()[2] or b""), np.uint8)
        found = offsets[:-1][np.diff(offsets) >= FIXED_BYTES]
        found = found[data[found + CONTENT_AT] == Content.ARROW]  # few of them, so that the rest is cheap
        found = found[data[found + MARKS_AT] & CHECKED > 0]
        return any(bytes(data[begin : begin + len(MAGIC)]) == MAGIC for begin in found)


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """A group to split into chunks: its header with the ``total`` of the payload, and a view of the payload."""

    header: Header
    payload: pa.Buffer

    @property
    def rows(self) -> int:
        """Rows of the group."""
        return self.header.rows


Item = StagedValues | StagedGroup


def encode_values_item(values: pa.Array[Any], reserved: pa.Array[Any] | None = None) -> list[pa.Buffer]:
    """Encode a binary or string array as consecutive buffers, without copying the values.

    ``reserved`` is an int64 array with the reserved value of each message. Raises DataFormatError if a value is null,
    and OptionError for more than ``MAX_ITEM_BYTES`` bytes of values, which the caller must divide.
    """
    if values.null_count:
        raise DataFormatError(
            f"{values.null_count} of {len(values)} values are null, and a message cannot be null",
            remedy="Filter the nulls out before writing, or write all columns with payload=arrow.",
        )
    offsets = _offsets(values)
    begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    if size > MAX_ITEM_BYTES:
        raise OptionError(
            f"{len(values)} values have {size} bytes, and the limit of one item is {MAX_ITEM_BYTES}",
            remedy="Stage them in several items.",
        )
    rebased = (offsets - begin).astype("<i4").tobytes()
    head = VALUES_HEAD.pack(len(values), reserved is not None) + _pad(rebased)
    if reserved is not None:
        head += _encode_reserved(reserved, len(values))
    data = values.buffers()[2]
    return _item(ItemKind.VALUES, len(values), head, [] if data is None else [data.slice(begin, size)])


def encode_group_item(header: Header, payload: Payload | Sequence[pa.Buffer]) -> list[pa.Buffer]:
    """Encode a group as consecutive buffers, without copying its payload, which can be one buffer or several.

    Ignores total, offset, group_position, first and last of ``header``. Raises OptionError for a too long writer id.
    """
    if isinstance(payload, (bytes, bytearray, memoryview)):
        payload = pa.py_buffer(payload)
    parts = [payload] if isinstance(payload, pa.Buffer) else list(payload)
    writer = writer_bytes(header.writer)
    head = GROUP_HEAD.pack(
        header.content, len(writer), header.partition, header.published_ns, header.batch, header.row
    ) + _pad(writer)
    return _item(ItemKind.GROUP, header.rows, head, parts)


def _item(kind: ItemKind, rows: int, head: bytes, parts: list[pa.Buffer]) -> list[pa.Buffer]:
    length = len(head) + sum(part.size for part in parts)
    padding = bytes(-length % ALIGNMENT)
    buffers = [pa.py_buffer(ITEM.pack(kind, rows, length) + head), *(part for part in parts if part.size)]
    return [*buffers, pa.py_buffer(padding)] if padding else buffers


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def _offsets(values: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    kind = values.type
    narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not narrow and not pa.types.is_large_string(kind) and not pa.types.is_large_binary(kind):
        raise DataFormatError(f"values have the type {kind}", remedy="Use a column of type BINARY or STRING.")
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(1, np.int64)  # Arrow may omit the offsets of an empty array
    width = np.dtype(np.int32 if narrow else np.int64)
    offsets = np.frombuffer(memoryview(buffer), width, len(values) + 1, values.offset * width.itemsize)
    wide: np.ndarray[Any, np.dtype[np.int64]] = offsets.astype(np.int64)
    return wide


def _encode_reserved(reserved: pa.Array[Any], count: int) -> bytes:
    if reserved.type != pa.int64() or len(reserved) != count or reserved.null_count:
        raise DataFormatError(
            f"{len(reserved)} reserved values of type {reserved.type} with {reserved.null_count} nulls were passed,"
            f" expected {count} of type int64 without nulls",
            remedy="Provide one BIGINT for each value.",
        )
    return bytes(reserved.to_numpy(zero_copy_only=False).astype("<i8").tobytes())


def read_items(stage: Payload, begin: int = 0) -> Iterator[Item]:
    """Yield the items of a complete stage from its byte ``begin`` on, as views of ``stage``. Checks every bound first.

    Raises DataFormatError at the first invalid item, with the byte at which the item begins.
    """
    buffer = stage if isinstance(stage, pa.Buffer) else pa.py_buffer(stage)
    at = begin
    for end, item in complete_items(buffer, begin):
        yield item
        at = end
    remaining = buffer.size - at
    if remaining >= ITEM.size:
        _, _, length = ITEM.unpack_from(buffer, at)
        raise _format_error(at, f"its body has {length} bytes, but the stage ends after {remaining - ITEM.size}")
    if remaining:
        raise _format_error(at, f"its header has {remaining} bytes, expected {ITEM.size}")


def complete_items(stage: pa.Buffer, begin: int = 0) -> Iterator[tuple[int, Item]]:
    """Yield the end and the item, for each complete item of a growing stage from its byte ``begin`` on.

    Stops before an incomplete item. Raises like :func:`read_items`.
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
    raise _format_error(at, f"its kind is {kind}, expected 1 (values) or 2 (group)")


def _read_values(at: int, rows: int, body: pa.Buffer) -> StagedValues:
    if body.size < VALUES_HEAD.size:
        raise _format_error(at, f"its values have {body.size} bytes, expected at least {VALUES_HEAD.size}")
    count, has_reserved = VALUES_HEAD.unpack_from(body)
    if count != rows or has_reserved > 1:
        raise _format_error(
            at, f"it announces {rows} rows, {count} values, and {has_reserved} as the flag of reserved values"
        )
    width = 4 * (count + 1)
    reserved_at = VALUES_HEAD.size + width + -width % ALIGNMENT
    begin = reserved_at + 8 * count * has_reserved
    if begin > body.size:
        raise _format_error(at, f"its {count} values have {body.size} bytes, expected at least {begin}")
    offsets = _align(body.slice(VALUES_HEAD.size, width))
    ends = np.frombuffer(memoryview(offsets), "<i4")
    if ends[0] != 0 or ends[-1] != body.size - begin or (ends[1:] < ends[:-1]).any():
        raise _format_error(at, f"the offsets of its values do not increase from 0 to {body.size - begin}")
    data = body.slice(begin, body.size - begin)
    values: pa.Array[Any] = pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])
    if not has_reserved:
        return StagedValues(values, None)
    reserved: pa.Array[Any] = pa.Array.from_buffers(
        pa.int64(), count, [None, _align(body.slice(reserved_at, 8 * count))]
    )
    return StagedValues(values, reserved)


def _read_group(at: int, rows: int, body: pa.Buffer) -> StagedGroup:
    if body.size < GROUP_HEAD.size:
        raise _format_error(at, f"its group has {body.size} bytes, expected at least {GROUP_HEAD.size}")
    content, writer_length, partition, published, batch, row = GROUP_HEAD.unpack_from(body)
    begin = GROUP_HEAD.size + writer_length + -writer_length % ALIGNMENT
    if begin > body.size:
        raise _format_error(at, f"its group has {body.size} bytes, expected at least {begin} with the writer id")
    if content not in (Content.BYTES, Content.ARROW):
        raise _format_error(at, f"its content is {content}, expected 1 (bytes) or 2 (arrow)")
    if content == Content.BYTES and rows != 1:
        raise _format_error(at, f"it has one value, but announces {rows} rows")
    try:
        writer = str(memoryview(body)[GROUP_HEAD.size : GROUP_HEAD.size + writer_length], "utf-8")
    except UnicodeDecodeError:
        raise _format_error(at, "its writer id is not UTF-8") from None
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


def _align(buffer: pa.Buffer) -> pa.Buffer:
    """Return the buffer, or an aligned copy: a stage in memory can begin at any address."""
    return buffer if buffer.address % ALIGNMENT == 0 else pa.py_buffer(buffer.to_pybytes())


def _format_error(at: int, reason: str) -> DataFormatError:
    return DataFormatError(
        f"the item of a stage that begins at byte {at} is invalid: {reason}",
        remedy="Use the same release of aeron-spark at both ends, and stage the rows again.",
    )
