"""The threads of a process as the system names them: Python knows nothing of those that Java began."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def java_threads() -> set[str]:
    """Return the names of this process's threads that are ours or Aeron's, the first 15 characters of each."""
    names = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            names.add((task / "comm").read_text().strip())
    return {name for name in names if name.startswith("aeron")}
