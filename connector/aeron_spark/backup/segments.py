"""Reads the segment files of a recording and checks their frames, term by term.

The work depends on the files that exist, not on the positions in journal and catalog, which another person may have
written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from aeron_spark.aeron.recording import Recording
from aeron_spark.backup.frames import Fault, RecordingLayout, check_term
from aeron_spark.files import open_regular
from aeron_spark.streams.retention import Layout as Segments

READ_BYTES: Final = 8 << 20  # at a time
_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\.rec", re.ASCII)


def find_segments(archive_dir: Path) -> dict[int, list[int]]:
    """Return the first positions of the segment files in an archive's folder, ascending, by recording id."""
    found: dict[int, list[int]] = {}
    for name in os.listdir(archive_dir):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.setdefault(int(match[1]), []).append(int(match[2]))
    for positions in found.values():
        positions.sort()
    return found


def check_segments(
    archive_dir: Path, recording: Recording, start: int, end: int, content: str, positions: Sequence[int], *,
    is_quick: bool, progress: Callable[[int], object],
) -> Iterator[Fault]:  # fmt: skip
    """Yield the faults of a recording from ``start`` to ``end``; with ``is_quick`` only missing and short files.

    ``positions`` are those of :func:`find_segments`.
    """
    layout = RecordingLayout(
        recording.initial_term_id, recording.term_length, recording.mtu, recording.stream_id, content
    )
    segments = Segments(recording.start_position, recording.term_length, recording.segment_length)
    buffer = bytearray()
    expected = range(segments.segment_base(start), end, recording.segment_length)
    missing = expected.start
    for base in (*(one for one in positions if one in expected), end):
        if missing < base:
            what = f"the segment {archive_dir / f'{recording.id}-{missing}.rec'} is missing"
            more = len(range(missing, base, recording.segment_length)) - 1
            yield Fault(max(start, missing), min(end, base), f"{what}, and {more} after it" if more else what)
        if base == end:
            return
        missing = base + recording.segment_length
        first, last = max(start, base), min(end, missing)
        path = archive_dir / f"{recording.id}-{base}.rec"
        try:
            descriptor = open_regular(path)
        except OSError as error:
            yield Fault(first, last, f"the segment {path} cannot be read: {error.strerror}")
            continue
        try:
            size = os.fstat(descriptor).st_size
            if size < last - base:
                yield Fault(max(first, base + size), last, f"the segment {path} has only {size} bytes")
                last = max(first, base + size - size % 32)
            if is_quick:
                continue
            if not buffer:
                buffer = bytearray(min(recording.term_length, end - start))
            yield from _check_terms(descriptor, path, base, first, last, layout, memoryview(buffer), progress)
        finally:
            os.close(descriptor)


def _check_terms(
    descriptor: int, path: Path, base: int, first: int, last: int, layout: RecordingLayout, buffer: memoryview,
    progress: Callable[[int], object],
) -> Iterator[Fault]:  # fmt: skip
    at = first
    while at < last:
        term_end = at - at % layout.term_length + layout.term_length
        data = buffer[: min(term_end, last) - at]
        try:
            _read_fully(descriptor, data, at - base, progress)
        except OSError as error:
            yield Fault(at, at + len(data), f"the segment {path} cannot be read: {error.strerror or error}")
        else:
            fault = check_term(data, at, layout)
            if fault is not None:
                yield Fault(fault.position, fault.end, f"{fault.what} (in {path.name})")
        at += len(data)


def _read_fully(descriptor: int, data: memoryview, offset: int, progress: Callable[[int], object]) -> None:
    done = 0
    while done < len(data):
        count = os.preadv(descriptor, [data[done : done + READ_BYTES]], offset + done)
        if not count:
            raise OSError("it ended while it was read")
        done += count
        progress(count)
