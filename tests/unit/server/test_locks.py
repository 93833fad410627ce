"""Only one server can use a store, and only one a port of a media driver."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import aeron_spark
from aeron_spark import node, process
from aeron_spark.aeron import jvm
from aeron_spark.cli.main import main
from aeron_spark.errors import InUseError, SetupError
from aeron_spark.facts import Bus
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.locks import MachineLock
from aeron_spark.node.paths import node_name
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.server import server_node as server_locks
from aeron_spark.server.server_node import ServerLocks, ServerNode, address_lock_path, check_ports_free
from aeron_spark.streams.store import has_streams, lock_store
from aeron_spark.transport.api import ServerAddress
from tests.ports import free_port

TIMEOUT_S = 30.0  # for the work of a child, which an idle machine does at once
ADDRESS = ServerAddress("udp", "127.0.0.1", 20121, 20122)
OTHER_ADDRESS = ServerAddress("udp", "127.0.0.1", 20131, 20132)
OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def locks() -> Iterator[ServerLocks]:
    one = ServerLocks()
    yield one
    one.release()


class Child:
    """A forked process that runs ``work``, sends its result, and waits until it is killed.

    With ``start``, it waits until that pipe has a byte.
    """

    def __init__(self, work: Callable[[], str], start: int | None = None) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                if start is not None:
                    os.read(start, 1)
                os.write(write, work().encode())
                signal.pause()
            finally:
                os._exit(1)
        os.close(write)
        self._read = read

    def result(self) -> str:
        assert select.select([self._read], [], [], TIMEOUT_S)[0], f"process {self.pid} sent no result in {TIMEOUT_S} s"
        return os.read(self._read, 10_000).decode()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._read)


def lock(
    folder: Path, aeron_dir: Path, addresses: Sequence[ServerAddress] = (ADDRESS, ServerAddress(media="ipc"))
) -> str:
    """Lock two addresses and the store as a server does; return "won", or the error."""
    locks = ServerLocks()
    try:
        locks.lock_addresses(str(aeron_dir), addresses)
        locks.lock_store(folder / "store")
    except InUseError as error:
        locks.release()
        return str(error)
    owned.append(locks)
    return "won"


owned: list[ServerLocks] = []  # of a child, which owns them until it is killed


def test_a_second_server_of_a_store_gets_the_process_id_of_the_first(tmp_path: Path, locks: ServerLocks) -> None:
    locks.lock_store(tmp_path / "store")
    with pytest.raises(InUseError) as refused:
        ServerLocks().lock_store(tmp_path / "store")
    assert str(refused.value) == (
        f"the store {tmp_path / 'store'} is in use by server process {os.getpid()}. "
        "Stop that server, or give --streams-dir another folder."
    )
    locks.release()
    lock_store(tmp_path / "store").release()


def test_a_second_server_of_a_port_gets_the_process_id_of_the_first(aeron_dir: Path, locks: ServerLocks) -> None:
    driver = str(aeron_dir)
    locks.lock_addresses(driver, [ADDRESS, ServerAddress("udp", "10.0.0.1", 20121, 20130), ServerAddress(media="ipc")])
    assert address_lock_path(driver, ADDRESS).name.endswith(".aeron-spark-server-20121.lock")
    with pytest.raises(InUseError) as refused:
        ServerLocks().lock_addresses(driver, [ADDRESS])
    assert str(refused.value) == (
        f"port 20121 of the media driver in {driver} is served by server process {os.getpid()}. "
        "Stop it, or choose another port"
    )
    with pytest.raises(InUseError, match=rf"shared memory .* is served by server process {os.getpid()}\. Stop it"):
        ServerLocks().lock_addresses(driver, [ServerAddress(media="ipc")])
    other = ServerLocks()
    other.lock_addresses(driver, [ServerAddress("udp", "127.0.0.1", 20123, 20124)])
    other.release()


def test_an_address_is_locked_only_if_no_other_server_has_it(aeron_dir: Path, locks: ServerLocks) -> None:
    other, shared_memory = ServerLocks(), ServerAddress(media="ipc")
    assert locks.try_lock_address(str(aeron_dir), shared_memory)
    assert locks.try_lock_address(str(aeron_dir), shared_memory)  # it has the lock already
    assert not other.try_lock_address(str(aeron_dir), shared_memory)
    locks.release()
    assert other.try_lock_address(str(aeron_dir), shared_memory)
    other.release()


def test_locking_another_store_releases_the_first(tmp_path: Path, locks: ServerLocks) -> None:
    locks.lock_store(tmp_path / "one")
    locks.lock_store(tmp_path / "two")
    lock_store(tmp_path / "one").release()
    with pytest.raises(InUseError):
        lock_store(tmp_path / "two")


def test_the_locks_of_a_killed_server_are_free_while_its_subprocess_lives(tmp_path: Path, aeron_dir: Path) -> None:
    """A server starts the node's process, which outlives the server and must not inherit the locks."""

    def serve() -> str:
        won = lock(tmp_path, aeron_dir)
        return f"{won} {subprocess.Popen(['sleep', '1000'], close_fds=False, start_new_session=True).pid}"

    for _ in range(20):
        child = Child(serve)
        won, outliving = child.result().split()
        child.kill()
        try:
            assert won == "won"
            assert Path(f"/proc/{outliving}").exists()
            assert lock(tmp_path, aeron_dir) == "won"
        finally:
            os.kill(int(outliving), signal.SIGKILL)
            while owned:
                owned.pop().release()


