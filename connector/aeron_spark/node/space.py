"""Checks free space before the driver maps files, because a full /dev/shm kills a process with SIGBUS."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aeron_spark.aeron.archive_catalog import FILE_NAME as CATALOG
from aeron_spark.errors import SetupError
from aeron_spark.node.settings import MIB, NodeSettings

CONTROL_BYTES: Final = 48 * MIB  # CnC file (46 MiB: counters, commands, errors) and loss report, at Aeron's defaults
MIN_LOGS: Final = 4  # a publication and an image in each direction
TERMS_PER_LOG: Final = 3
BLOCK_BYTES: Final = 512  # of st_blocks
RESERVE_BYTES: Final = 256 * MIB
RESERVE_SHARE: Final = 8  # of a small file system, the reserve is an eighth


@dataclass(frozen=True, slots=True)
class Space:
    """Free and total bytes of the file system of ``path``."""

    path: str
    free: int
    total: int


def driver_space(aeron_dir: Path) -> Space:
    """Return the space of a driver's file system, without the bytes that the driver's files may still take.

    A driver's log is a sparse file. It takes space page by page, while its stream is written.
    """
    space = space_of(aeron_dir)
    return replace(space, free=space.free - _unwritten_bytes(aeron_dir))


def reserve_of(space: Space) -> int:
    """Return the bytes of a driver's file system that must stay free: with less, the driver's process soon ends."""
    return min(RESERVE_BYTES, space.total // RESERVE_SHARE)


def _unwritten_bytes(folder: Path | str) -> int:
    """Return how much the files below ``folder`` grow if each page of them is written; 0 without the folder."""
    size = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # the driver deletes logs at any time
                if entry.is_dir(follow_symlinks=False):
                    size += _unwritten_bytes(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    size += max(0, status.st_size - BLOCK_BYTES * status.st_blocks)
    return size


def required_driver_bytes(settings: NodeSettings) -> int:
    """Return the bytes that a driver with these settings needs for a few streams."""
    return CONTROL_BYTES + MIN_LOGS * TERMS_PER_LOG * max(settings.term_length, settings.ipc_term_length)


def required_archive_bytes(settings: NodeSettings) -> int:
    """Return the bytes that an archive needs for its first recording: a segment, and the same size as a reserve."""
    return 2 * settings.longest_segment + MIB if settings.archive else 0


def space_of(path: Path) -> Space:
    """Return the space of the file system in which ``path`` is, or will be."""
    existing = path
    while True:
        try:
            numbers = os.statvfs(existing)
            break
        except (FileNotFoundError, NotADirectoryError):
            existing = existing.parent
    return Space(str(path), numbers.f_bavail * numbers.f_frsize, numbers.f_blocks * numbers.f_frsize)


def describe_shortage(path: Path, required_bytes: int, removable_bytes: int = 0) -> str:
    """Return a text with the free and the required space of ``path``, or an empty text if it has enough.

    ``removable_bytes`` of the used space count as free.
    """
    free = space_of(path).free + removable_bytes
    if free >= required_bytes:
        return ""
    return f"{path} has {free / MIB:.0f} MiB free, and {required_bytes / MIB:.0f} MiB are needed"


def check_archive_space(archive_dir: Path, settings: NodeSettings) -> str:
    """Return a warning, or "", about the space of the archive's disk. Raises SetupError for a new archive.

    An archive with recordings starts with less: its recordings can be read, purged and deleted, which frees space.
    """
    shortage = describe_shortage(archive_dir, required_archive_bytes(settings))
    if shortage and (archive_dir / CATALOG).exists():
        return (
            f"the archive's directory {shortage}: recordings can be read, purged and deleted, and the archive may "
            "refuse new ones. Free some space on this disk."
        )
    if shortage:
        raise SetupError(
            f"the archive's directory {shortage}",
            remedy="Free some space, name another directory (AERON_SPARK_ARCHIVE_DIR), or choose a smaller "
            "segment_length.",
        )
    return ""


def file_bytes(folder: Path) -> int:
    """Return the bytes that the files below ``folder`` use on disk or in memory; 0 without the folder."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a driver may be starting there
            size += BLOCK_BYTES * os.lstat(path).st_blocks
    return size


def choose_aeron_dir(preferred: Path, on_disk: Path, chosen: bool, settings: NodeSettings) -> tuple[Path, str]:
    """Return the driver's directory and a warning. The default directory falls back to disk, a chosen one does not.

    The files of a dead driver in a directory count as free space, because a start removes them.

    Raises SetupError if no directory has enough space.
    """
    required = required_driver_bytes(settings)
    shortage = describe_shortage(preferred, required, file_bytes(preferred))
    if not shortage:
        return preferred, ""
    small = required_driver_bytes(replace(settings, term_length=MIB, ipc_term_length=MIB))
    remedy = (
        "Enlarge it (docker: --shm-size=1g), set AERON_SPARK_AERON_DIR, or choose smaller values of both term_length "
        "and ipc_term_length: 'aeron-spark node start --term-length 1MiB --ipc-term-length 1MiB' needs "
        f"{small / MIB:.0f} MiB."
    )
    if chosen:
        raise SetupError(f"the media driver's directory {shortage}", remedy=remedy)
    if shortage_on_disk := describe_shortage(on_disk, required, file_bytes(on_disk)):
        raise SetupError(f"the media driver has no space: {shortage}; {shortage_on_disk}", remedy=remedy)
    return on_disk, f"{shortage}: the media driver runs in {on_disk} instead, which is slower. {remedy}"
