"""Encodes and decodes many messages at once as Arrow arrays, without a Python object for each message."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.chunks import (
    CRC_BEGIN,
    CRC_END,
    FIRST,
    FIXED_BYTES,
    LAST,
    LAYOUT,
    MAGIC,
    NOT_CONTINUED,
    VERSION,
    Content,
    Group,
    Header,
    Reassembler,
    decode,
    encode_header,
    header_bytes,
    payload_limit,
)

BATCH_ROWS: Final = 1 << 15  # that a log returns at once


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages in order: ``values`` is binary, ``positions`` and ``reserved`` are int64, all without nulls.

    ``resumed_at``: data before these rows are gone, and reading continued at this position.
    """

    values: pa.Array[Any]
    positions: pa.Array[Any]
    reserved: pa.Array[Any]
    resumed_at: int | None = None

    def __len__(self) -> int:
        return len(self.values)


def repeated(value: int | str, kind: pa.DataType, rows: int) -> pa.Array[Any]:
    """Return an array that contains ``value`` ``rows`` times, of an integer type, string or timestamp.

    Does not use ``pa.scalar``, which imports an installed pandas and delays a new worker by 0.2 s.
    """
    single: pa.Array[Any]
    if isinstance(value, str):
        data = value.encode()
        offsets = bytes(4) + len(data).to_bytes(4, sys.byteorder)
        single = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    else:
        data = value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
        single = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])
    array: pa.Array[Any] = pa.repeat(single[0], rows)  # type: ignore[call-overload]  # the stubs have no scalar of any type
    return array


ENCODED_BYTES: Final = 16 << 20  # of one array of encoded messages; bounds the memory for a large batch of values

_WHOLE: Final = FIRST | LAST


FIELDS: Final[Mapping[str, pa.DataType]] = {
    "value": pa.binary(),
    "published": pa.int64(),  # ns since 1970
    "writer": pa.string(),
    "batch": pa.int64(),
    "partition": pa.int32(),
    "row": pa.int64(),
}
"""The fields of a value and its header, with the types of their arrays."""


@dataclass(frozen=True, slots=True)
class Values:
    """Consecutive values. ``begin`` is the index of the first message, ``fields`` has arrays of ``count`` rows.

    It has those of :data:`FIELDS` that were wanted.
    """

    begin: int
    count: int
    fields: Mapping[str, pa.Array[Any]]

    def __len__(self) -> int:
        return self.count

    def head(self, count: int) -> Values:
        """Return the first ``count`` values."""
        return Values(self.begin, count, {name: array.slice(0, count) for name, array in self.fields.items()})


