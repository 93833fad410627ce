"""Signals that stay the process's own although a JVM starts, which takes SIGINT, SIGTERM and SIGHUP over.

Their dispositions are read and written as the system has them, not by Python's ``signal`` module, which allows that in
the main thread only. A JVM takes a signal over early in its start, which lasts for a third of a second, and nothing of
Python runs until the start is over. So SIGINT is ignored meanwhile: a JVM leaves an ignored signal alone for good. A
Ctrl-C in that third of a second is acted on after it where no other thread of the process can take the signal; else it
is lost, and has to be repeated. A SIGTERM then ends the process without the program's handler: a supervisor does not
repeat it.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

# Longer than struct sigaction of any system; its first member is the handler, on Linux and on macOS.
_SIGACTION_BYTES: Final = 1024
_HANDLER_BYTES: Final = ctypes.sizeof(ctypes.c_void_p)
_IGNORED: Final = int(signal.SIG_IGN)
_DEFAULT: Final = int(signal.SIG_DFL)

_sigaction: Any = ctypes.CDLL(None, use_errno=True).sigaction


@contextmanager
def left_to_the_process(numbers: Iterable[int]) -> Iterator[None]:
    """Give these signals, and SIGINT, back to their handlers at the end of the block, in which a JVM starts."""
    before = {number: _disposition(number) for number in {signal.SIGINT, *numbers}}
    ignored = ctypes.create_string_buffer(_IGNORED.to_bytes(_HANDLER_BYTES, sys.byteorder), _SIGACTION_BYTES)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        _sigaction(signal.SIGINT, ignored, None)
        try:
            yield
        finally:
            for number, disposition in before.items():
                _sigaction(number, disposition, None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # a SIGINT that waits is delivered here


def is_handled(number: int) -> bool:
    """Whether the process has a handler for the signal: neither ignores the signal nor leaves it to the system."""
    handler = int.from_bytes(_disposition(number).raw[:_HANDLER_BYTES], sys.byteorder)
    return handler not in (_IGNORED, _DEFAULT)


def _disposition(number: int) -> ctypes.Array[ctypes.c_char]:
    found = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction(number, None, found) != 0:
        raise OSError(ctypes.get_errno(), f"the disposition of signal {number} cannot be read")
    return found
