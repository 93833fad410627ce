"""Servers in separate processes, which print their events as JSON, and the environments of their users."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.programs import start_interpreter
from tests.waiting import poll_until

TIMEOUT_S = 60.0  # for an operation of another process on a slow machine
STOP_TIMEOUT_S = 10.0


class LoggedServer:
    """A server process, the ``events`` of its log, and the events that it ``printed``: "listening"."""

    def __init__(self, process: subprocess.Popen[str], home: dict[str, str]) -> None:
        self.process = process
        self.home = home
        self.events: list[Any] = []
        self.printed: list[Any] = []
        self.errors: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_events, self._read_printed)]
        for reader in self._readers:
            reader.start()

    def _read_events(self) -> None:
        for line in self.process.stderr:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self.errors.append(line)

    def _read_printed(self) -> None:
        for line in self.process.stdout:
            self.printed.append(json.loads(line))

    def named(self, name: str) -> list[Any]:
        # the server prints "listening" when it also takes signals
        return [event for event in (self.printed if name == "listening" else self.events) if event["event"] == name]

    def wait(self, name: str, count: int = 1) -> Any:
        def event() -> Any:
            if self.process.poll() is not None and len(self.named(name)) < count:
                pytest.fail(f"the server ended: {self.errors}")
            return self.named(name)[count - 1] if len(self.named(name)) >= count else None

        return poll_until(event, TIMEOUT_S, f"the event {name} of the server", state=lambda: str(self.events))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_TIMEOUT_S)
        self.join()
        return code

    def join(self) -> None:
        """Wait until everything that the process has printed and logged is read."""
        for reader in self._readers:
            reader.join(TIMEOUT_S)


def home_of(config_home: Path, aeron_dir: Path) -> dict[str, str]:
    """Return the environment of a user whose keys are in ``config_home``, on the media driver in ``aeron_dir``."""
    return {"AERON_SPARK_CONFIG_HOME": str(config_home), "AERON_SPARK_AERON_DIR": str(aeron_dir)}


@contextmanager
def running_server(
    home: Path, aeron_dir: Path, *arguments: str, program: Sequence[str] = ("-m", "aeron_spark")
) -> Iterator[LoggedServer]:
    """Run a server whose keys are in ``home``. ``program`` has the arguments of Python that run the command line."""
    admission = () if {"--authorized-keys", "--config"} & {*arguments} else ("--allow-any-key",)
    command = [*program, "server", "--json", "--log-format", "json", *admission, *arguments]
    with logged_server(command, home_of(home, aeron_dir)) as server:
        yield server


@contextmanager
def logged_server(command: Sequence[str], environ: dict[str, str], **more: str) -> Iterator[LoggedServer]:
    """Run a server by these arguments of Python, as a user with ``environ``; kill it at the end of the block."""
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with start_interpreter("-W", "error", *command, environ={**environ, **more}, **options) as process:
        try:
            yield LoggedServer(process, environ)
        finally:
            if process.poll() is None:
                process.kill()
