"""What a connection, a partition and a reader cost a server, and what it commits: the figures to size one by."""

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
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.protocol.keypair import public_text
from aeron_spark.waiting import wait_for
from benchmarks.costs_end import WRITERS
from benchmarks.measure import Figure, seconds
from benchmarks.stage import ROOT, Stage

PORTS: Final = "127.0.0.1:21594:21595"
CONNECTIONS, PARTITIONS, READERS = 40, 64, 16
COMMITS: Final = 400
QUICK: Final = 2  # of each
IDLE: Final = 4.0  # seconds of which the processor time is taken
SETTLING: Final = 2.0  # seconds until what was needed on the way is given back
TIMEOUT: Final = 120.0  # seconds for an order
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Used:
    """What a server and its node have at one moment, in bytes and counts, and how busy they were just now, in cores."""

    server: int  # its own memory, none of what is shared
    node: int
    descriptors: int  # of both
    mapped: int  # files in the media driver's directory, as long as they say they are
    shared: int  # as much of them as exists: what /dev/shm really holds
    files: int  # of the archive and the streams
    disk: int
    busy: float


def run(stage: Stage) -> Iterator[Figure]:
    """Add connections, then partitions, then rows in them, then readers, and look each time what there is more."""
    connections, partitions, readers = (QUICK if stage.quick else n for n in (CONNECTIONS, PARTITIONS, READERS))
    with _server(stage) as (look, order):
        order(f"connect {QUICK}")  # whatever is needed once
        before = look()
        for what, count, text in (
            ("a connection", connections, f"connect {connections}"),
            ("a partition without rows", partitions, f"create {partitions}"),
            ("a partition that is being written to", partitions, f"write {partitions}"),
        ):
            order(text)
            after = look()
            yield _figure(what, count, before, after)
            quiet, before = before, after
        if not stage.quick:  # else what closes meanwhile would be counted as well; the writer keeps its branches
            rest = (before.mapped + quiet.mapped) // 2
            wait_for(lambda: look().mapped < rest, TIMEOUT, "the publications of partitions to be closed")
        before = look()
        order(f"follow {readers}")
        yield _figure("a reader that follows", readers, before, look())
        yield _commits(stage, order)


def _figure(what: str, count: int, before: Used, after: Used) -> Figure:
    more = {name: (getattr(after, name) - getattr(before, name)) / count for name in Used.__dataclass_fields__}
    return Figure(
        f"cost of {what}, at its server",
        (more["server"] + more["node"]) / KIB,
        "KiB of memory",
        detail=(
            f"{more['server'] / KIB:.0f} KiB of the server's, {more['node'] / KIB:.0f} KiB of the node's; in /dev/shm "
            f"{more['shared'] / KIB:.0f} KiB, of {more['mapped'] / MIB:.1f} MiB mapped; "
            f"{more['descriptors']:.1f} descriptors; on disk {more['files']:.1f} files with {more['disk'] / KIB:.0f} "
            f"KiB; {more['busy'] * 100:.2f} % of a core while nothing happens; {count} of them"
        ),
        samples={name: [value] for name, value in more.items()},
    )


def _commits(stage: Stage, order: Callable[[str], None]) -> Figure:
    count = WRITERS * (1 if stage.quick else COMMITS // WRITERS)
    rates = [count / seconds(lambda: order(f"commit {count}")) for _ in range(1 if stage.quick else 3)]
    return Figure(
        "transactions of one row, at one server",
        statistics.median(rates),
        "a second",
        detail=f"{WRITERS} writers at once, each waiting for its own: one client process",
        samples={"a second": rates},
    )


@contextmanager
def _server(stage: Stage) -> Iterator[tuple[Callable[[], Used], Callable[[str], None]]]:
    """Run a server and its clients, each on a node of its own; give what looks at the first, and orders the second."""
    folder = stage.work / "costs"
    folder.mkdir()
    key = public_text(ensure_identity(folder / "server.key").public)
    here = [Path(f"{stage.node.aeron_dir}-costs-{who}") for who in ("server", "clients")]
    python = [sys.executable, "-m"]
    with ExitStack() as stack:
        for aeron_dir in here:
            stack.callback(shutil.rmtree, aeron_dir, ignore_errors=True)
            stack.callback(node.stop, aeron_dir, force=True)
        server = stack.enter_context(
            _program(
                [
                    *python, "aeron_spark", "server", PORTS, "--aeron-dir", str(here[0]),
                    "--identity", str(folder / "server.key"), "--streams-dir", str(folder / "streams"),
                    "--handshakes-per-second", "0",
                ],
                folder / "server.log",
            )
        )  # fmt: skip
        _await(server, "listening")
        clients = stack.enter_context(
            _program([*python, "benchmarks.costs_end", str(folder), PORTS, key, str(here[1])], folder / "clients.log")
        )
        _await(clients, "done")
        of_node = node.status(here[0])
        assert of_node.pid is not None
        processes = [psutil.Process(server.pid), psutil.Process(of_node.pid)]
        places = [Path(of_node.archive_dir), folder / "streams"]
        settling, idle = (0.1, 0.5) if stage.quick else (SETTLING, IDLE)

        def order(text: str) -> None:
            assert clients.stdin is not None
            clients.stdin.write(f"{text}\n")
            clients.stdin.flush()
            _await(clients, "done")

        yield lambda: _look(processes, here[0], places, settling, idle), order


def _look(processes: list[psutil.Process], aeron_dir: Path, places: list[Path], settling: float, idle: float) -> Used:
    time.sleep(settling)
    spent, since = sum(map(_spent, processes)), time.perf_counter()
    time.sleep(idle)
    busy = (sum(map(_spent, processes)) - spent) / (time.perf_counter() - since)
    shared = _sizes(aeron_dir)
    disk = [size for place in places for size in _sizes(place)]
    server, of_node = (one.memory_info().rss - one.memory_info().shared for one in processes)
    return Used(
        server, of_node, sum(one.num_fds() for one in processes),
        sum(length for length, _ in shared), sum(held for _, held in shared),
        len(disk), sum(held for _, held in disk), busy,
    )  # fmt: skip


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _sizes(folder: Path) -> list[tuple[int, int]]:
    """Return of each file how long it says it is, and how much of it exists, in bytes."""
    found = []
    for path in folder.rglob("*"):
        try:
            about = path.stat()
        except FileNotFoundError:  # removed meanwhile
            continue
        if path.is_file():
            found.append((about.st_size, about.st_blocks * 512))
    return found


@contextmanager
def _program(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=os.environ
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()  # ends the clients, in order
        process.terminate()
        process.wait(TIMEOUT)
        process.stdout.close()


def _await(process: subprocess.Popen[str], word: str) -> None:
    """Read what it says until this word. Raises RuntimeError where it ends, or is killed for being late."""
    late = threading.Timer(TIMEOUT, process.kill)
    late.start()
    try:
        assert process.stdout is not None
        if not any(line.startswith(word) for line in iter(process.stdout.readline, "")):
            raise RuntimeError(f"{process.args!r} ended with {process.wait()} before it said {word!r}")
    finally:
        late.cancel()
