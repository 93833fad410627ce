"""Finds message boundaries of recordings: Java reads frame headers in the archive's files, or in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aeron_spark.aeron.archive import Archive
from aeron_spark.aeron.jvm import jclass
from aeron_spark.aeron.recording import Recording, segment_at
from aeron_spark.aeron.replay import replay
from aeron_spark.transport.channel_parameters import FRAME_ALIGNMENT
from aeron_spark.waiting import Deadline

NO_LIMIT: Final = 2**63 - 1
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
    aligned = limit - limit % FRAME_ALIGNMENT
    if max_rows is None:
        found = _last_term_boundary(archive, recording, start, aligned, framed=framed, idle_timeout=idle_timeout)
        if found > start:
            return found, 0
    walked = walk(
        archive, recording, framed=framed, start=start, end=end - end % FRAME_ALIGNMENT, limit=aligned,
        max_rows=max_rows, at_least_one=True, idle_timeout=idle_timeout,
    )  # fmt: skip
    position = int(walked.boundary())
    return (position, int(walked.rows())) if position >= 0 else (start, 0)


def _last_term_boundary(
    archive: Archive, recording: Recording, start: int, limit: int, *, framed: bool, idle_timeout: float
) -> int:
    """Return the last boundary up to ``limit`` in the term of ``limit``, or ``start``.

    A term begins at a message boundary. A group of chunks may span terms; its chunks have the position of its start.
    """
    term = limit - 1 if limit % recording.term_length == 0 else limit
    term -= term % recording.term_length
    if term <= start:
        return start
    walked = walk(
        archive, recording, framed=framed, start=term, end=limit, limit=limit, max_rows=None, at_least_one=False,
        idle_timeout=idle_timeout,
    )  # fmt: skip
    boundary, group_start = int(walked.boundary()), int(walked.open())
    return max(start, boundary if boundary >= 0 else group_start if group_start >= 0 else term)


def walk(
    archive: Archive,
    recording: Recording,
    *,
    framed: bool,
    start: int,
    end: int,
    limit: int,
    max_rows: int | None,
    at_least_one: bool,
    idle_timeout: float,
) -> Any:
    """Walk ``[start, end)`` and return the Java BoundaryWalk with its results. The walk ends early when it is done."""
    found = jclass("io.aeronspark.reading.BoundaryWalk")(
        recording.initial_term_id,
        recording.term_length,
        framed,
        start,
        limit,
        NO_LIMIT if max_rows is None else max_rows,
        at_least_one,
    )
    if archive.address.archive_dir:
        start = _walk_files(found, Path(archive.address.archive_dir), recording, start, end)
    if not found.done() and start < end:
        _walk_replay(found, archive, recording, start, end, idle_timeout)
    return found


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
