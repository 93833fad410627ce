"""Reads from Aeron's mapped files whether a media driver or an archive is alive, without a JVM.

Offsets are those of the archive's SBE schema for its mark file; a test compares each with the Java classes.
"""

from __future__ import annotations

import errno
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.aeron.cnc import open_cnc
from aeron_spark.errors import ConnectError

DRIVER_TIMEOUT_S: Final = 10.0  # seconds without a heartbeat after which Aeron calls a driver dead

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
    """Process id, start and last heartbeat of a media driver, from its CnC file."""

    pid: int
    started: float  # seconds since the epoch
    heartbeat_age: float  # seconds; infinite after the driver has closed

    @property
    def alive(self) -> bool:
        """Whether the driver is alive by Aeron's rule."""
        return self.heartbeat_age < DRIVER_TIMEOUT_S


def driver_liveness(aeron_dir: Path, now: float | None = None) -> Liveness | None:
    """Return the liveness of the driver in ``aeron_dir``, or None without a complete, readable CnC file.

    Raises OSError if this process or the system has no free descriptor.
    """
    try:
        with open_cnc(str(aeron_dir)) as cnc:
            pid, started_ms, heartbeat_ms = cnc.pid, cnc.started_ms, cnc.heartbeat_ms
    except ConnectError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE):
            raise error.__cause__ from None
        return None
    age = (time.time() if now is None else now) - heartbeat_ms / 1000 if heartbeat_ms > 0 else float("inf")
    return Liveness(pid, started_ms / 1000, age)


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """The archive's mark file: its last activity (epoch milliseconds; 0 or less after its close), start, process id."""

    activity_ms: int
    started_ms: int
    pid: int

    @property
    def age(self) -> float:
        """Seconds since the last activity; infinite after the close."""
        return time.time() - self.activity_ms / 1000 if self.activity_ms > 0 else float("inf")


def archive_mark_pid(archive_dir: Path) -> int | None:
    """Return the process id in the archive's mark file, or None without the file."""
    found = read_archive_mark(archive_dir)
    return None if found is None else found.pid


def archive_mark_age(archive_dir: Path) -> float | None:
    """Return the seconds since the archive's last activity; infinite after its close, None without a mark file."""
    found = read_archive_mark(archive_dir)
    return None if found is None else found.age


def read_archive_mark(archive_dir: Path) -> ArchiveMark | None:
    """Return the archive's mark file, or None without a complete, readable one."""
    try:
        with (archive_dir / MARK_FILE).open("rb") as file:
            head = file.read(MARK_HEADER.size)
    except OSError:
        return None
    if len(head) < MARK_HEADER.size:
        return None
    _, activity, started, pid = MARK_HEADER.unpack(head)
    return ArchiveMark(activity, started, pid)
