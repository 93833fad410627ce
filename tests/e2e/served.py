"""A server with named streams as a process of its own, its producer, and what its streams hold, seen from the test."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aeron_spark.keys.identity import ensure_identity
from aeron_spark.protocol.keypair import public_text
from tests.aeron.endpoint.drivers import free_ports
from tests.e2e.faulty_server import FATAL
from tests.e2e.processes import TIMEOUT_S, environment
from tests.e2e.stream_program import failures_of
from tests.waiting import poll_until

READER: Final = "tests.e2e.stream_program"
OUTAGE_TIMEOUT_S: Final = 100.0  # of a producer's calls; the server restarts in less


class Address:
    """A loopback address to which nothing gets while it is ``cut``, where this user may change routes."""

    def __init__(self) -> None:
        self.name = "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
        self.may_cut = shutil.which("ip") is not None and not self._route("add") and not self._route("del")
        self._cut = False

    def cut(self) -> None:
        """Lose whatever is sent to it from now on."""
        assert self._route("add") == 0
        self._cut = True

    def heal(self) -> None:
        """End the cut, if there is one."""
        if self._cut:
            assert self._route("del") == 0
            self._cut = False

    def _route(self, do: str) -> int:
        words = ["ip", "route", do, "blackhole", f"{self.name}/32", "table", "local"]
        return subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False).returncode


class ServerProgram:
    """``aeron-spark server`` on the node of ``aeron_dir``; killed and started again it has the same ports and key.

    It is :mod:`tests.e2e.faulty_server`, and clients reach it over UDP, at an address that can be cut off.
    """

    def __init__(self, aeron_dir: Path, folder: Path, *more: str) -> None:
        """``more`` are further words of its command line."""
        folder.mkdir(parents=True, exist_ok=True)
        self._more = more
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.host = Address()
        self.aeron_dir = aeron_dir
        self.folder = folder
        data, control = free_ports()
        self.address = f"{self.host.name}:{data}:{control}"
        self.identity = folder / "server.key"
        self.key = public_text(ensure_identity(self.identity).public)
        ensure_identity(folder / "client.key")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        log = self.folder / "server.log"
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.e2e.faulty_server", str(self.faults), self.address,
                    "--aeron-dir", str(self.aeron_dir), "--identity", str(self.identity),
                    "--handshakes-per-second", "0", *self._more,
                ],
                env=environment(), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

        def listens() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, log.read_text()[-4000:]
            return b"listening" in log.read_bytes()[before:]

        poll_until(listens, TIMEOUT_S, "the server to listen")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def suspend(self) -> None:
        """Stop it with SIGSTOP, as a machine that stands still would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def fault(
        self, point: str, stream: str, meanwhile: Callable[[], str], before_start: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until the server has come to a point, see :mod:`tests.e2e.faulty_server`.

        A server that died there is started again, once ``before_start`` has returned.
        """
        armed = self.faults / f"{point}.{stream}"
        armed.touch()

        state = ""

        def reached() -> bool:
            nonlocal state
            state = meanwhile()
            return not armed.exists()

        # Spark may have to be started anew first
        poll_until(reached, 2 * TIMEOUT_S, f"the server to come to {point} of stream {stream}", state=lambda: state)
        if point in FATAL:
            assert self.process is not None
            self.process.wait(TIMEOUT_S)
            before_start()
            self.start()

    def close(self) -> None:
        """End it in order."""
        self.host.heal()
        assert self.process is not None
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TIMEOUT_S)
        if self.process.poll() is None:
            self.kill()

    def options(self, stream: str) -> dict[str, str]:
        """The options by which Spark reaches a stream."""
        return {
            "server": self.address,
            "stream": stream,
            "identity": str(self.folder / "client.key"),
            "serverKey": self.key,
            "aeronDir": str(self.aeron_dir),
            "ipc": "never",
            "connectTimeout": "60s",
        }

    def create(self, stream: str, partitions: int) -> None:
        """Make a stream."""
        self._ask("create", stream, str(partitions))

    def rows(self, stream: str) -> dict[int, list[int]]:
        """Return the ids that a stream holds, by partition and in order."""
        found: dict[str, list[int]] = json.loads(self._ask("rows", stream))
        return {int(partition): ids for partition, ids in found.items()}

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _ask(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", READER, json.dumps(self.options("")), *words],
            env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


class StreamProducer:
    """A producer in a separate process: it commits rows with rising ids, and writes down what was committed."""

    def __init__(
        self, server: ServerProgram, stream: str, ledger: Path, seed: int, timeout: float = OUTAGE_TIMEOUT_S
    ) -> None:
        """``timeout`` is the writer's: calls fail in a longer outage, and are repeated."""
        self.ledger = ledger
        with ledger.with_suffix(".log").open("ab") as log:
            words = ("produce", stream, str(ledger), str(seed), str(timeout))
            self.process = subprocess.Popen(
                [sys.executable, "-m", READER, json.dumps(server.options("")), *words],
                env=environment(), stdin=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def committed(self) -> int:
        """How many rows are committed, as far as it knows."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return int(lines[-1]) if lines else 0

    def await_more(self, rows: int) -> None:
        """Wait until so many more rows are committed."""
        wanted = self.committed() + rows

        def there() -> bool:
            assert self.process.poll() is None, self.ledger.with_suffix(".log").read_text()[-4000:]
            return self.committed() >= wanted

        poll_until(there, TIMEOUT_S, f"{wanted} committed rows", state=lambda: str(self.committed()))

    def failures(self, method: str = "") -> int:
        """How many of its calls have failed: all, or those of one of the writer's methods."""
        path = failures_of(self.ledger)
        return sum(line.startswith(method) for line in path.read_text().splitlines()) if path.exists() else 0

    def await_failure(self) -> None:
        """Wait until another of its calls has failed."""
        before = self.failures()

        def failed() -> bool:
            assert self.process.poll() is None, self.ledger.with_suffix(".log").read_text()[-4000:]
            return self.failures() > before

        poll_until(
            failed, TIMEOUT_S, "a failed call of the producer", state=lambda: f"{self.committed()} rows committed"
        )

    def finish(self) -> int:
        """Let it end in order; return how many rows it committed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0, self.ledger.with_suffix(".log").read_text()[-4000:]
        return self.committed()

    def kill(self) -> None:
        """End it at once."""
        if self.process.poll() is None:
            os.kill(self.process.pid, 9)
        self.process.wait(TIMEOUT_S)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def same(found: dict[int, list[int]], wanted: dict[int, list[int]]) -> None:
    """Compare two streams: nothing lost, nothing twice, and the rows of a partition in their order."""
    all_found = [one for ids in found.values() for one in ids]
    all_wanted = [one for ids in wanted.values() for one in ids]
    assert len(all_wanted) == len(set(all_wanted)) > 0
    lost, more = set(all_wanted) - set(all_found), len(all_found) - len(set(all_found))
    assert not lost, f"{len(lost)} rows lost, such as {min(lost)}"
    assert not more, f"{more} rows twice"
    assert set(all_found) == set(all_wanted)
    for ids in found.values():
        for source in wanted.values():
            mine: Any = set(source)
            order = [one for one in ids if one in mine]
            assert order == sorted(order, key={one: at for at, one in enumerate(source)}.__getitem__)
