"""Finds the position at which a range of a recording may end, by walks over frame headers; needs no JVM.

The walk is that of the Java class BoundaryWalk, which is faster if a JVM runs; tests compare them. Files are read and
not mapped: a mapped file that the archive truncates at the same time would end the process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.recording import BEGIN, DATA, END, FRAME_HEADER_LENGTH, PADDING, Recording, segment_at
from aeron_spark.transport.channel import FRAME_ALIGNMENT
from aeron_spark.wire.chunks import FIRST, FIXED_BYTES, LAST, MAGIC

NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WalkRange:
    """The recorded range ``[start, end)`` of a walk, and its limits: the highest boundary, and the most rows.

    ``start`` is the begin of a message or of a term, and ``end`` the end of a frame, as each recorded position is.
    ``at_least_one``: take the first message or group even if it alone exceeds the limits.
    """

    start: int
    end: int
    limit: int
    max_rows: int = NO_LIMIT
    at_least_one: bool = False

    @property
    def stop(self) -> int:
        """The position at which the walk stops reading; it can be inside a frame if it is before ``end``."""
        return self.end if self.at_least_one else self.limit


@dataclass(frozen=True, slots=True)
class Walked:
    """The result of a walk: the last boundary within the limits, and the rows before it.

    ``open`` is the begin of the message or group that is not complete at the end of the walk.
    """

    boundary: int | None
    rows: int
    open: int | None


Walk = Callable[[WalkRange], Walked]


@dataclass(frozen=True, slots=True)
class WantedBoundary:
    """The arguments of :class:`aeron_spark.log.api.Boundaries`, without the recording."""

    start: int
    limit: int
    end: int
    max_rows: int | None


def find_end(walk: Walk, term_length: int, wanted: WantedBoundary) -> tuple[int, int]:
    """Return a position at which the wanted range may end, and its number of rows if they were counted (else 0).

    See :class:`aeron_spark.log.api.Boundaries` for the guarantees. Walks at most one term or, with ``max_rows``, the
    range. A damaged part of the recording counts as padding: it ends where reading continues, see ``after_damage``.
    """
    start, end, max_rows = wanted.start, wanted.end, wanted.max_rows
    aligned = wanted.limit - wanted.limit % FRAME_ALIGNMENT
    if max_rows is None:
        found = _last_term_boundary(walk, term_length, start, aligned, end)
        if found > start:
            return found, 0
    rows = NO_LIMIT if max_rows is None else max_rows
    walked = walk(WalkRange(start, end, aligned, rows, at_least_one=True))
    return (start, 0) if walked.boundary is None else (walked.boundary, walked.rows)


def after_damage(position: int, term_length: int, end: int) -> int:
    """Return where reading continues after a damaged frame at ``position``: the next term, or ``end`` before it.

    Nothing else shows where the next frame begins. ``end`` is a recorded position, or the end of a range.
    """
    return min(position - position % term_length + term_length, end)


def _last_term_boundary(walk: Walk, term_length: int, start: int, limit: int, end: int) -> int:
    """Return the last boundary up to ``limit`` in the term of ``limit``, or ``start``.

    A term begins at a message boundary. A group of chunks may span terms; its chunks have the position of its start.
    """
    term = limit - 1 if limit % term_length == 0 else limit
    term -= term % term_length
    if term <= start:
        return start
    walked = walk(WalkRange(term, end, limit))
    return max(start, next(one for one in (walked.boundary, walked.open, term) if one is not None))


READ_BYTES: Final = 1 << 20  # at a time; more than the longest frame
MAX_FRAMES: Final = 200_000  # of one walk, about 50 ms; a JVM starts in ten times as much

FRAME: Final = struct.Struct("<ixBH")  # length, version, flags, type
WHOLE: Final = BEGIN | END
CHUNK: Final = struct.Struct("<4s2xB5xIq")  # magic, flags, rows, position of the group's begin; see wire.chunks


class UnwalkableFilesError(Exception):
    """The files are not readable; ``is_too_long``: the range has too many frames for Python."""

    def __init__(self, text: str, *, is_too_long: bool = False) -> None:
        super().__init__(text)
        self.is_too_long = is_too_long


def aligned_length(length: int, kind: int, position: int, term_length: int) -> int:
    """Return the bytes of the frame at ``position``, with those that align it; its header has ``length`` and ``kind``.

    Returns 0 if the header is not that of a frame: its length is less than a header, its type is neither data nor
    padding, or its end is in another term.
    """
    aligned = (length + 31) & -32
    is_frame = (
        length >= FRAME_HEADER_LENGTH and kind in (DATA, PADDING) and aligned <= term_length - position % term_length
    )
    return aligned if is_frame else 0


class FrameWalk:
    """A walk over frames. Begins at a message or a term, and is done at the first boundary that reaches a limit."""

    def __init__(self, wanted: WalkRange, *, framed: bool, term_length: int) -> None:
        self.done = False
        self.frames = 0
        self._wanted = wanted
        self._term_length = term_length
        self._framed = framed
        self._boundary: int | None = None
        self._rows = 0
        self._message: int | None = None  # begin of the incomplete message
        self._group: int | None = None  # begin of the incomplete group
        self._chunk = _Chunk()

    @property
    def result(self) -> Walked:
        """The result up to the last frame."""
        begin = self._group
        if begin is None and self._message is not None:
            begin = self._message if self._chunk.flags & FIRST else self._chunk.group
        return Walked(self._boundary, self._rows, begin)

    def walk(self, data: bytes, position: int) -> int:
        """Walk the complete frames of ``data``, which begins at ``position``. Return the position after the last one.

        That is beyond the data if a padding frame ends there. Stops before a header that is not that of a frame.
        """
        at, size = 0, len(data)
        wanted, unpack = self._wanted, FRAME.unpack_from
        is_simple, term_length = not self._framed, self._term_length
        while size - at >= FRAME_HEADER_LENGTH and not self.done:
            length, flags, kind = unpack(data, at)
            begin = position + at
            aligned = aligned_length(length, kind, begin, term_length)
            if not aligned or (kind == DATA and aligned > size - at):
                break
            at += aligned
            self.frames += 1
            if is_simple and kind == DATA and flags & WHOLE == WHOLE:
                end = begin + aligned
                if end < wanted.limit and self._rows + 1 < wanted.max_rows:  # far from both limits, as most messages
                    self._message, self._boundary = None, end
                    self._rows += 1
                    continue
            if kind == DATA:
                self._on_frame(data, at - aligned, length, flags, begin, begin + aligned)
            else:
                self._on_padding(begin, begin + aligned)
        return position + at

    def on_damage(self, end: int) -> None:
        """Pass over a damaged part, as over padding; the walk continues at ``end``. Abandons an unfinished message."""
        self._message = self._group = None
        if end <= self._wanted.limit or (self._wanted.at_least_one and self._boundary is None):
            self._boundary = end
        self.done = end >= self._wanted.limit

    def _on_frame(self, data: bytes, at: int, length: int, flags: int, begin: int, end: int) -> None:
        if flags & BEGIN:
            self._message = begin
            self._chunk = _Chunk()
            if self._framed and length - FRAME_HEADER_LENGTH >= FIXED_BYTES:
                self._chunk.read(data, at + FRAME_HEADER_LENGTH)
        elif self._message is None:
            return  # the message began before the walk
        if flags & END:
            message, self._message = self._message, None
            if self._chunk.flags & FIRST:
                self._group = message
            elif self._group is None:
                self._group = self._chunk.group
            if self._chunk.flags & LAST:
                self._on_group_end(end)

    def _on_group_end(self, end: int) -> None:
        wanted, rows = self._wanted, self._rows + self._chunk.rows
        is_beyond = end > wanted.limit or rows > wanted.max_rows
        if is_beyond and (self._rows > 0 or not wanted.at_least_one):
            self.done = True
            return
        self._group = None
        self._boundary, self._rows = end, rows
        self.done = end >= wanted.limit or rows >= wanted.max_rows

    def _on_padding(self, begin: int, end: int) -> None:
        after = self._wanted.start if self._boundary is None else self._boundary
        if self._message is None and self._group is None and after == begin and end <= self._wanted.limit:
            self._boundary = end
            self.done = end >= self._wanted.limit


class _Chunk:
    """The fields of a chunk's header that decide where a group begins and ends; a plain message is a group."""

    __slots__ = ("flags", "group", "rows")

    def __init__(self) -> None:
        self.flags = FIRST | LAST
        self.rows = 1
        self.group: int | None = None

    def read(self, data: bytes, at: int) -> None:
        magic, flags, rows, group = CHUNK.unpack_from(data, at)
        if magic == MAGIC:
            self.flags, self.rows, self.group = flags, rows, group if group >= 0 else None


