"""``server check`` finds what is wrong before a server starts, and changes nothing."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import jpype
import pytest

from aeron_spark.aeron import jvm
from aeron_spark.cli.main import main
from aeron_spark.node import local_node_paths, paths
from aeron_spark.node.locks import MachineLock
from aeron_spark.node.settings import NodeSettings
from aeron_spark.protocol.keypair import public_text
from aeron_spark.server import preflight
from aeron_spark.server.server_node import address_lock_path
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import Definition, FormerName, write_definition
from aeron_spark.streams.journal import create_ledger
from aeron_spark.transport.api import ServerAddress
from tests.ports import free_port

CLIENTS = f"all {public_text(bytes(range(32)))}\n"


def flag(option: str) -> str:
    return "--" + re.sub("([A-Z])", lambda found: "-" + found[1].lower(), option)


class Configured:
    """A configuration, and the findings about it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.clients = folder / "clients"
        self.clients.write_text(CLIENTS)
        self.clients.chmod(0o600)
        self.options = {
            "bind": f"127.0.0.1:{free_port()}",
            "authorizedKeys": str(self.clients),
            "identity": str(folder / "identity"),
            "streamsDir": str(folder / "streams"),
            "diskReserve": "1KiB",
        }
        self._capsys = capsys

    def check(self, **changes: str) -> tuple[int, list[Any]]:
        """Return the exit code and the findings with a level above ok."""
        config = self.folder / "server.toml"
        config.write_text("\n".join(f'{name} = "{value}"' for name, value in {**self.options, **changes}.items()))
        code = main(["server", "check", "--config", str(config), "--json"])
        findings = [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]
        return code, [one for one in findings if one["level"] != "ok"]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Configured:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr(jvm, "start", refuse)
    monkeypatch.setattr(jpype, "startJVM", refuse)
    monkeypatch.setattr(preflight, "_available_memory", lambda: 1 << 40)
    monkeypatch.setattr(preflight, "space_of", lambda path: paths.Space(str(path), 1 << 40, 1 << 41))
    monkeypatch.setenv("AERON_SPARK_AERON_DIR", str(tmp_path / "aeron"))
    monkeypatch.setenv("AERON_SPARK_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AERON_SPARK_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(preflight.resource, "getrlimit", lambda which: (65536, 65536))
    return Configured(tmp_path, capsys)


def test_a_good_configuration_has_no_finding_and_leaves_no_file(configured: Configured) -> None:
    assert configured.check(maxConnections="10") == (0, [])
    assert {path.name for path in configured.folder.iterdir()} == {"clients", "server.toml"}


def test_a_wrong_option_clients_file_or_identity_is_an_error(configured: Configured) -> None:
    code, [wrong] = configured.check(maxConections="10")
    assert (code, wrong["subject"], "maxConnections" in wrong["remedy"]) == (2, "options", True)
    configured.clients.write_text("nonsense\n")
    identity = configured.folder / "identity"
    identity.write_text("x")
    identity.chmod(0o644)
    code, found = configured.check()
    assert code == 2
    assert [(one["level"], one["subject"]) for one in found] == [("error", "clients"), ("error", "identity")]
    assert "can be read" in found[1]["what"]


def test_the_check_takes_the_command_line_of_the_server(
    configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: "No such option: --max-connections"; a server without a file could not be checked."""
    flags = [text for name, value in configured.options.items() if name != "bind" for text in (flag(name), value)]
    assert main(["server", "check", configured.options["bind"], *flags, "--max-connections", "10"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "ok: options: the command line can be used"
    config = configured.folder / "server.toml"
    config.write_text("maxConnections = 10\n")
    assert main(["server", "check", "--config", str(config), "--max-connections", "10"]) == 2
    assert f"option 'maxconnections' is given on the command line and in {config}" in capsys.readouterr().out
    assert main(["server", "check", "--max-connections", "many"]) == 2
    assert capsys.readouterr().out.startswith("error: options: ")


def test_a_clients_file_without_a_key_is_a_warning(configured: Configured) -> None:
    configured.clients.write_text("# none\n")
    code, [warning] = configured.check()
    assert (code, warning["level"]) == (0, "warning")
    assert warning["what"] == f"{configured.clients} has no key, so that no client is admitted"


def test_a_grant_for_a_stream_that_does_not_exist_has_a_remark(configured: Configured, tmp_path: Path) -> None:
    for name, former in (("prices", ()), ("trades", (FormerName("deals"),))):
        folder = tmp_path / "streams" / name
        folder.mkdir(parents=True)
        write_definition(folder, Definition(name, 1, (1_100_000_000,), 1 << 16, former_names=former))
        create_ledger(folder, [])
    grants = "streams=pirces,prices,p*,nothing:read streams=deals:write streams=later:create,write"
    configured.clients.write_text(f"name=desk-7 {grants} {public_text(bytes(range(32)))}\n")
    code, found = configured.check()
    assert (code, {one["level"] for one in found}) == (0, {"warning"})
    assert [(one["what"], one["remedy"]) for one in found] == [
        ("desk-7 has a grant for stream 'deals', which was renamed to 'trades'", "Write 'trades' in the clients file."),
        ("desk-7 has a grant for stream 'nothing', which does not exist", "Correct the name, or create the stream."),
        (
            "desk-7 has a grant for stream 'pirces', which does not exist",
            "Did you mean 'prices'? Correct the name, or create the stream.",
        ),
    ]


def test_an_address_in_use_or_of_another_machine_is_an_error(configured: Configured) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        code, [in_use] = configured.check(bind=f"127.0.0.1:{port}")
    assert (code, in_use["subject"]) == (2, "addresses")
    assert in_use["what"] == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    code, found = configured.check(bind=f"198.51.100.7:{free_port()}")
    assert (code, {one["subject"] for one in found}) == (2, {"addresses"})


def test_the_check_says_whether_the_server_will_share_memory(
    configured: Configured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = MachineLock(address_lock_path(str(tmp_path / "aeron"), ServerAddress("ipc")))
    assert configured.check() == (0, [])
    assert main(["server", "check", "--config", str(tmp_path / "server.toml")]) == 0
    assert "the shared memory of the media driver is free" in capsys.readouterr().out
    assert lock.try_own()
    try:
        assert main(["server", "check", "--config", str(tmp_path / "server.toml")]) == 0
        assert "a server beside it listens over UDP only" in capsys.readouterr().out
    finally:
        lock.release()


def test_pages_that_cannot_be_served_are_an_error(configured: Configured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, [in_use] = configured.check(http=f"127.0.0.1:{port}")
    assert (code, in_use["subject"]) == (2, "http")
    assert in_use["what"] == f"cannot listen on 127.0.0.1:{port}: the address is in use"
    code, [wrong] = configured.check(http="9464")
    assert (code, wrong["subject"]) == (2, "http")
    assert "expected HOST:PORT" in wrong["what"]
    assert configured.check(http=f"127.0.0.1:{port}") == (0, [])


def test_damaged_bans_are_an_error_because_the_server_would_not_start(configured: Configured) -> None:
    (configured.folder / "streams").mkdir()
    bans = configured.folder / "streams" / "bans.json"
    bans.write_text('{"version": 1, "bans": []}')
    assert configured.check() == (0, [])
    bans.write_text('{"version": 1')
    code, [damaged] = configured.check()
    assert (code, damaged["subject"]) == (2, "bans")
    assert str(bans) in damaged["what"]


def test_a_folder_that_is_a_file_is_an_error(configured: Configured) -> None:
    (configured.folder / "file").write_text("")
    code, found = configured.check(streamsDir=str(configured.folder / "file" / "streams"))
    assert code == 2
    assert [(one["level"], one["subject"]) for one in found] == [("error", "folders")]


def test_a_damaged_stream_is_a_warning_because_the_others_serve(configured: Configured) -> None:
    store = configured.folder / "streams"
    for name in ("good", "damaged", "gone"):
        (store / name).mkdir(parents=True)
        write_definition(store / name, Definition(name, 2, (1_100_000_000, 1_100_000_001), 1 << 16))
        create_ledger(store / name, [])
    (store / "damaged" / "definition.json").write_bytes(b"x" * 64)
    (store / "gone" / "journal").unlink()
    code, found = configured.check()
    assert code == 0
    assert [(one["level"], one["subject"]) for one in found] == [("warning", "streams")] * 2
    assert "stream 'damaged'" in found[0]["what"]
    assert "stream 'gone'" in found[1]["what"]


def test_a_stream_whose_folder_is_gone_is_a_warning(configured: Configured, tmp_path: Path) -> None:
    archive = local_node_paths(tmp_path / "aeron").archive_dir
    (archive / "aeron-spark-streams").mkdir(parents=True)
    definition = Definition("flights", 1, (1_100_000_000,), 1 << 16)
    ArchiveMark(str(archive), definition, tmp_path / "streams" / "flights").confirm(7, 0)
    code, [gone] = configured.check()
    assert (code, gone["level"], gone["subject"]) == (0, "warning", "streams")
    assert (
        f"stream 'flights': the stream is damaged: its folder {tmp_path / 'streams' / 'flights'} is gone"
        in gone["what"]
    )


def test_too_little_memory_space_and_files_are_warnings(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_available_memory", lambda: 1 << 20)
    monkeypatch.setattr(preflight, "space_of", lambda path: paths.Space(str(path), 1 << 20, 1 << 21))
    monkeypatch.setattr(preflight.resource, "getrlimit", lambda which: (64, 64))
    code, found = configured.check(diskReserve="9999TiB")
    assert code == 0
    assert [(one["level"], one["subject"]) for one in found] == [
        ("warning", "memory"), ("warning", "shared memory"), ("warning", "open files"), ("warning", "disk"),
    ]  # fmt: skip
    assert all(one["remedy"] for one in found)


def test_the_files_of_a_dead_driver_count_as_available_shared_memory(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "space_of", lambda path: paths.Space(str(path), 0, 1 << 41))
    assert [one["subject"] for one in configured.check()[1]] == ["shared memory"]
    monkeypatch.setattr(preflight, "file_bytes", lambda folder: 1 << 40)
    assert configured.check() == (0, [])


def test_each_finding_is_one_line_with_its_level(configured: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    configured.check()
    assert main(["server", "check", "--config", str(configured.folder / "server.toml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(":")[0] for line in lines} == {"ok"}
    assert {line.split(":")[1].strip() for line in lines} >= {"options", "clients", "identity", "memory", "disk"}


def run_node(monkeypatch: pytest.MonkeyPatch, level: int | None) -> None:
    """Let a node with this sync level seem to run; None: a media driver that another program started."""
    real = preflight.node.status

    def status(*arguments: Any) -> Any:
        settings = None if level is None else NodeSettings(sync_level=level)
        return replace(real(*arguments), state="foreign" if level is None else "running", settings=settings)

    monkeypatch.setattr(preflight.node, "status", status)


@pytest.mark.parametrize(
    ("running", "level", "code"), [(1, "1", 0), (0, "1", 2), (1, "0", 2), (None, "1", 2), (0, None, 0)]
)
def test_a_node_that_runs_with_another_sync_level_is_an_error(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, running: int | None, level: str | None, code: int
) -> None:
    run_node(monkeypatch, running)
    found = configured.check(**({} if level is None else {"syncLevel": level}))
    assert found[0] == code
    assert [(one["level"], one["subject"]) for one in found[1]] == [("error", "node")] * (code != 0)
    if code:
        assert f"option 'syncLevel' is {level}" in found[1][0]["what"]
        assert "aeron-spark node stop" in found[1][0]["remedy"]


def test_another_sync_level_of_a_running_servers_node_is_a_warning(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have started the node, which ends with it."""
    run_node(monkeypatch, 0)
    monkeypatch.setattr(preflight.Preflight, "_is_store_in_use", True)
    code, found = configured.check(syncLevel="1")
    assert code == 0
    assert ("warning", "node") in [(one["level"], one["subject"]) for one in found]
