"""The recordings of this machine's archive, from its catalog and the driver's counters. Needs no JVM.

The catalog has the end of a stopped recording, and a counter of the driver has that of an active one. The archive
changes both at any time, in this order: a new recording gets its entry, then its counter; a recording that stops gets
its stop position, then loses its counter; an extended one gets its counter, then loses its stop position. Therefore
each answer reads the catalog, then the counters, then the catalog again. It is right if the catalog is the same, if no
active recording lacks its counter, and if the archive and its driver are alive. Otherwise it tries again, a few times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import FILE_NAME, parse_catalog
from aeron_spark.aeron.boundary_rule import Walked, WalkRange, find_end
from aeron_spark.aeron.counters import read_recorded_positions
from aeron_spark.aeron.frame_walk import UnwalkableFilesError, walk_files
from aeron_spark.aeron.recording import ArchiveAddress, Recording
from aeron_spark.direct.archive_recordings import CannotAnswerError, CataloguedRecording, WantedBoundary
from aeron_spark.direct.archives import is_running
from aeron_spark.errors import ConnectError, DataLossError
from aeron_spark.log.api import Boundary
from aeron_spark.node.liveness import DRIVER_TIMEOUT_S, driver_liveness, read_archive_mark

ATTEMPTS: Final = 20  # 0.1 s in all; after it a session answers, which takes a few milliseconds
PAUSE_S: Final = 0.005  # between two attempts; the archive waits for its driver between an entry and its counter


class FileRecordings:
    """The recordings of the archive at ``address``, if it is that of this machine's node.

    Each method raises CannotAnswerError if the files are not readable, or changed at each attempt, or if the archive
    may have ended.
    """

    def __init__(self, address: ArchiveAddress, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address = address
        self._folder = Path(address.archive_dir)
        self._sleep = sleep
        self._is_walk_too_long = False

    def run(self) -> Hashable:
        """Return the archive's process and start."""
        self._require_folder()
        mark = read_archive_mark(self._folder)
        driver = driver_liveness(Path(self._address.aeron_dir))
        if mark is None or driver is None:
            raise CannotAnswerError("the archive's mark file or the driver's counters cannot be read")
        if not driver.alive or mark.age >= DRIVER_TIMEOUT_S:
            raise CannotAnswerError("the archive or its driver has no heartbeat")
        if not is_running(driver.pid):
            raise CannotAnswerError(f"the driver's process {driver.pid} has ended")
        if mark.pid != driver.pid:
            raise CannotAnswerError(f"the archive is of process {mark.pid}, the driver of process {driver.pid}")
        return mark.pid, mark.started_ms

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        return self._listed(lambda _, of_recording: of_recording == stream_id)

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        found = self._listed(lambda id_of_recording, _: id_of_recording == recording_id)
        return found[0] if found else None

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording, from its segment files.

        After a walk over too many frames it does not try again: then Java is faster, even with the start of a JVM.
        """
        self._require_folder()
        if self._is_walk_too_long:
            raise CannotAnswerError("an earlier walk was too long")

        def walk(one: WalkRange) -> Walked:
            return walk_files(self._folder, recording, one, framed=framed)

        try:
            position, rows = find_end(
                walk, recording.term_length, start=wanted.start, limit=wanted.limit, end=wanted.end,
                max_rows=wanted.max_rows,
            )  # fmt: skip
        except UnwalkableFilesError as error:
            self._is_walk_too_long = error.is_too_long
            raise CannotAnswerError(str(error)) from error
        return Boundary(position, rows)

    def _require_folder(self) -> None:
        if not self._address.archive_dir:
            raise CannotAnswerError("the folder of the archive's files is unknown")

    def _listed(self, is_wanted: Callable[[int, int], bool]) -> list[CataloguedRecording]:
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(PAUSE_S)
            run = self.run()
            try:
                return self._snapshot(is_wanted, run)
            except _ChangingFilesError as error:
                reason = str(error)
        raise CannotAnswerError(f"{reason}, {ATTEMPTS} times")

    def _snapshot(self, is_wanted: Callable[[int, int], bool], run: Hashable) -> list[CataloguedRecording]:
        path = self._folder / FILE_NAME
        data = self._read(path)
        try:
            catalog = parse_catalog(data, str(path), is_wanted)
        except DataLossError as error:
            raise CannotAnswerError(error.what) from error
        if catalog.faults:
            raise _ChangingFilesError(catalog.faults[0])
        found = [entry.recording for _, entry in sorted(catalog.entries.items())]
        positions = self._positions() if any(one.stop_position is None for one in found) else {}
        if self._read(path) != data or self.run() != run:
            raise _ChangingFilesError("the catalog changed")
        return [CataloguedRecording(one, _end(one, positions)) for one in found]

    def _read(self, path: Path) -> bytes:
        # Not mapped: an archive that is started again may truncate the file.
        try:
            return path.read_bytes()
        except OSError as error:
            raise CannotAnswerError(f"{path} cannot be read: {error.strerror}") from error

    def _positions(self) -> dict[int, int]:
        try:
            return read_recorded_positions(self._address.aeron_dir, self._address.archive_id)
        except ConnectError as error:
            raise CannotAnswerError(error.what) from error


class _ChangingFilesError(Exception):
    """The archive changed its files during an attempt."""


def _end(recording: Recording, positions: dict[int, int]) -> int:
    if recording.stop_position is not None:
        return recording.stop_position
    position = positions.get(recording.id)
    if position is None or position < recording.start_position:  # the archive has not set a new counter yet
        raise _ChangingFilesError(f"the driver has no position of recording {recording.id}")
    return position