@pytest.mark.slow
@pytest.mark.parametrize(
    "second", [(ADDRESS, OTHER_ADDRESS), (OTHER_ADDRESS, ADDRESS)], ids=["same order", "opposite order"]
)
def test_of_two_simultaneous_starts_one_wins_and_the_other_gets_its_process_id(
    tmp_path: Path, aeron_dir: Path, second: Sequence[ServerAddress]
) -> None:
    for _ in range(20):
        read, write = os.pipe()
        children = [
            Child(lambda: lock(tmp_path, aeron_dir, (ADDRESS, OTHER_ADDRESS)), start=read),
            Child(lambda: lock(tmp_path, aeron_dir, second), start=read),
        ]
        try:
            os.write(write, b"go")  # one byte for each child
            results = {child.pid: child.result() for child in children}
        finally:
            for child in children:
                child.kill()
            os.close(read)
            os.close(write)
        (winner,) = [pid for pid, text in results.items() if text == "won"]
        (lost,) = [text for pid, text in results.items() if pid != winner]
        assert f"is served by server process {winner}." in lost


@pytest.fixture
def no_node_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a node or a JVM is started: a refusal must be quicker than either."""

    def start(*arguments: object, **options: object) -> None:
        pytest.fail("a node or a JVM was started")

    monkeypatch.setattr(node, "ensure", start)
    monkeypatch.setattr(jvm, "start", start)
    monkeypatch.setattr(jvm, "keep_signals", lambda: None)  # it would also affect later tests


@pytest.mark.usefixtures("no_node_starts")
def test_a_second_server_is_refused_before_a_node_or_jvm_starts(
    tmp_path: Path, aeron_dir: Path, locks: ServerLocks, capsys: pytest.CaptureFixture[str]
) -> None:
    store, address = tmp_path / "store", f"127.0.0.1:{free_port()}"
    locks.lock_store(store)
    arguments = [
        "server",
        address,
        "--aeron-dir",
        str(aeron_dir),
        "--streams-dir",
        str(store),
        "--allow-any-key",
        "true",
    ]
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: the store {store} is in use by server process {os.getpid()}. "
        "Stop that server, or give --streams-dir another folder.\n"
    )
    locks.release()
    locks.lock_addresses(str(aeron_dir), [ServerAddress("udp", "127.0.0.1", int(address.split(":")[1]), 1)])
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: port {address.split(':')[1]} of the media driver in {aeron_dir} is served by server process "
        f"{os.getpid()}. Stop it, or choose another port\n"
    )
    with pytest.raises(InUseError, match="is served by server process"):
        aeron_spark.Server(address, store=MemoryPeerStore(), aeron_dir=str(aeron_dir), streams_dir=str(store))
    lock_store(store).release()  # the refused servers have released it


@pytest.mark.usefixtures("no_node_starts")
def test_a_server_locks_its_port_and_its_store_before_it_listens_and_starts_no_node(
    tmp_path: Path, aeron_dir: Path
) -> None:
    port, store = free_port(), tmp_path / "store"
    given = {"store": MemoryPeerStore(), "aeron_dir": str(aeron_dir)}
    server = aeron_spark.Server(f"127.0.0.1:{port}", streams_dir=str(store), **given)
    assert server.aeron_dir == str(aeron_dir)
    assert (server.addresses, server.connections, server.statistics["dropped"]) == ((), (), 0)
    with pytest.raises(InUseError, match=f"port {port} of the media driver"):
        aeron_spark.Server(f"127.0.0.1:{port}", streams_dir=str(tmp_path / "other"), **given)
    with pytest.raises(InUseError, match="the store"):
        aeron_spark.Server(f"127.0.0.1:{free_port()}", streams_dir=str(store), **given)
    server.close()
    assert server.closed
    aeron_spark.Server(f"127.0.0.1:{port}", streams_dir=str(store), **given).close()


def test_the_end_of_the_process_closes_an_open_server_and_no_closed_one(
    tmp_path: Path, aeron_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Closed(aeron_spark.Server):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(process, "_hooks", [])
    first, second = (
        Closed(
            f"127.0.0.1:{free_port()}", store=MemoryPeerStore(), aeron_dir=str(aeron_dir),
            streams_dir=str(tmp_path / name),
        )
        for name in ("first", "second")
    )  # fmt: skip
    first.close()
    process.run_exit_hooks()
    assert closed == [first, second]
    assert second.closed


class Handle:
    """Replaces the handle of a node that starts in another directory than was expected."""

    def __init__(self, folder: Path) -> None:
        self.aeron_dir = str(folder / "on-disk")
        self.archive_dir = str(folder / "archive")
        self.is_started_here = True
        self.foreign = False
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("is_foreign", "cause", "remedy"),
    [
        (False, "was started without an archive", "Stop the server and the node"),
        (True, "belongs to another program", "separate aeronDir"),
    ],
)
def test_a_node_without_an_archive_is_why_a_server_cannot_store_streams(
    tmp_path: Path, aeron_dir: Path, monkeypatch: pytest.MonkeyPatch, is_foreign: bool, cause: str, remedy: str
) -> None:
    """Regression: such a server was ready, and named the package's own node another program's media driver."""
    handle = Handle(tmp_path)
    handle.archive_dir, handle.foreign = "", is_foreign
    monkeypatch.setattr(node, "ensure", lambda *arguments, **options: handle)
    folders = {"aeronDir": str(aeron_dir), "streamsDir": str(tmp_path / "store")}
    locked = ServerNode(LiveOptions(ServerOptions.parse(f"127.0.0.1:{free_port()}", folders)), Bus())
    try:
        assert locked.storage_problem() == ""
        with pytest.raises(SetupError, match=f"cannot store streams: .* {cause}.*{remedy}"):
            locked.open_streams(lambda: False)
        assert cause in locked.storage_problem()
        assert not locked.has_streams
    finally:
        locked.close()


def test_a_server_locks_its_port_and_its_store_where_the_node_starts(
    tmp_path: Path, aeron_dir: Path, locks: ServerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, port = Handle(tmp_path), free_port()
    monkeypatch.setattr(node, "ensure", lambda *arguments, **options: handle)
    options = ServerOptions.parse(f"127.0.0.1:{port}", {"aeronDir": str(aeron_dir)})
    locked = ServerNode(LiveOptions(options), Bus())
    assert locked.has_streams is False
    assert locked.aeron_dir == handle.aeron_dir
    for directory in (handle.aeron_dir, str(aeron_dir)):
        with pytest.raises(InUseError, match=f"port {port} of the media driver in {directory}"):
            locks.lock_addresses(directory, options.addresses)
    with pytest.raises(InUseError, match=r"archive\.streams"):
        locks.lock_store(tmp_path / "archive.streams")
    locked.close()
    assert handle.is_closed
    locks.lock_addresses(handle.aeron_dir, options.addresses)


@pytest.mark.usefixtures("no_node_starts")
@pytest.mark.parametrize("other", ["data home", "link"])
def test_the_lock_of_a_port_ignores_the_data_home_and_links_to_the_drivers_directory(
    tmp_path: Path, aeron_dir: Path, locks: ServerLocks, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, other: str,
) -> None:  # fmt: skip
    port, driver = free_port(), str(aeron_dir)
    locks.lock_addresses(driver, [ServerAddress("udp", "127.0.0.1", port, 1)])
    if other == "link":
        link = tmp_path / "link"
        link.symlink_to(aeron_dir)
        driver = str(link)
    else:
        monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "other"))
    arguments = [
        "server", f"127.0.0.1:{port}", "--aeron-dir", driver, "--streams-dir", str(tmp_path / "store"),
        "--allow-any-key", "true",
    ]  # fmt: skip
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: port {port} of the media driver in {driver} is served by server process {os.getpid()}. "
        "Stop it, or choose another port\n"
    )


def test_servers_lock_their_addresses_in_the_same_order(
    aeron_dir: Path, locks: ServerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[Path] = []
    own = MachineLock.try_own

    def recorded(lock: MachineLock) -> bool:
        locked.append(lock.path)
        return own(lock)

    monkeypatch.setattr(MachineLock, "try_own", recorded)
    for addresses in (
        [ADDRESS, OTHER_ADDRESS, ServerAddress(media="ipc")],
        [ServerAddress(media="ipc"), OTHER_ADDRESS, ADDRESS],
    ):
        locks.lock_addresses(str(aeron_dir), addresses)
        locks.release()
    assert locked[:3] == locked[3:]


def test_a_port_stays_locked_while_the_drivers_directory_is_recreated(aeron_dir: Path, locks: ServerLocks) -> None:
    locks.lock_addresses(str(aeron_dir), [ADDRESS])
    for _ in range(2):
        aeron_dir.mkdir()
        with pytest.raises(InUseError):
            ServerLocks().lock_addresses(str(aeron_dir), [ADDRESS])
        aeron_dir.rmdir()


def test_the_lock_of_a_port_has_its_mode_with_each_umask_and_release_deletes_it(aeron_dir: Path) -> None:
    one, path = ServerLocks(), address_lock_path(str(aeron_dir), ADDRESS)
    before = os.umask(0o077)
    try:
        one.lock_addresses(str(aeron_dir), [ADDRESS])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    one.release()
    assert not path.exists()


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of /dev/shm that all users can write, and that no other test uses."""
    folder = Path(tempfile.mkdtemp(prefix="aeron-spark-test-public-", dir="/tmp"))
    folder.chmod(0o1777)
    monkeypatch.setattr(server_locks, "SHARED_MEMORY", folder)
    yield folder
    shutil.rmtree(folder)


