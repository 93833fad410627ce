"""Closes, at the end of a process, the clients and servers that its program has left open.

This happens before the JVM ends, which JPype ends when the process does. A thread that calls Java while the JVM ends
waits for ever. If it has the interpreter's lock, the process never ends.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

LOG: Final = logging.getLogger("aeron_spark.endpoint")

_hooks: Final[list[ExitHook]] = []


class ExitHook:
    """Calls ``close`` at the end of the process, unless ``cancel`` is called before.

    It does nothing in a forked child, which has the open object but none of its threads.
    """

    def __init__(self, close: Callable[[], Any]) -> None:
        self._close: Final = close
        self._pid: Final = os.getpid()
        _hooks.append(self)

    def cancel(self) -> None:
        """Do not call ``close``. A second call does nothing."""
        with suppress(ValueError):
            _hooks.remove(self)

    def run(self) -> None:
        """Call ``close``, and log its error: the other hooks must still run."""
        if os.getpid() == self._pid:
            try:
                self._close()
            except Exception:
                LOG.exception("an endpoint could not be closed at the end of the process")


def run_exit_hooks() -> None:
    """Run all hooks, the last one first. The code that ends the JVM calls this first: open objects use the JVM."""
    while _hooks:
        _hooks.pop().run()


atexit.register(run_exit_hooks)
