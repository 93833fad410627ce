"""A server in a separate process, which can be killed, suspended, and restarted on the same ports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from tests.ports import free_address
from tests.programs import python_environ
from tests.waiting import suspend

ANY_CLIENTS = ("--handshakes-per-second", "0", "--allow-any-key")


def connect(address: str, aeron_dir: str | Path, **options: Any) -> Client:
    """Connect a client that has a new key to a server over UDP, unless ``options`` say otherwise."""
    given = {"aeron_dir": str(aeron_dir), "ipc": "never", "store": MemoryPeerStore(), **options}
    return aeron_spark.connect(address, **given)


@contextmanager
def connections(address: str, aeron_dir: str | Path) -> Iterator[Callable[..., Client]]:
    """Yield a function that connects as :func:`connect` does; close its clients at the end of the block."""
    with ExitStack() as opened:

        def one(**options: Any) -> Client:
            return opened.enter_context(closing(connect(address, aeron_dir, **options)))

        yield one


@contextmanager
def serving(node: NodeHandle, folder: Path, streams_dir: Path | None = None, **options: Any) -> Iterator[Server]:
    """Run a server in this process while the block lasts, with its files in ``folder``."""
    with Server(
        free_address(), aeron_dir=node.aeron_dir, identity=str(folder / "server.key"), allow_any_key=True,
        streams_dir=str(streams_dir or folder / "streams"), **options,
    ) as one:  # fmt: skip
        _ = one.streams  # opens the store now, so that its thread starts here and not in a test
        yield one


@contextmanager
def started_server(node: NodeHandle, folder: Path) -> Iterator[ServerProcess]:
    """Start a server on a node, with its files in ``folder``; kill it at the end of the block."""
    one = ServerProcess(node.aeron_dir, folder)
    one.start()
    try:
        yield one
    finally:
        one.kill()


class ServerProcess:
    """``aeron-spark server`` with ``options``, whose key and log are in ``folder``. A test kills or stops it."""

    def __init__(
        self, aeron_dir: str | Path, folder: Path, *options: str, host: str = "127.0.0.1", **environ: str
    ) -> None:
        """``environ`` has further environment variables of the process."""
        folder.mkdir(parents=True, exist_ok=True)
        self.address = free_address(host)
        self.log = folder / "server.log"
        self.identity = folder / "server.key"
        self._environ = python_environ(**environ)
        self._arguments = [
            "server", self.address, "--json", "--aeron-dir", str(aeron_dir), "--identity", str(self.identity),
            *(options or ANY_CLIENTS),
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process."""
        assert self._process is not None, "the server does not run"
        return self._process

    def start(self, *program: str) -> None:
        """Start the process, and wait until it listens. ``program`` is the module that runs it, with its arguments."""
        command = [sys.executable, "-W", "error", "-m", *(program or ("aeron_spark",)), *self._arguments]
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(
                command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        line = self._process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()[-4000:]}"
        assert json.loads(line)["event"] == "listening", line

    def stop(self, timeout_s: float) -> int:
        """Ask the process to end, and return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        finally:
            self.kill()

    def await_killed(self, timeout_s: float) -> None:
        """Wait until the process has killed itself."""
        assert self.process.wait(timeout_s) == -signal.SIGKILL, self.log.read_text()
        self.kill()

    def suspend(self) -> None:
        """Suspend the process, as on a machine that does not run for a while."""
        suspend(self.process.pid)

    def resume(self) -> None:
        """Let the suspended process run."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdout.close()
