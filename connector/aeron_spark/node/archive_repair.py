"""Repairs recordings that were active when their archive was killed: truncates each after its last complete frame.

An archive does this itself at its start, and so does `ArchiveTool verify`. Both read a segment in blocks of 1 MiB, and
check the last fragment within the last block (`Catalog.recoverStopOffset`, Aeron 1.51.0). If that fragment ends at the
end of a block, they check bytes before the block: the archive then fails at each start, and the tool marks the
recording invalid. Therefore the node applies the same rule to the whole file before it starts the archive.

Offsets are those of the archive's SBE schema for its catalog; a test compares each with the Java classes.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import (
    CATALOG_FILE,
    CATALOG_HEADER,
    CATALOG_HEADER_LENGTH,
    CATALOG_MAJOR_VERSION,
    CHECKSUM_OFFSET,
    ENTRY_HEADER,
    ENTRY_HEADER_LENGTH,
    STOP_POSITION_OFFSET,
    STOP_TIMESTAMP_OFFSET,
    VALID,
)
from aeron_spark.aeron.counters import DRIVER_TIMEOUT_S
from aeron_spark.aeron.recording import FRAME_HEADER_LENGTH, NULL_POSITION, PADDING
from aeron_spark.node.state_files import archive_mark_age
from aeron_spark.transport.channel import FRAME_ALIGNMENT

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

FRAME: Final = struct.Struct("<ibBH4xi")  # length, version, flags, type, term offset, session (or checksum of the body)
PAGE: Final = 4096  # bytes that a system writes in one step, Aeron's constant


@dataclass(frozen=True, slots=True)
class RepairedRecording:
    """A repaired recording: its stop position, and the removed bytes of an incomplete fragment."""

    recording: int
    position: int
    removed_bytes: int

    def __str__(self) -> str:
        removed = f"; {self.removed_bytes} bytes of an incomplete fragment were removed" if self.removed_bytes else ""
        return (
            f"recording {self.recording} was active when its archive was killed: repaired, it ends at position "
            f"{self.position}{removed}"
        )


def repair_recordings(archive_dir: Path, checksum: Callable[[bytes], int]) -> list[RepairedRecording]:
    """Repair each recording that was active when the archive in ``archive_dir`` was killed.

    ``checksum`` computes the archive's checksum of a frame's body with its alignment, as a signed 32-bit number. Does
    nothing if the archive may still be alive or its catalog has another version: Aeron reports these itself.
    """
    path = archive_dir / CATALOG_FILE
    age = archive_mark_age(archive_dir)
    if not path.exists() or path.stat().st_size < CATALOG_HEADER_LENGTH or (age is not None and age < DRIVER_TIMEOUT_S):
        return []
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as catalog:
        repaired = [_repair(archive_dir, catalog, at, checksum) for at in _active_entries(catalog)]
        catalog.flush()
    return repaired


def _active_entries(catalog: mmap.mmap) -> Iterator[int]:
    """Yield the offset of each entry of a recording without a stop position."""
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


def _repair(archive_dir: Path, catalog: mmap.mmap, at: int, checksum: Callable[[bytes], int]) -> RepairedRecording:
    entry = at + ENTRY_HEADER_LENGTH
    recording, _, start, _, segment_length, term_length = DESCRIPTOR.unpack_from(catalog, entry)
    position, incomplete_bytes = start, 0
    bases = [int(path.stem.partition("-")[2]) for path in archive_dir.glob(f"{recording}-[0-9]*.rec")]
    if bases:
        base = max(bases)
        # The first segment begins with the term in which the recording starts.
        first = start % term_length if base == start - start % term_length else 0
        segment = archive_dir / f"{recording}-{base}.rec"
        end, incomplete_bytes = _find_end(segment, first, segment_length, checksum)
        if incomplete_bytes:
            with segment.open("r+b") as file:
                file.truncate(end)
                file.truncate(segment_length)  # the rest reads as zeros, which are not a frame
        position = max(base + end, start)
    # In the archive's order: the time, then the position, which marks the recording as stopped.
    struct.pack_into("<q", catalog, entry + STOP_TIMESTAMP_OFFSET, int(time.time() * 1000))
    struct.pack_into("<q", catalog, entry + STOP_POSITION_OFFSET, position)
    length = ENTRY_HEADER.unpack_from(catalog, at)[0]
    struct.pack_into("<i", catalog, at + CHECKSUM_OFFSET, checksum(catalog[entry : entry + length]))
    return RepairedRecording(recording, position, incomplete_bytes)


def _find_end(segment: Path, first: int, segment_length: int, checksum: Callable[[bytes], int]) -> tuple[int, int]:
    """Return the end of a file's last complete frame, and the number of bytes of an incomplete one after it."""
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
            if offset > limit or (offset > last and not _is_complete(content, last, offset, checksum)):
                return last, min(offset, limit) - last
            return offset, 0


def _is_complete(content: mmap.mmap, begin: int, end: int, checksum: Callable[[bytes], int]) -> bool:
    """Whether the frame was written completely: its checksum is right, or none of its pages reads as zeros."""
    _, _, _, kind, recorded = FRAME.unpack_from(content, begin)
    if kind == PADDING or begin // PAGE == (end - 1) // PAGE:  # an archive writes only the header of padding
        return True
    if recorded == checksum(content[begin + FRAME_HEADER_LENGTH : end]):
        return True
    pages = range((begin // PAGE + 1) * PAGE, end, PAGE)
    return all(any(content[page : min(page + PAGE, end)]) for page in pages)


def _aligned(length: int, alignment: int) -> int:
    return (length + alignment - 1) // alignment * alignment
