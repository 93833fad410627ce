"""Runs a Python program, and kills it when it has made a number of calls.

    python -m tests.e2e.killed_program FILE FUNCTION ANNOUNCE KILL

It counts the calls that aeron_spark makes in all threads, from the first call of FUNCTION on. It does not count the
calls of other packages: the first rows import some, which makes more calls than all transactions. At call number
ANNOUNCE it prints a line, at call number KILL it kills its process; 0 is never. A program that ends prints the number
of its calls.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

import aeron_spark

PACKAGE: Final = str(Path(aeron_spark.__file__).parent)


class Calls:
    """Counts the calls of a program."""

    def __init__(self, function: str, announce: int, kill: int) -> None:
        self.begun = False
        self._function = function
        self._announce = announce
        self._kill = kill
        self._count = itertools.count(1)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not event.endswith("call"):
            return
        self.begun = self.begun or frame.f_code.co_name == self._function
        if not self.begun or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        number = next(self._count)
        if number == self._announce:
            os.write(1, b"announced\n")
        if number == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def number(self) -> int:
        """The number of calls so far."""
        return next(self._count) - 1


def main(file: str, function: str, announce: str, kill: str) -> None:
    calls = Calls(function, int(announce), int(kill))
    code = compile(Path(file).read_text(), file, "exec")
    threading.setprofile(calls)
    sys.setprofile(calls)
    exec(code, {"__name__": "__main__"})
    sys.setprofile(None)
    os.write(1, f"{calls.number}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
