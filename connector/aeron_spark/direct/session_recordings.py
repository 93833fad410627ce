"""The recordings of an archive, asked for in a session, and their rows. Needs the JVM."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import TypeVar

from aeron_spark.aeron.archive import Archive, ReplayedRange, archive_of
from aeron_spark.aeron.boundary import WantedBoundary
from aeron_spark.aeron.boundary_walk import find_boundary
from aeron_spark.aeron.recording import ArchiveAddress, Recording, ReplaysAhead
from aeron_spark.aeron.row_sources import ReplaySource, SegmentSource, drain
from aeron_spark.direct.archive_recordings import CataloguedRecording
from aeron_spark.errors import SetupError, TransportError
from aeron_spark.log.api import Boundary
from aeron_spark.wire.values import Rows


def read_rows(
    address: ArchiveAddress,
    recording: Recording,
    start: int,
    end: int,
    *,
    read_path: str,
    idle_timeout: float,
    ahead: ReplaysAhead | None = None,
) -> Iterator[Rows]:
    """Yield the messages of ``[start, end)``, both message boundaries. Opens a session only for a replay.

    ``read_path`` is the option ``readPath``; ``idle_timeout`` is in seconds. The replays
    may be started ``ahead``.
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
        with ReplayedRange(archive, recording, start, end, idle_timeout, ahead) as replayed:
            yield from drain(ReplaySource(replayed), recording)


Answer = TypeVar("Answer")


class SessionRecordings:
    """The recordings of the archive at ``address``. ``idle_timeout``: the longest wait for a replay, in seconds."""

    def __init__(self, address: ArchiveAddress, idle_timeout: float) -> None:
        self._address = address
        self._idle_timeout = idle_timeout

    def run(self) -> Hashable:
        """Return the process's session with the archive: a restarted archive has another one."""
        return archive_of(self._address)

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        return self._retried(lambda archive: [with_end(archive, one) for one in archive.recordings(stream_id)])

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        archive = archive_of(self._address)
        found = archive.recording(recording_id)
        return None if found is None else with_end(archive, found)

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording, from the archive's files or from a replay."""
        archive = archive_of(self._address)
        return Boundary(*find_boundary(archive, recording, wanted, framed=framed, idle_timeout=self._idle_timeout))

    def _retried(self, ask: Callable[[Archive], Answer]) -> Answer:
        archive = archive_of(self._address)
        try:
            return ask(archive)
        except TransportError:
            if not archive.closed:
                raise
        # The session was lost, which only its use shows. Retry with a new session, so that the query does not fail.
        return ask(archive_of(self._address))


def with_end(archive: Archive, recording: Recording) -> CataloguedRecording:
    """Return the recording with its current end."""
    stop = recording.stop_position
    return CataloguedRecording(recording, archive.position(recording.id) if stop is None else stop)
