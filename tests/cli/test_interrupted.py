"""Signals to a command that waits for a server, a subscriber or an archive that does not respond."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import begin
from tests.ports import free_ports

TIMEOUT_S = 60.0  # for an operation of another process on a slow machine
LONG_TIMEOUT = "10min"  # of each command


class SilentPorts:
    """Two consecutive UDP ports that receive packets and send none."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self.port = int(sockets[0].getsockname()[1])

    def await_packet(self) -> None:
        """Wait until a command has sent a packet: from then on it waits for a response."""
        ready, _, _ = select.select(self._sockets, [], [], TIMEOUT_S)
        assert ready, "no packet came"


@pytest.fixture
def silent() -> Iterator[SilentPorts]:
    with ExitStack() as opened:
        sockets = []
        for port in free_ports():
            sockets.append(opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            sockets[-1].bind(("127.0.0.1", port))
        yield SilentPorts(sockets)


TO_SERVER = "--server 127.0.0.1:{port} --option connectTimeout=" + LONG_TIMEOUT
TO_ARCHIVE = "--archive aeron:udp?endpoint=127.0.0.1:{port} --option connectTimeout=" + LONG_TIMEOUT
STREAM = "--channel aeron:ipc --stream-id 1901"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (f"ping 127.0.0.1:{{port}} --connect-timeout {LONG_TIMEOUT}", signal.SIGINT),
        (f"ping 127.0.0.1:{{port}} --connect-timeout {LONG_TIMEOUT}", signal.SIGTERM),
        (f"receive {TO_SERVER}", signal.SIGTERM),
        (f"receive --stream flights --follow {TO_SERVER}", signal.SIGINT),
        (f"streams list {TO_SERVER}", signal.SIGINT),
        (f"send --stream flights {TO_SERVER}", signal.SIGINT),
        (f"bench load 127.0.0.1:{{port}} --clients 2 --connect-timeout {LONG_TIMEOUT}", signal.SIGINT),
        (f"receive {STREAM} {TO_ARCHIVE}", signal.SIGINT),
        (f"receive --follow {STREAM} {TO_ARCHIVE}", signal.SIGINT),
        (f"recordings list {TO_ARCHIVE}", signal.SIGINT),
        (
            f"send --ack driver --channel aeron:udp?endpoint=127.0.0.1:{{port}} --stream-id 1901 "
            f"--option connectTimeout={LONG_TIMEOUT}",
            signal.SIGINT,
        ),
    ],
)
def test_a_signal_ends_a_command_that_waits_for_a_response(
    line: str,
    number: signal.Signals,
    shared: Path,
    silent: SilentPorts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: Ctrl-C and SIGTERM were ignored until the timeout, and the exit code then was 1."""
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(shared))
    with begin(*line.format(port=silent.port).split()) as command:
        try:
            if line.startswith("send"):
                command.stdin.write(b"one\n")
                command.stdin.flush()
            silent.await_packet()
            command.send_signal(number)
            command.wait(TIMEOUT_S)
            _, err = command.communicate(timeout=TIMEOUT_S)
        finally:
            command.kill()
    assert (command.returncode, b"Traceback" in err) == (130, False), err
