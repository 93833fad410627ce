"""A server's streams are altered, renamed, ended and reopened on the command line, and their writers released."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from aeron_spark.waiting import wait_for
from tests.cli.conftest import run
from tests.cli.test_server_cli import TIMEOUT_S, free_ports, running_server
from tests.cli.test_streams_server import ServerCommands

NARROW = pa.table({"city": ["Oslo"], "n": [1]})
WIDE = pa.table({"city": ["Bergen"], "n": [2], "x": [0.5]})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="module")
def on_server(shared: Path, home: Path) -> Iterator[ServerCommands]:
    """The commands of a client with all grants, at a server with two clients: ``limited`` may not manage streams."""
    address = f"127.0.0.1:{free_ports()[0]}"
    environ = {"AERON_SPARK_CONFIG_HOME": str(home / "client"), "AERON_SPARK_AERON_DIR": str(shared)}
    keys = {name: public_key(home / f"{name}.key") for name in ("manager", "limited")}
    clients = home / "clients"
    clients.write_text(f"all name=manager {keys['manager']}\nstreams=*:read,write name=limited {keys['limited']}\n")
    clients.chmod(0o600)
    with running_server(
        home / "server", shared, address, "--handshakes-per-second", "0", "--authorized-keys", str(clients),
    ) as server:  # fmt: skip
        server.wait("listening")
        yield ServerCommands(address, environ)
        assert server.stop() == 0


def public_key(file: Path) -> str:
    made = run("keys", "create", str(file), "--json")
    assert made.code == 0, made.err
    return str(made.lines[0]["key"])
