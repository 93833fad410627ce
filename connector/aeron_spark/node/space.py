"""Is there room? Asked before anything is mapped, because a full /dev/shm kills a process with SIGBUS."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aeron_spark.errors import SetupError
from aeron_spark.node.settings import MIB, NodeSettings

CONTROL_FILES: Final = 48 * MIB  # CnC file (46 MiB: counters, commands, errors) and loss report, at Aeron's defaults
LOGS_AT_LEAST: Final = 4  # a publication and an image each way
TERMS_A_LOG: Final = 3


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of the file system that holds ``path``."""

    path: str
    free: int
    total: int


def driver_needs(settings: NodeSettings) -> int:
    """Return the bytes without which a driver of these settings cannot serve even a few streams."""
    return CONTROL_FILES + LOGS_AT_LEAST * TERMS_A_LOG * max(settings.term_length, settings.ipc_term_length)


def archive_needs(settings: NodeSettings) -> int:
    """Return the bytes an archive needs to take its first recording: a segment, and as much again kept free."""
    return 2 * settings.segment_length + MIB if settings.archive else 0


def space_of(path: Path) -> Space:
    """Return the space where ``path`` is, or will be."""
    there = path
    while not there.exists():
        there = there.parent
    numbers = os.statvfs(there)
    return Space(str(path), numbers.f_bavail * numbers.f_frsize, numbers.f_blocks * numbers.f_frsize)


def lack_of_space(path: Path, needed: int) -> str:
    """Return a sentence that says how much is missing at ``path``, or an empty text."""
    space = space_of(path)
    if space.free >= needed:
        return ""
    return f"{path} has {space.free / MIB:.0f} MiB free, and {needed / MIB:.0f} MiB are needed"


def check_archive_space(archive_dir: Path, settings: NodeSettings) -> None:
    """Raise SetupError where the archive's disk is too small."""
    if lack := lack_of_space(archive_dir, archive_needs(settings)):
        raise SetupError(
            f"the archive's directory {lack}",
            remedy="Free some space, name another place (AERON_SPARK_ARCHIVE_DIR), or choose a smaller segment_length.",
        )


def choose_aeron_dir(wanted: Path, on_disk: Path, chosen: bool, settings: NodeSettings) -> tuple[Path, str]:
    """Return where the driver goes and a warning; the default directory falls back to disk, a chosen one does not.

    Raises SetupError where nothing is large enough.
    """
    needed = driver_needs(settings)
    lack = lack_of_space(wanted, needed)
    if not lack:
        return wanted, ""
    remedy = "Enlarge it (docker: --shm-size=1g), set AERON_SPARK_AERON_DIR, or choose a smaller term_length."
    if chosen:
        raise SetupError(f"the media driver's directory {lack}", remedy=remedy)
    if lack_on_disk := lack_of_space(on_disk, needed):
        raise SetupError(f"the media driver has no room: {lack}; {lack_on_disk}", remedy=remedy)
    return on_disk, f"{lack}: the media driver runs in {on_disk} instead, which is slower. {remedy}"
