"""The admin socket executes commands for this user, and a client that is stuck holds nothing."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aeron_spark import unix_sockets
from aeron_spark.cli.admin_client import ask, ask_all, socket_path
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    InUseError,
    OptionError,
    RefusedError,
    SetupError,
    TransportError,
    WaitTimeout,
)
from aeron_spark.protocol.admin_messages import MAX_REQUEST_BYTES, decode_response, encode_request
from aeron_spark.server.operator import MAX_CONNECTIONS, AdminSocket, OperatorService
from tests.unit.endpoint.endpoints import wait_for

TIMEOUT_S = 30.0  # for a response, which an idle machine sends at once

Open = Callable[..., AdminSocket]


@pytest.fixture
def reported() -> list[BaseException]:
    return []


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets the command ``wait`` end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def admin(tmp_path: Path, reported: list[BaseException], release: threading.Event) -> Iterator[Open]:
    """Return a function that opens a socket with some commands; the fixture closes it."""
    opened: list[AdminSocket] = []

    def refuse(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise RefusedError("no", remedy="Ask again.", reason="busy")

    def fail(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise OSError(28, "No space left on device")

    def wait(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        assert release.wait(TIMEOUT_S)
        return {"waited": True}

    def count(arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        return ({"number": number} for number in range(arguments["to"]))

    def unprintable(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"value": object()}

    commands: dict[str, Any] = {
        "echo": dict, "refuse": refuse, "fail": fail, "wait": wait, "count": count, "unprintable": unprintable
    }  # fmt: skip

    def open_one(path: Path = tmp_path / "admin.sock", **timeouts: float) -> AdminSocket:
        service = OperatorService(commands, reported.append)
        opened.append(AdminSocket(path, service.respond, reported.append, **timeouts))
        return opened[-1]

    yield open_one
    release.set()
    for one in opened:
        one.close()


def test_a_command_gets_its_arguments_and_returns_one_result_or_several(admin: Open) -> None:
    path = admin().path
    assert ask(path, "echo", {"text": "ä", "n": [1, None, 2.5]}) == {"text": "ä", "n": [1, None, 2.5]}
    assert [one["number"] for one in ask_all(path, "count", {"to": 3})] == [0, 1, 2]
    assert list(ask_all(path, "count", {"to": 0})) == []


def test_only_the_owner_may_use_the_socket(admin: Open) -> None:
    before = os.umask(0)
    try:
        path = admin().path
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_an_error_of_a_command_arrives_with_its_class_reason_and_remedy(admin: Open) -> None:
    with pytest.raises(RefusedError) as refused:
        ask(admin().path, "refuse")
    assert (refused.value.what, refused.value.remedy, refused.value.reason) == ("no", "Ask again.", "busy")


def test_a_foreign_exception_is_reported_and_arrives_as_a_sentence(admin: Open, reported: list[BaseException]) -> None:
    path = admin().path
    with pytest.raises(AeronSparkError, match=r"the command failed: OSError: .*No space left on device"):
        ask(path, "fail")
    with pytest.raises(AeronSparkError, match=r"the command failed: TypeError: .*not JSON serializable"):
        ask(path, "unprintable")
    assert [type(error) for error in reported] == [OSError, TypeError]


def test_an_unknown_command_is_refused_by_name(admin: Open) -> None:
    with pytest.raises(OptionError, match="the server has no command 'nonsense'"):
        ask(admin().path, "nonsense")


def test_a_request_that_is_too_long_or_of_another_version_is_refused(admin: Open) -> None:
    path = admin().path
    with pytest.raises(DataFormatError, match="a request is longer than 65536 bytes"):
        ask(path, "echo", {"text": "x" * (MAX_REQUEST_BYTES - 40)})
    for line, text in (
        (b'{"version": 2, "command": "echo"}\n', "has version 2, expected 1"),
        (b"{\n", "is not JSON"),
        (b'{"version": 1, "command": "\\ud800"}\n', "half of a surrogate pair"),
        (b'{"version": 1, "command": "echo", "arguments": {"a": NaN}}\n', "is not JSON"),
    ):
        with unix_sockets.connect(path, TIMEOUT_S) as connected, connected.makefile("rb") as file:
            connected.sendall(line)
            error, _ = decode_response(file.readline())
        assert isinstance(error, DataFormatError)
        assert text in error.what


def test_clients_that_send_no_request_are_disconnected_and_delay_no_other(admin: Open) -> None:
    path = admin(request_timeout_s=0.2).path
    stuck = [unix_sockets.connect(path, TIMEOUT_S) for _ in range(MAX_CONNECTIONS - 1)]
    try:
        stuck[0].sendall(b'{"version": 1,')
        assert ask(path, "echo", {"a": 1}) == {"a": 1}
        for one in stuck:
            assert one.recv(1) == b""  # the server has closed it
    finally:
        for one in stuck:
            one.close()


def test_a_client_that_takes_no_response_is_disconnected(admin: Open) -> None:
    one = admin(send_timeout_s=0.1)
    with unix_sockets.connect(one.path, TIMEOUT_S) as stuck:
        stuck.sendall(encode_request("count", {"to": 1_000_000}))
        wait_for(lambda: not one._connections, "the end of the stuck client's command")


def test_one_command_more_than_the_limit_is_refused_at_once(admin: Open, release: threading.Event) -> None:
    one = admin()
    request = encode_request("wait", {})
    running = [unix_sockets.connect(one.path, TIMEOUT_S) for _ in range(MAX_CONNECTIONS)]
    try:
        for client in running:
            client.sendall(request)
        wait_for(lambda: len(one._connections) == MAX_CONNECTIONS, "all commands to run")
        with pytest.raises(RefusedError, match="32 commands run"):
            ask(one.path, "echo")
        release.set()
        for client in running:
            with client.makefile("rb") as file:
                assert decode_response(file.readline()) == ({"waited": True}, False)
        wait_for(lambda: not one._connections, "the end of all commands")
        assert ask(one.path, "echo", {"a": 1}) == {"a": 1}
    finally:
        for client in running:
            client.close()


def test_a_path_that_is_longer_than_a_socket_address_works(tmp_path: Path, admin: Open) -> None:
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    folder.mkdir(parents=True)
    path = folder / "admin.sock"
    assert len(str(path)) > 107
    one = admin(path)
    assert ask(path, "echo", {"a": 1}) == {"a": 1}
    one.close()
    assert not path.exists()
    with pytest.raises(SetupError, match=r"its file name has 200 bytes, and the system allows \d\d there"):
        admin(folder / ("x" * 200))


def test_the_file_of_a_killed_server_is_replaced_and_a_living_one_is_named(tmp_path: Path, admin: Open) -> None:
    path = tmp_path / "admin.sock"
    killed = unix_sockets.listen(path)
    with pytest.raises(InUseError, match="is in use by another process"):
        admin()
    killed.close()  # the file stays, as after kill -9
    assert path.is_socket()
    assert ask(admin().path, "echo", {"a": 1}) == {"a": 1}


def test_a_file_of_another_kind_and_a_missing_folder_are_refused(tmp_path: Path, admin: Open) -> None:
    (tmp_path / "file").write_text("rows")
    with pytest.raises(SetupError, match="a file of another kind has that name"):
        admin(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "rows"
    with pytest.raises(SetupError, match="cannot be made: No such file or directory"):
        admin(tmp_path / "none" / "admin.sock")


def test_closing_ends_the_clients_and_removes_only_the_own_file(tmp_path: Path, admin: Open) -> None:
    first = admin(request_timeout_s=TIMEOUT_S)
    first.path.rename(tmp_path / "moved")
    second = admin()
    first.close()
    assert ask(second.path, "echo", {"a": 1}) == {"a": 1}
    second.close()
    assert not second.path.exists()
    with pytest.raises(ConnectError, match="no server runs at the admin socket"):
        ask(second.path, "echo")


def test_each_trouble_of_the_client_has_its_own_text(tmp_path: Path, admin: Open, release: threading.Event) -> None:
    path = admin().path
    with pytest.raises(WaitTimeout, match=r"did not respond within 0\.05 s"):
        ask(path, "wait", timeout_s=0.05)
    with pytest.raises(ConnectError, match=r"no server runs at the admin socket .*none\. Start the server, or name it"):
        ask(tmp_path / "none", "echo")
    with socket.socket(socket.AF_UNIX) as ending:
        ending.bind(str(tmp_path / "ending"))
        ending.listen()
        thread = threading.Thread(target=lambda: ending.accept()[0].close())
        thread.start()
        with pytest.raises(TransportError, match="closed the connection before its response"):
            ask(tmp_path / "ending", "echo")
        thread.join(TIMEOUT_S)


def test_a_user_without_permission_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, timeout_s: float) -> socket.socket:
        raise PermissionError(13, "Permission denied")  # root, who may run the tests, gets none from the system

    monkeypatch.setattr(unix_sockets, "connect", refuse)
    with pytest.raises(RefusedError, match=r"not permitted to use .* Run the command as the server's user, or as root"):
        ask(tmp_path / "admin.sock", "status")


def test_a_command_finds_the_socket_by_its_options_the_configuration_and_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("AERON_SPARK_AERON_DIR", raising=False)
    monkeypatch.delenv("AERON_SPARK_ARCHIVE_DIR", raising=False)
    config = tmp_path / "server.toml"
    assert socket_path(None, None, None) == tmp_path / "nodes/default/archive.streams/admin.sock"
    config.write_text('aeronDir = "/dev/shm/x"\n')
    assert socket_path(config, None, None).parent.parent.name.startswith("x-")
    config.write_text('[server]\nstreams_dir = "/srv/streams"\n')
    assert socket_path(config, None, None) == Path("/srv/streams/admin.sock")
    config.write_text('streamsDir = "/srv/streams"\nadmin-socket = "/run/a"\n')
    assert socket_path(config, None, None) == Path("/run/a")
    assert socket_path(config, Path("/other"), None) == Path("/other/admin.sock")
    assert socket_path(config, Path("/other"), Path("/run/b")) == Path("/run/b")
    config.write_text("=\n")
    with pytest.raises(OptionError, match="is not TOML"):
        socket_path(config, None, None)
