"""A restore and a check of folders that another person has made: they end, and change nothing outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from aeron_spark.aeron.archive_catalog import encode_catalog
from aeron_spark.backup import manifest
from aeron_spark.backup.copying import find_base, hash_file, read_manifest, write_backup
from aeron_spark.backup.manifest import DAMAGE, MAX_BYTES, Manifest, StoreFinding, decode_manifest, encode_manifest
from aeron_spark.backup.restoring import restore_backup
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.cli.main import main
from aeron_spark.errors import AeronSparkError, DataFormatError, DataLossError, OptionError
from aeron_spark.streams.definition import read_definition
from aeron_spark.streams.journal import Journal, encode_entry, read_entries
from aeron_spark.streams.journal_records import CommitRecord, encode_record
from aeron_spark.streams.stages import FINISHED
from tests.unit.backup.fake_store import TERM_BYTES, FakeStore

HUGE = 1 << 40
TIMEOUT_S = 60
OTHER_USER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """Fail a test that waits for a pipe, or reads a device without end."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the call does not end"))
    signal.alarm(TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of one stream, with the clients file."""
    store = FakeStore(tmp_path / "store")
    stream = store.create("copied")
    stream.commit({0: [b"row"] * 3})
    (tmp_path / "keys").write_text("all ...")
    write_backup(replace(store.source(), configuration={"authorized_keys": tmp_path / "keys"}), tmp_path / "b")
    store.close()
    return tmp_path / "b"


@pytest.fixture
def store(tmp_path: Path) -> FakeStore:
    """A closed store of one stream."""
    made = FakeStore(tmp_path / "store")
    stream = made.create("copied")
    stream.commit({0: [b"row"] * 3})
    made.close()
    return made


def restore(backup: Path) -> list[Path]:
    """Restore a backup, and return the files in both folders."""
    target = backup.parent / "r"
    restore_backup(backup, target / "streams", target / "archive", now_ns=10**18)
    return sorted(path.relative_to(target) for path in target.rglob("*") if not path.is_dir())


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sign(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the members of a manifest, and its checksum with them."""
    members = json.loads(path.read_bytes())
    del members[manifest.CHECK]
    change(members)
    members[manifest.CHECK] = manifest._digest(members)
    path.write_text(json.dumps(members))


def put(backup: Path, name: str, data: bytes) -> None:
    """Replace a file of a backup, and its size and checksum in the manifest."""
    (backup / name).write_bytes(data)
    size, digest = hash_file(backup / name)
    sign(backup / manifest.MANIFEST_FILE, lambda members: _entry(members, name).update(bytes=size, sha256=digest))


def _entry(members: dict[str, Any], ending: str) -> dict[str, Any]:
    (one,) = (file for file in members["files"] if file["path"].endswith(ending))
    found: dict[str, Any] = one
    return found


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def to_link(path: Path) -> None:
    """Move the file away, and put a link to it in its place."""
    moved = path.with_name(path.name + ".moved")
    path.rename(moved)
    path.symlink_to(moved)


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_huge(path: Path) -> None:
    os.truncate(path, HUGE)


KINDS = [to_pipe, to_device, to_link, to_folder, to_huge]


@pytest.mark.parametrize("damage", KINDS)
def test_a_file_that_is_not_regular_or_has_another_size_is_not_restored(
    backup: Path, damage: Callable[[Path], None]
) -> None:
    for path in files_of(backup):
        hostile = backup.parent / "hostile"
        shutil.copytree(backup, hostile)
        damage(hostile / path.relative_to(backup))
        with pytest.raises((DataLossError, OptionError), match=r"not a regular file|bytes, expected|limit \d+ bytes"):
            restore(hostile)
        assert not (backup.parent / "r" / "streams").exists()
        shutil.rmtree(hostile)


@pytest.mark.parametrize("name", ["streams", "archive", "configuration", "streams/copied"])
def test_a_folder_that_is_a_link_is_not_restored(backup: Path, name: str) -> None:
    (backup / name).rename(backup.parent / "elsewhere")
    (backup / name).symlink_to(backup.parent / "elsewhere")
    with pytest.raises(DataLossError, match="a folder on the way to it is a link"):
        restore(backup)


def test_the_folder_of_a_backup_may_be_a_link(backup: Path) -> None:
    link = backup.parent / "link"
    link.symlink_to(backup)
    assert Path("streams/copied/journal") in restore(link)


@pytest.mark.parametrize(
    "path",
    [
        "../x", "/etc/passwd", "archive/../../x", "x", "", "archive//x", "streams/lock", "streams/backup.json",
        "streams/.restoring/x", "streams/copied/stages/x.staged", "streams/copied/../../x", "streams/other/journal",
        "streams/copied/journal/x", "archive/node.lock", "archive/archive-mark.dat", "archive/99-0.rec",
        "archive/0-0.rec\0", "archive/0-0.rec\n", "archive/aeron-spark-streams/../x-0.json", "configuration/crontab",
        "archive/" + "a" * 100_000,
    ],
)  # fmt: skip
def test_a_manifest_with_a_path_outside_of_the_backup_is_refused(backup: Path, path: str) -> None:
    sign(
        backup / manifest.MANIFEST_FILE,
        lambda members: members["files"].append({"path": path, "bytes": 1, "sha256": ""}),
    )
    with pytest.raises(DataFormatError, match="is not the path of a file in the backup") as refused:
        restore(backup)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.update(time_ns=-1),
        lambda members: members.update(time_ns=0),  # the epoch would be that of an opening, and its rows checked
        lambda members: members.update(time_ns=2**70),
        lambda members: members["files"].append(members["files"][0]),
        lambda members: members["streams"].append(members["streams"][0]),
        lambda members: members["streams"][0].update(name="lock"),
        lambda members: members["streams"][0].update(name="bans.json"),
        lambda members: _entry(members, ".rec").update(length=2**62),
        lambda members: _entry(members, ".rec").update(length=1),
        lambda members: _entry(members, ".rec").update(bytes=-1),
        lambda members: _entry(members, "journal").update(length=2**30),
        lambda members: _entry(members, "journal").update(bytes=2**62),
    ],
)
def test_a_manifest_with_impossible_members_is_refused(backup: Path, change: Callable[[dict[str, Any]], None]) -> None:
    sign(backup / manifest.MANIFEST_FILE, change)
    with pytest.raises(DataFormatError, match="is not the manifest of a backup"):
        restore(backup)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"\xff", b"{", b"[" * 100_000, b'{"version": ' + b"1" * 10_000 + b"}"]
)
def test_a_file_that_is_not_a_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(DataLossError, match="the manifest m is damaged"):
        decode_manifest(data, "m")


