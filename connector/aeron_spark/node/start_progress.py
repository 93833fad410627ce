"""Progress of a node's start: the node process writes each stage, and the processes that wait for it read the stages.

A start takes about a second, but minutes on an overloaded machine. A start that was killed for its slowness would begin
again with the whole work. Therefore a start is killed only if it makes no progress at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aeron_spark.node import state_files

STALL_TIMEOUT_S: Final = 60.0  # without a new stage and without processor time, a start is stuck after this time
FIRST_STAGE: Final = "loading its program"  # before the process has written a stage

# Fields of /proc/<pid>/task/<tid>/stat after the name in brackets: the time in user mode and in the kernel, in ticks.
_USER: Final = 11
_KERNEL: Final = 12


def write_stage(path: Path, stage: str) -> None:
    """Write the current stage of this process's start, such as "starting the archive"."""
    state_files.write_json(path, {"pid": os.getpid(), "stage": stage})


def read_stage(path: Path, pid: int | None) -> str:
    """Return the current stage of the start of process ``pid``."""
    values = state_files.read_json(path)
    return str(values["stage"]) if values is not None and values["pid"] == pid else FIRST_STAGE


def processor_ticks(pid: int | None) -> int:
    """Return the processor time of the process's main thread in ticks of the system, or 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[_USER]) + int(fields[_KERNEL])
    except (OSError, IndexError, ValueError):  # the process has ended, or the system has no such file
        return 0


class StallWatch:
    """Detects that a value has not changed for ``seconds`` of ``clock``."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._value: object = None
        self._since = clock()

    def is_stalled(self, value: object) -> bool:
        """Store ``value``, and return whether it has been the same for ``seconds``."""
        now = self._clock()
        if value != self._value:
            self._value, self._since = value, now
        return now - self._since >= self._seconds
