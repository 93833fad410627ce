"""Tests that the benchmarks run in their quick form, and compute ratios from runs. The figures mean nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
from typing import Any

import pytest

from tests.programs import ROOT

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
    "arrow sink, ack=archive, against a discarding writer, 100 B",
    "arrow sink, ack=archive, against a discarding writer, 1300 B",
    "secure, 64 KiB messages over loopback UDP, against the same code without the cipher",
    "secure, 64 KiB messages over loopback UDP, against a plain publication",
    "secure, 64 KiB messages over IPC, against the same code without the cipher",
    "secure, 64 KiB messages over IPC, against a plain publication",
}
SERVER_ROUTE_RATIOS = {
    "through a server, read raw over IPC, 1300 B",
    "through a server, read raw over loopback UDP, 1300 B",
    "through a server, read arrow over IPC, 1300 B",
    "through a server, write arrow exactly once, 1300 B",
    "through a server, micro-batch from stream to stream",
}
SERVER_ROUTE_TASK = {"through a server, a task over an open connection"}
SECURE = {
    "secure, 200 B messages by send_many over loopback UDP",
    "secure, 200 B messages by send_many over IPC",
    "secure, ping over loopback UDP, idle=busy-spin",
    "secure, ping over loopback UDP, idle=backoff",
    "secure, handshake over loopback UDP",
    "secure, handshake, media drivers without a resolver",
    "secure, handshakes of one core, closing included",
    "secure, 200 idle clients and their server",
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
TASK_STARTS = {
    "first task in a new process, start of the JVM included",
    "a later task in the same process",
    "first task in a new Python worker of Spark",
    "a later task in the same Python worker",
}
DURABLE = {
    f"durable transactions of one row, {writers}{cost}"
    for writers in ("1 writer", "8 writers", "100 writers")
    for cost in ("", ", cost at the server")
}
RESPONSES = {
    "first connect of a process, over loopback UDP",
    "a later connect of the process",
    "ping of an idle connection over loopback UDP, default idle strategy",
    "commands that need no JVM, the slowest of 5",
    "commands that need a JVM, the slowest of 3",
}
GROWTH = {
    *(
        f"{name} of 3,000 rows of 180 B in {recordings}"
        for name in ("batch read", "whole AvailableNow query")
        for recordings in ("1 recording", "3 recordings")
    ),
    "1 reader of a stream at one server, over loopback UDP",
    "3 readers, each with a connection, of a stream at one server, over loopback UDP",
}
DECODER = {f"decoder alone, SBE messages of 73 bytes as {what}" for what in ("12 columns", "two of 12 columns")}
PEERS = {
    "batch read of 180 B rows, one task, all columns": 5,
    "batch read of 40-700 B rows, one task, the value alone": 5,
    "whole AvailableNow query of 300,000 rows of 3,800 B": 4,
    "write of 180 B rows, one task": 6,
    "read of 180 B rows over loopback, encrypted, one task": 4,
    "read of 180 B rows over loopback, encrypted, two tasks": 2,
    "write of 180 B rows over loopback, encrypted, exactly once": 3,
    "read of 180 B rows over a network with an MTU of 1,500, encrypted, one task": 4,
    "SBE messages of 73 bytes as 12 columns, one task": 2,
}  # some of the comparisons, and their programs
TIMEOUT_S = 1800.0  # the run takes some minutes on an idle machine

pytestmark = pytest.mark.full("all benchmarks, which `make bench` runs; tests/unit/benchmarks has their parts")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    output = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    completed = subprocess.run(
        ["make", "bench", "QUICK=yes", f"BENCH_OPTIONS=--rounds 1 --output {output}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr}"
    written = json.loads(output.read_text())
    assert written["machines"][0]["cores"] >= 1
    return {figure["name"]: figure for figure in written["figures"]}


def test_every_benchmark_yields_its_figures(figures: dict[str, dict[str, Any]]) -> None:
    details = {name for name, figure in figures.items() if not figure["group"]}
    named = (
        RATIOS
        | TASK_STARTS
        | SECURE
        | SERVER_ROUTE_RATIOS
        | SERVER_ROUTE_TASK
        | COSTS
        | DURABLE
        | RESPONSES
        | GROWTH
        | DECODER
    )
    (memory,) = details - named
    assert memory.startswith("peak resident memory of a worker")
    assert details == named | {memory}
    # the quick form measures the cost of two items: other activity may outweigh it, and the difference be negative
    assert all(figure["value"] > 0 for name, figure in figures.items() if name not in COSTS | DURABLE)


@pytest.mark.parametrize("group", PEERS)
def test_a_comparison_has_all_programs_with_their_settings(figures: dict[str, dict[str, Any]], group: str) -> None:
    members = [figure for figure in figures.values() if figure["group"] == group]
    programs = {name for figure in members for name in figure["samples"]}
    assert len(programs) == PEERS[group] == len(members) + 1
    for figure in members:
        assert set(figure["settings"]) == set(figure["samples"])
        assert all(figure["settings"].values())


@pytest.mark.parametrize("name", sorted(RATIOS | SERVER_ROUTE_RATIOS))
def test_a_ratio_is_computed_from_runs_of_both_programs(figures: dict[str, dict[str, Any]], name: str) -> None:
    measured, compared = figures[name]["samples"].values()
    assert min(measured + compared) > 0
    assert len(measured) == len(compared) == 1
    ratio = statistics.median(measured) / statistics.median(compared)
    assert figures[name]["value"] == pytest.approx(ratio, rel=1e-3)


def test_details_that_only_compare_the_project_with_itself_have_no_target(figures: dict[str, dict[str, Any]]) -> None:
    parts = ("read raw,", "through a server, read", "through a server, write", "ack=archive")
    without_target = {name for name in RATIOS | SERVER_ROUTE_RATIOS if any(part in name for part in parts)}
    without_target |= {name for name in RATIOS if "over IPC" in name}
    without_target |= (SECURE - SECURE_WITH_A_TARGET) | COSTS | GROWTH | DECODER
    details = {name: figure for name, figure in figures.items() if not figure["group"]}
    assert {name for name, figure in details.items() if figure["met"] is None} == without_target


def test_the_log_buffers_of_a_written_partition_are_in_its_cost(figures: dict[str, dict[str, Any]]) -> None:
    # they are created with the partition or with its first row: a measurement in between counts them for either
    items = ("a partition without rows", "a partition that is being written to")
    mapped = sum(figures[f"cost of {item}, at its server"]["samples"]["mapped"][0] for item in items)
    assert mapped > 2 * 16 * 2**20


def test_the_memory_figure_is_a_python_workers(figures: dict[str, dict[str, Any]]) -> None:
    (memory,) = (figure for name, figure in figures.items() if name.startswith("peak resident memory"))
    # a Python process with pyarrow and a JVM needs more than this
    assert memory["value"] > 60
    assert memory["value"] == pytest.approx(memory["samples"]["MiB"][0], rel=1e-3)
