"""With processes: how a server starts, reports to a service manager, drains, and ends with its node."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aeron_spark import node
from aeron_spark.node.lifecycle import local_node_paths
from aeron_spark.node.locks import FileLock
from aeron_spark.node.paths import make_private
from aeron_spark.waiting import wait_for
from tests.cli.conftest import run
from tests.cli.running_servers import TIMEOUT_S, LoggedServer, home_of, running_server
from tests.cli.supervisor import Supervisor
from tests.programs import python_environ

SECOND_SIGNAL_S = 1.1  # signals within a second count as one
# Runs the command line with commits that begin, and wait until the test releases them.
HELD_COMMITS = """
import sys, time
from pathlib import Path
from aeron_spark.streams.stream import Stream
folder, commit = Path(sys.argv[1]), Stream.commit
def held(*arguments, **named):
    (folder / "running").touch()
    while not (folder / "release").exists():
        time.sleep(0.01)
    return commit(*arguments, **named)
Stream.commit = held
from aeron_spark.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    path = tmp_path / "notify"
    one = Supervisor(path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(path))
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    yield one
    one.close()


def test_a_server_reports_to_its_service_manager_and_stops_the_node_that_it_started(
    tmp_path: Path, own_dir: Path, address: str, supervisor: Supervisor
) -> None:
    with running_server(tmp_path / "server", own_dir, address) as server:
        server.wait("ready")
        supervisor.wait("READY=1")
        supervisor.wait("WATCHDOG=1")
        assert "STOPPING=1" not in supervisor.lines
        assert node.status(own_dir).state == "running"
        assert server.stop() == 0
        supervisor.wait("STOPPING=1")
        assert supervisor.lines.index("STATUS=starting") < supervisor.lines.index("READY=1")
        assert node.status(own_dir).state == "absent"


def test_sigterm_before_the_node_runs_ends_the_server_with_0_before_it_listens(
    tmp_path: Path, own_dir: Path, address: str, supervisor: Supervisor
) -> None:
    paths = local_node_paths(own_dir)
    make_private(paths.folder)
    with FileLock(paths.start_lock) as start:
        assert start.try_acquire()  # so that the server waits
        with running_server(tmp_path / "server", own_dir, address) as server:
            supervisor.wait("STATUS=starting")
            assert server.stop() == 0
            supervisor.wait("STOPPING=1")
            assert "READY=1" not in supervisor.lines
            assert (server.printed, server.named("ready"), server.errors) == ([], [], [])
    assert node.status(own_dir).state == "absent"


def test_a_node_that_another_process_uses_stays(tmp_path: Path, own_dir: Path, address: str) -> None:
    with running_server(tmp_path / "server", own_dir, address) as server:
        server.wait("listening")
        with node.ensure(own_dir):
            assert server.stop() == 0
            assert node.status(own_dir).state == "running"


@contextmanager
def held_server(tmp_path: Path, shared: Path, address: str) -> Iterator[LoggedServer]:
    """Run a server with a stream, whose commits wait for the file ``release``."""
    options = ("--streams-dir", str(tmp_path / "streams"), address)
    program = ("-c", HELD_COMMITS, str(tmp_path))
    with running_server(tmp_path / "server", shared, *options, program=program) as server:
        server.wait("listening")
        yield server


@contextmanager
def committing_client(tmp_path: Path, shared: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a client whose commit the server has begun."""
    client = home_of(tmp_path / "client", shared)
    assert run("streams", "create", "flights", "--server", address, **client).code == 0
    (tmp_path / "rows").write_text("one\n")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "aeron_spark", "send", str(tmp_path / "rows")),
            *("--stream", "flights", "--server", address),
        ],
        env=python_environ(**client), stderr=subprocess.PIPE,
    ) as sending:  # fmt: skip
        try:
            wait_for((tmp_path / "running").exists, TIMEOUT_S, "the commit to run")
            yield sending
        finally:
            if sending.poll() is None:
                sending.kill()


def test_a_commit_that_runs_at_sigterm_finishes_while_new_clients_are_refused(
    tmp_path: Path, shared: Path, address: str
) -> None:
    client = home_of(tmp_path / "client", shared)
    with held_server(tmp_path, shared, address) as server, committing_client(tmp_path, shared, address) as sending:
        server.process.send_signal(signal.SIGTERM)
        status = ("server", "status", "--ready", "--streams-dir", str(tmp_path / "streams"))
        wait_for(lambda: "about to end" in run(*status).out, TIMEOUT_S, "the server to drain")
        refused = run("ping", address, "-n", "1", "--connect-timeout", "1s", **client)
        assert refused.code == 1
        assert "shutting down" in refused.err
        assert server.process.poll() is None
        (tmp_path / "release").touch()
        assert server.process.wait(TIMEOUT_S) == 0
        assert sending.wait(TIMEOUT_S) == 0, sending.stderr
    with running_server(tmp_path / "server", shared, address, "--streams-dir", str(tmp_path / "streams")) as server:
        server.wait("ready")
        received = run("receive", "--stream", "flights", "--server", address, "-n", "1", **client)
        assert received.out == "one\n"
        assert server.stop() == 0


def test_a_second_signal_cuts_the_work_off_and_the_server_ends_with_1(
    tmp_path: Path, shared: Path, address: str
) -> None:
    with held_server(tmp_path, shared, address) as server, committing_client(tmp_path, shared, address):
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(SECOND_SIGNAL_S)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT_S) == 1


def test_a_reload_applies_live_options_and_a_typing_mistake_keeps_the_last_good_ones(
    tmp_path: Path, shared: Path, address: str
) -> None:
    client = home_of(tmp_path / "client", shared)
    config = tmp_path / "server.toml"
    good = f'bind = "{address}"\nallowAnyKey = true\nstreamsDir = "{tmp_path / "streams"}"\n'
    config.write_text(good)
    reload = ("server", "reload", "--config", str(config))
    ping = ("ping", address, "-n", "1", "--ipc", "never")  # networks do not apply to shared memory
    with running_server(tmp_path / "server", shared, "--config", str(config)) as server:
        server.wait("ready")
        assert run(*reload).out == "nothing changed\n"
        config.write_text(good + 'maxConections = 5\ndeny = ["127.0.0.0/8"]\n')
        wrong = run(*reload)
        assert (wrong.code, wrong.out) == (1, "")
        assert "unknown option 'maxConections'" in wrong.err
        server.process.send_signal(signal.SIGHUP)
        failed = server.wait("reload_failed", 2)
        assert "unknown option 'maxConections'" in failed["error"]
        assert run(*ping, **client).code == 0
        config.write_text(good + 'workers = 3\ndeny = ["127.0.0.0/8"]\n')
        server.process.send_signal(signal.SIGHUP)
        assert server.wait("reloaded", 2)["restart_needed"] == ["workers"]
        refused = run(*ping, **client)
        assert (refused.code, "not permitted" in refused.err) == (1, True), refused.err
        assert run(*reload).out == "restart needed for workers\n"
        status = run("server", "status", "--config", str(config), "--json").lines[0]
        assert status["restart_needed"] == ["workers"]
        config.write_text(good)
        assert run(*reload, "--json").lines == [{"changed": ["deny"], "restart_needed": [], "clients": {}}]
        assert run(*ping, **client).code == 0
        assert server.stop() == 0
