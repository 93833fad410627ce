"""With processes: an operator lists, kicks and bans the clients of a server, whose bans survive its restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.errors import ConnectError, RefusedError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import keypair_from, public_text
from aeron_spark.waiting import wait_for
from tests.cli.conftest import Result, run_program
from tests.cli.running_servers import TIMEOUT_S, LoggedServer, running_server
from tests.ports import free_ports

KEYS = {name: keypair_from(name.encode().ljust(32, b"-")) for name in ("desk-1", "desk-2", "edge")}


class Site:
    """A server with its operator's commands, and one client for each key."""

    def __init__(self, folder: Path, aeron_dir: Path) -> None:
        self.address = f"127.0.0.1:{free_ports()[0]}"
        self.store = folder / "streams"
        self.authorized = folder / "authorized"
        self.authorized.write_text(
            "".join(f"all name={name} {public_text(keys.public)}\n" for name, keys in KEYS.items())
        )
        self.authorized.chmod(0o600)
        self._folder, self._aeron_dir = folder, aeron_dir
        self._open = ExitStack()
        self.clients: dict[str, Client] = {}

    def start(self) -> LoggedServer:
        """Start the server, and wait until it listens."""
        server = self._open.enter_context(
            running_server(
                self._folder / "home", self._aeron_dir, self.address, "--authorized-keys", str(self.authorized),
                "--streams-dir", str(self.store),
            )
        )  # fmt: skip
        server.wait("listening")
        return server

    def connect(self, name: str) -> Client:
        """Connect the client with the key of this name."""
        client = aeron_spark.connect(
            self.address, aeron_dir=str(self._aeron_dir), ipc="never", tag=f"tag of {name}",
            store=MemoryPeerStore(KEYS[name]), timeout=TIMEOUT_S,
        )  # fmt: skip
        self.clients[name] = self._open.enter_context(client)
        return client

    def run(self, *arguments: str) -> Result:
        """Run a command of the operator in a separate process."""
        return run_program(*arguments, "--streams-dir", str(self.store))

    def names(self) -> list[str]:
        done = self.run("connections", "list", "--json")
        assert done.code == 0, done.err
        return sorted(one["name"] for one in done.lines if one["state"] == "connected")

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def site(tmp_path: Path, shared: Path) -> Iterator[Site]:
    one = Site(tmp_path, shared)
    yield one
    one.close()


def error_of(client: Client) -> RefusedError | None:
    """Return the error that stopped a client, or None."""
    try:
        client.connection  # noqa: B018
    except RefusedError as error:
        return error
    return None


def is_connected(client: Client) -> bool:
    try:
        return client.connection.connected
    except ConnectError:  # it tries to connect
        return False


def waited(condition: Any, what: str) -> Any:
    return wait_for(condition, TIMEOUT_S, what)


def test_an_operator_watches_kicks_bans_and_unbans_clients(site: Site) -> None:
    server = site.start()
    for name in KEYS:
        site.connect(name)
    assert site.names() == ["desk-1", "desk-2", "edge"]
    site.clients["edge"].create_stream("orders", 2)
    with site.clients["edge"].writer("orders") as writer:
        writer.write(b"row")
    seen = site.run("top", "--server", "--count", "1", "--every", "0.2", "--json")
    assert seen.code == 0, seen.err
    assert {one["name"]: one["streams"] for one in seen.lines[0]["connections"]} == {
        "desk-1": [], "desk-2": [], "edge": ["orders"],
    }  # fmt: skip
    (stream,) = seen.lines[0]["streams"]
    assert (stream["name"], stream["state"], stream["partitions"]) == ("orders", "ok", 2)
    assert stream["kept_bytes"] == stream["committed_bytes"] > 0

    kicked = site.clients["desk-1"].connection
    done = site.run("connections", "kick", "--name", "desk-1", "--json")
    assert (done.code, done.lines[0]["count"]) == (0, 1), done.err
    waited(lambda: kicked.closed, "the end of the connection")
    with pytest.raises(RefusedError, match="the server's operator ended the connection") as ended:
        kicked.send("x")
    assert ended.value.reason == "kicked"
    waited(lambda: is_connected(site.clients["desk-1"]), "the client to connect again")
    assert site.names() == ["desk-1", "desk-2", "edge"]
    assert site.clients["desk-1"].connection is not kicked

    done = site.run("bans", "add", "--key", "desk-1", "--for", "1h", "--json")
    assert (done.code, done.lines[0]["count"]) == (0, 1), done.err
    error = waited(lambda: error_of(site.clients["desk-1"]), "the client to stop")
    assert (error.reason, error.what) == ("banned", f"Your key is banned until {done.lines[0]['until'][:19]}Z")
    assert site.names() == ["desk-2", "edge"]
    assert site.run("connections", "kick", "--name", "desk-1").code == 1

    assert server.stop() == 0
    site.start()
    assert [one["name"] for one in site.run("bans", "list", "--json").lines] == ["desk-1"]
    with pytest.raises(RefusedError) as refused:
        site.clients["desk-1"].connect(TIMEOUT_S)
    assert refused.value.reason == "banned"
    site.clients["desk-2"].connect(TIMEOUT_S)
    site.clients["edge"].connect(TIMEOUT_S)

    assert site.run("bans", "remove", "--key", "desk-1").code == 0
    site.clients["desk-1"].connect(TIMEOUT_S)
    assert site.names() == ["desk-1", "desk-2", "edge"]


def test_a_server_does_not_start_with_a_damaged_file_of_bans(site: Site) -> None:
    site.store.mkdir()
    (site.store / "bans.json").write_text('{"version": 1')
    done = run_program(
        "server", site.address, "--authorized-keys", str(site.authorized), "--streams-dir", str(site.store),
        AERON_SPARK_AERON_DIR=str(site._aeron_dir), AERON_SPARK_CONFIG_HOME=str(site.store),
    )  # fmt: skip
    assert (done.code, done.out) == (1, "")
    assert f"the bans in {site.store}/bans.json are damaged" in done.err
    assert "Restore the file from a backup" in done.err
