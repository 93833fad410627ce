"""A server's streams are altered, renamed, ended and reopened on the command line, and their writers released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from aeron_spark.waiting import wait_for
from tests.cli.conftest import run
from tests.cli.running_servers import TIMEOUT_S, running_server
from tests.cli.test_streams_server import ServerCommands
from tests.ports import free_ports

NARROW = pa.table({"city": ["Oslo"], "n": [1]})
WIDE = pa.table({"city": ["Bergen"], "n": [2], "x": [0.5]})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(scope="module")
def on_server(shared: Path, home: Path) -> Iterator[ServerCommands]:
    """The commands at a server with two clients; ``limited`` may read and write streams, but not manage them."""
    address = f"127.0.0.1:{free_ports()[0]}"
    environ = {"AERON_SPARK_AERON_DIR": str(shared)}
    keys = {name: public_key(home / name) for name in ("manager", "limited")}
    clients = home / "clients"
    clients.write_text(f"all name=manager {keys['manager']}\nstreams=*:read,write name=limited {keys['limited']}\n")
    clients.chmod(0o600)
    with running_server(
        home / "server", shared, address, "--handshakes-per-second", "0", "--authorized-keys", str(clients),
    ) as server:  # fmt: skip
        server.wait("listening")
        yield ServerCommands(address, environ)
        assert server.stop() == 0


def public_key(config_home: Path) -> str:
    made = run("keys", "new", "--json", AERON_SPARK_CONFIG_HOME=str(config_home))
    assert made.code == 0, made.err
    return str(made.lines[0]["public"])


@pytest.fixture
def manager(on_server: ServerCommands, home: Path) -> ServerCommands:
    return ServerCommands(on_server.address, on_server.environ | {"AERON_SPARK_CONFIG_HOME": str(home / "manager")})


@pytest.fixture
def limited(on_server: ServerCommands, home: Path) -> ServerCommands:
    return ServerCommands(on_server.address, on_server.environ | {"AERON_SPARK_CONFIG_HOME": str(home / "limited")})


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two Parquet files: the second one has a further column."""
    names = str(tmp_path / "narrow.parquet"), str(tmp_path / "wide.parquet")
    for name, table in zip(names, (NARROW, WIDE), strict=True):
        pyarrow.parquet.write_table(table, name)
    return names


def columns(client: ServerCommands, stream: str) -> list[str]:
    (described,) = client.done("streams", "describe", stream)
    return [column["name"] for column in described["schema"]]


def test_a_new_column_needs_the_option_and_the_grant(
    manager: ServerCommands, limited: ServerCommands, files: tuple[str, str]
) -> None:
    narrow, wide = files
    (made,) = manager.done("streams", "create", "strict")
    assert made["schema_policy"] == "strict"
    limited.done("send", narrow, "--stream", "strict")
    for client, option in ((limited, ()), (manager, ()), (limited, ("--evolve-schema",))):
        refused = client("send", wide, "--stream", "strict", *option)
        assert refused.code == 1
        assert "the data adds the columns 'x', but the stream's schema is strict" in refused.err
        assert "x: double" in refused.err
        assert ("does not have the grant manage" in refused.err) is bool(option)
    assert columns(limited, "strict") == ["city", "n"]
    manager.done("send", wide, "--stream", "strict", "--evolve-schema")
    received = limited.done("receive", "--stream", "strict")
    assert received == [{"city": "Oslo", "n": 1, "x": None}, {"city": "Bergen", "n": 2, "x": 0.5}]


def test_a_stream_has_the_schema_of_its_creation(
    manager: ServerCommands, files: tuple[str, str], tmp_path: Path
) -> None:
    narrow, wide = files
    manager.done("streams", "create", "given", "--schema", narrow)
    assert columns(manager, "given") == ["city", "n"]
    assert "strict" in manager("send", wide, "--stream", "given").err
    manager.done("send", narrow, "--stream", "given")
    text = tmp_path / "columns.csv"
    text.write_text("city,n\n")
    for file, cause in ((text, "not a Parquet or Arrow file"), (tmp_path / "none.parquet", "cannot be read")):
        wrong = manager("streams", "create", "another", "--schema", str(file))
        assert wrong.code == 2
        assert cause in wrong.err
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"PAR1")
    assert "not a complete parquet file" in manager("streams", "create", "another", "--schema", str(damaged)).err