def as_other_user(work: Callable[[], str]) -> Child:
    """Run ``work`` as another user in a child, which keeps what it locks until it is killed."""

    def run() -> str:
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)
        return work()

    return Child(run)


@needs_root
def test_another_user_cannot_lock_the_port_of_a_server_first(public: Path) -> None:
    driver = public / "driver"

    def attack() -> str:
        """Lock each file that a server of root could be thought to lock."""
        name = f"{node_name(driver)}.aeron-spark-server-20121.lock"
        (public / "aeron-spark-locks-0").mkdir()
        for folder in (public, public / "aeron-spark-locks-0"):
            assert MachineLock(folder / name).try_own()
        return "locked"

    attacker = as_other_user(attack)
    first, second = ServerLocks(), ServerLocks()
    try:
        assert attacker.result() == "locked"
        first.lock_addresses(str(driver), [ADDRESS])
        with pytest.raises(InUseError, match=f"by server process {os.getpid()}"):
            second.lock_addresses(str(driver), [ADDRESS])
        assert stat.S_IMODE(address_lock_path(str(driver), ADDRESS).parent.stat().st_mode) == 0o700
    finally:
        first.release()
        second.release()
        attacker.kill()


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_servers_of_two_users_of_a_media_driver_find_the_same_lock(public: Path, mode: int) -> None:
    driver = public / "driver"
    driver.mkdir()
    (driver / "cnc.dat").touch()
    (driver / "cnc.dat").chmod(mode)
    for path in (driver, driver / "cnc.dat"):
        os.chown(path, OTHER_USER, OTHER_USER)

    def serve() -> str:
        locks = ServerLocks()
        locks.lock_addresses(str(driver), [ADDRESS])
        owned.append(locks)
        return "won"

    child = as_other_user(serve)
    try:
        assert child.result() == "won"
        with pytest.raises(InUseError, match=f"by server process {child.pid}"):
            ServerLocks().lock_addresses(str(driver), [ADDRESS])
    finally:
        child.kill()
    locks = ServerLocks()
    locks.lock_addresses(str(driver), [ADDRESS])
    locks.release()


