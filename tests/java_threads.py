"""Reads the names of a process's threads from the system, because Python does not list Java's threads."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def java_threads(pid: int | None = None) -> set[str]:
    """Return the names of a process's threads that begin with "aeron", at most 15 characters of each."""
    names = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # the process or the thread has ended
        for task in (PROC / str(pid or os.getpid()) / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                names.add((task / "comm").read_text().strip())
    return {name for name in names if name.startswith("aeron")}


def descendants(command: str) -> list[int]:
    """Return the descendants of this process whose command line contains ``command``."""
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
