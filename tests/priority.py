"""The priority of processes that stand for other machines: they take no processor from the tested ones."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def lower_priority(session: int) -> None:
    """Give a process that leads its own session, and its threads, the lowest priority.

    Where Linux groups processes by session (``sched_autogroup_enabled``), a process' nice value counts only among the
    processes of its session, and the session has its own.
    """
    assert os.getsid(session) == session
    for thread in Path(f"/proc/{session}/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has ended since it was listed
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    group = Path(f"/proc/{session}/autogroup")
    if group.exists():
        group.write_text("19")
