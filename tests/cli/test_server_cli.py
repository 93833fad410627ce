"""``server``, ``ping``, ``send`` and ``receive`` through a server: processes, signals and exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aeron_spark.aeron.driver import ports_of_server
from aeron_spark.errors import OptionError
from aeron_spark.options.declaration import OptionReader, Where, options_named
from aeron_spark.options.routes import route_of
from aeron_spark.waiting import wait_for
from tests.cli.conftest import pipe, run
from tests.cli.running_servers import TIMEOUT_S, home_of, running_server
from tests.programs import python_environ


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
        # The subscription of a server that was killed within a second of its start lasts 10 s (docs/outages.md), and
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
    environ = home_of(tmp_path / "server", shared)
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
