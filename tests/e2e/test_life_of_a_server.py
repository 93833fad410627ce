"""With processes: the life of a server, from the check of its configuration to its restarts, as its operator sees it.

Each step asserts what the operator, a client or the service manager sees. The long form has two hundred clients of four
processes, a separate disk, a media driver that is killed, and restarts; the short form has the other steps.
"""

from __future__ import annotations

import os
import re
import shutil
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
from tests.cli.conftest import run, run_program
from tests.e2e.crowd import Crowd
from tests.e2e.operated_server import (
    MIB,
    OLD,
    STREAM,
    TIMEOUT_S,
    Clients,
    CrowdProcesses,
    Disk,
    OperatedServer,
    RaisedReserve,
    SmallDisk,
    WritingClient,
    small_file_system,
    values_of,
)
from tests.nodes import new_aeron_dir, remove_node
from tests.ports import free_ports
from tests.waiting import poll_until, slowdown

REACTION_S: Final = 2.0  # in which a change of the clients file applies, on a machine that is not busy
PROCESSES: Final = 4
CLIENTS_EACH: Final = 50
BUSY_EACH: Final = 3  # clients of each process that write continuously
DISK_MIB: Final = 512
WATCHDOG_S: Final = 30.0  # as in deploy/aeron-spark.service
SHORT_WATCHDOG_S: Final = 10.0  # the least that docs/operations.md recommends
MORE_ROWS: Final = 5  # of clients that write continuously, after an event


@pytest.fixture(scope="module")
def client_dir(run_name: str) -> Iterator[Path]:
    """The media driver of the clients."""
    path = new_aeron_dir(run_name)
    with node.ensure(path, term_length="64k", ipc_term_length="64k"):
        yield path
    remove_node(path)


# The steps.


def check(site: OperatedServer) -> None:
    """Check a configuration with a typing mistake, and the good one, before the first start. It writes no file."""
    before = files_of(site)
    site.configure("maxConections = 5\n")
    wrong = site.run("server", "check", "--config", str(site.config))
    assert wrong.code == 2
    assert wrong.out.startswith("error: options: unknown option 'maxConections'"), wrong.out
    site.configure()
    done = site.run("server", "check", "--config", str(site.config))
    assert done.code == 0, done.out
    assert f"ok: options: {site.config} can be used\n" in done.out
    assert f"ok: clients: {site.clients_file} can be used\n" in done.out
    assert files_of(site) == before


def files_of(site: OperatedServer) -> list[Path]:
    """Return the site's files below its data folder. Other tests have other nodes there."""
    environ = os.environ | {"AERON_SPARK_DATA_HOME": str(site.data_home)}
    others = [path for path in site.data_home.glob("*") if path.name != "nodes"]
    return sorted([*others, *node.local_node_paths(site.aeron_dir, environ=environ).folder.rglob("*")])


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


