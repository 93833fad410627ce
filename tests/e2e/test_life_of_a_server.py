"""With processes: the life of a server, from the check of its configuration to its restarts, as its operator sees it.

Each step asserts what the operator, a client or the service manager sees.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from aeron_spark import node
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, RefusedError
from tests.aeron.endpoint.drivers import free_ports
from tests.cli.conftest import run
from tests.e2e.crowd import Crowd
from tests.e2e.operated_server import (
    STREAM,
    TIMEOUT_S,
    Clients,
    OperatedServer,
    WritingClient,
    values_of,
)
from tests.e2e.processes import remove_node
from tests.leaks import SHARED_MEMORY
from tests.waiting import poll_until

REACTION_S: Final = 2.0  # in which a change of the clients file applies
DELAY_FACTOR: Final = 10.0  # a process of a busy machine is late several times until a change applies
WATCHDOG_S: Final = 10.0  # the least that docs/operations.md recommends


@pytest.fixture(scope="module")
def client_dir(run_name: str) -> Iterator[Path]:
    """The media driver of the clients."""
    path = SHARED_MEMORY / f"{run_name}-{secrets.token_hex(3)}"
    with node.ensure(path, term_length="64k", ipc_term_length="64k"):
        yield path
    remove_node(path)


# The steps.


def check(site: OperatedServer) -> None:
    """Check a configuration with a typing mistake, and the good one, before the first start. It writes no file."""
    before = sorted(site.data_home.rglob("*"))
    site.configure("maxConections = 5\n")
    wrong = site.run("server", "check", "--config", str(site.config))
    assert wrong.code == 2
    assert wrong.out.startswith("error: options: unknown option 'maxConections'"), wrong.out
    site.configure()
    done = site.run("server", "check", "--config", str(site.config))
    assert done.code == 0, done.out
    assert f"ok: options: {site.config} can be used\n" in done.out
    assert f"ok: clients: {site.clients_file} can be used\n" in done.out
    assert sorted(site.data_home.rglob("*")) == before


def start(site: OperatedServer) -> None:
    """Start the server, and see that all reports of its state agree."""
    site.start()
    lines = site.supervisor.lines
    assert lines.index("STATUS=starting") < lines.index("READY=1")
    assert site.is_ready()
    assert site.readyz() == (200, "[]\n")
    assert values_of(site.ask("server", "status", "--json"))["pid"] == site.process.process.pid
    created = site.stream("create", STREAM, "--partitions", "4")
    assert created.code == 0, created.err


def see_clients(site: OperatedServer, clients: Clients, count: int) -> None:
    """See all clients, each of which has committed a row."""
    clients.round()
    limit = values_of(site.ask("server", "status", "--json"))["limits"]["maxConnections"]
    assert limit["used"] == count
    listed = site.ask("connections", "list", "--json").lines
    assert len({one["tag"] for one in listed}) == count
    assert site.check_rows(is_quiet=True) == count


def apply_clients(site: OperatedServer) -> None:
    """Write the clients file; a reload returns when it applies, also if the server has noticed it before."""
    site.write_clients()
    done = site.ask("server", "reload")
    assert done.code == 0, done.err


def change_clients_file(site: OperatedServer, clients: Clients) -> WritingClient:
    """Change the clients file: first with a typing mistake, then narrow a key, and remove one, while both write.

    Returns the client whose key may only read now.
    """
    for name in ("narrowed", "removed"):
        site.add_key(name, f"streams={STREAM}:read,write")
    apply_clients(site)
    narrowed, removed = site.single("narrowed"), site.single("removed")

    before = len(site.process.named("reload_failed"))
    site.write_clients(f"streams={STREAM}:raed name=new aeron-spark:{'A' * 43}")
    failed = site.process.wait("reload_failed", before + 1)
    assert "raed" in failed["error"]
    wrong = site.ask("server", "reload")
    assert (wrong.code, wrong.out) == (1, "")
    assert "raed" in wrong.err
    assert site.run("clients", "check", str(site.clients_file)).code == 2
    narrowed.commit_row()
    removed.commit_row()
    clients.round()

    narrowed.start()
    removed.start()
    rows = len(site.acknowledged())
    poll_until(lambda: len(site.acknowledged()) > rows, TIMEOUT_S, "a row of the clients")
    site.lines["narrowed"] = site.lines["narrowed"].replace(":read,write", ":read")
    del site.lines["removed"]
    site.write_clients()
    changed_at = time.monotonic()
    for client, reason in ((narrowed, "not-permitted"), (removed, "key")):
        error, seconds, late_s = client.await_error(changed_at)
        assert (type(error), error.reason) == (RefusedError, reason), error
        assert seconds <= REACTION_S + DELAY_FACTOR * late_s
    assert narrowed.client.stream(STREAM).partitions
    [added, changed] = site.process.named("clients_changed")
    assert added["added"] == ["narrowed", "removed"]
    assert (changed["narrowed"], changed["removed"]) == (["narrowed"], ["removed"])
    assert site.ask("server", "reload").code == 0
    return narrowed


def kick_and_ban(site: OperatedServer, clients: Clients, tag: str, banned: WritingClient) -> None:
    """End the connection of a client, which continues, and ban another one, which stops until the ban is removed."""
    name, client = banned.name, banned.client
    assert values_of(site.ask("connections", "kick", "--tag", tag, "--json"))["count"] == 1
    kick = site.ask("connections", "kick", "--name", name, "--ban", "1h", "--reason", "leaked key", "--json")
    assert values_of(kick)["banned"] == [name]
    error = poll_until(lambda: stopped_by(client), TIMEOUT_S, "the banned client to stop")
    assert error.reason == "banned"
    listed = values_of(site.ask("bans", "list", "--json"))
    assert (listed["name"], listed["reason"]) == (name, "leaked key")
    clients.round()

    assert site.ask("bans", "remove", "--key", name).code == 0
    client.connect(TIMEOUT_S)
    assert client.stream(STREAM).partitions


def stopped_by(client: Client) -> AeronSparkError | None:
    """Return the error that stopped a client."""
    return client.error if client.state == "stopped" else None


def refuse_a_second_server(site: OperatedServer) -> None:
    """Start a second server on the same port, and one on the same store."""
    pid = site.process.process.pid
    same_port = site.run("server", "--config", str(site.config))
    assert (same_port.code, same_port.out) == (3, "")
    assert f"port {site.port} of the media driver" in same_port.err
    assert f"is served by server process {pid}. Stop it, or choose another port\n" in same_port.err
    other = f"127.0.0.1:{free_ports()[0]}"
    same_store = site.run("server", other, "--authorized-keys", str(site.clients_file))
    assert (same_store.code, same_store.out) == (3, "")
    assert re.search(rf"the store \S+ is in use by server process {pid}\. Stop that server", same_store.err)
    assert site.is_ready()


def drain(site: OperatedServer, commit_row: Callable[[], object]) -> None:
    """End the server while a commit runs: it finishes, new clients are refused, and the server's own node stops."""
    site.supervisor.wait("WATCHDOG=1")
    site.commits_wait(True)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        stack.callback(site.commits_wait, False)
        commit = pool.submit(commit_row)
        site.await_running_commit()
        site.request_end()
        site.supervisor.wait("STOPPING=1")
        poll_until(lambda: not site.is_ready(), TIMEOUT_S, "the server to drain")
        assert site.readyz()[0] == 503
        refused = site.ping()
        assert refused.code == 1
        assert "shutting down" in refused.err
        assert not commit.done()
        site.commits_wait(False)
        assert site.await_end() == 0
        commit.result(TIMEOUT_S)
    assert (site.node_pid() is None) == site.has_own_node
    assert site.process.named("stopped")[0]["cut_off"] == 0


# The tests.


@pytest.fixture
def few(tmp_path: Path, client_dir: Path) -> Iterator[OperatedServer]:
    """A server on the media driver of its clients, whose commands run in this process."""
    data_home = Path(os.environ["AERON_SPARK_DATA_HOME"])
    site = OperatedServer(tmp_path, data_home, client_dir, client_dir, run, WATCHDOG_S)
    site.add_key("desk-0", "role=desks")
    site.write_clients()
    yield site
    site.close()


def test_a_day_of_a_server_with_few_clients(few: OperatedServer) -> None:
    check(few)
    start(few)
    clients = Crowd(few.crowd("desk-0", 0, 1, 0))
    with ExitStack() as stack:
        stack.callback(clients.close)
        clients.connect()
        see_clients(few, clients, 1)
        narrowed = change_clients_file(few, clients)
        kick_and_ban(few, clients, "desk-0-0", narrowed)
        refuse_a_second_server(few)
        assert few.failures() == []
        drain(few, clients.round)
