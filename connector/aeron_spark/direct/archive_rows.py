"""Reads rows of a recording with Java: from the archive's segment files, or from a replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.aeron.replay import ReplayedRange
from aeron_spark.aeron.row_sources import ReplaySource, SegmentSource, drain
from aeron_spark.errors import SetupError
from aeron_spark.wire.values import Rows


def read_rows(
    address: ArchiveAddress, recording: Recording, start: int, end: int, *, read_path: str, idle_timeout: float
) -> Iterator[Rows]:
    """Yield the messages of ``[start, end)``, both message boundaries. Opens a session only for a replay.

    ``read_path`` is the option ``readPath``; ``idle_timeout`` is in seconds.
    """
    folder = address.archive_dir
    if not folder and read_path == "files":
        raise SetupError(
            f"the archive of the driver in {address.aeron_dir} belongs to another program, so the folder of its files "
            "is unknown",
            remedy="Read it with readPath=replay or auto.",
        )
    if folder and read_path != "replay":
        with SegmentSource(Path(folder), recording, start, end) as files:
            yield from drain(files, recording)
            start = files.position
    if start < end:  # a segment file is missing: the archive's replay has the rest, or reports the cause
        archive = archive_of(address)
        with ReplayedRange(archive, recording, start, end, idle_timeout) as replayed:
            yield from drain(ReplaySource(replayed), recording)
