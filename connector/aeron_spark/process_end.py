"""Closes what a program has left open when its process ends: before the JVM ends, which JPype ends at exit, too.

A thread that calls Java while the JVM ends waits for ever. If it has the interpreter's lock, the process never ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

LOG: Final = logging.getLogger("aeron_spark.endpoint")


class ExitHook:
    """Calls a ``close`` method at the end of the process, unless ``cancel`` is called before.

    Hooks are called in the reverse order of their creation: create one after the start of the JVM. A hook does not keep
    the method's object alive. It does nothing in a forked child, which has the object but none of its threads.
    """

    def __init__(self, close: Callable[[], Any]) -> None:
        self._close: Final = weakref.WeakMethod(close)
        self._pid: Final = os.getpid()
        atexit.register(self._run)

    def cancel(self) -> None:
        """Do not call the method. A second call does nothing."""
        atexit.unregister(self._run)

    def _run(self) -> None:
        close = self._close()
        if close is None or os.getpid() != self._pid:
            return
        try:
            close()
        except Exception:  # the other hooks must still be called
            LOG.exception("an endpoint could not be closed at the end of the process")