# Decodes consecutive messages from an index on, like ``decode_values``.
ValueDecoder = Callable[["pa.Array[Any]", int], Values]


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` values from ``begin``: small ones for ``encode_values``, or one that must be split into chunks."""

    begin: int
    length: int
    small: bool


def runs(values: pa.Array[Any], *, max_message_bytes: int, writer: str = "") -> Iterator[Run]:
    """Divide a binary or string array into runs of at most ENCODED_BYTES, or of one larger value.

    Raises DataFormatError if a value is null, and OptionError if a message has no room for payload.
    """
    limit = payload_limit(max_message_bytes, writer)
    if values.null_count:
        raise DataFormatError(
            f"{values.null_count} of {len(values)} values are null, and a message cannot be null",
            remedy="Filter the nulls out before writing, or write all columns with payload=arrow.",
        )
    return _runs(_offsets(values), limit, max_message_bytes - limit)


def _runs(offsets: memoryview, limit: int, header_length: int) -> Iterator[Run]:
    begin, size = 0, 0
    for index in range(len(offsets) - 1):
        length = offsets[index + 1] - offsets[index]
        if length > limit or size + header_length + length > ENCODED_BYTES:
            if index > begin:
                yield Run(begin, index - begin, True)
            begin, size = index, 0
            if length > limit:
                yield Run(index, 1, False)
                begin = index + 1
                continue
        size += header_length + length
    if len(offsets) - 1 > begin:
        yield Run(begin, len(offsets) - 1 - begin, True)


def value_at(values: pa.Array[Any], index: int) -> pa.Buffer:
    """Return one value as a view of the array's memory. Arrow's scalars are copies."""
    begin, end = _offsets(values)[index : index + 2]
    data = values.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(begin, end - begin)


def encode_values(values: pa.Array[Any], header: Header, first_row: int) -> pa.Array[Any]:
    """Encode each value as one message. Returns the messages as a binary array.

    ``values`` is a run of small values without nulls. ``header`` has their writer, batch, partition and time;
    ``first_row`` is the row of the first value.
    """
    offsets = _offsets(values)
    data = memoryview(values.buffers()[2] or b"")
    template = encode_header(replace(header, total=0, content=Content.BYTES, first=True, last=True), b"")
    writer_length, prefix, tail = template[7], template[:CRC_BEGIN], template[FIXED_BYTES:]
    prefix_crc, crc32, pack = zlib.crc32(prefix), zlib.crc32, LAYOUT.pack
    time, batch, partition = header.published_ns, header.batch, header.partition
    parts: list[bytes | memoryview] = []
    append = parts.append
    begin = offsets[0]
    for row, end in enumerate(offsets[1:], first_row):
        value = data[begin:end]
        fields = pack(
            MAGIC,
            VERSION,
            1,
            _WHOLE,
            writer_length,
            0,
            1,
            NOT_CONTINUED,
            end - begin,
            0,
            time,
            batch,
            row,
            partition,
            0,
        )
        checked = fields[CRC_END:] + tail
        append(prefix + crc32(value, crc32(checked, prefix_crc)).to_bytes(4, "little") + checked)
        append(value)
        begin = end
    return _binary_array([end - offsets[0] + index * len(template) for index, end in enumerate(offsets)], parts)


def _binary_array(ends: list[int], parts: list[Any]) -> pa.Array[Any]:
    """Return a binary array of the joined ``parts``. ``ends`` are its offsets, beginning with 0."""
    offsets = pa.array(ends, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(b"".join(parts))])


def decode_values(messages: pa.Array[Any], begin: int = 0, wanted: Collection[str] = FIELDS) -> Values:
    """Decode the ``wanted`` fields of consecutive messages from index ``begin``, as long as each is one complete value.

    Stops, possibly at the first message, before a chunk of several, an arrow group or an invalid message, which
    ``decode`` and a Reassembler must process. Never raises because of the content of messages.
    """
    offsets = _offsets(messages)
    data = memoryview(messages.buffers()[2] or b"")
    crc32, fmt, writer_data, writer = zlib.crc32, _PrefixFormat(_WHOLE_VALUE), b"", ""
    payloads: list[memoryview] = []
    ends, published, writers, batches, partitions, rows = [0], [], [], [], [], []
    size, at = 0, offsets[begin]
    for end in offsets[begin + 1 :]:
        if end - at < FIXED_BYTES:
            break
        (prefix,) = _PREFIX.unpack_from(data, at)
        if prefix != fmt.prefix:
            if prefix & _PREFIX_MASK != _WHOLE_VALUE:
                break
            fmt = _PrefixFormat(prefix)
        header_length = fmt.header_length
        length = end - at - header_length
        if length < 0 or size + length > _MAX_ARRAY_BYTES:
            break
        _, crc, group_rows, group, total, offset, time, batch, row, partition, _, id_ = fmt.unpack(data, at)
        if crc32(data[at + CRC_END : end], fmt.prefix_crc) != crc:
            break
        if total != length or offset or group != NOT_CONTINUED or group_rows != 1:
            break
        if id_ != writer_data:
            try:
                writer = id_.decode()
            except UnicodeDecodeError:
                break
            writer_data = id_
        payloads.append(data[at + header_length : end])
        size += length
        ends.append(size)
        published.append(time)
        writers.append(writer)
        batches.append(batch)
        partitions.append(partition)
        rows.append(row)
        at = end
    numbers = {"published": published, "writer": writers, "batch": batches, "partition": partitions, "row": rows}
    fields: dict[str, pa.Array[Any]] = {
        name: pa.array(numbers[name], FIELDS[name]) for name in numbers if name in wanted
    }
    if "value" in wanted:
        fields["value"] = _binary_array(ends, payloads)
    return Values(begin, len(rows), fields)


# The first eight bytes as one number. It is equal for all whole values of a writer, so one comparison checks all.
_PREFIX: Final = struct.Struct("<Q")

_PREFIX_MASK: Final = (1 << 56) - 1  # all but the writer's length

_WHOLE_VALUE: Final = int.from_bytes(MAGIC + bytes((VERSION, Content.BYTES, _WHOLE)), "little")

_MAX_ARRAY_BYTES: Final = 2**31 - 1  # of a binary array, whose offsets are int32


class _PrefixFormat:
    """The format of all messages with one prefix."""

    def __init__(self, prefix: int) -> None:
        writer_length = prefix >> 56
        self.prefix = prefix
        self.prefix_crc = zlib.crc32(_PREFIX.pack(prefix))
        self.header_length = header_bytes(writer_length)
        # LAYOUT with its first five fields as one number, and with the writer id
        self.unpack = struct.Struct(f"<QIIqQQqqqiI{writer_length}s").unpack_from


def read_groups(
    reassembler: Reassembler, messages: pa.Array[Any], positions: pa.Array[Any], decoder: ValueDecoder = decode_values
) -> Iterator[Values | Group]:
    """Yield the content of one recording's messages in order: runs of small values, and other complete groups.

    ``decoder`` is ``decode_values``, or a faster equivalent. Raises DataFormatError at the first invalid message, after
    yielding the content before it.
    """
    index = 0
    data, offsets = memoryview(messages.buffers()[2] or b""), _offsets(messages)
    while index < len(messages):
        if _begins_like_a_value(data[offsets[index] : offsets[index + 1]]):
            values = decoder(messages, index)
            if len(values):
                reassembler.interrupt()
                yield values
                index += len(values)
                continue
        position = positions[index].as_py()
        try:
            message = decode(data[offsets[index] : offsets[index + 1]])
        except DataFormatError as error:
            raise DataFormatError(f"at position {position}: {error.what}", remedy=error.remedy) from error
        group = reassembler.feed(message, position)
        if group is not None:
            yield group
        index += 1


def bounds(values: pa.Array[Any], index: int) -> tuple[int, int]:
    """Return the first byte of the value at ``index``, and the end of the last value, in the array's bytes."""
    offsets = _offsets(values)
    return offsets[min(index, len(offsets) - 1)], offsets[-1]


def _begins_like_a_value(message: memoryview) -> bool:
    return len(message) >= FIXED_BYTES and _PREFIX.unpack_from(message)[0] & _PREFIX_MASK == _WHOLE_VALUE


def _offsets(values: pa.Array[Any]) -> memoryview:
    kind = values.type
    narrow = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not narrow and not pa.types.is_large_string(kind) and not pa.types.is_large_binary(kind):
        raise DataFormatError(f"values have the type {kind}", remedy="Use a column of type BINARY or STRING.")
    width = 4 if narrow else 8
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        data = memoryview(bytes(width))  # Arrow may omit the offsets of an empty array
    else:
        begin = values.offset * width
        data = memoryview(buffer).cast("B")[begin : begin + (len(values) + 1) * width]
    return data.cast("i") if narrow else data.cast("q")
