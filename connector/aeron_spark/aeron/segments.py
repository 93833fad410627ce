"""A recording's own files, where they are on this machine: read in place, without the archive's help."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import jpype

from aeron_spark.aeron.archive import Recording
from aeron_spark.aeron.exceptions import describe
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import DataFormatError, TransportError


def segment_at(folder: Path, recording: Recording, position: int) -> tuple[Path, int] | None:
    """Return the file that holds ``position`` and the position of its first byte; None where it is not ours to read."""
    # The first segment begins at the term in which the recording began.
    origin = recording.start_position - recording.start_position % recording.term_length
    base = origin + (position - origin) // recording.segment_length * recording.segment_length
    path = folder / f"{recording.id}-{base}.rec"
    return (path, base) if os.access(path, os.R_OK) else None


class Segments:
    """The messages of ``[start, end)`` of a recording, both frame boundaries, as far as its files are there.

    Where a file is missing (purged meanwhile, or another user's) the range ends early, at ``position``, which is then
    the beginning of a segment and so of a message.
    """

    def __init__(self, folder: Path, recording: Recording, start: int, end: int) -> None:
        self.position = start
        self.end = end
        self._folder = folder
        self._recording = recording
        self._open: Any = None
        self._mapped_at = start

    @property
    def more(self) -> bool:
        """Whether there is more of the range in files."""
        if self.position < self.end and (self._open is None or self.position >= int(self._open.end())):
            self._next()
        return self.position < self.end and self._open is not None

    def fill(self, helper: Any) -> bool:
        """Move messages into the helper's memory; return whether it is full.

        Raises DataFormatError where a checksum does not hold, TransportError where no frame stands where one should.
        """
        try:
            full = bool(helper.drain(self._open, self.end))
        except jpype.JException as error:
            raise DataFormatError(
                f"recording {self._recording.id} was changed on its disk: {describe(error)}",
                remedy="Restore the archive's files from a copy, or read from a later position.",
            ) from error
        before, self.position = self.position, int(self._open.position())
        if full or self.position >= min(self.end, int(self._open.end())):
            return full
        if self.position > self._mapped_at:  # a frame goes on beyond what is mapped: map from there
            self._next()
        else:
            raise TransportError(
                f"the file of recording {self._recording.id} has no whole message at position {self.position} (reading "
                f"from {before} to {self.end})",
                remedy="It was truncated while it was read; trying again looks at the recording anew.",
            )
        return full

    def consumed(self) -> None:
        """Nothing waits here: what is wanted was written before it was planned."""

    def close(self) -> None:
        """Let go of the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Segments:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _next(self) -> None:
        self.close()
        found = segment_at(self._folder, self._recording, self.position)
        if found is not None:
            path, base = found
            self._mapped_at = self.position
            try:
                self._open = jclass("io.aeronspark.SegmentFile")(str(path), base, self.position)
            except jpype.JException:
                self._open = None  # deleted between the look and the opening
