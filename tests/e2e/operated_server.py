"""A server as its operator has it: files, folders, a service manager and commands; and its clients."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pytest

import aeron_spark
from aeron_spark import node
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.stores import MemoryPeerStore, ensure_identity
from aeron_spark.protocol.keypair import public_text
from tests.cli.conftest import Result
from tests.cli.running_servers import LoggedServer, logged_server
from tests.cli.supervisor import Supervisor
from tests.cli.test_server_lifecycle import HELD_COMMITS
from tests.e2e.crowd import MAX_ROWS, PAUSE_S, CrowdSettings, Ledger, arguments_of, keys_of
from tests.e2e.stream_program import rows
from tests.ports import free_ports
from tests.priority import lower_priority
from tests.programs import ROOT, start_module
from tests.waiting import poll_until

TIMEOUT_S: Final = 120.0  # of an action of the server or a client; it has two cores with many clients
ROUND_TIMEOUT_S: Final = 300.0  # of a transaction of each client, after an outage
STREAM: Final = "orders"
OLD: Final = "old"  # a stream that may be purged
MIB: Final = 1 << 20
RESERVE_MIB: Final = 64  # of the disk, in the configuration
FIRST_OF_SINGLE: Final = 1_000  # number of the first client that is not in a crowd


class OperatedServer:
    """A server with its configuration and clients file below ``folder``, and the commands of its operator.

    ``data_home`` has its streams and its node's files. ``client_dir`` is the media driver of the clients; with another
    ``aeron_dir`` the server has its own, as on another machine. ``run`` executes a command line.
    """

    def __init__(
        self, folder: Path, data_home: Path, aeron_dir: Path, client_dir: Path, run: Callable[..., Result],
        watchdog_s: float,
    ) -> None:  # fmt: skip
        self.folder: Final = folder
        self.data_home: Final = data_home
        self.watchdog_s: Final = watchdog_s
        data, control = free_ports()
        self.port: Final = data
        self.address: Final = f"127.0.0.1:{data}:{control}"
        self.client_dir: Final = client_dir
        self.config: Final = folder / "server.toml"
        self.clients_file: Final = folder / "authorized_keys"
        self.identity: Final = folder / "ops.key"
        self.ledgers: Final = folder / "ledgers"
        self.ledgers.mkdir()
        self.uncertain: Final[set[int]] = set()
        """Ids of the rows whose commit failed for good: they may be in the stream or not."""
        self._http_port: Final = free_tcp_port()
        self.aeron_dir: Final = aeron_dir
        self._run: Final = run
        self._open: Final = ExitStack()
        self._clients: Final = ExitStack()  # of this process
        self._starts = 0
        self._singles = 0
        self.lines: dict[str, str] = {"ops": f"all name=ops {public_text(ensure_identity(self.identity).public)}"}
        """The lines of the clients file by name."""
        self.process: LoggedServer
        self.supervisor: Supervisor
        self.configure()
        self.commits_wait(False)

    # The operator's files and commands.

    @property
    def has_own_node(self) -> bool:
        """Whether the server starts its node, which no client uses."""
        return self.aeron_dir != self.client_dir

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the server, as in its unit."""
        return {
            "AERON_SPARK_DATA_HOME": str(self.data_home),
            "AERON_SPARK_CONFIG_HOME": str(self.folder / "keys"),
            "AERON_SPARK_AERON_DIR": str(self.aeron_dir),
        }

    def configure(self, more: str = "", reserve_mib: int = RESERVE_MIB) -> None:
        """Write the configuration. All clients have one address, as behind a NAT."""
        self.config.write_text(
            f'bind = "{self.address}"\nauthorizedKeys = "{self.clients_file}"\nhttp = "127.0.0.1:{self._http_port}"\n'
            f'diskReserve = "{reserve_mib}MiB"\ntermLength = "1MiB"\nmaxConnectionsPerAddress = 300\n'
            f"handshakesPerSecond = 100\nhandshakeBurst = 400\nmaxPendingPerAddress = 64\n{more}"
        )

    def add_key(self, name: str, grants: str) -> None:
        """Put the key with this name into the lines of the clients file."""
        self.lines[name] = f"{grants} name={name} {public_text(keys_of(name).public)}"

    def write_clients(self, *more: str) -> None:
        """Write the clients file at once, as an editor does."""
        role = f"role desks streams={STREAM}:read,write connections=64"
        new = self.clients_file.with_suffix(".new")
        new.write_text("\n".join([role, *self.lines.values(), *more, ""]))
        new.chmod(0o600)
        new.replace(self.clients_file)

    def run(self, *arguments: str) -> Result:
        """Run a command as the operator on the server's machine."""
        return self._run(*arguments, **self.environ)

    def ask(self, *arguments: str) -> Result:
        """Run a command of the running server."""
        return self.run(*arguments, "--config", str(self.config))

    def stream(self, command: str, *arguments: str) -> Result:
        """Run a command for streams as the operator on another machine."""
        return self._run_remotely("streams", command, *arguments, "--server", self.address)

    def ping(self) -> Result:
        """Run ``ping`` on another machine; a refusal that may end soon is final after a second."""
        return self._run_remotely("ping", self.address, "-n", "1", "--connect-timeout", "1s")

    def _run_remotely(self, *arguments: str) -> Result:
        environ = {
            "AERON_SPARK_CONFIG_HOME": str(self.folder / "remote"),
            "AERON_SPARK_AERON_DIR": str(self.client_dir),
        }
        return self._run(*arguments, "--identity", str(self.identity), **environ)

    def readyz(self) -> tuple[int, str]:
        """Return the status and the text of the page ``/readyz``."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/readyz", timeout=TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self) -> bool:
        """Whether ``server status --ready`` says so."""
        return self.ask("server", "status", "--ready").code == 0

    def node_pid(self) -> int | None:
        """Return the process id of the server's node, or None if none runs."""
        found = self.run("node", "status", "--json").lines[0]
        return int(found["pid"]) if found["state"] == "running" else None

    # The process of the server.

    def start(self) -> None:
        """Start the server as its service manager does, and wait for ``READY=1``."""
        self._starts += 1
        path = self.folder / f"notify-{self._starts}"
        self.supervisor = Supervisor(path)
        self._open.callback(self.supervisor.close)
        notify = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(self.watchdog_s * 1e6))}
        program = ["-c", HELD_COMMITS, str(self.folder), "server"]
        command = [*program, "--config", str(self.config), "--json", "--log-format", "json"]
        self.process = self._open.enter_context(logged_server(command, self.environ, **notify))
        self.process.wait("listening")
        self.supervisor.wait("READY=1")

    def commits_wait(self, wait: bool) -> None:
        """Let commits begin and wait, or let them finish."""
        if wait:
            (self.folder / "running").unlink(missing_ok=True)
            (self.folder / "release").unlink()
        else:
            (self.folder / "release").touch()

    def await_running_commit(self) -> None:
        """Wait until a commit has begun, after ``commits_wait(True)``."""
        poll_until((self.folder / "running").exists, TIMEOUT_S, "a commit to run")

    def request_end(self) -> None:
        """Send SIGTERM, as a service manager does."""
        self._check_watchdog()
        self.process.process.send_signal(signal.SIGTERM)

    def await_end(self) -> int:
        """Return the exit code of the server."""
        code = self.process.process.wait(TIMEOUT_S)
        self.process.join()
        assert self.process.errors == []
        return code

    def kill(self, *, also_node: bool = False) -> None:
        """Kill the server, and its node if ``also_node``, with SIGKILL."""
        self._check_watchdog()
        self.process.process.kill()
        if also_node:
            self.kill_node()
        self.process.process.wait(TIMEOUT_S)

    def kill_node(self) -> int:
        """Kill the server's media driver and archive with SIGKILL; return the process id."""
        pid = self.node_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid

    def close_clients(self) -> None:
        """End the clients of this process."""
        self._clients.close()

    def close(self) -> None:
        """End the clients and the server, and remove what they made."""
        self.close_clients()
        self._open.close()
        if not self.has_own_node:
            return
        with pytest.MonkeyPatch.context() as patches:
            for name, value in self.environ.items():
                patches.setenv(name, value)
            node.stop(self.aeron_dir, force=True, timeout=30)
        shutil.rmtree(self.aeron_dir, ignore_errors=True)

    def _check_watchdog(self) -> None:
        silence_s = self.supervisor.longest_silence_s(time.monotonic())
        assert silence_s < self.watchdog_s, f"the service manager would have killed the server: {silence_s:.1f} s"

    # Clients.

    def connect(self, name: str) -> Client:
        """Return a connected client with the key of this name; it is closed at the end of the test."""
        return self._clients.enter_context(
            aeron_spark.connect(
                self.address, aeron_dir=str(self.client_dir), ipc="never", idle="sleeping", tag=name,
                timeout=TIMEOUT_S, store=MemoryPeerStore(keys_of(name)),
            )
        )  # fmt: skip

    def single(self, name: str) -> WritingClient:
        """Return a client in this process with the key of this name."""
        self._singles += 1
        return WritingClient(self, name, FIRST_OF_SINGLE + self._singles)

    def crowd(self, name: str, first: int, count: int, busy: int) -> CrowdSettings:
        """Return the settings of a crowd with the key of this name."""
        return CrowdSettings(
            self.address, str(self.client_dir), name, first, count, busy, STREAM, str(self.ledgers / name)
        )

    def connect_operator(self) -> Client:
        """Return a connected client with the operator's key, which has all grants."""
        return aeron_spark.connect(
            self.address, aeron_dir=str(self.client_dir), ipc="never", idle="sleeping", timeout=TIMEOUT_S,
            identity=str(self.identity), known_servers=str(self.folder / "known_servers"),
        )  # fmt: skip

    def read(self) -> list[int]:
        """Return the ids of the rows of :data:`STREAM`, as the operator reads them."""
        with self.connect_operator() as client:
            return [one for ids in rows(client, STREAM).values() for one in ids]

    def acknowledged(self) -> set[int]:
        """Return the ids of the rows whose commit a client knows."""
        lines = [path.read_text().splitlines() for path in self.ledgers.iterdir() if not path.suffix]
        return {int(one) for each in lines for one in each}

    def check_rows(self, *, is_quiet: bool = False) -> int:
        """Check that no acknowledged row is lost and no row is there twice; return the number of rows.

        If ``is_quiet``, no client writes, and the stream has no other rows.
        """
        acknowledged = self.acknowledged()
        found = self.read()
        lost, twice = acknowledged - {*found}, len(found) - len({*found})
        assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged rows are lost, such as {min(lost)}"
        assert not twice, f"{twice} rows are there twice"
        if is_quiet:
            more = {*found} - acknowledged - self.uncertain
            assert not more, f"{len(more)} rows are of no acknowledged transaction, such as {min(more)}"
        return len(found)

    def failures(self) -> list[str]:
        """Return the errors of the crowds' calls."""
        return [line for path in self.ledgers.glob("*.failures") for line in path.read_text().splitlines()]


