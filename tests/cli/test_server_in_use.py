"""With processes: a second server ends with exit code 3; a killed one does not block the next."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from aeron_spark import node
from tests.cli.conftest import run
from tests.cli.running_servers import TIMEOUT_S, home_of, running_server
from tests.ports import free_ports


def test_a_second_server_ends_with_3_and_the_first_continues(tmp_path: Path, shared: Path, address: str) -> None:
    client = home_of(tmp_path / "client", shared)
    store = f"{node.status(shared).archive_dir}.streams"
    with running_server(tmp_path / "first", shared, address) as first:
        listening = first.wait("listening")
        same_store = run("server", "--allow-any-key", f"127.0.0.1:{free_ports()[0]}", **client)
        assert (same_store.code, same_store.out) == (3, "")
        assert same_store.err == (
            f"aeron-spark: the store {store} is in use by server process {first.process.pid}. "
            "Stop that server, or give --streams-dir another folder.\n"
        )
        same_port = run("server", "--allow-any-key", address, "--streams-dir", str(tmp_path / "other"), **client)
        assert (same_port.code, same_port.out) == (3, "")
        assert same_port.err == (
            f"aeron-spark: port {address.split(':')[1]} of the media driver in {shared} is served by server process "
            f"{first.process.pid}. Stop it, or choose another port\n"
        )
        done = run("ping", address, "-n", "1", "--json", **client)
        assert done.lines[0]["server_key"] == listening["key"]
        assert first.stop() == 0


@pytest.mark.parametrize("other", ["data home", "link"])
def test_a_port_is_refused_also_with_another_data_home_or_path_of_the_driver(
    tmp_path: Path, shared: Path, address: str, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    driver = shared
    with running_server(tmp_path / "first", shared, address) as first:
        first.wait("listening")
        if other == "link":
            driver = tmp_path / "link"
            driver.symlink_to(shared)
        else:
            monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "data"))
        with running_server(tmp_path / "second", driver, address, "--streams-dir", str(tmp_path / "other")) as second:
            assert second.process.wait(TIMEOUT_S) == 3
            second.join()
            assert second.errors == [
                f"aeron-spark: port {address.split(':')[1]} of the media driver in {driver} is served by server "
                f"process {first.process.pid}. Stop it, or choose another port\n"
            ]
        assert first.stop() == 0


def test_an_address_that_another_program_uses_ends_the_server_with_3(
    tmp_path: Path, shared: Path, address: str
) -> None:
    environ = home_of(tmp_path / "server", shared)
    host, port = address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((host, int(port)))
        refused = run("server", "--allow-any-key", address, **environ)
    assert (refused.code, refused.out) == (3, "")
    assert refused.err == (
        f"aeron-spark: cannot listen on {address}: the address is in use. "
        "Stop the program that has it, or choose another port\n"
    )


def test_one_invalid_address_of_two_ends_the_server(tmp_path: Path, shared: Path, address: str) -> None:
    environ = home_of(tmp_path / "server", shared)
    refused = run("server", "--allow-any-key", f"{address},198.51.100.7:20121", **environ)
    assert (refused.code, refused.out) == (1, "")
    assert "cannot listen on 198.51.100.7:20121: Cannot assign requested address" in refused.err


def restart_after_kill(tmp_path: Path, shared: Path, address: str, times: int) -> None:
    for _ in range(times):
        with running_server(tmp_path / "server", shared, address) as server:
            server.wait("listening", 2)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(TIMEOUT_S)
    with running_server(tmp_path / "server", shared, address) as server:
        server.wait("listening", 2)
        assert server.stop() == 0


@pytest.mark.sampled
def test_a_server_starts_immediately_after_kill_9(tmp_path: Path, shared: Path, address: str) -> None:
    restart_after_kill(tmp_path, shared, address, 3)


@pytest.mark.full("20 starts of a server take 40 CPU seconds; three of them, and 20 of its locks, are in make test")
def test_a_server_starts_immediately_after_each_of_20_kills(tmp_path: Path, shared: Path, address: str) -> None:
    restart_after_kill(tmp_path, shared, address, 20)
