"""Has the C library return freed memory to the system: large buffers at once, and free pages of its heaps.

glibc maps a large buffer separately, and returns its memory when it is freed. But the first such free raises the size
from which a buffer is large, up to 32 MiB; later buffers of that size come from its heaps and stay there. Some calls of
15 MB then left 100 MiB in a server's process. See mallopt(3).

glibc has several heaps, and each keeps the free memory below its last used byte. What threads needed once, such as
Java's compiler, stays in their heaps. See malloc_trim(3).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

LARGE_BYTES: Final = 1 << 20
RETURN_INTERVAL_S: Final = 60.0  # a return walks all heaps, and freed pages are used again soon
M_MMAP_THRESHOLD: Final = -3  # of malloc.h
VARIABLE: Final = "MALLOC_MMAP_THRESHOLD_"  # with which a user sets it in glibc


def return_large_buffers() -> None:
    """Return buffers of ``LARGE_BYTES`` and more to the system when they are freed; for the whole process.

    Does nothing with another C library than glibc, or if the environment has glibc's own variable.
    """
    if VARIABLE not in os.environ:
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class FreePages:
    """Returns the free pages of the C library's heaps to the system from time to time.

    ``free`` is called before, to free what is not used any more. Two threads at once may both do so.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, free: Callable[[], object] = lambda: None) -> None:
        self._clock = clock
        self._free = free
        self._due_at = clock() + RETURN_INTERVAL_S

    def return_if_due(self) -> None:
        """Return them if that was not done for ``RETURN_INTERVAL_S``."""
        if self._clock() >= self._due_at:
            self._due_at = self._clock() + RETURN_INTERVAL_S
            self._free()
            return_free_pages()


def return_free_pages() -> None:
    """Return the free pages of all heaps of the C library to the system. Does nothing with another one than glibc."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
