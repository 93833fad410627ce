"""The benchmarks in their quick form: they run, and their ratios come from runs. The figures mean nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RATIOS = {
    "read raw, 100 B, batch, 1 partition",
    "read raw, 100 B, batch, 1 partition, readPath=replay",
    "read raw, 100 B, batch, 2 partitions",
    "read raw, 100 B, AvailableNow, 1 partition",
    "read raw, 1300 B, batch, 1 partition",
    "read raw, 1300 B, batch, 1 partition, readPath=replay",
    "read raw, 1300 B, batch, 2 partitions",
    "read raw, 1300 B, AvailableNow, 1 partition",
    "micro-batch of a few messages",
    "arrow sink, ack=driver, 100 B",
    "arrow sink, ack=driver, 1300 B",
    "arrow sink, ack=archive, 100 B",
    "arrow sink, ack=archive, 1300 B",
    "the same, beside what Spark hands over at all, 100 B",
    "the same, beside what Spark hands over at all, 1300 B",
    "secure, 64 KiB messages over loopback UDP, against the same path without the cipher",
    "secure, 64 KiB messages over loopback UDP, against a plain publication",
    "secure, 64 KiB messages over IPC, against the same path without the cipher",
    "secure, 64 KiB messages over IPC, against a plain publication",
}
THROUGH = {
    "through a server, read raw over IPC, 1300 B",
    "through a server, read raw over loopback UDP, 1300 B",
    "through a server, read arrow over IPC, 1300 B",
    "through a server, write arrow exactly once, 1300 B",
    "through a server, micro-batch from stream to stream",
}
SET_UP = {"through a server, a task over a connection that is there"}
SECURE = {
    "secure, 200 B messages by send_many over loopback UDP",
    "secure, 200 B messages by send_many over IPC",
    "secure, ping over loopback UDP, idle=busy-spin",
    "secure, ping over loopback UDP, idle=backoff",
    "secure, handshake over loopback UDP",
    "secure, handshake, media drivers without a resolver",
    "secure, handshakes of one core, closing included",
    "secure, 200 clients that say nothing, and their server",
}
COSTS = {
    "cost of a connection, at its server",
    "cost of a partition without rows, at its server",
    "cost of a partition that is being written to, at its server",
    "cost of a reader that follows, at its server",
    "transactions of one row, at one server",
}
WITHOUT_A_TARGET = ("IPC", "idle=backoff", "handshake over loopback UDP")
SECURE_WITH_A_TARGET = {name for name in SECURE if not any(part in name for part in WITHOUT_A_TARGET)}
STARTS = {
    "first task in a fresh process, start of the JVM included",
    "a later task in the same process",
    "first task in a fresh Python worker of Spark",
    "a later task in such a worker",
}
TIMEOUT_S = 900.0  # one minute on an idle machine

pytestmark = pytest.mark.full("all benchmarks, which `make bench` runs; tests/unit/benchmarks has their parts")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    output = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "1", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = json.loads(output.read_text())
    assert found["machine"]["cores"] >= 1
    return {one["name"]: one for one in found["figures"]}


def test_every_figure_comes_out(figures: dict[str, dict[str, Any]]) -> None:
    (memory,) = set(figures) - RATIOS - STARTS - SECURE - THROUGH - SET_UP - COSTS
    assert memory.startswith("peak resident memory of a worker")
    assert set(figures) == RATIOS | STARTS | SECURE | THROUGH | SET_UP | COSTS | {memory}
    # of two or three of a kind a cost is what else happened meanwhile
    assert all(one["value"] > 0 for name, one in figures.items() if name not in COSTS)


@pytest.mark.parametrize("name", sorted(RATIOS | THROUGH))
def test_a_ratio_is_computed_from_runs_of_both(figures: dict[str, dict[str, Any]], name: str) -> None:
    own, peer = figures[name]["samples"].values()
    assert min(own + peer) > 0
    assert len(own) == len(peer) == 1
    assert figures[name]["value"] == pytest.approx(statistics.median(own) / statistics.median(peer), rel=1e-3)


def test_what_the_issue_asks_for_has_a_target(figures: dict[str, dict[str, Any]]) -> None:
    beside = ("2 partitions", "AvailableNow", "over IPC", "readPath=replay", "the same, beside")
    shown_only = {name for name in RATIOS if any(part in name for part in beside)}
    shown_only |= (SECURE - SECURE_WITH_A_TARGET) | COSTS
    assert {name for name, one in figures.items() if one["met"] is None} == shown_only


def test_a_partition_that_is_written_to_has_a_log_of_its_own(figures: dict[str, dict[str, Any]]) -> None:
    # the log is made when the partition is, or with its first row: with a look in between it may count for either
    kinds = ("a partition without rows", "a partition that is being written to")
    mapped = sum(figures[f"cost of {kind}, at its server"]["samples"]["mapped"][0] for kind in kinds)
    assert mapped > 2 * 16 * 2**20


def test_a_worker_is_measured_and_not_some_other_process(figures: dict[str, dict[str, Any]]) -> None:
    (memory,) = (one for name, one in figures.items() if name.startswith("peak resident memory"))
    # less than a Python with pyarrow and a JVM cannot be
    assert memory["value"] > 60
    assert memory["value"] == pytest.approx(memory["samples"]["MiB"][0], rel=1e-3)
