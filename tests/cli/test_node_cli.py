from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from aeron_spark import node
from tests.cli.conftest import run


def test_a_node_is_started_shown_and_stopped(own_dir: Path) -> None:
    where = ("--aeron-dir", str(own_dir))
    started = run("node", "start", *where, "--max-replays", "20", "--set", "aeron.client.liveness.timeout=7s", "--json")
    assert started.code == 0, started.err
    (first,) = started.lines
    assert first["state"] == "running"
    assert first["stays"] is True
    assert first["settings"]["max_replays"] == 20
    assert first["settings"]["properties"] == {"aeron.client.liveness.timeout": "7s"}

    status = run("node", "status", *where)
    assert status.code == 0
    for text in ("running, until 'node stop'", str(first["pid"]), str(own_dir), "max_replays", "20", "Aeron 1.51.0"):
        assert text in status.out, text
    assert "Traceback" not in status.out + status.err

    again = run("node", "start", *where, "--max-replays", "20")
    assert again.code == 0
    other = run("node", "start", *where, "--max-replays", "21")
    assert other.code == 2
    assert other.err.startswith(
        f"aeron-spark: the node in {own_dir} runs with other settings: max_replays is 20, not 21."
    )

    stopped = run("node", "stop", *where)
    assert (stopped.code, stopped.out) == (0, f"stopped the node in {own_dir} (process {first['pid']})\n")
    assert not own_dir.exists()
    once_more = run("node", "stop", *where, "--json")
    assert once_more.lines == [{"aeron_dir": str(own_dir), "pid": None, "stopped": False}]
    assert run("node", "status", *where, "--json").lines[0]["state"] == "absent"


def test_a_control_port_in_use_names_its_process(own_dir: Path) -> None:
    """Regression: "Address already in use", without the address, the process, or what to do."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("127.0.0.1", 0))
        control = f"127.0.0.1:{used.getsockname()[1]}"
        failed = run("node", "start", "--aeron-dir", str(own_dir), "--control", control)
    assert failed.code == 3
    assert f"cannot listen at {control}: process {os.getpid()} (" in failed.err
    assert "name it with the options 'archive' and 'aeronDir'" in failed.err


def test_stopping_a_node_in_use_needs_force(own_dir: Path) -> None:
    with node.ensure(own_dir):
        refused = run("node", "stop", "--aeron-dir", str(own_dir), "--timeout", "0.2")
        assert refused.code == 1
        assert "is in use after 0.2 s: other processes hold it" in refused.err
        assert "--force" in refused.err
        assert run("node", "stop", "--aeron-dir", str(own_dir), "--force").code == 0


def test_the_directory_can_be_set_in_the_environment(own_dir: Path) -> None:
    result = run("node", "start", "--linger", "60", "--json", AERON_SPARK_AERON_DIR=str(own_dir))
    assert result.lines[0]["aeron_dir"] == str(own_dir)
    assert result.lines[0]["stays"] is False


@pytest.mark.sampled
def test_a_killed_node_is_stale(own_dir: Path) -> None:
    with node.ensure(own_dir) as handle:
        os.kill(handle.pid, signal.SIGKILL)
        os.waitpid(handle.pid, 0)
    result = run("node", "status", "--aeron-dir", str(own_dir), "--json")
    assert result.lines[0]["state"] == "stale"
    assert run("node", "start", "--aeron-dir", str(own_dir)).code == 0
