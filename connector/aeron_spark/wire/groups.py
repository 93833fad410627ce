"""Splits groups into chunks for the writer, and reassembles them for the reader.

The chunks of a group are consecutive on one exclusive publication, so a reader has at most one unfinished group of each
recording. docs/wire-format.md, "Groups", has the rules.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.chunk import NOT_CONTINUED, Crc32, Frame, Header, Payload, encode_header, payload_limit

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

    def feed(self, frame: Frame, position: int) -> Group | None:
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
