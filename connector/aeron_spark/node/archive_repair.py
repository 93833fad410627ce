"""The ends of recordings that were open when their archive was killed: found, cut where torn, and written down.

An archive does this itself when it starts, and its `ArchiveTool verify` does it for one that refuses to. Both look at
a segment in pieces of 1 MiB and judge the last fragment within the last piece they read (`Catalog.recoverStopOffset`,
seen in 1.51.0). Where that fragment ends a piece, what they look at lies before the piece: the archive then never
starts again, and the tool marks the recording invalid. So this comes first, by the same rule on the whole file, and
leaves the archive nothing to find.

Offsets are those of the archive's SBE schema for its catalog; a test compares each with what the Java classes say.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.node.liveness import DRIVER_TIMEOUT, archive_mark_age

CATALOG: Final = "archive.catalog"
CATALOG_HEADER: Final = struct.Struct(
    "<i"  # version, its major number in bits 16 to 23
    "i"  # length of this header
    "q"  # id of the next recording
    "i"  # alignment of the entries
)
CATALOG_HEADER_LENGTH: Final = 32
CATALOG_MAJOR_VERSION: Final = 3
ENTRY_HEADER: Final = struct.Struct("<iii")  # length of the descriptor, state, checksum
ENTRY_HEADER_LENGTH: Final = 32
VALID: Final = 1
DESCRIPTOR: Final = struct.Struct(
    "<16x"  # control session, correlation
    "q"  # recording
    "8x"  # start, ms
    "q"  # stop, ms
    "q"  # start position
    "q"  # stop position
    "4x"  # initial term id
    "i"  # length of a segment file
    "i"  # length of a term
)
STOP_TIMESTAMP_OFFSET: Final = 32
STOP_POSITION_OFFSET: Final = 48
NULL_POSITION: Final = -1

FRAME: Final = struct.Struct("<ibBH4xi")  # length, version, flags, type, term offset, session (or checksum of the body)
FRAME_HEADER_LENGTH: Final = 32
FRAME_ALIGNMENT: Final = 32
PADDING: Final = 0
PAGE: Final = 4096  # Aeron's own constant: what a system writes at once


@dataclass(frozen=True, slots=True)
class RepairedRecording:
    """How a recording that was open has been ended: where, and how many bytes of a torn fragment were cut off."""

    recording: int
    position: int
    torn: int

    def __str__(self) -> str:
        cut = f"; {self.torn} bytes of an incomplete fragment were cut off" if self.torn else ""
        return (
            f"recording {self.recording} was open when its archive was killed: it ends at position {self.position}{cut}"
        )


def repair_recordings(archive_dir: Path, checksum: Callable[[bytes], int]) -> list[RepairedRecording]:
    """End every recording that was open when the archive in ``archive_dir`` was killed; return what was done.

    ``checksum`` is the archive's, of a frame's body with its alignment, as a signed 32-bit number. An archive that may
    still be alive, or of another version, is left as it is: Aeron has the word for both.
    """
    path = archive_dir / CATALOG
    age = archive_mark_age(archive_dir)
    if not path.exists() or path.stat().st_size < CATALOG_HEADER_LENGTH or (age is not None and age < DRIVER_TIMEOUT):
        return []
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as catalog:
        settled = [_settle(archive_dir, catalog, at, checksum) for at in _open_entries(catalog)]
        catalog.flush()
    return settled


def _open_entries(catalog: mmap.mmap) -> Iterator[int]:
    """Yield the offset of each entry of a recording that has not ended."""
    version, _, _, alignment = CATALOG_HEADER.unpack_from(catalog)
    if version >> 16 & 0xFF != CATALOG_MAJOR_VERSION or alignment <= 0:
        return
    at = CATALOG_HEADER_LENGTH
    while at + ENTRY_HEADER_LENGTH + DESCRIPTOR.size <= len(catalog):
        length, state, _ = ENTRY_HEADER.unpack_from(catalog, at)
        if length <= 0:
            return
        _, _, _, stop, segment_length, term_length = DESCRIPTOR.unpack_from(catalog, at + ENTRY_HEADER_LENGTH)
        if state == VALID and stop == NULL_POSITION and segment_length >= term_length > 0:
            yield at
        at += _aligned(ENTRY_HEADER_LENGTH + length, alignment)


def _settle(archive_dir: Path, catalog: mmap.mmap, at: int, checksum: Callable[[bytes], int]) -> RepairedRecording:
    entry = at + ENTRY_HEADER_LENGTH
    recording, _, start, _, segment_length, term_length = DESCRIPTOR.unpack_from(catalog, entry)
    position, torn = start, 0
    bases = [int(path.stem.partition("-")[2]) for path in archive_dir.glob(f"{recording}-[0-9]*.rec")]
    if bases:
        base = max(bases)
        # The first segment begins at the term in which the recording began.
        first = start % term_length if base == start - start % term_length else 0
        segment = archive_dir / f"{recording}-{base}.rec"
        end, torn = _end_of(segment, first, segment_length, checksum)
        if torn:
            with segment.open("r+b") as file:
                file.truncate(end)
                file.truncate(segment_length)  # what follows reads as zeros: no frame
        position = max(base + end, start)
    # As the archive does on an ordinary stop: the time, then the position, which makes it true.
    struct.pack_into("<q", catalog, entry + STOP_TIMESTAMP_OFFSET, int(time.time() * 1000))
    struct.pack_into("<q", catalog, entry + STOP_POSITION_OFFSET, position)
    length = ENTRY_HEADER.unpack_from(catalog, at)[0]
    struct.pack_into("<i", catalog, at + 8, checksum(catalog[entry : entry + length]))
    return RepairedRecording(recording, position, torn)


def _end_of(segment: Path, first: int, segment_length: int, checksum: Callable[[bytes], int]) -> tuple[int, int]:
    """Return where the last whole frame of a file ends, and how many bytes of a torn one follow it."""
    with segment.open("rb") as file:
        limit = min(segment.stat().st_size, segment_length)
        if limit <= first:
            return first, 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            last = offset = first
            while offset + FRAME_HEADER_LENGTH <= limit:
                length = FRAME.unpack_from(content, offset)[0]
                if length <= 0:
                    break
                last, offset = offset, offset + _aligned(length, FRAME_ALIGNMENT)
            if offset > limit or (offset > last and not _is_whole(content, last, offset, checksum)):
                return last, min(offset, limit) - last
            return offset, 0


def _is_whole(content: mmap.mmap, begin: int, end: int, checksum: Callable[[bytes], int]) -> bool:
    """Whether all of the frame was written, as far as can be told: a page that was not reads as zeros."""
    _, _, _, kind, recorded = FRAME.unpack_from(content, begin)
    if kind == PADDING or begin // PAGE == (end - 1) // PAGE:  # of padding, an archive writes the header alone
        return True
    if recorded == checksum(content[begin + FRAME_HEADER_LENGTH : end]):
        return True
    pages = range((begin // PAGE + 1) * PAGE, end, PAGE)
    return all(any(content[page : min(page + PAGE, end)]) for page in pages)


def _aligned(length: int, alignment: int) -> int:
    return (length + alignment - 1) // alignment * alignment