def change_clients_file(site: OperatedServer, clients: Clients, reaction_s: float = TIMEOUT_S) -> WritingClient:
    """Change the clients file: first with a typing mistake, then narrow a key, and remove one, while both write.

    The changes must apply within ``reaction_s``. Returns the client whose key may only read now.
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
        error, seconds = client.await_error(changed_at)
        assert (type(error), error.reason) == (RefusedError, reason), error
        assert seconds <= reaction_s
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
    return client.error if client.state == "stopped" else None


def fill_the_disk(site: OperatedServer, clients: Clients, disk: Disk) -> None:
    """Fill the disk: writers get ``disk-full``, readers continue; after space was freed, writers continue."""
    created = site.stream("create", OLD)
    assert created.code == 0, created.err
    single = site.single("desk-0")
    with site.connect_operator() as operator, operator.writer(OLD) as old:
        for _ in range(disk.old_mib):
            old.write(bytes(MIB))
    clients.begin()
    disk.fill(site)
    poll_until(lambda: not site.is_ready(), TIMEOUT_S, "the server to notice the disk")
    status, reasons = site.readyz()
    assert status == 503
    assert "less than the reserve" in reasons
    with pytest.raises(RefusedError) as refused:
        single.commit_row()
    assert refused.value.reason == "disk-full"
    assert "diskReserve" in str(refused.value)
    site.process.wait("disk_low")
    site.check_rows()
    purged = site.stream("purge", OLD, "--keep", "1MiB", "--yes", "--json")
    assert purged.code == 0, purged.err
    disk.free(site)
    poll_until(site.is_ready, TIMEOUT_S, "the server to be ready again")
    await_more_rows(site)
    clients.pause()
    single.commit_row()
    assert site.readyz()[0] == 200
    site.check_rows(is_quiet=True)


def kill_the_driver(site: OperatedServer, clients: Clients) -> None:
    """Kill the media driver while clients write: the server starts another one, and the clients continue."""
    clients.begin()
    await_more_rows(site)
    before = site.kill_node()
    site.process.wait("driver_lost")
    site.process.wait("driver_back")
    poll_until(site.is_ready, TIMEOUT_S, "the server to be ready again")
    assert site.node_pid() not in (None, before)
    await_more_rows(site)
    clients.pause()
    clients.round()
    site.check_rows(is_quiet=True)


def await_more_rows(site: OperatedServer) -> None:
    wanted = len(site.acknowledged()) + MORE_ROWS
    poll_until(lambda: len(site.acknowledged()) >= wanted, TIMEOUT_S, "clients to continue writing", state=lambda: (
        f"{len(site.acknowledged())} of {wanted} rows; {site.failures()[-3:]}"))  # fmt: skip


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


def drain(site: OperatedServer, commit_row: Callable[[], object], begin: Callable[[], object] = bool) -> None:
    """End the server while a commit runs: it finishes, new clients are refused, and the server's own node stops.

    ``begin`` is called before the end; it lets other clients write.
    """
    site.supervisor.wait("WATCHDOG=1")
    site.commits_wait(True)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        stack.callback(site.commits_wait, False)
        commit = pool.submit(commit_row)
        site.await_running_commit()
        begin()
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


def start_again(site: OperatedServer) -> None:
    """Check the configuration and start the server again; it has all rows when it is ready."""
    assert site.run("server", "check", "--config", str(site.config)).code == 0
    site.start()
    site.check_rows()


def kill_the_server(site: OperatedServer, clients: Clients, times: int) -> None:
    """Kill the server while clients write, and start it; each fourth time its node, too, as ``systemctl kill`` does."""
    clients.begin()
    for number in range(times):
        await_more_rows(site)
        site.kill(also_node=number % 4 == 3)
        site.start()
        site.check_rows()
    await_more_rows(site)
    clients.pause()
    site.check_rows(is_quiet=True)


# The tests.


@pytest.fixture
def few(tmp_path: Path, client_dir: Path) -> Iterator[OperatedServer]:
    """A server on the media driver of its clients, whose commands run in this process."""
    data_home = Path(os.environ["AERON_SPARK_DATA_HOME"])
    site = OperatedServer(tmp_path, data_home, client_dir, client_dir, run, SHORT_WATCHDOG_S)
    site.add_key("desk-0", "role=desks")
    site.write_clients()
    yield site
    site.close()


@pytest.mark.sampled
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


@pytest.mark.full("two hundred clients and twenty starts of a server take minutes; the test above has three and one")
def test_the_life_of_a_server_with_two_hundred_clients(tmp_path: Path, aeron_dir: Path, client_dir: Path) -> None:
    with ExitStack() as stack:
        place = tmp_path / "disk"
        is_own_disk = stack.enter_context(small_file_system(place, DISK_MIB))
        stack.callback(shutil.rmtree, place / "data", ignore_errors=True)
        site = OperatedServer(tmp_path, place / "data", aeron_dir, client_dir, run_program, WATCHDOG_S)
        stack.callback(site.close)
        names = [f"desk-{number}" for number in range(PROCESSES)]
        for name in names:
            site.add_key(name, "role=desks")
        site.write_clients()
        check(site)
        start(site)
        clients = CrowdProcesses(
            [site.crowd(name, at * CLIENTS_EACH, CLIENTS_EACH, BUSY_EACH) for at, name in enumerate(names)]
        )
        stack.callback(clients.kill)
        clients.connect()
        see_clients(site, clients, PROCESSES * CLIENTS_EACH)
        narrowed = change_clients_file(site, clients, REACTION_S * slowdown())
        kick_and_ban(site, clients, "desk-1-3", narrowed)
        refuse_a_second_server(site)
        assert site.failures() == []
        fill_the_disk(site, clients, SmallDisk(place) if is_own_disk else RaisedReserve())
        kill_the_driver(site, clients)
        drain(site, site.single("desk-0").commit_row, clients.begin)
        start_again(site)
        await_more_rows(site)
        clients.pause()
        clients.round()
        site.check_rows(is_quiet=True)
        kill_the_server(site, clients, 20)
        clients.round()
        site.check_rows(is_quiet=True)
        assert all("less than the reserve" in one for one in site.failures()), site.failures()
        clients.close()
        site.close_clients()
        poll_until(lambda: site.ask("connections", "list", "--json").out == "", TIMEOUT_S, "all clients to leave")
        site.request_end()
        assert site.await_end() == 0
