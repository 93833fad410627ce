"""A stop request that a signal handler makes and the main thread waits for.

A ``threading.Event`` would deadlock: Python runs a handler between any two instructions of the main thread, even while
that thread has locked the event's lock in ``wait()``. ``set()`` in the handler would wait for this lock for ever.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class StopRequest:
    """A request that a signal handler makes and the main thread waits for, without a lock."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def number(self) -> int | None:
        """The first signal that requested the stop, or None without a request."""
        return self._number

    def make(self, number: int) -> None:
        """Make the request, in a handler of this signal; the wait ends immediately."""
        if self._number is None:
            self._number = number
        with suppress(BlockingIOError):  # the pipe is full of earlier requests
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a request. Return whether it was made."""
        if self._number is None:
            select.select([self._read], [], [], seconds)
        return self._number is not None

    def close(self) -> None:
        """Close the pipe. The handlers must have been replaced before."""
        os.close(self._read)
        os.close(self._write)