def test_an_altered_stream_has_its_new_properties_at_once(manager: ServerCommands, files: tuple[str, str]) -> None:
    narrow, wide = files
    manager.done("streams", "create", "altered", "--retention", "7d")
    manager.done("send", narrow, "--stream", "altered")
    (preview,) = manager.done("streams", "alter", "altered", "--retention", "64MiB", "--dry-run")
    assert preview["dry_run"] is True
    assert preview["before"] == {"retention_bytes": None, "retention_seconds": 604_800.0, "schema_policy": "strict"}
    assert preview["after"] == {"retention_bytes": 64 << 20, "retention_seconds": None, "schema_policy": "strict"}
    (described,) = manager.done("streams", "describe", "altered")
    assert described["retention_seconds"] == 604_800.0
    shown = manager("streams", "alter", "altered", "--schema-policy", "additive", "--retention", "none")
    assert shown.code == 0
    assert "retention: 7 d → everything" in shown.out
    assert "schema policy: strict → additive" in shown.out
    manager.done("send", wide, "--stream", "altered")
    (described,) = manager.done("streams", "describe", "altered")
    assert (described["retention_seconds"], described["schema_policy"]) == (None, "additive")


def test_a_dry_run_shows_the_bytes_that_would_become_unreadable(manager: ServerCommands) -> None:
    manager.done("streams", "create", "previewed")
    rows = b"x" * 1000 + b"\n"
    assert (
        manager.piped(rows * 4_000, "send", "--stream", "previewed", "--payload", "raw", "--commit-rows", "500").code
        == 0
    )
    (preview,) = manager.done("streams", "alter", "previewed", "--retention", "1MiB", "--dry-run")
    (described,) = manager.done("streams", "describe", "previewed")
    (unreadable,) = preview["unreadable_bytes"]
    assert described["bytes"] - (1 << 20) <= unreadable < described["bytes"]  # up to the start of a transaction
    assert (
        "rows that would be unreadable now:"
        in manager("streams", "alter", "previewed", "--retention", "1MiB", "--dry-run").out
    )


def test_a_renamed_stream_keeps_its_rows_and_answers_under_its_old_name(
    manager: ServerCommands, limited: ServerCommands, files: tuple[str, str]
) -> None:
    narrow, _ = files
    manager.done("streams", "create", "old")
    limited.done("send", narrow, "--stream", "old", "--writer-id", "edge")
    assert manager.done("streams", "rename", "old", "new") == [{"name": "new", "former_name": "old"}]
    assert limited.done("receive", "--stream", "new") == NARROW.to_pylist()
    limited.done("send", narrow, "--stream", "new", "--writer-id", "edge")
    for command in (
        ("receive", "--stream", "old"),
        ("send", narrow, "--stream", "old"),
        ("streams", "describe", "old"),
    ):
        lost = limited(*command)
        assert lost.code == 1
        assert "stream 'old' was renamed to 'new'. Use the name 'new'." in lost.err
    (described,) = manager.done("streams", "describe", "new")
    assert described["former_names"] == ["old"]
    manager.done("streams", "create", "old")
    assert limited.done("receive", "--stream", "old") == []
    manager.done("streams", "delete", "old", "--yes")
    assert "unknown stream 'old'" in limited("receive", "--stream", "old").err
    taken = manager("streams", "rename", "new", "new")
    assert (taken.code, "stream 'new' exists already" in taken.err) == (1, True)


