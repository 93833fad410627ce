"""A request to stop that a signal handler makes and the main thread waits for.

A ``threading.Event`` cannot be used: Python runs the handler between any two instructions of the main thread, also
while that thread holds the event's lock in ``wait()``. ``set()`` in the handler then waits for this lock for ever.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress


class StopRequest:
    """Made once, by any signal handler; waited for by the main thread. Takes no lock."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def number(self) -> int | None:
        """The first signal that asked to stop; None as long as none did."""
        return self._number

    def make(self, number: int) -> None:
        """Ask to stop, in a handler of this signal; the wait ends at once."""
        if self._number is None:
            self._number = number
        with suppress(BlockingIOError):  # the pipe is full of requests
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait for a request for so many seconds; return whether there is one."""
        if self._number is None:
            select.select([self._read], [], [], seconds)
        return self._number is not None

    def close(self) -> None:
        """Close the pipe; handlers must have been replaced before."""
        os.close(self._read)
        os.close(self._write)
