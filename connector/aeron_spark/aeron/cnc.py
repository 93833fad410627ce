"""Maps a media driver's CnC file and its parts, read-only and without a JVM.

The file remains readable after its driver has ended. Offsets are those of io.aeron.CncFileDescriptor (version 0.2.0)
and Agrona's RingBufferDescriptor, CountersReader and DistinctErrorLog; tests compare each with the Java classes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.errors import ConnectError

CNC_FILE: Final = "cnc.dat"
CNC_HEADER: Final = struct.Struct(
    "<i"  # version, written last: 0 means not ready
    "i"  # length of the to-driver buffer
    "i"  # length of the to-clients buffer
    "i"  # length of the counters' metadata
    "i"  # length of the counters' values
    "i"  # length of the error log
    "q"  # client liveness timeout, ns
    "q"  # start, ms
    "q"  # pid
)
CNC_META_LENGTH: Final = 128
CNC_MAJOR_VERSION: Final = 0
RING_TRAILER_LENGTH: Final = 768
RING_HEARTBEAT_OFFSET: Final = 640


@dataclass(frozen=True, slots=True)
class Cnc:
    """The mapped parts of a CnC file; the views are valid until the block of :func:`open_cnc` ends."""

    version: tuple[int, int, int]
    liveness_timeout_ns: int
    started_ms: int
    pid: int
    heartbeat_ms: int  # 0 or negative after the driver has closed
    counters_meta: memoryview
    counters: memoryview
    errors: memoryview


@contextmanager
def open_cnc(aeron_dir: str) -> Iterator[Cnc]:
    """Map the CnC file in ``aeron_dir``, read-only.

    Raises ConnectError if the file cannot be read, is incomplete, or has another major version.
    """
    path = Path(aeron_dir) / CNC_FILE
    with open_mapped(path) as file:
        if len(file) < CNC_META_LENGTH or (header := CNC_HEADER.unpack_from(file))[0] == 0:
            raise ConnectError(f"the media driver in {aeron_dir} is still starting", remedy="Try again in a moment.")
        version = header[0] >> 16 & 0xFF, header[0] >> 8 & 0xFF, header[0] & 0xFF
        if version[0] != CNC_MAJOR_VERSION:
            raise ConnectError(
                f"the media driver in {aeron_dir} has a CnC file of version {'.'.join(map(str, version))}, expected "
                f"{CNC_MAJOR_VERSION}.x",
                remedy="Install the release of aeron-spark for that version of Aeron.",
            )
        parts = []
        at = CNC_META_LENGTH
        for length in header[1:6]:
            parts.append(file[at : at + length])
            at += length
        if at > len(file):
            raise ConnectError(
                f"{path} has {len(file)} bytes, expected {at} from its header", remedy="Restart the media driver."
            )
        to_driver, _, meta, values, errors = parts
        (heartbeat,) = struct.unpack_from("<q", to_driver, len(to_driver) - RING_TRAILER_LENGTH + RING_HEARTBEAT_OFFSET)
        yield Cnc(version, header[6], header[7], header[8], heartbeat, meta, values, errors)


@contextmanager
def open_mapped(path: Path) -> Iterator[memoryview]:
    """Map a file of a driver's directory, read-only. Raises ConnectError if it cannot be read."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        reason = error.strerror if isinstance(error, OSError) else "the file is empty"
        raise ConnectError(
            f"no media driver in {path.parent} can be read ({reason})",
            remedy="Start one with 'aeron-spark node start', or name its directory with --aeron-dir.",
        ) from error
    # A view is released with its last reference, and the map with its last view.
    yield memoryview(mapped)


def ascii_text(part: memoryview, at: int) -> str:
    """Return the text at ``at``, which begins with its length as a 32-bit number."""
    (length,) = struct.unpack_from("<i", part, at)
    return bytes(part[at + 4 : at + 4 + max(0, length)]).decode("ascii", "replace")
