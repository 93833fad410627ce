"""Copies files with their SHA-256: in blocks, sparse, and with fsync."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aeron_spark.disk import sync_folder, write_at
from aeron_spark.errors import DataLossError

BLOCK_BYTES: Final = 1 << 20
ZEROS: Final = bytes(BLOCK_BYTES)
SYNC_BYTES: Final = 32 << 20  # written between two calls of fdatasync, so that none takes long
NO_LIMIT: Final = 2**63 - 1


def ignore_progress(size: int) -> None:
    """Do nothing: the default for copies that are not watched."""


def copy_file(
    source: Path | int, target: Path, size: int = NO_LIMIT, *, length: int = 0,
    progress: Callable[[int], object] = ignore_progress,
) -> tuple[int, str]:  # fmt: skip
    """Copy the first ``size`` bytes of a file, or all, and call fsync; return the number of bytes and their SHA-256.

    Blocks of zeros become holes. ``length`` is the length of the target if it is greater; the rest is a hole.
    ``source`` may be an open file, which stays open. ``progress`` is called with the size of each copied block. Raises
    DataLossError if the source has fewer bytes than ``size``, OSError.
    """
    descriptor = source if isinstance(source, int) else os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copied, digest = _copy_blocks(descriptor, written, size, progress)
            if size != NO_LIMIT and copied < size:
                raise DataLossError(
                    f"{source} is damaged: it ends at byte {copied}, expected at least {size} bytes",
                    remedy="Run 'aeron-spark server verify', which names the rows that are lost.",
                )
            os.ftruncate(written, max(copied, length))
            os.fsync(written)
            _drop_pages(written)
        finally:
            os.close(written)
    finally:
        if not isinstance(source, int):
            os.close(descriptor)
    return copied, digest


def _copy_blocks(source: int, target: int, size: int, progress: Callable[[int], object]) -> tuple[int, str]:
    buffer = bytearray(min(BLOCK_BYTES, max(size, 1)))
    view = memoryview(buffer)
    digest = hashlib.sha256()
    copied = unsynced = 0
    while copied < size:
        count = os.preadv(source, [view[: min(len(view), size - copied)]], copied)
        if not count:
            break
        block = view[:count]
        digest.update(block)
        if block != ZEROS[:count]:
            write_at(target, block, copied)
        copied += count
        unsynced += count
        if unsynced >= SYNC_BYTES:
            os.fdatasync(target)
            _drop_pages(target)
            unsynced = 0
        progress(count)
    return copied, digest.hexdigest()


def _drop_pages(descriptor: int) -> None:
    """Free the file's pages in memory, which the server needs more."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def hash_file(source: Path | int, progress: Callable[[int], object] = ignore_progress) -> tuple[int, str]:
    """Return the size of a file, or of an open one, and its SHA-256. Raises OSError."""
    digest = hashlib.sha256()
    size = 0
    with open(source, "rb", buffering=0, closefd=not isinstance(source, int)) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            progress(len(block))
    return size, digest.hexdigest()


def sync_tree(folder: Path) -> None:
    """Make the names in a folder and in its subfolders durable (fsync). Raises OSError."""
    for path, _, _ in os.walk(folder):
        sync_folder(Path(path))
