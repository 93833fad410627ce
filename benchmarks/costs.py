"""Measures the cost of a connection, a partition and a reader at a server, and its commit rate, to size a server."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from aeron_spark import node
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.protocol.keypair import public_text
from aeron_spark.waiting import wait_for
from benchmarks.costs_clients import WRITERS
from benchmarks.environment import Environment
from benchmarks.measure import ROOT, Figure, cpu_seconds, measure_seconds

PORTS: Final = "127.0.0.1:21594:21595"
CONNECTIONS, PARTITIONS, READERS = 40, 64, 16
COMMITS: Final = 400
QUICK_COUNT: Final = 2  # connections, partitions and readers
IDLE_S: Final = 4.0  # over which the processor time is measured
SETTLING_S: Final = 2.0  # until temporary resources are released
TIMEOUT_S: Final = 120.0  # for a command
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a server and its node use at one moment, in bytes and counts; ``busy`` is in cores."""

    server: int  # its memory without shared pages
    node: int
    descriptors: int  # of both
    mapped: int  # length of the files in the media driver's directory
    shared: int  # allocated bytes of these files, which /dev/shm really holds
    files: int  # of the archive and the streams
    disk: int
    busy: float


def run(env: Environment) -> Iterator[Figure]:
    """Add connections, then partitions, then rows in them, then readers, and measure the additional usage of each."""
    connections, partitions, readers = (QUICK_COUNT if env.quick else n for n in (CONNECTIONS, PARTITIONS, READERS))
    with _server_and_clients(env) as (usage, command):
        command(f"connect {QUICK_COUNT}")  # allocates the resources that exist once
        before = usage()
        for item, count, text in (
            ("a connection", connections, f"connect {connections}"),
            ("a partition without rows", partitions, f"create {partitions}"),
            ("a partition that is being written to", partitions, f"write {partitions}"),
        ):
            command(text)
            after = usage()
            yield _cost_figure(item, count, before, after)
            before_writing, before = before, after
        if not env.quick:  # publications that close later would be subtracted from the readers' cost
            half = (before.mapped + before_writing.mapped) // 2  # the rest is the writer's bulk links, which stay open
            wait_for(lambda: usage().mapped < half, TIMEOUT_S, "the publications of partitions to be closed")
        before = usage()
        command(f"follow {readers}")
        yield _cost_figure("a reader that follows", readers, before, usage())
        yield _commit_figure(env, command)


def _cost_figure(item: str, count: int, before: Usage, after: Usage) -> Figure:
    more = {name: (getattr(after, name) - getattr(before, name)) / count for name in Usage.__dataclass_fields__}
    return Figure(
        f"cost of {item}, at its server",
        (more["server"] + more["node"]) / KIB,
        "KiB of memory",
        detail=(
            f"{more['server'] / KIB:.0f} KiB in the server, {more['node'] / KIB:.0f} KiB in the node; in /dev/shm "
            f"{more['shared'] / KIB:.0f} KiB of {more['mapped'] / MIB:.1f} MiB mapped; "
            f"{more['descriptors']:.1f} descriptors; on disk {more['files']:.1f} files with {more['disk'] / KIB:.0f} "
            f"KiB; {more['busy'] * 100:.2f} % of a core when idle; mean of {count}"
        ),
        samples={name: [value] for name, value in more.items()},
    )


