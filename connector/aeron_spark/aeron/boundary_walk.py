"""Walks over frame headers in Java: in the archive's files, or in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron.archive import Archive
from aeron_spark.aeron.boundary_rule import Walked, WalkRange, find_end
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import Recording, segment_at
from aeron_spark.aeron.replay import replay
from aeron_spark.waiting import Deadline

MAPPED_BYTES: Final = 16 << 20  # maximum of a segment file that is mapped in one step


def find_boundary(
    archive: Archive,
    recording: Recording,
    *,
    framed: bool,
    start: int,
    limit: int,
    end: int,
    max_rows: int | None,
    idle_timeout: float,
) -> tuple[int, int]:
    """Return a position at which a range from ``start`` may end, and its number of rows if they were counted (else 0).

    See :class:`aeron_spark.log.api.Boundaries` for the guarantees. Reads the headers of at most one term or, with
    ``max_rows``, of the range.
    """

    def walk_range(wanted: WalkRange) -> Walked:
        return walk(archive, recording, wanted, framed=framed, idle_timeout=idle_timeout)

    return find_end(walk_range, recording.term_length, start=start, limit=limit, end=end, max_rows=max_rows)


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
    start, end = wanted.start, wanted.end
    if archive.address.archive_dir:
        start = _walk_files(found, Path(archive.address.archive_dir), recording, start, end)
    if not found.done() and start < end:
        _walk_replay(found, archive, recording, start, end, idle_timeout)
    return Walked(_position(found.boundary()), int(found.rows()), _position(found.open()))


def _position(value: Any) -> int | None:
    return None if int(value) < 0 else int(value)


def _walk_files(found: Any, folder: Path, recording: Recording, start: int, end: int) -> int:
    """Walk the archive's files. Return the position reached, which is less than ``end`` only if a file is missing."""
    at = start
    while at < end and not found.done():
        segment = segment_at(folder, recording, at)
        if segment is None:
            return at  # purged since, or not readable: the following replay request shows the cause
        path, base = segment
        to = min(end, base + recording.segment_length, at + MAPPED_BYTES)
        reached = int(found.walk(str(path), base, at, to))
        if reached == at:
            return end  # the range ends inside this frame
        at = reached
    return at


def _walk_replay(found: Any, archive: Archive, recording: Recording, start: int, end: int, idle_timeout: float) -> None:
    deadline = Deadline(idle_timeout, f"more of recording {recording.id} of {archive.address.name}")
    with replay(archive, recording, start, end, timeout=idle_timeout) as opened:
        while not found.done() and int(opened.image.position()) < end:
            if found.walk(opened.image):
                deadline.progress()
            else:
                opened.check()
                deadline.idle(f"at position {int(opened.image.position())} of [{start}, {end})")
