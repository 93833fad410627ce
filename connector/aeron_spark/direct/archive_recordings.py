"""The recordings of one archive, as queries need them: the port, and the choice between its two adapters.

``SessionRecordings`` asks any archive through a session, which needs a JVM with an Aeron client. ``FileRecordings``
reads the files of this machine's archive and driver, and cannot answer in some states. ``FilesFirst`` asks the files,
and the session only where they cannot answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from aeron_spark.aeron.recording import Recording
from aeron_spark.log.api import Boundary

LOG: Final = logging.getLogger("aeron_spark.direct")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class CataloguedRecording:
    """A recording with its current end."""

    recording: Recording
    end: int

    @property
    def active(self) -> bool:
        """Whether the recording is active."""
        return self.recording.stop_position is None

    @property
    def length(self) -> int:
        """Recorded bytes of the log."""
        return self.end - self.recording.start_position

    @property
    def segments(self) -> int:
        """Number of segment files."""
        origin = segment_base(self.recording, self.recording.start_position)
        return -(-(self.end - origin) // self.recording.segment_length)


def segment_base(recording: Recording, position: int) -> int:
    """Return the first position of the segment of ``position``; the first segment begins with the term of the start."""
    origin = recording.start_position - recording.start_position % recording.term_length
    return origin + (position - origin) // recording.segment_length * recording.segment_length


@dataclass(frozen=True, slots=True)
class WantedBoundary:
    """The arguments of :class:`aeron_spark.log.api.Boundaries`, without the recording."""

    start: int
    limit: int
    end: int
    max_rows: int | None


class ArchiveRecordings(Protocol):
    """The recordings of one archive."""

    def run(self) -> Hashable:
        """Return a value that differs after a restart of the archive, which forgets the requests to record."""
        ...

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        ...

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        ...

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording; see :class:`aeron_spark.log.api.Boundaries`."""
        ...


class CannotAnswerError(Exception):
    """The files do not have the answer, or it is not certain: ask the archive. The text is the reason."""


class FilesFirst:
    """Asks the files of an archive, and its session where the files cannot answer. ``open_session`` loads Java."""

    def __init__(self, files: ArchiveRecordings, open_session: Callable[[], ArchiveRecordings]) -> None:
        self._files = files
        self._open_session = open_session

    def run(self) -> Hashable:
        """Return a value that differs after a restart of the archive."""
        return self._first(lambda one: one.run())

    def of_stream(self, stream_id: int) -> list[CataloguedRecording]:
        """Return the recordings of all streams with this id, ordered by recording id."""
        return self._first(lambda one: one.of_stream(stream_id))

    def find(self, recording_id: int) -> CataloguedRecording | None:
        """Return one recording, or None if the archive does not have it."""
        return self._first(lambda one: one.find(recording_id))

    def boundary(self, recording: Recording, wanted: WantedBoundary, *, framed: bool) -> Boundary:
        """Return a boundary of the recording."""
        return self._first(lambda one: one.boundary(recording, wanted, framed=framed))

    def _first(self, ask: Callable[[ArchiveRecordings], Answer]) -> Answer:
        try:
            return ask(self._files)
        except CannotAnswerError as reason:
            LOG.debug("asking the archive, because its files do not have the answer: %s", reason)
        return ask(self._open_session())