def _commit_figure(env: Environment, command: Callable[[str], None]) -> Figure:
    count = WRITERS * (1 if env.quick else COMMITS // WRITERS)
    rates = [count / measure_seconds(lambda: command(f"commit {count}")) for _ in range(1 if env.quick else 3)]
    return Figure(
        "transactions of one row, at one server",
        statistics.median(rates),
        "a second",
        detail=f"{WRITERS} concurrent writers in one client process; each waits for its commit",
        samples={"a second": rates},
    )


@contextmanager
def _server_and_clients(env: Environment) -> Iterator[tuple[Callable[[], Usage], Callable[[str], None]]]:
    """Run a server and its clients, each with a separate node.

    Yield a function that measures the usage of the server and its node, and one that sends the clients a command.
    """
    folder = env.folder / "costs"
    folder.mkdir()
    key = public_text(ensure_identity(folder / "server.key").public)
    server_dir, clients_dir = (Path(f"{env.node.aeron_dir}-costs-{name}") for name in ("server", "clients"))
    python = [sys.executable, "-m"]
    with ExitStack() as stack:
        for aeron_dir in (server_dir, clients_dir):
            stack.callback(shutil.rmtree, aeron_dir, ignore_errors=True)
            stack.callback(node.stop, aeron_dir, force=True)
        server = stack.enter_context(
            _run_program(
                [
                    *python, "aeron_spark", "server", PORTS, "--aeron-dir", str(server_dir),
                    "--identity", str(folder / "server.key"), "--streams-dir", str(folder / "streams"),
                    "--handshakes-per-second", "0", "--allow-any-key",
                ],
                folder / "server.log",
            )
        )  # fmt: skip
        _await_line(server, "listening")
        clients = stack.enter_context(
            _run_program(
                [*python, "benchmarks.costs_clients", str(folder), PORTS, key, str(clients_dir)],
                folder / "clients.log",
            )
        )
        _await_line(clients, "done")
        server_node = node.status(server_dir)
        assert server_node.pid is not None
        processes = [psutil.Process(server.pid), psutil.Process(server_node.pid)]
        data_folders = [Path(server_node.archive_dir), folder / "streams"]
        settling_s, idle_s = (0.1, 0.5) if env.quick else (SETTLING_S, IDLE_S)

        def command(text: str) -> None:
            assert clients.stdin is not None
            clients.stdin.write(f"{text}\n")
            clients.stdin.flush()
            _await_line(clients, "done")

        yield lambda: _measure_usage(processes, server_dir, data_folders, settling_s, idle_s), command


def _measure_usage(
    processes: list[psutil.Process], aeron_dir: Path, data_folders: list[Path], settling_s: float, idle_s: float
) -> Usage:
    time.sleep(settling_s)
    before, started = sum(map(cpu_seconds, processes)), time.perf_counter()
    time.sleep(idle_s)
    busy = (sum(map(cpu_seconds, processes)) - before) / (time.perf_counter() - started)
    shared = _file_sizes(aeron_dir)
    disk = [size for folder in data_folders for size in _file_sizes(folder)]
    server, server_node = (process.memory_info().rss - process.memory_info().shared for process in processes)
    return Usage(
        server, server_node, sum(process.num_fds() for process in processes),
        sum(length for length, _ in shared), sum(allocated for _, allocated in shared),
        len(disk), sum(allocated for _, allocated in disk), busy,
    )  # fmt: skip


def _file_sizes(folder: Path) -> list[tuple[int, int]]:
    """Return the length and the allocated size of each file, in bytes."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # removed meanwhile
            continue
        if path.is_file():
            sizes.append((status.st_size, status.st_blocks * 512))
    return sizes


@contextmanager
def _run_program(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=os.environ
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()  # the clients' program closes its clients and ends
        process.terminate()
        process.wait(TIMEOUT_S)
        process.stdout.close()


def _await_line(process: subprocess.Popen[str], word: str) -> None:
    """Read a program's output until a line that starts with ``word``; kill the program after ``TIMEOUT_S``.

    Raises RuntimeError if the program ends before.
    """
    killer = threading.Timer(TIMEOUT_S, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        if not any(line.startswith(word) for line in iter(process.stdout.readline, "")):
            raise RuntimeError(
                f"{process.args!r} exited with {process.wait()} before it printed {word!r} "
                f"(programs are killed after {TIMEOUT_S:g} s)"
            )
    finally:
        killer.cancel()