def walk_files(folder: Path, recording: Recording, wanted: WalkRange, *, framed: bool) -> Walked:
    """Walk a range of a recording in its segment files. The walk ends early when it is done.

    Raises UnwalkableFilesError if a file is missing, or if the range has too many frames.
    """
    walk = FrameWalk(wanted, framed=framed, term_length=recording.term_length)
    at = wanted.start
    while at < wanted.stop and not walk.done:
        segment = segment_at(folder, recording, at)
        if segment is None:
            raise UnwalkableFilesError(f"recording {recording.id} has no readable file at position {at}")
        path, base = segment
        at = _walk_file(walk, recording, wanted, path, base, at)
    return walk.result


def _walk_file(walk: FrameWalk, recording: Recording, wanted: WalkRange, path: Path, base: int, at: int) -> int:
    """Walk the file's part of the range from ``at``; return the position reached."""
    end = min(wanted.stop, base + recording.segment_length)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnwalkableFilesError(f"{path} cannot be read: {error.strerror}") from error
    try:
        while at < end and not walk.done:
            data = os.pread(descriptor, min(READ_BYTES, end - at), at - base)
            reached = walk.walk(data, at)
            if reached == at:
                if wanted.stop < wanted.end and ends_inside_frame(data, len(data), at, recording.term_length):
                    return end
                reached = after_damage(at, recording.term_length, wanted.end)
                walk.on_damage(reached)
            if walk.frames > MAX_FRAMES and not walk.done:
                reason = f"recording {recording.id} has more than {MAX_FRAMES} frames to walk"
                raise UnwalkableFilesError(reason, is_too_long=True)
            at = reached
    except OSError as error:
        raise UnwalkableFilesError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return at


def ends_inside_frame(header: bytes, size: int, position: int, term_length: int) -> bool:
    """Whether the frame at ``position``, whose header is given, is longer than ``size`` bytes."""
    if len(header) < FRAME_HEADER_LENGTH:
        return True
    length, _, kind = FRAME.unpack_from(header)
    return aligned_length(length, kind, position, term_length) > size
