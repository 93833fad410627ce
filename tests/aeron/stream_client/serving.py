"""A server in a separate process on the test's node, which can be killed and restarted on the same ports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aeron_spark.node import NodeHandle
from tests.ports import free_ports
from tests.programs import python_environ
from tests.waiting import suspend


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
    """``aeron-spark server``, with its key in ``folder``."""

    def __init__(self, aeron_dir: str, folder: Path) -> None:
        data, control = free_ports()
        self.address = f"127.0.0.1:{data}:{control}"
        self.log = folder / "server.log"
        self._arguments = [
            "server", self.address, "--json", "--aeron-dir", aeron_dir, "--identity", str(folder / "server.key"),
            "--handshakes-per-second", "0", "--allow-any-key",
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self, *program: str) -> None:
        """Start the process, and wait until it listens. ``program`` is the module that runs it, with its arguments."""
        command = [sys.executable, "-W", "error", "-m", *(program or ("aeron_spark",)), *self._arguments]
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(
                command, env=python_environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()}"
        assert json.loads(line)["event"] == "listening", line

    def stop(self, timeout_s: float) -> int:
        """Ask the process to end, and return its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.terminate()
        try:
            return process.wait(timeout_s)
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()

    def await_killed(self, timeout_s: float) -> None:
        """Wait until the process has killed itself."""
        assert self._process is not None
        assert self._process.wait(timeout_s) == -signal.SIGKILL, self.log.read_text()

    def suspend(self) -> None:
        """Suspend the process."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        """Let the suspended process run."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
