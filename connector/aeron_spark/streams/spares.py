"""Files of large stages that are gone, kept for a moment to be written over by the next ones.

Memory that a file has already is written to at several times the speed of new memory; in a virtual machine, where the
host may have to find it first, at ten times. Their old content is never read: a stage is as long as what was written.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 4 << 20  # of a file that is worth it
MOST_BYTES: Final = 1 << 30  # of all of them
SECONDS: Final = 30.0  # unused; the next micro-batch comes sooner, or need not hurry
FREE: Final = 4  # times as much as they take must be free on the disk
SUFFIX: Final = ".spare"


class Spares:
    """The spare files of a folder of stages. ``clock`` is in seconds and monotonic. Thread-safe."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[tuple[Path, int, float]] = []  # with its bytes, and since when; the newest last

    def open(self, path: Path) -> int:
        """Open a new file at ``path``, of a spare one where there is one; return its descriptor. Raises OSError."""
        with self._lock:
            if self._files:
                spare, _, _ = self._files.pop()
                with suppress(OSError):
                    spare.rename(path)
                    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
                path.unlink(missing_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def keep(self, path: Path) -> None:
        """Keep a file, or remove it: it is small, there are enough, or the disk is filling up. Raises OSError."""
        with self._lock:
            size = path.stat().st_size
            kept = size + sum(size for _, size, _ in self._files)
            if size < LEAST_BYTES or kept > MOST_BYTES or shutil.disk_usage(self._folder).free < FREE * kept:
                path.unlink()
                return
            spare = path.with_suffix(SUFFIX)
            path.rename(spare)
            self._files.append((spare, size, self._clock()))

    def expire(self, now: float) -> None:
        """Remove those that nobody has used for a while."""
        self._remove(lambda since: since <= now - SECONDS)

    def clear(self) -> None:
        """Remove all."""
        self._remove(lambda since: True)

    def _remove(self, chosen: Callable[[float], bool]) -> None:
        with self._lock:
            for path, _, since in self._files:
                if chosen(since):
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
            self._files = [one for one in self._files if not chosen(one[2])]