def test_followers_of_an_ended_stream_finish_and_its_writers_are_refused(
    manager: ServerCommands, limited: ServerCommands
) -> None:
    manager.done("streams", "create", "closing")
    assert limited.piped(b"one\n", "send", "--stream", "closing").code == 0
    with limited.begin("receive", "--stream", "closing", "--follow", "--start", "earliest", "--json") as following:
        assert json.loads(following.stdout.readline()) == {"value": "one"}
        (ended,) = manager.done("streams", "end", "closing")
        assert wait_for(lambda: following.poll() is not None, TIMEOUT_S, "the end of receive")
        assert following.returncode == 0
    assert ended["state"] == "ended"
    refused = limited.piped(b"two\n", "send", "--stream", "closing")
    assert refused.code == 1
    assert "stream 'closing' was ended at" in refused.err
    assert "aeron-spark streams reopen" in refused.err
    (listed,) = [one for one in manager.done("streams", "list") if one["name"] == "closing"]
    assert (listed["state"], listed["ended"]) == ("ended", ended["ended"])
    assert manager.done("streams", "end", "closing") == [ended]
    assert manager.done("streams", "reopen", "closing") == [{"name": "closing", "state": "ok"}]
    assert limited.piped(b"two\n", "send", "--stream", "closing").code == 0
    assert limited.done("receive", "--stream", "closing") == [{"value": "one"}, {"value": "two"}]


def test_a_released_writer_id_is_free_for_another_key(
    manager: ServerCommands, limited: ServerCommands, files: tuple[str, str]
) -> None:
    narrow, _ = files
    manager.done("streams", "create", "owned")
    limited.done("send", narrow, "--stream", "owned", "--writer-id", "edge-7")
    (writer,) = manager.done("streams", "writers", "owned")
    assert (writer["writer"], writer["last"], writer["single_use"]) == ("edge-7", 0, False)
    assert writer["owner"]
    assert "edge-7" in manager("streams", "writers", "owned").out
    wrong = manager("streams", "writers", "owned", "release", "edge-8")
    assert (wrong.code, "Did you mean 'edge-7'?" in wrong.err) == (1, True)
    manager.done("streams", "writers", "owned", "release", "edge-7")
    (writer,) = manager.done("streams", "writers", "owned")
    assert (writer["last"], writer["owner"]) == (0, None)
    limited.done("send", narrow, "--stream", "owned", "--writer-id", "edge-7")
    (writer,) = manager.done("streams", "writers", "owned")
    assert (writer["last"], writer["owner"] is None) == (1, False)


def test_the_lease_of_a_reader_is_listed_and_released(manager: ServerCommands, limited: ServerCommands) -> None:
    manager.done("streams", "create", "leased")
    assert limited.piped(b"one\n", "send", "--stream", "leased").code == 0
    assert manager.done("streams", "leases", "leased") == []
    with limited.begin("receive", "--stream", "leased", "--follow", "--start", "earliest", "--json") as following:
        following.stdout.readline()
        (lease,) = manager.done("streams", "leases", "leased")
        assert list(lease["positions"]) == ["0"]
        assert 0 < lease["seconds"] <= 60
        manager.done("streams", "leases", "leased", "release", lease["reader"])
        following.terminate()
        following.wait(TIMEOUT_S)
    assert manager.done("streams", "stages", "leased") == []
    unknown = manager("streams", "leases", "leased", "release", lease["reader"])
    assert (unknown.code, "has a lease" in unknown.err) == (1, True)


def test_changes_need_their_grants(manager: ServerCommands, limited: ServerCommands) -> None:
    manager.done("streams", "create", "granted")
    for command in (
        ("alter", "granted", "--retention", "1d"), ("alter", "granted", "--retention", "1d", "--dry-run"),
        ("rename", "granted", "renamed"), ("end", "granted"), ("reopen", "granted"), ("writers", "granted"),
        ("writers", "granted", "release", "w"), ("leases", "granted"), ("leases", "granted", "release", "r"),
        ("stages", "granted"),
    ):  # fmt: skip
        refused = limited("streams", *command)
        assert (refused.code, "your key may not manage stream 'granted'" in refused.err) == (1, True), refused.err
