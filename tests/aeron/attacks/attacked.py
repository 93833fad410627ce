"""A server that is attacked, as a separate process, and a good client that measures its response times."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.identity import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from aeron_spark.waiting import wait_for
from tests.aeron.attacks.attacker import STREAM
from tests.aeron.endpoint.drivers import free_ports

ROOT: Final = Path(__file__).resolve().parents[3]
ENVIRON: Final = {**os.environ, "PYTHONPATH": f"{ROOT / 'connector'}{os.pathsep}{ROOT}"}
TIMEOUT_S: Final = 60.0
MIB: Final = 1 << 20
OPERATIONS: Final = ("ping", "list", "commit", "follow")
ROWS: Final = pa.record_batch({"n": pa.array(range(100), pa.int64())})


@dataclass
class Timings:
    """Seconds of each operation of the good client in one phase, by name, and its errors."""

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {"ping": [], "list": [], "commit": [], "follow": []}
    )
    errors: list[AeronSparkError] = field(default_factory=list)

    def p99(self, name: str) -> float:
        """Return the 99th percentile of an operation; the largest value of fewer than 100."""
        ordered = sorted(self.seconds[name])
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]

    def __str__(self) -> str:
        return " ".join(
            f"{name}={statistics.median(found) * 1e3:.1f}/{self.p99(name) * 1e3:.1f}ms({len(found)})"
            for name, found in self.seconds.items()
            if found
        )


class GoodClient:
    """Pings each 20 ms, lists streams each 250 ms, commits 100 rows a second, and follows a stream, all at once."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._clients = [connect() for _ in range(2)]
        self._timings = Timings()
        self._ending = threading.Event()
        self._sent_at: dict[int, float] = {}
        writer, reader = self._clients
        self._threads = [
            threading.Thread(target=self._repeat, args=("ping", 0.02, lambda: reader.ping(TIMEOUT_S)), daemon=True),
            threading.Thread(target=self._repeat, args=("list", 0.25, reader.streams), daemon=True),
            threading.Thread(target=self._commit, args=(writer,), daemon=True),
            threading.Thread(target=self._follow, args=(reader,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def measure(self, seconds: float) -> Timings:
        """Measure for so long, but at least until each operation has ended once more."""
        self._timings = timings = Timings()
        self._ending.wait(seconds)
        wait_for(lambda: all(timings.seconds.values()), TIMEOUT_S, "each operation of the good client to end")
        return timings

    def close(self) -> None:
        """End its threads and its connections."""
        self._ending.set()
        for thread in self._threads[:3]:
            thread.join(TIMEOUT_S)
        for client in self._clients:
            client.close()
        self._threads[3].join(TIMEOUT_S)

    def _repeat(self, name: str, interval_s: float, operation: Callable[[], object]) -> None:
        while not self._ending.wait(interval_s):
            self._time(name, operation)

    def _time(self, name: str, operation: Callable[[], object]) -> None:
        timings, begin = self._timings, time.monotonic()
        try:
            operation()
        except AeronSparkError as error:
            timings.errors.append(error)
        else:
            timings.seconds[name].append(time.monotonic() - begin)

    def _commit(self, client: Client) -> None:
        with client.writer("good", writer_id="good") as writer:
            number = 0

            def commit() -> None:
                self._sent_at[number] = time.monotonic()
                writer.write(ROWS)
                writer.commit()

            while not self._ending.wait(1.0):
                self._time("commit", commit)
                number += 1

    def _follow(self, client: Client) -> None:
        seen = 0
        try:
            with client.reader("good", follow=True) as reader:
                for batch in reader:
                    seen += batch.num_rows
                    number = seen // 100 - 1
                    if number in self._sent_at:
                        self._timings.seconds["follow"].append(time.monotonic() - self._sent_at.pop(number))
        except AeronSparkError as error:
            if not self._ending.is_set():
                self._timings.errors.append(error)


class AttackedServer:
    """``aeron-spark server`` on its own node, with keys for a good client and for an attacker.

    The good client and the attacker have a node each. The attacker's processes get processor time that no other process
    wants, as if they ran on another machine: the test measures what the attacker takes from the server, and not from
    the processors.
    """

    def __init__(self, node: NodeHandle, clients_node: NodeHandle, attackers_node: NodeHandle, folder: Path) -> None:
        data, control = free_ports()
        self.address = f"127.0.0.1:{data}:{control}"
        self._folder, self._clients_node = folder, clients_node
        self.log = folder / "server.log"
        good, attacker = self._key("good"), self._key("attacker")
        clients = folder / "clients"
        clients.write_text(
            f"streams=*:all name=good {good}\nstreams={STREAM}:read messages=send name=attacker {attacker}\n"
        )
        clients.chmod(0o600)
        command = [
            sys.executable, "-m", "aeron_spark", "server", self.address, "--aeron-dir", node.aeron_dir,
            "--identity", str(folder / "server.key"), "--authorized-keys", str(clients), "--json",
        ]  # fmt: skip
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=ENVIRON, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()}"
        with self.connect() as client:
            for name in (STREAM, "good"):
                client.create_stream(name)
        self._attacker = subprocess.Popen(
            [
                sys.executable, "-m", "tests.aeron.attacks.attacker", self.address, str(folder / "attacker"),
                attackers_node.aeron_dir,
            ],
            env={**ENVIRON, "XDG_CONFIG_HOME": str(folder / "attackers-config")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._answer() == "ready"
        for session in (self._attacker.pid, attackers_node.pid):
            lower_priority(session)
        self.good = GoodClient(self.connect)
        self.good.measure(0.0)  # each operation once

    def connect(self) -> Client:
        """Connect as the good client."""
        return aeron_spark.connect(
            self.address, identity=str(self._folder / "good"), aeron_dir=self._clients_node.aeron_dir,
            trust_first_use=True, known_servers=str(self._folder / "known"),
        )  # fmt: skip

    def memory(self) -> int:
        """Return the resident bytes of the server's process."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @contextmanager
    def attacked_by(self, attack: str) -> Iterator[dict[str, int]]:
        """Attack while the block runs; then the dictionary has what the attacker sent."""
        report: dict[str, int] = {}
        self._tell(attack)
        assert self._answer() == "attacking"
        yield report
        self._tell("stop")
        report.update(json.loads(self._answer()))

    def _tell(self, line: str) -> None:
        assert self._attacker.stdin is not None
        self._attacker.stdin.write(f"{line}\n")
        self._attacker.stdin.flush()

    def _answer(self) -> str:
        assert self._attacker.stdout is not None
        line = self._attacker.stdout.readline().strip()
        assert line, "the attacker's process ended"
        return line

    def close(self) -> None:
        """End the good client and the server."""
        self.good.close()
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT_S)
        finally:
            for one in (self._attacker, self.process):
                one.kill()
                one.communicate()

    def _key(self, name: str) -> str:
        return public_text(ensure_identity(self._folder / name).public)


def lower_priority(session: int) -> None:
    """Give a process that leads its own session, and its threads, the lowest priority.

    Where Linux groups processes by session (``sched_autogroup_enabled``), a process' nice value counts only among the
    processes of its session, and the session has its own.
    """
    assert os.getsid(session) == session
    for thread in Path(f"/proc/{session}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    group = Path(f"/proc/{session}/autogroup")
    if group.exists():
        group.write_text("19")
