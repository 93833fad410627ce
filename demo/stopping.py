"""Being stopped by a signal: at any moment, but not between starting something and knowing how to end it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """Makes a KeyboardInterrupt of the first signal that asks to stop, once nothing is held; further ones are ignored.

    So what a demo does to clean up after itself is not interrupted.
    """

    def __init__(self) -> None:
        self._asked = False
        self._held = False

    @property
    def asked(self) -> bool:
        """Whether a signal came: what fails after it does so because others, such as Spark's JVM, heard it, too."""
        return self._asked

    def listen(self) -> None:
        """Take the signals; again where a library took them."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal that comes in this block wait for its end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            return
        self._asked = True
        if not self._held:
            raise KeyboardInterrupt