def test_a_backup_whose_manifest_would_be_refused_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES >= 1 << 28  # a million files of 200 bytes
    monkeypatch.setattr(manifest, "MAX_BYTES", 100)
    with pytest.raises(OptionError, match=r"the backup has 0 files, and its manifest \d+ bytes, limit 100 bytes"):
        encode_manifest(Manifest(1, "1.2.3", "2026-01-01T00:00:00Z", 1, (), ()))


@pytest.mark.parametrize("member", ["recorded_as", "former_names"])
def test_a_definition_cannot_name_a_file_outside_of_the_archives_folder(backup: Path, member: str) -> None:
    name = "../../../../outside"
    definition = read_definition(backup / "streams" / "copied")
    members = msgspec.to_builtins(definition)
    members[member] = name if member == "recorded_as" else [{"name": name}]
    put(backup, "streams/copied/definition.json", json.dumps({"version": 1, "stream": members}).encode())
    before = files_of(backup.parent)
    with pytest.raises(DataFormatError, match="invalid stream name"):
        restore(backup)
    assert files_of(backup.parent) == before


def test_the_definition_is_that_of_the_stream_in_the_manifest(backup: Path) -> None:
    folder = backup / "streams" / "copied"
    (backup / "streams" / "other").mkdir()
    for path in folder.iterdir():
        path.rename(backup / "streams" / "other" / path.name)
    folder.rmdir()

    def rename(members: dict[str, Any]) -> None:
        members["streams"][0]["name"] = "other"
        for file in members["files"]:
            file["path"] = file["path"].replace("streams/copied/", "streams/other/")

    sign(backup / manifest.MANIFEST_FILE, rename)
    with pytest.raises(DataLossError, match="its definition is not that of the stream in the manifest"):
        restore(backup)


