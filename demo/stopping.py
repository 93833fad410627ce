"""Turns signals into KeyboardInterrupt, but not between the start of a process and the registration of its end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Raises KeyboardInterrupt at the first signal, or at the end of a ``deferred`` block; ignores further signals.

    Therefore a second signal does not interrupt the clean-up.
    """

    def __init__(self) -> None:
        self._requested = False
        self._deferred = False

    @property
    def requested(self) -> bool:
        """Whether a signal came. Later failures are its consequence: Spark's JVM, for example, gets the signal, too."""
        return self._requested

    def install(self) -> None:
        """Install the signal handlers. Call it again after a library has replaced them."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer a signal in this block to the end of the block."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self._requested:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._requested:
            return
        self._requested = True
        if not self._deferred:
            raise KeyboardInterrupt
