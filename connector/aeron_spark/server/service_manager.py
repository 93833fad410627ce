"""Reports a server's state to the service manager that started it, by the protocol of systemd's ``sd_notify``."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from aeron_spark.server.server_state import ServerState

STEP_INTERVAL_S: Final = 0.25  # a manager notices a step of the recovery so late
SEND_TIMEOUT_S: Final = 1.0  # the manager's socket is local: its buffer has room, or the manager hangs
RECOVERY_EXTENSION_S: Final = 60  # for the recovery of the next stream
# With a full disk a server serves reads and purges. A service manager that waits for the disk would end it.
NOT_NEEDED_TO_START: Final = frozenset({"disk", "store"})
WATCHDOG_SHARE: Final = 3  # of the watchdog's time passes between two reports


class ServiceReports:
    """Decides what to report, from the state of a server and the time in seconds. Has no thread and no socket.

    READY=1 means that the server serves: it does not wait for a disk with too little free space, or for streams whose
    folder is gone, which STATUS names. A recovery that makes progress extends the time that the service manager allows
    for the start. The watchdog is satisfied only if each thread of ``turns`` has turned since it was satisfied last.
    """

    def __init__(self, server: ServerState, watchdog_s: float | None) -> None:
        self._server: Final = server
        self._watchdog_s: Final = watchdog_s
        self._progress: tuple[int, int] | None = None
        self._was_ready = False
        self._status = ""
        self._turns: tuple[int, ...] = ()
        self._next_watchdog = 0.0

    def step(self, now: float) -> list[str]:
        """Return the lines to report now."""
        progress, reasons = self._server.recovery_progress, self._server.readiness.reasons
        lines = []
        if not self._was_ready and progress != self._progress and progress is not None:
            lines.append(f"EXTEND_TIMEOUT_USEC={RECOVERY_EXTENSION_S * 1_000_000}")
        self._progress = progress
        if not self._was_ready and reasons.keys() <= NOT_NEEDED_TO_START:
            self._was_ready, self._turns, self._next_watchdog = True, self._server.turns, now
            lines.append("READY=1")
        status = "ready" if not reasons else "not ready: " + "; ".join(reasons.values())
        if not self._was_ready:
            status = "starting" if progress is None else "recovering {} of {} streams".format(*progress)
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status.replace(chr(10), ' ')}")
        return lines + self._watchdog(now)

    def _watchdog(self, now: float) -> list[str]:
        if self._watchdog_s is None or not self._was_ready or now < self._next_watchdog:
            return []
        turns = self._server.turns
        if len(turns) == len(self._turns) and any(new <= old for new, old in zip(turns, self._turns, strict=True)):
            return []  # a thread is stuck, or has not turned yet
        self._turns, self._next_watchdog = turns, now + self._watchdog_s / WATCHDOG_SHARE
        return ["WATCHDOG=1"]


class ServiceManager:
    """Sends reports to the service manager on a thread, from ``start`` to ``close``. Does nothing without one.

    ``environ`` has NOTIFY_SOCKET and the watchdog's time, if a service manager has started this process.
    """

    def __init__(
        self, server: ServerState, environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._address: Final = environ.get("NOTIFY_SOCKET", "")
        self._reports: Final = ServiceReports(server, watchdog_seconds(environ, os.getpid()))
        self._clock: Final = clock
        self._ending: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="aeron-spark-service", daemon=True)

    def start(self) -> None:
        """Begin to send reports."""
        if self._address:
            self._thread.start()

    def report_stopping(self) -> None:
        """Report that the server has begun to end."""
        self._send(["STOPPING=1"])

    def close(self) -> None:
        """Send no further reports."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._send(self._reports.step(self._clock()))
            self._ending.wait(STEP_INTERVAL_S)

    def _send(self, lines: list[str]) -> None:
        if not self._address or not lines:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(SEND_TIMEOUT_S)
            sending.sendto("\n".join(lines).encode(), address)


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Return the time after which the service manager ends a process that does not report; None without a watchdog."""
    microseconds, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    if not microseconds.isdigit() or int(microseconds) == 0 or watched != str(pid):
        return None
    return int(microseconds) / 1_000_000
