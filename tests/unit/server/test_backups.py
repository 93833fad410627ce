"""The server's side of a backup: the cut, the hold on deletions and its lease, and what is reported."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aeron_spark.backup.copying import LAST_BACKUP_FILE, LastBackup, read_last_backup, write_last_backup
from aeron_spark.errors import DataFormatError, DataLossError, EndedError, OptionError, RefusedError
from aeron_spark.process import pid_namespace
from aeron_spark.server.backups import LEASE_S, Backups
from aeron_spark.streams.model import StreamCut
from aeron_spark.streams.store import DAMAGED, ENDED, OK, Condition
from aeron_spark.streams.store_parts import DeletionHolds
from tests.unit.backup.fake_store import FakeStore


class World:
    """The backups of a server with a fake store, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.files = FakeStore(folder)
        self.files.create("a")
        self.files.create("b", 2).commit({1: [b"x"]})
        self.conditions = {"a": Condition(ENDED), "b": Condition(OK)}
        self.holds = DeletionHolds(lambda: self.now)
        self.store: Any = SimpleNamespace(
            folder=self.files.streams_dir, holds=self.holds, names=["a", "b"], condition=self.conditions.__getitem__,
            all=lambda: list(self.files.streams.values()), without_changes=lambda seconds: nullcontext(),
        )  # fmt: skip
        self.backups = self.open()

    def open(self) -> Backups:
        """Return the backups of a server that has just started on the store."""
        events: Any = SimpleNamespace(report=lambda name, **fields: self.events.append((name, fields)))
        return Backups(
            lambda: self.store, lambda: {"archive_dir": "/archive"}, events, clock=lambda: self.now,
            wall=lambda: 1_000.0 + self.now,
        )  # fmt: skip

    def begin(self, **arguments: Any) -> list[dict[str, Any]]:
        return list(self.backups.begin({"directory": "/backup/monday", **arguments}))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("wrong", ["", "{}", "[" * 100_000, '{"a":' * 100_000, '{"bytes": 18446744073709551616}'])
def test_a_damaged_file_of_the_last_backup_counts_as_none(tmp_path: Path, wrong: str) -> None:
    write_last_backup(tmp_path, LastBackup(1.0, "/b", 7, 2.0))
    assert read_last_backup(tmp_path) == LastBackup(1.0, "/b", 7, 2.0)
    path = tmp_path / "backup.json"
    path.write_text(path.read_text().replace('"bytes":7', wrong[1:-1]) if "bytes" in wrong else wrong)
    assert read_last_backup(tmp_path) is None


def test_a_backup_begins_with_the_cut_of_all_streams_and_holds_back_deletions_until_its_end(world: World) -> None:
    begun, *cuts = world.begin()
    assert (begun["streams"], begun["lease_s"], begun["time"]) == (2, LEASE_S, 1_100.0)
    assert begun["archive_dir"] == "/archive"
    assert [StreamCut.from_json(cut) for cut in cuts] == [one.cut() for one in world.files.streams.values()]
    for name, wrong in (
        *(("journal_bytes", -1), ("epoch", 1 << 64), ("transactions", 1 << 63)),
        *(("journal_inode", -1), ("journal_inode", 1 << 64)),
    ):
        with pytest.raises(DataFormatError, match="in an unknown way"):
            StreamCut.from_json({**cuts[0], name: wrong})
    assert world.holds.holder == "backup"
    world.now += LEASE_S - 1
    world.backups.renew({"id": begun["id"]})
    world.now += LEASE_S - 1
    assert world.holds.holder == "backup"
    world.backups.end({"id": begun["id"], "bytes": 7})
    assert world.holds.holder == ""
    assert world.events == [
        ("backup_done", {"directory": "/backup/monday", "bytes": 7, "streams": 2, "seconds": 2 * LEASE_S - 2})
    ]
    for backups in (world.backups, world.open()):  # also after a restart
        assert backups.last is not None
        assert (backups.last.time, backups.last.directory) == (1_100.0, "/backup/monday")
    (world.files.streams_dir / LAST_BACKUP_FILE).write_text("{")
    assert world.backups.last is None