class WritingClient:
    """A client in this process. It commits a row, or rows until an error ends it."""

    def __init__(self, site: OperatedServer, name: str, number: int) -> None:
        self.name: Final = name
        self.client: Final = site.connect(name)
        self.error: AeronSparkError | None = None
        self._site: Final = site
        self._ledger: Final = Ledger(site.ledgers / f"{name}-{number}")
        self._next = number * MAX_ROWS
        self._writer: Final = self.client.writer(STREAM, writer_id=f"single-{number}", timeout=TIMEOUT_S)
        self._is_written = False  # whether the open transaction has the next row
        self._ended_at = 0.0
        self._thread: Final = threading.Thread(target=self._write_until_error)

    def commit_row(self) -> None:
        """Commit the next row. Raises the error of the writer; then the row is uncertain, and the next call repeats it.

        A transaction whose commit has failed takes no more rows: the repeated commit has the same ones.
        """
        row = self._next
        try:
            if not self._is_written:
                self._writer.write(pa.record_batch({"id": pa.array([row], pa.int64())}))
                self._is_written = True
            self._writer.commit()
            self._is_written = False
        except AeronSparkError:
            self._site.uncertain.add(row)
            raise
        self._ledger.add(row)
        self._next += 1

    def start(self) -> None:
        """Write on a thread until an error."""
        self._thread.start()

    def _write_until_error(self) -> None:
        try:
            while True:
                self.commit_row()
                time.sleep(PAUSE_S)
        except AeronSparkError as error:
            self._ended_at, self.error = time.monotonic(), error

    def await_error(self, since: float) -> tuple[AeronSparkError, float]:
        """Return the error, and its time after ``since`` in seconds."""
        poll_until(lambda: self.error is not None, TIMEOUT_S, "the client's writes to fail")
        self._thread.join()
        assert self.error is not None
        return self.error, self._ended_at - since


