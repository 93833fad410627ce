"""Walks over frame headers in Java: in the archive's files, or in a replay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron.archive import Archive, ReplayedRange
from aeron_spark.aeron.boundary import (
    Walked,
    WalkRange,
    WantedBoundary,
    after_damage,
    ends_inside_frame,
    find_end,
)
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import FRAME_HEADER_LENGTH, Recording, UnreadableBytesError, segment_at

MAPPED_BYTES: Final = 16 << 20  # maximum of a segment file that is mapped in one step


def find_boundary(
    archive: Archive,
    recording: Recording,
    wanted: WantedBoundary,
    *,
    framed: bool,
    idle_timeout: float,
) -> tuple[int, int]:
    """Return a position at which the wanted range may end, and its number of rows if they were counted (else 0).

    See :class:`aeron_spark.log.api.Boundaries` for the guarantees. Reads the headers of at most one term or, with
    ``max_rows``, of the range.
    """

    def walk_range(one: WalkRange) -> Walked:
        return walk(archive, recording, one, framed=framed, idle_timeout=idle_timeout)

    return find_end(walk_range, recording.term_length, wanted)


def walk(archive: Archive, recording: Recording, wanted: WalkRange, *, framed: bool, idle_timeout: float) -> Walked:
    """Walk a range of a recording. The walk ends early when it is done."""
    found = jclass("io.aeronspark.reading.BoundaryWalk")(
        recording.initial_term_id,
        recording.term_length,
        framed,
        wanted.start,
        wanted.limit,
        wanted.max_rows,
        wanted.at_least_one,
    )
    start = wanted.start
    if archive.address.archive_dir:
        start = _walk_files(found, Path(archive.address.archive_dir), recording, wanted)
    while not found.done() and start < wanted.stop:
        try:
            _walk_replay(found, archive, recording, start, wanted.stop, idle_timeout)
            break
        except UnreadableBytesError as error:
            if error.cause is not None:
                raise error.cause from None
            start = after_damage(error.position, recording.term_length, wanted.end)
            found.onDamage(start)
    return Walked(_position(found.boundary()), int(found.rows()), _position(found.open()))


def _position(value: Any) -> int | None:
    return None if int(value) < 0 else int(value)


def _walk_files(found: Any, folder: Path, recording: Recording, wanted: WalkRange) -> int:
    """Walk the archive's files. Return the position reached: less than ``wanted.stop`` only if a file is missing."""
    at = wanted.start
    while at < wanted.stop and not found.done():
        segment = segment_at(folder, recording, at)
        if segment is None:
            return at  # purged since, or not readable: the following replay request shows the cause
        path, base = segment
        to = min(wanted.stop, base + min(recording.segment_length, path.stat().st_size), at + MAPPED_BYTES)
        reached = int(found.walk(str(path), base, at, to)) if to > at else at
        if reached == at:
            if wanted.stop < wanted.end and _ends_inside_frame(path, base, recording.term_length, at, to):
                return wanted.stop
            reached = after_damage(at, recording.term_length, wanted.end)
            found.onDamage(reached)
        at = reached
    return at


def _ends_inside_frame(path: Path, base: int, term_length: int, at: int, to: int) -> bool:
    with path.open("rb", buffering=0) as file:
        return ends_inside_frame(os.pread(file.fileno(), FRAME_HEADER_LENGTH, at - base), to - at, at, term_length)


def _walk_replay(found: Any, archive: Archive, recording: Recording, start: int, end: int, idle_timeout: float) -> None:
    """Walk a replay of ``[start, end)``. Raises UnreadableBytesError at a damaged frame."""
    with ReplayedRange(archive, recording, start, end, idle_timeout) as replayed:
        while not found.done() and replayed.position < end:
            replayed.poll(found.walk)
