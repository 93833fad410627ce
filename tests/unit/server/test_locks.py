"""Finding C4: a store has one server, and a port of a media driver has one server."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import aeron_spark
from aeron_spark import node
from aeron_spark.aeron import jvm
from aeron_spark.cli.main import main
from aeron_spark.errors import InUseError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node.locks import MachineLock
from aeron_spark.server.locks import ServerLocks, place_lock, refuse_taken_ports
from aeron_spark.streams.store import holds_streams, lock_store
from aeron_spark.transport.api import ServerAddress

PATIENCE = 30.0  # seconds for what a child does at once on an idle machine
PLACE = ServerAddress("udp", "127.0.0.1", 20121, 20122)
OTHER = ServerAddress("udp", "127.0.0.1", 20131, 20132)


@pytest.fixture
def locks() -> Iterator[ServerLocks]:
    one = ServerLocks()
    yield one
    one.release()


class Child:
    """A forked process that runs ``work``, says what came of it, and stays until it is killed."""

    def __init__(self, work: Callable[[], str], start: int | None = None) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                if start is not None:
                    os.read(start, 1)  # returns when the parent closes the other end
                os.write(write, work().encode())
                signal.pause()
            finally:
                os._exit(1)
        os.close(write)
        self._read = read

    def said(self) -> str:
        assert select.select([self._read], [], [], PATIENCE)[0], f"process {self.pid} said nothing in {PATIENCE} s"
        return os.read(self._read, 10_000).decode()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._read)


def take(folder: Path, aeron_dir: Path, places: Sequence[ServerAddress] = (PLACE, ServerAddress(media="ipc"))) -> str:
    """Take two places and the store as a server does; return "won", or the error."""
    one = ServerLocks()
    try:
        one.take_places(str(aeron_dir), places)
        one.take_store(folder / "store")
    except InUseError as error:
        one.release()
        return str(error)
    kept.append(one)
    return "won"


kept: list[ServerLocks] = []  # of a child, which holds them until it is killed


def test_finding_c4_a_store_has_one_server_and_the_second_is_told_whose_it_is(
    tmp_path: Path, locks: ServerLocks
) -> None:
    locks.take_store(tmp_path / "store")
    with pytest.raises(InUseError) as refused:
        ServerLocks().take_store(tmp_path / "store")
    assert str(refused.value) == (
        f"the store {tmp_path / 'store'} is in use by server process {os.getpid()}. "
        "Stop it, or give --streams-dir another folder"
    )
    locks.release()
    lock_store(tmp_path / "store").release()


def test_finding_c4_a_port_has_one_server_and_the_second_is_told_whose_it_is(
    aeron_dir: Path, locks: ServerLocks
) -> None:
    driver = str(aeron_dir)
    locks.take_places(driver, [PLACE, ServerAddress("udp", "10.0.0.1", 20121, 20130), ServerAddress(media="ipc")])
    assert place_lock(driver, PLACE).name.endswith(".aeron-spark-server-20121.lock")
    with pytest.raises(InUseError) as refused:
        ServerLocks().take_places(driver, [PLACE])
    assert str(refused.value) == (
        f"port 20121 of the media driver in {driver} is served by server process {os.getpid()}. "
        "Stop it, or choose another port"
    )
    with pytest.raises(InUseError, match=rf"shared memory .* is served by server process {os.getpid()}\. Stop it"):
        ServerLocks().take_places(driver, [ServerAddress(media="ipc")])
    other = ServerLocks()
    other.take_places(driver, [ServerAddress("udp", "127.0.0.1", 20123, 20124)])
    other.release()


def test_finding_c4_a_store_given_up_for_another_is_free_again(tmp_path: Path, locks: ServerLocks) -> None:
    locks.take_store(tmp_path / "one")
    locks.take_store(tmp_path / "two")
    lock_store(tmp_path / "one").release()
    with pytest.raises(InUseError):
        lock_store(tmp_path / "two")


def test_finding_c4_after_kill_9_the_next_start_is_never_refused_though_a_subprocess_lives_on(
    tmp_path: Path, aeron_dir: Path
) -> None:
    """A server starts the node's process, which outlives the server: it must not inherit the locks."""

    def serve() -> str:
        won = take(tmp_path, aeron_dir)
        return f"{won} {subprocess.Popen(['sleep', '1000'], close_fds=False, start_new_session=True).pid}"

    for _ in range(20):
        child = Child(serve)
        won, outliving = child.said().split()
        child.kill()
        try:
            assert won == "won"
            assert Path(f"/proc/{outliving}").exists()
            assert take(tmp_path, aeron_dir) == "won"
        finally:
            os.kill(int(outliving), signal.SIGKILL)
            while kept:
                kept.pop().release()