class Clients(Protocol):
    """The clients that live as long as the test."""

    def connect(self) -> None: ...
    def round(self) -> None: ...
    def begin(self) -> None: ...
    def pause(self) -> None: ...
    def close(self) -> None: ...


class CrowdProcesses:
    """Crowds, each in a separate process of the lowest priority, as if on other machines."""

    def __init__(self, crowds: list[CrowdSettings]) -> None:
        self._processes: Final = [
            start_module("tests.e2e.crowd", arguments_of(one), cwd=ROOT, start_new_session=True) for one in crowds
        ]
        for process in self._processes:
            lower_priority(process.pid)

    def connect(self) -> None:
        self._await("connected")

    def round(self) -> None:
        self._request("round")

    def begin(self) -> None:
        self._request("begin")

    def pause(self) -> None:
        self._request("pause")

    def close(self) -> None:
        self._request("close")

    def kill(self) -> None:
        """Kill the processes that have not ended."""
        for process in self._processes:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)

    def _request(self, word: str) -> None:
        for process in self._processes:
            process.send(word)
        self._await(word)

    def _await(self, word: str) -> None:
        for process in self._processes:
            ready, _, _ = select.select([process.stdout], [], [], ROUND_TIMEOUT_S)
            assert ready, f"no reply {word!r} of a process with clients within {ROUND_TIMEOUT_S:g} s"
            line = process.stdout.readline()
            assert line == f"{word}\n", line


