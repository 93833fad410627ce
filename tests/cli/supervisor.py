"""A service manager for tests: receives the reports of a server by systemd's protocol ``sd_notify``."""

from __future__ import annotations

import socket
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.waiting import poll_until

TIMEOUT_S: Final = 60.0  # for a report of a process on a slow machine


class Supervisor:
    """Receives the reports of one server process on a datagram socket."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._alive_at: list[float] = []  # when it became ready, and each report of the watchdog
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.1)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        while not self._ending.is_set():
            try:
                lines = self._socket.recv(65536).decode().splitlines()
            except TimeoutError:
                continue
            if {"READY=1", "WATCHDOG=1"} & {*lines}:
                self._alive_at.append(time.monotonic())
            self.lines += lines

    def wait(self, line: str) -> None:
        """Wait until the server has reported this line."""
        poll_until(lambda: line in self.lines, TIMEOUT_S, f"the report {line}", state=lambda: str(self.lines))

    def longest_silence_s(self, end: float) -> float:
        """Return the longest time without a report of the watchdog, from READY to ``end`` (monotonic)."""
        times = [one for one in self._alive_at if one < end]
        return max(after - before for before, after in pairwise([*times, end])) if times else 0.0

    def close(self) -> None:
        """Receive no further reports."""
        self._ending.set()
        self._thread.join(TIMEOUT_S)
        self._socket.close()
