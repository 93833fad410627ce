"""``server``, ``ping``, ``send`` and ``receive`` through a server: processes, signals and exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.aeron.driver import ports_of_server
from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import OptionReader, Where, options_named
from aeron_spark.options.routes import route_of
from aeron_spark.waiting import wait_for
from tests.cli.conftest import pipe, run
from tests.ports import free_ports
from tests.programs import python_environ
from tests.waiting import poll_until

TIMEOUT_S = 60.0  # for an operation of another process on a slow machine
STOP_TIMEOUT_S = 10.0


class ServerProcess:
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
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self.errors.append(line)

    def _read_printed(self) -> None:
        assert self.process.stdout is not None
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


@contextmanager
def running_server(home: Path, aeron_dir: Path, *arguments: str) -> Iterator[ServerProcess]:
    """Run a server whose keys are in ``home``."""
    environ = {"AERON_SPARK_CONFIG_HOME": str(home), "AERON_SPARK_AERON_DIR": str(aeron_dir)}
    admission = () if {"--authorized-keys", "--config"} & {*arguments} else ("--allow-any-key",)
    log = ("--log-format", "json")
    command = [sys.executable, "-W", "error", "-m", "aeron_spark", "server", "--json", *log, *admission, *arguments]
    with subprocess.Popen(
        command, env=python_environ(**environ), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        one = ServerProcess(process, environ)
        try:
            yield one
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_ports()[0]}"


@pytest.fixture
def client(tmp_path: Path, shared: Path) -> dict[str, str]:
    """The environment of a client with its own keys, on the media driver of the server."""
    return {"AERON_SPARK_CONFIG_HOME": str(tmp_path / "client"), "AERON_SPARK_AERON_DIR": str(shared)}


def test_a_server_responds_to_ping_and_stops_at_sigterm(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    with running_server(tmp_path / "server", shared, address) as server:
        listening = server.wait("listening")
        assert listening["address"] == f"{address}:{int(address.split(':')[1]) + 1}"
        assert run("server", "status", "--ready", **client).out == "ready\n"
        status = run("server", "status", "--json", **client).lines[0]
        assert (status["pid"], status["ready"], status["reasons"]) == (server.process.pid, True, {})
        assert (status["addresses"], status["key"]) == ([listening["address"], "ipc:"], listening["key"])
        assert status["limits"]["maxConnections"] == {"used": 0, "limit": 1000}
        assert status["memory"]["server"]["bytes"] == sum(status["memory"]["server"]["terms"].values())
        assert set(status["disk"]) == {"store", "archive"}
        shown = run("server", "status", **client).out
        assert "maxConnections\t0 of 1000\n" in shown
        assert "memory, server\tat most 762.0 MiB = base 250.0 MiB + " in shown
        done = run(
            "ping", address, "-n", "2", "--interval", "0", "--tag", "desk-7", "--ipc", "never", "--json", **client
        )
        assert done.code == 0, done.err
        connect, *pings = done.lines
        assert (connect["transport"], connect["server_key"]) == ("udp", listening["key"])
        assert [ping["number"] for ping in pings] == [1, 2]
        assert all(0 < ping["seconds"] < TIMEOUT_S for ping in pings)
        assert server.wait("connected")["tag"] == "desk-7"
        assert server.wait("disconnected")["reason"] == "closed-by-client"
        assert server.stop() == 0
        ended = run("server", "status", "--ready", **client)
        assert (ended.code, ended.out.split(":")[0]) == (1, "not ready")
        # The subscription of a server that was killed within a second of its start lasts 10 s (docs/operations.md), and
        # so do the handshake publications of clients that end meanwhile. The next server refuses these at its end.
        assert [event["event"] for event in server.events if event.get("reason") != "shutdown"] == [
            "started", "listening", "listening", "ready", "connected", "disconnected", "draining", "stopped",
        ]  # fmt: skip
        assert [event["address"] for event in server.printed] == [listening["address"], "ipc:"]
        assert server.errors == []


def test_row_23_a_client_uses_shared_memory_if_the_server_offers_it_else_udp(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    with running_server(tmp_path / "server", shared, address, "--ipc", "never") as server:
        server.wait("listening")
        done = run("ping", address, "-n", "1", "--json", **client)
        assert done.lines[0]["transport"] == "udp", done.err  # the server does not listen on IPC
        # the driver shows the server of an earlier test for some seconds after it was killed
        wait_for(lambda: ports_of_server(str(shared)) is None, TIMEOUT_S, "no server in the shared memory")
        only = run("ping", "ipc:", "-n", "1", **client)
        assert only.code == 1
        assert "fallback is unavailable" in only.err
    with running_server(tmp_path / "server", shared, address) as server:
        server.wait("listening", 2)
        done = run("ping", address, "-n", "1", "--json", **client)
        assert done.lines[0]["transport"] == "ipc", done.err
        assert server.wait("connected")["transport"] == "ipc"


def test_a_server_relays_messages(tmp_path: Path, shared: Path, address: str, client: dict[str, str]) -> None:
    lines = b"one\n\xff\xfe two\n" + b"x" * 300_000 + b"\n"
    with running_server(tmp_path / "server", shared, address) as server:
        server.wait("listening")
        received = tmp_path / "came"
        with received.open("wb") as out, subprocess.Popen(
            [sys.executable, "-m", "aeron_spark", "receive", "--server", address, "-n", "3", "--timeout", "60"],
            env=python_environ(**client), stdout=out,
        ) as receiving:  # fmt: skip
            try:
                server.wait("connected")
                # receive may not have subscribed at the first attempt
                wait_for(lambda: _sent(lines, address, client) and receiving.poll() is not None, TIMEOUT_S, "messages")
            finally:
                if receiving.poll() is None:
                    receiving.kill()
        assert receiving.returncode == 0
        # It may subscribe in the middle of an attempt, and then takes its other messages from the next one.
        assert received.read_bytes() in lines * 2
        assert received.stat().st_size == len(lines)
        assert server.stop() == 0


def _sent(lines: bytes, address: str, client: dict[str, str]) -> bool:
    done = pipe(lines, "send", "--server", address, **client)
    assert done.code == 0, done.err
    return True


def test_row_45_only_authorised_clients_connect(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    authorized = tmp_path / "authorized"
    authorized.write_text("# no key yet\n")
    with running_server(tmp_path / "server", shared, address, "--authorized-keys", str(authorized)) as server:
        server.wait("listening")
        refused = run("ping", address, "-n", "1", **client)
        assert refused.code == 1
        assert "does not know your key" in refused.err
        shown = run("keys", "show", "--json", **client)
        authorized.write_text(f"{shown.lines[0]['public']} the one\n")  # the server checks the file each second
        wait_for(lambda: run("ping", address, "-n", "1", **client).code == 0, TIMEOUT_S, "the key to be admitted")


def test_row_41_a_changed_server_key_is_refused_until_the_old_one_is_forgotten(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    with running_server(tmp_path / "one", shared, address) as server:
        server.wait("listening")
        assert run("ping", address, "-n", "1", **client).code == 0
    known = Path(client["AERON_SPARK_CONFIG_HOME"]) / "known_servers"
    wait_for(known.exists, TIMEOUT_S, "the server's key to be written")  # a thread writes it later
    before = known.read_bytes()
    assert before
    with running_server(tmp_path / "other", shared, address) as server:
        server.wait("listening")
        refused = run("ping", address, "-n", "1", **client)
        assert refused.code == 1
        assert f"aeron-spark keys forget {address}" in refused.err
        assert known.read_bytes() == before
        assert not server.named("connected")
        assert run("keys", "forget", address, **client).code == 0
        assert run("ping", address, "-n", "1", **client).code == 0


def test_row_20_invalid_ports_and_options_are_refused_before_the_server_starts(shared: Path) -> None:
    environ = {"AERON_SPARK_AERON_DIR": str(shared)}
    for ports in ("2000,2000", "0,1", "70000,1"):
        refused = run("server", "--ports", ports, **environ)
        assert refused.code == 2, ports
        assert "ports" in refused.err
    for wrong in (("--max-conections", "3"), ("--session-timeout", "30s"), ("--mtu", "1200"), ("--idle", "spin")):
        refused = run("server", *wrong, **environ)
        assert refused.code == 2, wrong


def test_a_missing_or_wrong_file_of_authorised_keys_ends_with_2(tmp_path: Path, address: str, shared: Path) -> None:
    """Regression: it ended with 1, but a wrong configuration file has exit code 2."""
    environ = {"AERON_SPARK_CONFIG_HOME": str(tmp_path / "server"), "AERON_SPARK_AERON_DIR": str(shared)}
    clients = tmp_path / "clients"
    missing = run("server", address, "--authorized-keys", str(clients), **environ)
    clients.write_text("no key\n")
    wrong = run("server", address, "--authorized-keys", str(clients), **environ)
    config = tmp_path / "server.toml"
    config.write_text(f'authorizedKeys = "{clients}"\n')
    configured = run("server", address, "--config", str(config), **environ)
    for result in (missing, wrong, configured):
        assert result.code == 2, result.err
        assert "aeron-spark: option 'authorizedKeys': " in result.err
        assert str(clients) in result.err


def test_options_can_be_in_a_configuration_file(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    config = tmp_path / "server.toml"
    config.write_text(f'[server]\nbind = "{address}"\nallowAnyKey = true\ndeny = ["127.0.0.0/8"]\n')
    with running_server(tmp_path / "server", shared, "--config", str(config)) as server:
        server.wait("listening")
        refused = run("ping", address, "-n", "1", "--ipc", "never", **client)
        assert refused.code == 1
        assert "Connection was not permitted!" in refused.err
    twice = run("server", "--config", str(config), "--deny", "10.0.0.0/8", **client)
    assert twice.code == 2
    assert "deny" in twice.err
    config.write_text("maxConections = 3\n")
    wrong = run("server", "--config", str(config), **client)
    assert wrong.code == 2
    assert "maxConnections" in wrong.err


def test_a_missing_server_is_an_error_after_connect_timeout(shared: Path, address: str, client: dict[str, str]) -> None:
    refused = run("ping", address, "--connect-timeout", "2s", **client)
    assert refused.code == 1
    assert address in refused.err
    assert "respond" in refused.err


def test_the_remedy_for_a_server_key_prints_the_key_that_the_server_shows(
    tmp_path: Path, shared: Path, address: str, client: dict[str, str]
) -> None:
    """Regression: the remedy named a command that prints a client's key, and no command printed the server's."""
    options = OptionReader({"server": address, "stream": "flights"}, Where.READ_STREAM)
    with pytest.raises(OptionError) as missing:
        route_of(options)
    (meaning,) = [one.meaning for one in options_named("serverKey") if Where.READ_STREAM in one.where]
    with running_server(tmp_path / "server", shared, address) as server:
        server.wait("listening")
        assert run("keys", "new", **server.home).code == 0  # the same user has another key as a client
        wrong = run("ping", address, "-n", "1", "--server-key", f"aeron-spark:Bw{'A' * 41}", **client)
        assert wrong.code == 1
        for text in (missing.value.remedy, wrong.err, meaning):
            (command,) = re.findall(r"['`]aeron-spark (keys .+?)['`]", text)
            printed = run(*command.split(), **server.home)
            assert printed.code == 0, printed.err
            reached = run("ping", address, "-n", "1", "--server-key", printed.out.strip(), **client)
            assert reached.code == 0, reached.err
