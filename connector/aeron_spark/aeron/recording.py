"""The address of an archive, and the description of a recording with its segment files. Needs no JVM."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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
