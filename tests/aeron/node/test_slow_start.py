"""Finding C11, with a real node: its process is frozen in the middle of its start, and goes on."""

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

PATIENCE = 60.0  # seconds for what takes one on an idle machine
STAGE = "starting the Java virtual machine"


def test_finding_c11_a_start_that_is_frozen_is_not_killed_and_the_next_call_waits_for_the_same_one(own: Path) -> None:
    places = node.paths_here(own)

    def at_stage() -> int:
        values = state_files.read_json(places.progress) or {}
        return int(values["pid"]) if values.get("stage") == STAGE else 0

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(node.ensure, own, timeout=3.0)
        pid = wait_for(lambda: at_stage() or None, PATIENCE, f"the node to be {STAGE}")
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(WaitTimeout, match=rf"\(process {pid}\) was not ready in time: it is still {STAGE}"):
                starting.result(PATIENCE)
            with pytest.raises(WaitTimeout, match=rf"\(process {pid}\) was not ready in time: it is still {STAGE}"):
                node.ensure(own, timeout=0.1)
        finally:
            os.kill(pid, signal.SIGCONT)
    with node.ensure(own) as handle:
        assert handle.pid == pid
        assert not places.progress.exists()