def test_files_that_the_manifest_does_not_list_are_named_and_ignored(
    backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = restore(backup)
    shutil.rmtree(backup.parent / "r")
    for name in ("streams/lock", "archive/node.lock", "archive/\x1b[2J", "streams/copied/stages/1.staged"):
        (backup / name).parent.mkdir(exist_ok=True)
        (backup / name).write_text("1")
    os.mkfifo(backup / "streams" / "pipe")
    (backup / "all").symlink_to("/")
    (backup / "empty").mkdir()
    target = backup.parent / "r"
    folders = "--streams-dir", str(target / "streams"), "--archive-dir", str(target / "archive")
    assert main(["server", "restore", str(backup), *folders]) == 0
    ignored = [line.partition("does not list it: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert sorted(line for line in ignored if line) == [
        f"{backup}/{name}"
        for name in ("all", "archive/\\u001b[2J", "archive/node.lock", "streams/copied/stages/1.staged", "streams/lock",
                     "streams/pipe")
    ]  # fmt: skip
    found = sorted(path.relative_to(target) for path in target.rglob("*") if not path.is_dir())
    assert found == expected
    assert (target / "streams" / "lock").read_text() == str(os.getpid())


def findings_of(store: FakeStore) -> list[StoreFinding]:
    return list(verify_store(store.streams_dir, store.archive_dir, Checked()))


@pytest.mark.parametrize("damage", KINDS)
def test_the_check_of_a_store_ends_with_a_finding_for_each_file_that_is_not_regular(
    store: FakeStore, damage: Callable[[Path], None]
) -> None:
    copy = store.folder.parent / "copy"
    for path in (one for one in files_of(store.folder) if one.suffix != ".lock"):
        shutil.copytree(store.folder, copy)
        damage(copy / path.relative_to(store.folder))
        if damage is not to_huge or path.suffix != ".rec":  # more bytes than the rows of a segment are no damage
            assert [one.level for one in findings_of(FakeStore(copy))].count(DAMAGE) >= 1, path
        shutil.rmtree(copy)


@pytest.mark.parametrize("damage", [to_pipe, to_device, to_link, to_folder])
def test_a_stage_that_is_not_regular_is_a_finding(store: FakeStore, damage: Callable[[Path], None]) -> None:
    stage = store.streams_dir / "copied" / "stages" / f"1{FINISHED}"
    stage.parent.mkdir()
    stage.touch()
    damage(stage)
    (one,) = (finding for finding in findings_of(store) if str(stage) in finding.what)
    assert "not a regular file" in one.what


def test_positions_far_beyond_the_files_make_one_finding(store: FakeStore) -> None:
    end = 2**62
    journal, _ = Journal.open(store.streams_dir / "copied" / "journal")
    journal.append(encode_record(CommitRecord("w", "run", 9, 10**18, {0: end}, {0: 1})))
    journal.close()
    (number,) = store.catalog.entries
    data = encode_catalog(store.catalog, {number: (0, end)}, 1)
    (store.archive_dir / "archive.catalog").write_bytes(data)
    found = [one for one in findings_of(store) if "missing" in one.what]
    assert [(one.start, one.end) for one in found] == [(2 * TERM_BYTES, end)]
    assert "and 35184372088830 after it" in found[0].what


def test_rows_that_end_within_a_frame_are_a_finding(store: FakeStore) -> None:
    journal, _ = Journal.open(store.streams_dir / "copied" / "journal")
    journal.append(encode_record(CommitRecord("w", "run", 9, 10**18, {0: 1001}, {0: 1})))
    journal.close()
    (number,) = store.catalog.entries
    data = encode_catalog(store.catalog, {number: (0, 1001)}, 1)
    (store.archive_dir / "archive.catalog").write_bytes(data)
    assert "do not begin and end with frames" in "".join(one.what for one in findings_of(store))


def test_a_catalog_of_wrong_entries_has_a_limit_of_findings(store: FakeStore) -> None:
    path = store.archive_dir / "archive.catalog"
    head = path.read_bytes()[:32]
    path.write_bytes(head + b"".join(b"\x01\0\0\0\x01\0\0\0".ljust(64, b"\0") for _ in range(5000)))
    found = findings_of(store)
    assert len(found) < 1100
    assert "there are too many errors" in "".join(one.what for one in found)


def test_the_findings_about_hostile_names_are_printable(store: FakeStore) -> None:
    (store.streams_dir / "copied").rename(store.streams_dir / "a\x1b]0;b\nc")
    (store.archive_dir / "aeron-spark-streams" / "d\x1b[2J\n-0.json").touch()
    texts = [str(one) for one in findings_of(store)]
    assert len(texts) >= 2
    assert all(text.isprintable() for text in texts)


def test_the_check_refuses_a_lock_that_is_not_regular(store: FakeStore, capsys: pytest.CaptureFixture[str]) -> None:
    folders = "--streams-dir", str(store.streams_dir), "--archive-dir", str(store.archive_dir)
    for change in (lambda path: os.mkfifo(path), lambda path: path.symlink_to("/dev/zero")):
        lock = store.streams_dir / "lock"
        lock.unlink(missing_ok=True)
        change(lock)
        assert main(["server", "verify", *folders]) == 1
        assert f"the lock file {lock} cannot be used" in capsys.readouterr().err


@needs_root
def test_an_incremental_backup_ignores_folders_of_other_users_and_links(backup: Path) -> None:
    new = backup.parent / "new"
    assert find_base(new) is not None
    backup.rename(backup.parent.parent / f"{backup.parent.name}-moved")
    moved = backup.parent.parent / f"{backup.parent.name}-moved"
    try:
        backup.symlink_to(moved)
        assert find_base(new) is None
        backup.unlink()
        os.chown(moved, OTHER_USER, OTHER_USER)
        moved.rename(backup)
        assert find_base(new) is None
        assert read_manifest(backup).streams
    finally:
        shutil.rmtree(moved, ignore_errors=True)


def test_a_journal_with_wrong_records_and_right_checksums_is_refused_by_an_error_of_this_package(backup: Path) -> None:
    good = (backup / "streams" / "copied" / "journal").read_bytes()
    payloads, _ = read_entries(good, backup)
    random = Random(1)
    refused = 0
    for _ in range(50):
        changed = [bytearray(payload) for payload in payloads]
        one = random.choice(changed)
        one[random.randrange(len(one))] ^= random.randrange(1, 256)
        put(backup, "streams/copied/journal", good[:8] + b"".join(encode_entry(bytes(entry)) for entry in changed))
        try:
            restore(backup)
        except AeronSparkError:
            refused += 1
            assert not (backup.parent / "r" / "streams").exists()
        shutil.rmtree(backup.parent / "r", ignore_errors=True)
    assert refused > 10
