"""Groups larger than one message: split into chunks by the writer, put together by the reader.

Chunks of a group follow each other on one exclusive publication, so a reader holds at most one unfinished group of a
recording. docs/wire-format.md, "Groups", has the rules.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.chunk import NOT_CONTINUED, Crc32, Frame, Header, Payload, encode_header, payload_limit


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to be published as one message: ``encode_header(...)`` and, unchanged and uncopied, ``payload``."""

    header: Header
    payload: pa.Buffer

    def encode_header(self, group_position: int, crc32: Crc32 = zlib.crc32) -> bytes:
        """The bytes before the payload.

        ``group_position`` is the stream position of the publication just before the group's first chunk was offered;
        the first chunk itself ignores it, as it is not known before. ``crc32`` is as for ``frame.encode_header``.
        """
        if self.header.first:
            return encode_header(self.header, self.payload, crc32)
        return encode_header(replace(self.header, group_position=group_position), self.payload, crc32)


def split(payload: Payload | Sequence[pa.Buffer], header: Header, *, max_message_bytes: int) -> Iterator[Chunk]:
    """Split a group's payload into chunks whose messages have at most ``max_message_bytes``, without copying it.

    A payload in several buffers is their bytes one after the other; a chunk that spans two of them is a copy.
    ``header`` describes the group: its place fields (total, offset, group_position, first, last) are set here. There is
    always one chunk, for an empty payload too. A publisher that must begin a new publication in the middle of a group
    has to publish the group from its first chunk again: a recording cannot end in one and continue in another.
    Raises OptionError if a header has no room.
    """
    limit = payload_limit(max_message_bytes, header.writer)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        payload = pa.py_buffer(payload)
    return _chunks(_Whole([payload] if isinstance(payload, pa.Buffer) else payload), header, limit)


class _Whole:
    """Buffers one after the other, as one."""

    def __init__(self, buffers: Sequence[pa.Buffer]) -> None:
        self._buffers = [buffer for buffer in buffers if buffer.size]
        self._ends = list(accumulate(buffer.size for buffer in self._buffers))
        self.size = self._ends[-1] if self._ends else 0

    def slice(self, offset: int, length: int) -> pa.Buffer:
        """Return a part: a view where it lies in one buffer, else a copy."""
        parts = []
        index, end = bisect_right(self._ends, offset), offset + length
        while offset < end:
            begin = self._ends[index] - self._buffers[index].size
            to = min(end, self._ends[index])
            parts.append(self._buffers[index].slice(offset - begin, to - offset))
            offset, index = to, index + 1
        return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))


def _chunks(whole: _Whole, header: Header, limit: int) -> Iterator[Chunk]:
    for offset in range(0, max(1, whole.size), limit):
        part = whole.slice(offset, min(limit, whole.size - offset))
        yield Chunk(
            replace(
                header,
                total=whole.size,
                offset=offset,
                group_position=NOT_CONTINUED,
                first=offset == 0,
                last=offset + part.size == whole.size,
            ),
            part,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A finished group: the header of its first chunk, where that began, and its payload."""

    header: Header
    position: int
    payload: pa.Buffer


class Reassembler:
    """Puts the groups of one recording together, reading from the position ``start``.

    Feed every message in order. Holds one unfinished group at most, and of it only what has arrived: what a header says
    about its size is believed only once the bytes are there. ``discarded`` counts groups that a new one interrupted,
    ``skipped`` chunks of a group that began before ``start``.
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
        """Where the unfinished group began, or None: a reader that stops here has to begin there next time."""
        return None if self._first is None else self._position

    def feed(self, frame: Frame, position: int) -> Group | None:
        """Take the message that begins at ``position``; return its group if that is now finished.

        A group of one chunk keeps the message's memory. Raises DataFormatError if the chunk neither begins a group nor
        continues the unfinished one; the state is then unchanged.
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
        self._forget()
        return group

    def interrupt(self) -> None:
        """Discard and count the unfinished group, as every FIRST chunk does: its writer died or gave up on it."""
        if self._first is not None:
            self.discarded += 1
            self._forget()

    def _forget(self) -> None:
        # A new bytearray, not clear(): the old one's memory belongs to the finished group now.
        self._first, self._data = None, bytearray()

    def _skip(self, header: Header, position: int) -> None:
        if header.group_position >= self.start:
            raise DataFormatError(
                f"the chunk at position {position} continues a group that began at or after position"
                f" {header.group_position}, but its beginning is not there, though reading began at {self.start}",
                remedy="Somebody else may publish chunks to this stream through the same session; give each its own",
            )
        self.skipped += 1

    def _check_continues(self, first: Header, header: Header, position: int) -> None:
        wrong = [
            f"{name} is {found!r} and not {expected!r}"
            for name, found, expected in (
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
            if found != expected
        ]
        if header.group_position > self._position:
            wrong.append(f"group position is {header.group_position}, after {self._position}")
        if wrong:
            raise DataFormatError(
                f"the chunk at position {position} does not continue the group that began at {self._position}:"
                f" its {', its '.join(wrong)}",
                remedy="Somebody else may publish chunks to this stream through the same session; give each its own",
            )
