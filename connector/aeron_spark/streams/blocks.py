"""The log of a recording as it lies in the archive's files, in blocks: no Java, no replay, nothing per message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from aeron_spark.aeron.archive import Recording
from aeron_spark.aeron.segments import segment_at
from aeron_spark.errors import DataLossError


def read_blocks(
    folder: Path, recording: Recording, name: str, start: int, end: int, most: int, into: memoryview | None = None
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield ``(position, log bytes)`` of ``[start, end)``, each at most ``most`` bytes and never empty.

    Where memory for as many is given they are read ``into`` it, one after the other, and last until the next ones.
    Blocks follow each other without a gap and may begin and end within a frame; ``end`` must be recorded. ``name`` says
    in errors whose recording it is. Raises DataLossError where a segment was deleted or is shorter than it was.
    """
    at = start
    while at < end:
        found = segment_at(folder, recording, at)
        if found is None:
            raise _gone(recording, name, at, end)
        path, base = found
        try:
            # What is deleted while it is open can be read to its end.
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise _gone(recording, name, at, end) from None
        with file:
            stop = min(end, base + recording.segment_length)
            while at < stop:
                wanted = min(most, stop - at)
                data: bytes | memoryview
                if into is None:
                    data = os.pread(file.fileno(), wanted, at - base)
                else:
                    data = into[: os.preadv(file.fileno(), [into[:wanted]], at - base)]
                if not data:
                    raise _gone(recording, name, at, end)
                yield at, data
                at += len(data)


def _gone(recording: Recording, name: str, at: int, end: int) -> DataLossError:
    return DataLossError(
        f"{name}: the log of recording {recording.id} at position {at} is gone, and [{at}, {end}) was to be read",
        remedy="Set failOnDataLoss=false to go on with what there is, and keep more of the stream (its retention) than "
        "its slowest reader needs.",
    )
