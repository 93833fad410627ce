"""How far the start of a node has come: its process writes each stage, and the processes that wait for it read them.

A start takes about a second. On a machine with too much to do it takes minutes, and one that was killed for that would
begin again with all the work before it. So a start is given up where it does not move at all, and not where it is slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aeron_spark.node import state_files

STALL_TIMEOUT: Final = 60.0  # seconds without a new stage and without processor time, after which a start is stuck
UNKNOWN: Final = "loading its program"  # before its process has written a stage

# In /proc/<pid>/task/<tid>/stat, behind the name in brackets: the time in user mode and in the kernel, in ticks.
_USER: Final = 11
_KERNEL: Final = 12


def write_stage(path: Path, stage: str) -> None:
    """Write what this process does now, as in "it was starting the archive"."""
    state_files.write_json(path, {"pid": os.getpid(), "stage": stage})


def read_stage(path: Path, pid: int | None) -> str:
    """Return what process ``pid`` does as part of its start."""
    values = state_files.read_json(path)
    return str(values["stage"]) if values is not None and values["pid"] == pid else UNKNOWN


def processor_ticks(pid: int | None) -> int:
    """Return the processor time of the process's main thread, in ticks of the system; 0 where it is not known."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[_USER]) + int(fields[_KERNEL])
    except (OSError, IndexError, ValueError):  # it has ended, or this system has no such file
        return 0


class StallWatch:
    """Tells when something that should change has not changed for ``seconds`` by ``clock``."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: object = None
        self._since = clock()

    def stalled(self, seen: object) -> bool:
        """Take note of ``seen``; whether it has been the same for too long."""
        now = self._clock()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= self._seconds
