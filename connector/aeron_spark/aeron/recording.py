"""The address of an archive, a recording with its segment files, and replays that are started ahead. Needs no JVM.

The archive's response to a request takes longer than the replay of a short range. A task of many short recordings
therefore starts the replay of a range together with those of the next ones. An archive has a limit of concurrent
replays: what it refuses is started when it is read, and waits for its turn then.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from aeron_spark.errors import AeronSparkError

NULL_POSITION: Final = -1  # no position; the archive also writes it in place of a time that there is not
STOP_TIMESTAMP, STOP_POSITION = 2, 4  # among the fields of Recording

# The header of a frame in a segment file: its length in bytes, the types of frames, and the flags of a data frame.
FRAME_HEADER_LENGTH: Final = 32
PADDING: Final = 0
DATA: Final = 1
BEGIN: Final = 0x80
END: Final = 0x40


@dataclass(frozen=True, slots=True)
class ArchiveAddress:
    """How to reach an archive. ``name`` identifies it in offsets; ``local``: it uses the client's own media driver."""

    name: str
    aeron_dir: str
    control_channel: str
    control_stream_id: int = 10
    response_channel: str = "aeron:ipc?term-length=64k"
    replay_channel: str = "aeron:ipc"
    local: bool = True
    archive_dir: str = ""  # of this machine's node; "" if the archive's files are unknown
    archive_id: int = -1  # of this machine's node
    credentials_file: str = field(default="", repr=False)
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording's entry in the archive's catalog; ``stop_position`` is None while the recording is active."""

    id: int
    start_timestamp: int
    stop_timestamp: int | None
    start_position: int
    stop_position: int | None
    initial_term_id: int
    segment_length: int
    term_length: int
    mtu: int
    session_id: int
    stream_id: int
    channel: str
    original_channel: str
    source: str

    def segment_base(self, position: int) -> int:
        """Return the first position of the segment of ``position``; the first one begins with the term of the start."""
        origin = self.start_position - self.start_position % self.term_length
        return position - (position - origin) % self.segment_length

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that distinguish the recording from another one with the same archive and id.

        The Aeron session id is not included, because an extension of the recording changes it.
        """
        numbers = self.initial_term_id, self.stream_id, self.term_length, self.mtu, self.start_timestamp
        return f"{zlib.crc32(','.join(map(str, numbers)).encode('ascii')):08x}"


def recording_of(numbers: Iterable[int], texts: Iterable[str]) -> Recording:
    """Return the recording of a descriptor, whose values have the order of Recording's fields."""
    values: list[int | None] = list(numbers)
    for optional in (STOP_TIMESTAMP, STOP_POSITION):
        if values[optional] == NULL_POSITION:
            values[optional] = None
    return Recording(*values, *texts)  # type: ignore[arg-type]


class UnreadableBytesError(Exception):
    """A recording has no complete frame at ``position``; all rows of complete messages before it were delivered.

    ``cause`` is the error of the reading, if it has one: then the bytes may be there, but cannot be read.
    """

    def __init__(self, position: int, cause: AeronSparkError | None = None) -> None:
        super().__init__(f"no complete frame at position {position}")
        self.position = position
        self.cause = cause


def segment_at(folder: Path, recording: Recording, position: int) -> tuple[Path, int] | None:
    """Return the segment file with ``position``, and the position of its first byte; None if it is not readable."""
    base = recording.segment_base(position)
    path = folder / f"{recording.id}-{base}.rec"
    return (path, base) if os.access(path, os.R_OK) else None


def read_recorded(folder: Path, recording: Recording, position: int, length: int) -> bytes | None:
    """Return bytes of one segment of a recording, or None if its file does not have them or is not readable."""
    segment = segment_at(folder, recording, position)
    if segment is None:
        return None
    path, base = segment
    try:
        with path.open("rb") as file:
            file.seek(position - base)
            data = file.read(length)
    except OSError:
        return None
    return data if len(data) == length else None


REPLAYS_AT_ONCE: Final = 8  # of the 20 that an archive allows by default
SHORT_BYTES: Final = 256 << 10  # of a range; a longer replay takes longer than its start


class Span(NamedTuple):
    """A range of a recording that is read by a replay."""

    archive: str
    recording_id: int
    start: int
    end: int


class _Started(NamedTuple):
    connection: Hashable
    session_id: int
    stop: Callable[[], object]


class ReplaysAhead:
    """The ``spans`` that one task reads, in this order, and their replays that are started and not read yet.

    For one thread. Close it at the end of the task: that stops the replays that were not read.
    """

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans = [span for span in spans if span.end - span.start <= SHORT_BYTES]
        self._index = {span: index for index, span in enumerate(self._spans)}
        self._started: dict[Span, _Started] = {}

    def following(self, span: Span) -> list[Span]:
        """Return the next spans of the same archive, whose replays can be started together with that of ``span``."""
        index = self._index.get(span)
        if index is None:
            return []
        found = self._spans[index + 1 : index + REPLAYS_AT_ONCE]
        return [one for one in found if one.archive == span.archive and one not in self._started]

    def add(self, span: Span, connection: Hashable, session_id: int, stop: Callable[[], object]) -> None:
        """Keep a replay that has been started; ``connection`` is what it arrives at, and ``stop`` ends it."""
        self._started[span] = _Started(connection, session_id, stop)

    def take(self, span: Span, connection: Hashable) -> int | None:
        """Return the session of the replay of ``span``, or None if none was started to this connection."""
        found = self._started.pop(span, None)
        return None if found is None or found.connection != connection else found.session_id

    def close(self) -> None:
        """Stop the replays that were not read."""
        while self._started:
            self._started.popitem()[1].stop()
