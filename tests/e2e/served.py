"""Starts, kills and cuts off a server with named streams and its producer, and reads the server's streams."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from aeron_spark.keys.stores import ensure_identity
from aeron_spark.protocol.keypair import public_text
from tests.e2e.faulty_server import FATAL
from tests.e2e.processes import TIMEOUT_S
from tests.e2e.stream_program import failures_of
from tests.programs import python_environ, start_module
from tests.server_processes import ANY_CLIENTS, ServerProcess
from tests.waiting import poll_until

READER: Final = "tests.e2e.stream_program"
OUTAGE_TIMEOUT_S: Final = 100.0  # of a producer's calls; the server restarts in less


class Address:
    """A loopback address; :meth:`cut` drops all packets to it, if this user may change routes."""

    def __init__(self) -> None:
        self.name = "127." + ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
        self.can_cut = shutil.which("ip") is not None and not self._route("add") and not self._route("del")
        self._cut = False

    def cut(self) -> None:
        """Drop all packets to the address."""
        assert self._route("add") == 0
        self._cut = True

    def heal(self) -> None:
        """End the cut, if there is one."""
        if self._cut:
            assert self._route("del") == 0
            self._cut = False

    def _route(self, action: str) -> int:
        command = ["ip", "route", action, "blackhole", f"{self.name}/32", "table", "local"]
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False).returncode


class ServerProgram(ServerProcess):
    """A server that runs :mod:`tests.e2e.faulty_server`, on an address that can be cut off from its clients."""

    def __init__(self, aeron_dir: Path, folder: Path, *more: str) -> None:
        """``more`` are further arguments of its command line."""
        self.host = Address()
        super().__init__(aeron_dir, folder, *ANY_CLIENTS, *more, host=self.host.name)
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.aeron_dir = aeron_dir
        self.folder = folder
        self.key = public_text(ensure_identity(self.identity).public)
        ensure_identity(folder / "client.key")
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        super().start("tests.e2e.faulty_server", str(self.faults))

    def fault(
        self, point: str, stream: str, meanwhile: Callable[[], str], before_start: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until the server has reached a point of :mod:`tests.e2e.faulty_server`; call ``meanwhile`` repeatedly.

        If the server was killed there, start it again after ``before_start`` has returned.
        """
        armed = self.faults / f"{point}.{stream}"
        armed.touch()

        state = ""

        def reached() -> bool:
            nonlocal state
            state = meanwhile()
            return not armed.exists()

        # the timeout is doubled, because ``meanwhile`` may have to start Spark again
        poll_until(reached, 2 * TIMEOUT_S, f"the server to reach {point} of stream {stream}", state=lambda: state)
        if point in FATAL:
            self.await_killed(TIMEOUT_S)
            before_start()
            self.start()

    def close(self) -> None:
        """End the server with SIGTERM, or SIGKILL if it does not end."""
        self.host.heal()
        if self._process is not None:
            self.resume()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(TIMEOUT_S)

    def options(self, stream: str) -> dict[str, str]:
        """Return the options with which Spark uses a stream."""
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
        self._run_program("create", stream, str(partitions))

    def rows(self, stream: str) -> dict[int, list[int]]:
        """Return the row ids of a stream, by partition and in order."""
        found: dict[str, list[int]] = json.loads(self._run_program("rows", stream))
        return {int(partition): ids for partition, ids in found.items()}

    def _run_program(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", READER, json.dumps(self.options("")), *arguments],
            env=python_environ(), capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


class StreamProducer:
    """A producer in a separate process, which commits rows with rising ids, and notes the number of committed rows."""

    def __init__(
        self, server: ServerProgram, stream: str, ledger: Path, seed: int, timeout: float = OUTAGE_TIMEOUT_S
    ) -> None:
        """``timeout`` is the writer's; in a longer outage its calls fail, and the producer repeats them."""
        self.ledger = ledger
        with ledger.with_suffix(".log").open("ab") as log:
            arguments = ("produce", stream, str(ledger), str(seed), str(timeout))
            self.process = start_module(READER, json.dumps(server.options("")), *arguments, stdout=None, stderr=log)

    def committed(self) -> int:
        """Return the number of rows whose commit the producer knows."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return int(lines[-1]) if lines else 0

    def await_more(self, rows: int) -> None:
        """Wait until ``rows`` more rows are committed."""
        wanted = self.committed() + rows

        def is_committed() -> bool:
            assert self.process.poll() is None, self.ledger.with_suffix(".log").read_text()[-4000:]
            return self.committed() >= wanted

        poll_until(is_committed, TIMEOUT_S, f"{wanted} committed rows", state=lambda: str(self.committed()))

    def failures(self, method: str = "") -> int:
        """Return the number of failed calls, of all methods of the writer or of one."""
        path = failures_of(self.ledger)
        return sum(line.startswith(method) for line in path.read_text().splitlines()) if path.exists() else 0

    def await_failure(self) -> None:
        """Wait until another call has failed."""
        before = self.failures()

        def failed() -> bool:
            assert self.process.poll() is None, self.ledger.with_suffix(".log").read_text()[-4000:]
            return self.failures() > before

        poll_until(
            failed, TIMEOUT_S, "a failed call of the producer", state=lambda: f"{self.committed()} rows committed"
        )

    def finish(self) -> int:
        """Request the producer's end, and wait for it; return the number of committed rows."""
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0, self.ledger.with_suffix(".log").read_text()[-4000:]
        return self.committed()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, 9)
        self.process.wait(TIMEOUT_S)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


def assert_same_rows(found: dict[int, list[int]], wanted: dict[int, list[int]]) -> None:
    """Check that a copy of a stream has lost and repeated no row, and keeps the order of each partition."""
    all_found = [one for ids in found.values() for one in ids]
    all_wanted = [one for ids in wanted.values() for one in ids]
    assert len(all_wanted) == len(set(all_wanted)) > 0
    lost, more = set(all_wanted) - set(all_found), len(all_found) - len(set(all_found))
    assert not lost, f"{len(lost)} rows lost, such as {min(lost)}"
    assert not more, f"{more} rows twice"
    assert set(all_found) == set(all_wanted)
    for ids in found.values():
        for source in wanted.values():
            source_ids: Any = set(source)
            order = [one for one in ids if one in source_ids]
            assert order == sorted(order, key={one: at for at, one in enumerate(source)}.__getitem__)
