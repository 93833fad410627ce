"""Detaches threads from the JVM when they end.

JPype attaches a Python thread to the JVM at its first call of Java, and does not detach it. The JVM would keep some
kilobytes of each thread that has ended, and visit it at each safepoint. A process that often connects and closes would
grow. Therefore each entry to Java calls :func:`enter_java`.
"""

from __future__ import annotations

import os
import threading
from typing import Final


class _Attachment:
    """Detaches its thread when Python drops it, as the last work of that thread."""

    def __init__(self) -> None:
        self._pid: Final = os.getpid()
        self._thread: Final = threading.get_ident()

    def __del__(self) -> None:
        # After a fork, and at the end of the interpreter, another thread drops the attachments of all threads.
        if self._pid != os.getpid() or self._thread != threading.get_ident():
            return
        import jpype

        if jpype.isJVMStarted():
            jpype.JClass("java.lang.Thread").detach()


class _Attachments(threading.local):
    """The attachment of the thread that reads it. The main thread has none: it ends with the JVM."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.own: _Attachment | None = None if is_main else _Attachment()


_attachments: Final = _Attachments()


def enter_java() -> None:
    """Let this thread be detached from the JVM when it ends. Call it before a call of Java; it takes 0.1 µs."""
    _attachments.own  # noqa: B018  (the first read in a thread makes the attachment)
