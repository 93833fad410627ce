"""A real node whose process is suspended during its start, and continues later."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.errors import WaitTimeout
from aeron_spark.node import state_files
from aeron_spark.waiting import wait_for
from tests.waiting import suspend

TIMEOUT_S = 60.0  # a start takes 1 s on an idle machine
STAGE = "starting the Java virtual machine"


def test_a_suspended_start_is_not_killed_and_the_next_call_waits_for_the_same_process(own_dir: Path) -> None:
    paths = node.local_node_paths(own_dir)

    def pid_at_stage() -> int:
        values = state_files.read_json(paths.progress) or {}
        return int(values["pid"]) if values.get("stage") == STAGE else 0

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(node.ensure, own_dir, timeout=3.0)
        pid = wait_for(lambda: pid_at_stage() or None, TIMEOUT_S, f"the node to be {STAGE}")
        suspend(pid)
        try:
            # on a busy machine its time may be over before that stage
            with pytest.raises(WaitTimeout, match=rf"\(process {pid}\) was not ready in time"):
                starting.result(TIMEOUT_S)
            with pytest.raises(WaitTimeout, match=rf"\(process {pid}\) was not ready in time: it is still {STAGE}"):
                node.ensure(own_dir, timeout=0.1)
        finally:
            os.kill(pid, signal.SIGCONT)
    with node.ensure(own_dir) as handle:
        assert handle.pid == pid
        assert not paths.progress.exists()