@pytest.mark.parametrize("second", [(PLACE, OTHER), (OTHER, PLACE)], ids=["same order", "opposite order"])
def test_finding_c4_of_two_starts_at_the_same_instant_one_wins_and_the_other_is_told_whose_it_is(
    tmp_path: Path, aeron_dir: Path, second: Sequence[ServerAddress]
) -> None:
    for _ in range(20):
        read, write = os.pipe()
        children = [
            Child(lambda: take(tmp_path, aeron_dir, (PLACE, OTHER)), start=read),
            Child(lambda: take(tmp_path, aeron_dir, second), start=read),
        ]
        try:
            os.write(write, b"go")  # a byte for each
            said = {child.pid: child.said() for child in children}
        finally:
            for child in children:
                child.kill()
            os.close(read)
            os.close(write)
        (winner,) = [pid for pid, text in said.items() if text == "won"]
        (lost,) = [text for pid, text in said.items() if pid != winner]
        assert f"is served by server process {winner}." in lost


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a node or a JVM is started: an exit within a second has no time for either."""

    def start(*given: object, **more: object) -> None:
        pytest.fail("a node or a JVM was started")

    monkeypatch.setattr(node, "ensure", start)
    monkeypatch.setattr(jvm, "start", start)
    monkeypatch.setattr(jvm, "keep_signals", lambda: None)  # it would hold for the tests after this one


@pytest.mark.usefixtures("nothing_starts")
def test_finding_c4_a_second_server_is_refused_before_a_node_or_a_jvm_starts(
    tmp_path: Path, aeron_dir: Path, locks: ServerLocks, capsys: pytest.CaptureFixture[str]
) -> None:
    store, address = tmp_path / "store", f"127.0.0.1:{free_port()}"
    locks.take_store(store)
    arguments = ["server", address, "--aeron-dir", str(aeron_dir), "--streams-dir", str(store)]
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: the store {store} is in use by server process {os.getpid()}. "
        "Stop it, or give --streams-dir another folder\n"
    )
    locks.release()
    locks.take_places(str(aeron_dir), [ServerAddress("udp", "127.0.0.1", int(address.split(":")[1]), 1)])
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: port {address.split(':')[1]} of the media driver in {aeron_dir} is served by server process "
        f"{os.getpid()}. Stop it, or choose another port\n"
    )
    with pytest.raises(InUseError, match="is served by server process"):
        aeron_spark.Server(address, store=MemoryPeerStore(), aeron_dir=str(aeron_dir), streams_dir=str(store))
    lock_store(store).release()  # which the refused servers gave back


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("other", ["data home", "link"])
def test_finding_c4_a_port_has_one_server_whatever_the_data_home_and_the_spelling_of_the_drivers_directory(
    tmp_path: Path, aeron_dir: Path, locks: ServerLocks, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, other: str,
) -> None:  # fmt: skip
    port, driver = free_port(), str(aeron_dir)
    locks.take_places(driver, [ServerAddress("udp", "127.0.0.1", port, 1)])
    if other == "link":
        link = tmp_path / "link"
        link.symlink_to(aeron_dir)
        driver = str(link)
    else:
        monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "other"))
    arguments = ["server", f"127.0.0.1:{port}", "--aeron-dir", driver, "--streams-dir", str(tmp_path / "store")]
    assert main(arguments) == 3
    assert capsys.readouterr().err == (
        f"aeron-spark: port {port} of the media driver in {driver} is served by server process {os.getpid()}. "
        "Stop it, or choose another port\n"
    )


def test_finding_c4_two_servers_take_the_same_places_in_one_order(
    aeron_dir: Path, locks: ServerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    own = MachineLock.try_own

    def recorded(lock: MachineLock) -> bool:
        taken.append(lock.path)
        return own(lock)

    monkeypatch.setattr(MachineLock, "try_own", recorded)
    for places in ([PLACE, OTHER, ServerAddress(media="ipc")], [ServerAddress(media="ipc"), OTHER, PLACE]):
        locks.take_places(str(aeron_dir), places)
        locks.release()
    assert taken[:3] == taken[3:]


def test_finding_c4_a_port_keeps_its_server_while_the_drivers_directory_is_made_again(
    aeron_dir: Path, locks: ServerLocks
) -> None:
    locks.take_places(str(aeron_dir), [PLACE])
    for _ in range(2):
        aeron_dir.mkdir()
        with pytest.raises(InUseError):
            ServerLocks().take_places(str(aeron_dir), [PLACE])
        aeron_dir.rmdir()


def test_finding_c4_the_lock_of_a_port_is_for_all_users_and_goes_with_the_server(aeron_dir: Path) -> None:
    one, path = ServerLocks(), place_lock(str(aeron_dir), PLACE)
    before = os.umask(0o077)
    try:
        one.take_places(str(aeron_dir), [PLACE])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    one.release()
    assert not path.exists()


@pytest.mark.usefixtures("nothing_starts")
def test_finding_c4_a_port_of_another_program_is_refused_before_a_node_or_a_jvm_starts(
    tmp_path: Path, aeron_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address, said in ((f"0.0.0.0:{port}", f"0.0.0.0:{port}"), (f"127.0.0.1:{port - 1}", f"127.0.0.1:{port}")):
            code = main(["server", address, "--aeron-dir", str(aeron_dir), "--streams-dir", str(tmp_path / "store")])
            assert code == 3
            assert capsys.readouterr().err == (
                f"aeron-spark: cannot listen on {said}: the address is in use. "
                "Stop the program that has it, or choose another port\n"
            )
    refuse_taken_ports([ServerAddress("udp", "127.0.0.1", port, port + 1)])


def test_a_store_with_nothing_but_its_lock_holds_no_streams(tmp_path: Path) -> None:
    assert not holds_streams(tmp_path / "store")
    lock_store(tmp_path / "store").release()
    assert not holds_streams(tmp_path / "store")
    (tmp_path / "store" / "flights").mkdir()
    assert holds_streams(tmp_path / "store")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
