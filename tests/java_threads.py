"""The threads of a process as the system names them: Python knows nothing of those that Java began."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def java_threads(pid: int | None = None) -> set[str]:
    """Return the names of a process's threads that are ours or Aeron's, the first 15 characters of each."""
    names = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended, or a thread of it
        for task in (PROC / str(pid or os.getpid()) / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                names.add((task / "comm").read_text().strip())
    return {name for name in names if name.startswith("aeron")}


def descendants(command: str) -> list[int]:
    """Return the processes that this one, or a descendant of it, began and whose command line has ``command``."""
    parents, commands = {}, {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
    return [pid for pid, text in commands.items() if command in text and _is_below(pid, parents)]


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
