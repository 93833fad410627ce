"""For tests: the directory of a node, the end of a node by SIGKILL, and the removal of all that it leaves."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from pathlib import Path
from typing import Final

from aeron_spark import node as nodes
from aeron_spark.node.locks import is_locked, owner_pid
from tests.leaks import SHARED_MEMORY
from tests.waiting import poll_until

TIMEOUT_S: Final = 30.0  # an idle machine needs a second


def new_aeron_dir(run_name: str) -> Path:
    """Return a path for the directory of a media driver, which its user must remove."""
    return SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"


def kill_node(aeron_dir: str | Path) -> int:
    """Kill the media driver and archive in ``aeron_dir`` with SIGKILL, and wait for their end; return their pid."""
    pid = nodes.status(aeron_dir).pid
    assert pid is not None, nodes.status(aeron_dir)
    os.kill(pid, signal.SIGKILL)
    # The lock is polled and not the process, because the killed process may stay a zombie for long.
    lock = nodes.local_node_paths(aeron_dir).alive_lock
    poll_until(lambda: not is_locked(lock) or owner_pid(lock) != pid, TIMEOUT_S, "the node to end", interval_s=0.001)
    return pid


def remove_node(aeron_dir: str | Path) -> None:
    """Close this process's client of a node, stop the node, and remove its files."""
    from aeron_spark.aeron.client import close_client  # imports jpype, which few of the users need

    close_client(str(aeron_dir))
    nodes.stop(aeron_dir, force=True, timeout=TIMEOUT_S)
    shutil.rmtree(aeron_dir, ignore_errors=True)
    shutil.rmtree(nodes.local_node_paths(aeron_dir).folder, ignore_errors=True)
