"""The reports to a service manager, in virtual time, and the socket to which they go."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from aeron_spark.server.state import Readiness, ServiceManager, ServiceReports, watchdog_seconds

TIMEOUT_S = 20.0


class Observed:
    """A server whose state a test sets."""

    def __init__(self) -> None:
        self.problems = {"listening": "the server does not listen", "disk": "", "store": ""}
        self.readiness = Readiness({name: lambda name=name: self.problems[name] for name in self.problems})  # type: ignore[misc]
        self.recovery_progress: tuple[int, int] | None = None
        self.turns: tuple[int, ...] = (0,)

    def turn(self) -> None:
        self.turns = tuple(count + 1 for count in self.turns)

    def start(self) -> None:
        self.problems["listening"] = ""


def test_a_recovery_with_progress_extends_the_start_and_names_the_streams() -> None:
    server = Observed()
    reports = ServiceReports(server, None)
    assert reports.step(0) == ["STATUS=starting"]
    assert reports.step(1) == []
    server.recovery_progress = (0, 40)
    assert reports.step(2) == ["EXTEND_TIMEOUT_USEC=60000000", "STATUS=recovering 0 of 40 streams"]
    assert reports.step(3) == []  # no progress: a recovery that is stuck reaches the limit
    server.recovery_progress = (12, 40)
    assert reports.step(4) == ["EXTEND_TIMEOUT_USEC=60000000", "STATUS=recovering 12 of 40 streams"]
    server.start()
    assert reports.step(5) == ["READY=1", "STATUS=ready"]
    server.problems["disk"] = "full\nnow"
    assert reports.step(6) == ["STATUS=not ready: full now"]
    server.problems["disk"] = ""
    assert reports.step(7) == ["STATUS=ready"]  # READY=1 is reported once


@pytest.mark.parametrize("condition", ["disk", "store"])
def test_a_start_does_not_wait_for_what_is_corrected_while_the_server_runs(condition: str) -> None:
    """A full disk is purged, and a stream whose folder is gone is deleted, by the server alone."""
    server = Observed()
    server.problems[condition] = "/srv has 1 MiB free"
    reports = ServiceReports(server, None)
    assert reports.step(0) == ["STATUS=starting"]
    server.start()
    assert reports.step(1) == ["READY=1", "STATUS=not ready: /srv has 1 MiB free"]
    server.problems[condition] = ""
    assert reports.step(2) == ["STATUS=ready"]


def test_the_watchdog_is_satisfied_each_third_of_its_time_while_every_thread_turns() -> None:
    server = Observed()
    reports = ServiceReports(server, 30)
    assert "WATCHDOG=1" not in reports.step(0)  # the server starts
    server.start()
    server.turn()
    reports.step(1)
    server.turn()
    assert reports.step(2) == ["WATCHDOG=1"]
    server.turn()
    assert reports.step(11.9) == []
    assert reports.step(12) == ["WATCHDOG=1"]
    assert reports.step(22) == []  # the event loop has not turned since
    server.turn()
    assert reports.step(25) == ["WATCHDOG=1"]
    server.turns = (*server.turns, 0)  # the store was opened
    assert reports.step(35) == ["WATCHDOG=1"]
    server.turns = (server.turns[0] + 9, 0)  # the housekeeping is stuck
    assert reports.step(45) == []
    assert reports.step(500) == []


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_reports_arrive_at_the_socket_that_the_environment_names(tmp_path: Path, kind: str) -> None:
    address = str(tmp_path / "notify") if kind == "path" else f"@aeron-spark-test-{os.getpid()}"
    server = Observed()
    server.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(address.replace("@", "\0"))
        supervisor.settimeout(TIMEOUT_S)
        manager = ServiceManager(server, {"NOTIFY_SOCKET": address})
        manager.start()
        try:
            assert supervisor.recv(4096) == b"READY=1\nSTATUS=ready"
            manager.report_stopping()
            assert supervisor.recv(4096) == b"STOPPING=1"
        finally:
            manager.close()


def test_without_a_service_manager_or_with_one_that_has_ended_nothing_happens(tmp_path: Path) -> None:
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "none")}):
        manager = ServiceManager(Observed(), environ)
        manager.start()
        manager.report_stopping()
        manager.close()


def test_the_watchdog_time_is_that_of_this_process() -> None:
    assert watchdog_seconds({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 7) == 30
    assert watchdog_seconds({"WATCHDOG_USEC": "30000000"}, 7) == 30
    for environ in ({}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "8"}):
        assert watchdog_seconds(environ, 7) is None
