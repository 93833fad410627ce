"""The state of a server that ``server status`` shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.cli import server as command
from aeron_spark.cli.main import main
from aeron_spark.errors import DataFormatError
from aeron_spark.keys.clients_file import ClientTable
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server.state import ServerState
from tests.unit.endpoint.endpoints import World


def state_of(
    world: World, clients: ClientTable | None, *, store_problem: str = "", storage_problem: str = ""
) -> ServerState:
    housekeeper: Any = SimpleNamespace(is_open=False, problem="", store_problem=store_problem)
    disk: Any = SimpleNamespace(problem=lambda: "", volumes=dict)
    node: Any = SimpleNamespace(aeron_dir="/dev/shm/x", storage_problem=lambda: storage_problem)
    backups: Any = SimpleNamespace(last=None)
    server = world.server()
    return ServerState(server.endpoint, server.events, housekeeper, disk, node, clients, backups)


def test_the_status_has_the_clients_file_and_when_its_version_in_use_was_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, times = tmp_path / "authorized_keys", iter((1000.0, 2000.0))

    def write(line: str) -> None:
        path.write_text(f"{line} {public_text(b'k' * 32)}")
        path.chmod(0o600)

    write("name=a")
    table = ClientTable(path, wall=lambda: next(times))
    state = state_of(world, table)
    assert (state.status({})["clients_file"], state.status({})["clients_read_at"]) == (str(path), 1000.0)
    write("nonsense=a")
    with pytest.raises(DataFormatError):
        table.refresh()
    assert state.status({})["clients_read_at"] == 1000.0
    write("name=desk-7")
    table.refresh()
    assert state.status({})["clients_read_at"] == 2000.0
    monkeypatch.setattr(command, "ask", lambda *_: state.status({}))
    assert main(["server", "status", "--admin-socket", str(tmp_path / "socket")]) == 0
    shown = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    assert (shown["clients_file"], shown["clients_read_at"]) == (str(path), "1970-01-01T00:33:20.000Z")


def test_the_use_of_a_size_is_shown_in_binary_units(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: "0 of 68719476736"."""
    state = state_of(world, None)
    monkeypatch.setattr(command, "ask", lambda *_: state.status({}))
    assert main(["server", "status", "--admin-socket", str(tmp_path / "socket")]) == 0
    shown = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    assert (shown["stageBytes"], shown["maxConnections"]) == ("0 B of 64.0 GiB", "0 of 1000")


def test_the_status_of_a_server_without_a_clients_file_has_neither_file_nor_time(world: World) -> None:
    status = state_of(world, None).status({})
    assert (status["clients_file"], status["clients_read_at"]) == (None, None)


@pytest.mark.parametrize("problem", ["store_problem", "storage_problem"])
def test_a_server_that_cannot_store_streams_or_lacks_some_is_not_ready(world: World, problem: str) -> None:
    state = state_of(world, None, **{problem: "the folder is gone"})
    assert state.readiness.reasons["store"] == "the folder is gone"