class Disk(Protocol):
    """The disk of the server's data; ``old_mib`` are the rows of :data:`OLD` that the test writes before it is full."""

    old_mib: int

    def fill(self, site: OperatedServer) -> None:
        """Leave less free space than the server's reserve."""

    def free(self, site: OperatedServer) -> None:
        """Leave more free space than the server's reserve."""


class SmallDisk:
    """A separate file system. Another program fills it, and the deletion of a stream frees its space."""

    def __init__(self, place: Path) -> None:
        self.old_mib = 32
        self._file: Final = place / "of-another-program"

    def fill(self, site: OperatedServer) -> None:
        free = shutil.disk_usage(self._file.parent).free
        with self._file.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - (RESERVE_MIB - 8) * MIB)

    def free(self, site: OperatedServer) -> None:
        deleted = site.stream("delete", OLD, "--yes")
        assert deleted.code == 0, deleted.err
        poll_until(site.is_ready, TIMEOUT_S, "the deletion of a stream to free its space")
        self._file.unlink()


class RaisedReserve:
    """The disk of this machine, of which the operator reserves more than it has."""

    def __init__(self) -> None:
        self.old_mib = 1

    def fill(self, site: OperatedServer) -> None:
        site.configure(reserve_mib=shutil.disk_usage(site.data_home).total // MIB)
        assert site.ask("server", "reload").out == "changed diskReserve\n"

    def free(self, site: OperatedServer) -> None:
        site.configure()
        assert site.ask("server", "reload").code == 0


@contextmanager
def small_file_system(place: Path, mib: int) -> Iterator[bool]:
    """Mount a file system in memory at ``place``, if this user may; yield whether it is mounted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)]
    is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            poll_until(lambda: _unmount(place), TIMEOUT_S, f"all users of {place} to end")


def _unmount(place: Path) -> bool:
    return subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode == 0


def free_tcp_port() -> int:
    """Return a TCP port that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def values_of(result: Result) -> Any:
    """Return the only object that a command printed with ``--json``."""
    assert result.code == 0, result.err
    [one] = result.lines
    return one
