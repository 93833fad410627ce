"""Is the driver, or the archive, in a directory alive? Read from Aeron's mapped files, without a JVM.

Offsets are those of the archive's SBE schema for its mark file; a test compares each with what the Java classes say.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.cnc import open_cnc
from aeron_spark.errors import ConnectError

DRIVER_TIMEOUT: Final = 10.0  # seconds without a heartbeat after which Aeron calls a driver dead

MARK_FILE: Final = "archive-mark.dat"
MARK_HEADER: Final = struct.Struct(
    "<8x"  # SBE message header
    "i4x"  # version
    "q"  # activity, ms
    "q"  # start, ms
    "q"  # pid
)


@dataclass(frozen=True, slots=True)
class Liveness:
    """What a driver's CnC file says: who wrote it, since when (epoch seconds), and how long ago it last beat."""

    pid: int
    started: float
    heartbeat_age: float  # seconds; infinite once the driver has closed

    @property
    def alive(self) -> bool:
        """Whether Aeron itself would call the driver alive."""
        return self.heartbeat_age < DRIVER_TIMEOUT


def driver_liveness(aeron_dir: Path, now: float | None = None) -> Liveness | None:
    """Return the liveness of the driver in ``aeron_dir``; None where there is no readable, ready CnC file."""
    try:
        with open_cnc(str(aeron_dir)) as cnc:
            pid, started_ms, beat_ms = cnc.pid, cnc.started_ms, cnc.heartbeat_ms
    except ConnectError:
        return None
    age = (time.time() if now is None else now) - beat_ms / 1000 if beat_ms > 0 else float("inf")
    return Liveness(pid, started_ms / 1000, age)


def archive_mark_pid(archive_dir: Path) -> int | None:
    """Return the process id in the archive's mark file, or None where there is no such file."""
    found = _archive_mark(archive_dir)
    return None if found is None else found[1]


def archive_mark_age(archive_dir: Path) -> float | None:
    """Return how long ago, in seconds, the archive last beat; infinite once closed, None without a mark file."""
    found = _archive_mark(archive_dir)
    if found is None:
        return None
    return time.time() - found[0] / 1000 if found[0] > 0 else float("inf")


def _archive_mark(archive_dir: Path) -> tuple[int, int] | None:
    """Return the last activity (epoch milliseconds; 0 or less once closed) and the process id."""
    try:
        with (archive_dir / MARK_FILE).open("rb") as file:
            head = file.read(MARK_HEADER.size)
    except OSError:
        return None
    if len(head) < MARK_HEADER.size:
        return None
    _, activity, _, pid = MARK_HEADER.unpack(head)
    return int(activity), int(pid)