def test_a_folder_for_locks_that_other_users_can_use_is_refused(public: Path) -> None:
    folder = public / f"aeron-spark-locks-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SetupError, match=f"{folder} is not a folder with mode 700"):
        ServerLocks().lock_addresses(str(public / "driver"), [ADDRESS])
    folder.rmdir()
    folder.symlink_to(public)
    with pytest.raises(SetupError, match=f"{folder} is not a folder with mode 700"):
        ServerLocks().lock_addresses(str(public / "driver"), [ADDRESS])


@pytest.mark.usefixtures("no_node_starts")
def test_a_server_on_a_port_of_another_program_is_refused_before_a_node_or_jvm_starts(
    tmp_path: Path, aeron_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as locked:
        locked.bind(("127.0.0.1", 0))
        port = locked.getsockname()[1]
        for address, expected in (
            (f"0.0.0.0:{port}", f"0.0.0.0:{port}"),
            (f"127.0.0.1:{port - 1}", f"127.0.0.1:{port}"),
        ):
            folders = ("--aeron-dir", str(aeron_dir), "--streams-dir", str(tmp_path / "store"))
            assert main(["server", address, *folders, "--allow-any-key", "true"]) == 3
            assert capsys.readouterr().err == (
                f"aeron-spark: cannot listen on {expected}: the address is in use. "
                "Stop the program that has it, or choose another port\n"
            )
    check_ports_free([ServerAddress("udp", "127.0.0.1", port, port + 1)])


def test_a_folder_with_only_a_lock_has_no_streams(tmp_path: Path) -> None:
    store, archive = tmp_path / "store", tmp_path / "archive"
    assert not has_streams(store, archive)
    lock_store(store).release()
    assert not has_streams(store, archive)
    (store / "flights").mkdir()
    assert has_streams(store, archive)


@pytest.mark.parametrize("level", [None, 1])
def test_a_server_starts_its_node_with_its_sync_level_and_the_shortest_segments(
    tmp_path: Path, aeron_dir: Path, monkeypatch: pytest.MonkeyPatch, level: int | None
) -> None:
    started: list[dict[str, object]] = []

    def ensure(*arguments: object, **settings: object) -> Handle:
        started.append(settings)
        return Handle(tmp_path)

    monkeypatch.setattr(node, "ensure", ensure)
    options = ServerOptions.parse(
        f"127.0.0.1:{free_port()}", {"aeronDir": str(aeron_dir), **({} if level is None else {"syncLevel": level})}
    )
    one = ServerNode(LiveOptions(options), Bus())
    one.start()
    one.close()
    assert started == [{"sync_level": level, "at_start": {"segment_length": "1MiB"}, "wait_s": None}]
