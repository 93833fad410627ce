"""A server that is attacked, as a separate process, and a good client that measures its response times."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.keypair import public_text
from aeron_spark.waiting import wait_for
from tests.aeron.attacks.attacker import OWN_STREAM, STREAM
from tests.aeron.attacks.measured_server import RESIDENT_HEAP, TIMEOUT_S, MeasuredServer
from tests.priority import lower_priority
from tests.programs import Program, start_module

BULK_STREAM: Final = "bulk"
MIB: Final = 1 << 20
ENOUGH_FOR_P99: Final = 500
ROWS: Final = pa.record_batch({"n": pa.array(range(100), pa.int64())})


@dataclass
class Timings:
    """Seconds of each operation of the good client in one phase, by name, and its errors."""

    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in ("ping", "list", "commit", "follow", "read", "connect")}
    )
    errors: list[Exception] = field(default_factory=list)

    def p99(self, name: str) -> float:
        """Return the 99th percentile of an operation; the largest value of fewer than 100."""
        return self._percentile(name, 0.99)

    def slow(self, name: str) -> float:
        """Return the 99th percentile, or the 90th of fewer than 500 values, whose 99th depends on a few of them."""
        return self._percentile(name, 0.99 if len(self.seconds[name]) >= ENOUGH_FOR_P99 else 0.9)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def _percentile(self, name: str, share: float) -> float:
        ordered = sorted(self.seconds[name])
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def __str__(self) -> str:
        return " ".join(
            f"{name}={statistics.median(found) * 1e3:.1f}/{self.p99(name) * 1e3:.1f}ms({len(found)})"
            for name, found in self.seconds.items()
            if found
        )


def read_all(client: Client) -> None:
    """Read all rows of a stream over a bulk link."""
    with client.reader(BULK_STREAM) as reader:
        assert sum(batch.num_rows for batch in reader) == 4


class GoodClient:
    """Does at once what clients do: pings each 20 ms, lists streams each 50 ms, commits 100 rows a second, follows a
    stream, and each half second reads a stream of 4 MiB over a bulk link, and connects once more.

    It works only while it is measured. On a busy machine an attacker needs a long time to connect, and the processor
    time of a test must not depend on that.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._clients = [connect() for _ in range(2)]
        self._timings = Timings()
        self._measuring = threading.Event()
        self._ending = threading.Event()
        self._sent_at: dict[int, float] = {}
        self._failed: list[Exception] = []  # errors that ended a thread
        writer, reader = self._clients
        self._threads = [
            threading.Thread(target=self._repeat, args=("ping", 0.02, lambda: reader.ping(TIMEOUT_S)), daemon=True),
            threading.Thread(target=self._repeat, args=("list", 0.05, reader.streams), daemon=True),
            threading.Thread(target=self._run, args=(self._commit, writer), daemon=True),
            threading.Thread(target=self._repeat, args=("read", 0.5, lambda: read_all(reader)), daemon=True),
            threading.Thread(target=self._repeat, args=("connect", 0.5, lambda: connect().close()), daemon=True),
            threading.Thread(target=self._run, args=(self._follow, reader), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def measure(self, seconds: float) -> Timings:
        """Measure for so long, but at least until each operation has ended once more, or a thread has failed."""
        self._timings = timings = Timings()
        self._measuring.set()
        try:
            self._ending.wait(seconds)
            wait_for(
                lambda: self._failed or all(timings.seconds.values()), TIMEOUT_S,
                "each operation of the good client to end", state=lambda: f"{timings} {timings.errors[:3]}",
            )  # fmt: skip
        finally:
            self._measuring.clear()
        timings.errors += self._failed
        return timings

    def close(self) -> None:
        """End its threads and its connections."""
        self._ending.set()
        self._measuring.set()
        *others, following = self._threads
        for thread in others:
            thread.join(TIMEOUT_S)
        for client in self._clients:
            client.close()
        following.join(TIMEOUT_S)

    def _repeat(self, name: str, interval_s: float, operation: Callable[[], object]) -> None:
        while self._is_due(interval_s):
            self._time(name, operation)

    def _is_due(self, interval_s: float) -> bool:
        """Wait for the interval, and until the client is measured; return whether it still works."""
        self._ending.wait(interval_s)
        self._measuring.wait()
        return not self._ending.is_set()

    def _time(self, name: str, operation: Callable[[], object]) -> None:
        timings, begin = self._timings, time.monotonic()
        try:
            operation()
        except AeronSparkError as error:
            timings.errors.append(error)
        else:
            timings.seconds[name].append(time.monotonic() - begin)

    def _run(self, operations: Callable[[Client], None], client: Client) -> None:
        try:
            operations(client)
        except Exception as error:
            if not self._ending.is_set():
                self._failed.append(error)

    def _commit(self, client: Client) -> None:
        with client.writer("good", writer_id="good") as writer:
            number = 0

            def commit() -> None:
                self._sent_at[number] = time.monotonic()
                writer.write(ROWS)
                writer.commit()

            while self._is_due(1.0):
                self._time("commit", commit)
                number += 1

    def _follow(self, client: Client) -> None:
        seen = 0
        with client.reader("good", follow=True) as reader:
            for batch in reader:
                seen += batch.num_rows
                number = seen // 100 - 1
                if number in self._sent_at:
                    self._timings.seconds["follow"].append(time.monotonic() - self._sent_at.pop(number))


class AttackedServer:
    """A server with keys for a good client and for an attacker.

    The good client and the attacker have a node each. The attacker's processes get processor time that no other process
    wants, as if they ran on another machine: the test measures what the attacker takes from the server, and not from
    the processors.
    """

    def __init__(self, node: NodeHandle, clients_node: NodeHandle, attackers_node: NodeHandle, folder: Path) -> None:
        attacker = public_text(ensure_identity(folder / "attacker").public)
        with ExitStack() as parts:
            grants = f"streams={STREAM}:read streams={OWN_STREAM}*:write,create,purge messages=send"
            self.server = MeasuredServer(node, clients_node, folder, f"{grants} name=attacker {attacker}\n")
            parts.callback(self.server.close)
            with self.server.connect() as client:
                for name in (STREAM, OWN_STREAM, BULK_STREAM, "good"):
                    client.create_stream(name)
                for name in (STREAM, BULK_STREAM):
                    with client.writer(name) as writer:  # more than a link takes without its reader
                        writer.write([bytes(MIB)] * 4)
                        writer.commit()
            self._attacker = start_attacker(self.server.address, folder, attackers_node.aeron_dir)
            parts.callback(kill, self._attacker)
            assert self._answer() == "ready"
            for session in (self._attacker.pid, attackers_node.pid):
                lower_priority(session)
            self.good = GoodClient(self.server.connect)
            parts.callback(self.good.close)
            assert self.good.measure(0.0).errors == []  # each operation once
            self._parts = parts.pop_all()

    @contextmanager
    def attacked_by(self, attack: str) -> Iterator[dict[str, int]]:
        """Attack while the block runs; then the dictionary has what the attacker sent."""
        report: dict[str, int] = {}
        self._attacker.send(attack)
        assert self._answer() == "attacking"
        yield report
        self._attacker.send("stop")
        report.update(json.loads(self._answer()))

    def _answer(self) -> str:
        line = self._attacker.stdout.readline().strip()
        assert line, "the attacker's process ended"
        return line

    def close(self) -> None:
        """End the good client, the attacker and the server."""
        self._parts.close()


def start_attacker(address: str, folder: Path, aeron_dir: str) -> Program:
    environ = {**RESIDENT_HEAP, "XDG_CONFIG_HOME": str(folder / "attackers-config")}
    arguments = (address, str(folder / "attacker"), aeron_dir)
    return start_module("tests.aeron.attacks.attacker", *arguments, environ=environ, start_new_session=True)


def kill(process: Program) -> None:
    process.kill()
    process.communicate()