def test_a_second_backup_is_refused_while_one_runs(world: World) -> None:
    begun, *_ = world.begin()
    with pytest.raises(RefusedError, match="a backup to /backup/monday is running"):
        world.begin()
    world.backups.end({"id": begun["id"], "error": "the disk is full"})
    assert world.events == [("backup_failed", {"directory": "/backup/monday", "error": "the disk is full"})]
    assert world.backups.last is None
    world.begin()


def test_a_backup_whose_command_died_ends_with_its_lease(world: World) -> None:
    begun, *_ = world.begin()
    world.now += LEASE_S - 0.1
    world.backups.check()
    assert world.events == []
    world.now += 0.2
    assert world.holds.holder == ""
    for call in (world.backups.renew, world.backups.end):
        with pytest.raises(EndedError, match="the server has ended this backup"):
            call({"id": begun["id"]})
    world.backups.check()
    world.backups.check()
    ((name, fields),) = world.events
    assert name == "backup_failed"
    assert "sent no request for 60 s" in fields["error"]
    again, *_ = world.begin()
    with pytest.raises(EndedError):
        world.backups.end({"id": begun["id"]})
    world.backups.end({"id": again["id"], "bytes": 0})


def test_a_backup_whose_command_was_killed_is_ended_for_the_next_one(world: World) -> None:
    """Regression: the next backup was refused for 57 s: "a backup to DIR is running"."""
    command = subprocess.Popen(["sleep", "60"])
    process = {"pid": command.pid, "pid_namespace": pid_namespace()}
    world.begin(**process)
    world.backups.check()
    with pytest.raises(RefusedError, match="a backup to /backup/monday is running"):
        world.begin()
    command.kill()
    command.wait()
    world.begin(directory="/backup/tuesday", pid=os.getpid(), pid_namespace=pid_namespace())
    error = f"its command, process {command.pid}, has ended"
    assert world.events == [("backup_failed", {"directory": "/backup/monday", "error": error})]
    world.backups.check()
    assert (len(world.events), world.holds.holder) == (1, "backup")


def test_the_end_of_a_killed_command_lets_files_be_deleted_at_once(world: World) -> None:
    command = subprocess.Popen(["true"])
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    world.begin(pid=command.pid, pid_namespace=pid_namespace())
    world.backups.check()
    assert world.holds.holder == ""
    command.wait()


def test_a_command_of_another_pid_namespace_has_the_time_of_its_lease(world: World) -> None:
    command = subprocess.Popen(["true"])
    command.wait()
    world.begin(pid=command.pid, pid_namespace="pid:[1]")
    world.backups.check()
    assert world.holds.holder == "backup"


def test_a_damaged_stream_prevents_a_backup_unless_it_is_skipped(world: World) -> None:
    world.conditions["a"] = Condition(DAMAGED, "its journal is gone")
    with pytest.raises(RefusedError, match="stream 'a' is damaged, and a backup would lack it: its journal is gone"):
        world.begin()
    assert world.holds.holder == ""
    assert [name for name, _ in world.events] == ["backup_failed"]
    begun, *cuts = world.begin(skip_damaged=True)
    assert begun["damaged"] == {"a": "its journal is gone"}
    assert [StreamCut.from_json(cut).definition.name for cut in cuts] == ["b"]


def test_an_error_of_a_cut_ends_the_backup(world: World) -> None:
    def fail() -> StreamCut:
        raise DataLossError("lost")

    world.files.streams["a"].cut = fail  # type: ignore[method-assign]
    with pytest.raises(DataLossError):
        world.begin()
    assert world.holds.holder == ""
    assert world.events == [("backup_failed", {"directory": "/backup/monday", "error": "lost"})]


def test_a_server_without_an_open_store_and_a_wrong_argument_are_refused(world: World) -> None:
    with pytest.raises(OptionError):
        list(world.backups.begin({}))
    world.store = None
    with pytest.raises(RefusedError, match="has not recovered them yet"):
        world.begin()
    assert world.backups.last is None
