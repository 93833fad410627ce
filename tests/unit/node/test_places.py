"""A node is started only where one belongs: another directory is that of a media driver that the user runs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import aeron_spark
from aeron_spark import node
from aeron_spark.aeron.counters import DriverLiveness
from aeron_spark.cli.main import main
from aeron_spark.errors import ConnectError, SetupError
from aeron_spark.facts import Bus
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import lifecycle
from aeron_spark.node.locks import FileLock
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.server.server_node import ServerNode
from tests.ports import free_ports

CONNECTOR = Path(aeron_spark.__file__).parent


class StartedNodeError(Exception):
    """A node's process would have been started."""


class User:
    """The user's media driver in ``aeron_dir``, which is being restarted; ``is_back`` is asked at each look at it."""

    def __init__(self, aeron_dir: Path) -> None:
        self.aeron_dir = aeron_dir
        self.is_back: Callable[[], bool] = lambda: False

    def liveness(self, aeron_dir: Path) -> DriverLiveness | None:
        return DriverLiveness(77, 0.0, 0.0) if self.is_back() else None


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    """Let each start of a node's process raise StartedNodeError."""

    def popen(*_: object, **__: object) -> None:
        raise StartedNodeError

    found = User(tmp_path / "driver")
    monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("AERON_SPARK_AERON_DIR", raising=False)
    monkeypatch.setattr(lifecycle, "_prepare", lambda paths, settings: (paths, ""))
    monkeypatch.setattr(lifecycle, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=None))
    monkeypatch.setattr(lifecycle, "driver_liveness", found.liveness)
    monkeypatch.setattr(lifecycle.paths, "require_usable_foreign_driver", lambda *_: None)
    return found


def test_a_command_starts_no_node_in_place_of_a_driver_that_is_restarted(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: it started one, said "no recordings" with exit code 0, and the user's driver could not start."""
    where = ["--aeron-dir", str(user.aeron_dir), "--option", "connectTimeout=0.05s"]
    assert main(["recordings", "list", *where]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"aeron-spark: no media driver runs in {user.aeron_dir} (waited 0.05 s). Start it, or let aeron-spark run one "
        f"there: 'aeron-spark node start --aeron-dir {user.aeron_dir}'.\n"
    )


def test_a_client_starts_no_node_in_place_of_a_driver_that_is_restarted(user: User) -> None:
    options = {"aeron_dir": str(user.aeron_dir), "connect_timeout": "50ms"}
    with pytest.raises(ConnectError, match=rf"no media driver runs in {user.aeron_dir} \(waited 0\.05 s\)"):
        aeron_spark.connect("127.0.0.1:9", store=MemoryPeerStore(), **options)


def test_a_driver_that_is_back_in_time_is_used(user: User) -> None:
    looks = iter((False, False, True))
    user.is_back = lambda: next(looks)
    with node.ensure(user.aeron_dir, wait_s=60.0) as handle:
        assert (handle.foreign, handle.pid) == (True, 77)


@pytest.mark.parametrize("argument", [True, False])
def test_a_node_is_started_in_the_default_directory(
    user: User, argument: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's environment variable sets the default directory."""
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(user.aeron_dir))
    with pytest.raises(StartedNodeError):
        node.ensure(user.aeron_dir if argument else None, wait_s=0.0)


def test_a_node_is_started_where_one_was_started_by_name_until_a_driver_of_the_user_runs_there(user: User) -> None:
    for wait_s in (None, 0.0):
        with pytest.raises(StartedNodeError):
            node.ensure(user.aeron_dir, wait_s=wait_s)
    user.is_back = lambda: True
    node.ensure(user.aeron_dir, wait_s=0.0).close()
    user.is_back = lambda: False
    with pytest.raises(ConnectError, match="no media driver runs in"):
        node.ensure(user.aeron_dir, wait_s=0.0)


def test_a_server_starts_no_node_in_place_of_the_driver_that_it_used(user: User, tmp_path: Path) -> None:
    """Its first start names the directory; later ones replace a lost driver."""
    options = {"aeronDir": str(user.aeron_dir), "streamsDir": str(tmp_path / "streams")}
    server = ServerNode(LiveOptions(ServerOptions.parse(f"127.0.0.1:{free_ports()[0]}", options)), Bus())
    with closing(server):
        with pytest.raises(StartedNodeError):
            assert server.store_folder
        user.is_back = lambda: True
        assert server.store_folder == tmp_path / "streams"
        user.is_back = lambda: False
        with pytest.raises(ConnectError, match="no media driver runs in"):
            server.open_transport()


def test_a_file_in_place_of_the_directory_is_refused_at_once(user: User) -> None:
    user.aeron_dir.write_text("kept")
    with pytest.raises(SetupError, match=f"{user.aeron_dir} is not a directory"):
        node.ensure(user.aeron_dir, wait_s=60.0)
    assert user.aeron_dir.read_text() == "kept"


def test_after_an_error_the_directory_is_free(user: User) -> None:
    with pytest.raises(ConnectError, match="no media driver runs in"):
        node.ensure(user.aeron_dir, wait_s=0.0)
    with FileLock(node.local_node_paths(user.aeron_dir).users_lock) as users:
        assert users.try_acquire()


def test_all_callers_of_ensure_say_how_long_they_wait_for_a_driver_of_the_user() -> None:
    """Without ``wait_s`` it starts a node in any directory, which is for those who ask for a node by name."""
    without = [
        f"{path.relative_to(CONNECTOR)}:{call.lineno}"
        for path in CONNECTOR.rglob("*.py")
        if path.parent.name != "node" and "ensure(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2] == "ensure"
        and "wait_s" not in {keyword.arg for keyword in call.keywords}
    ]
    assert without == []
