"""Backups are complete or not there, link what is unchanged, and are restored after a check of each file."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.backup import copying, manifest
from aeron_spark.backup.copying import LOCK, find_base, read_manifest, write_backup
from aeron_spark.backup.manifest import FileEntry, Manifest, StreamEntry, decode_manifest, encode_manifest
from aeron_spark.backup.restoring import restore_backup
from aeron_spark.backup.verifying import Checked, verify_store
from aeron_spark.errors import DataFormatError, DataLossError, InUseError, OptionError, TransportError
from aeron_spark.files import write_at
from aeron_spark.log.epochs import epoch_text
from aeron_spark.node.locks import FileLock
from aeron_spark.streams.store import RESTORING, lock_store
from tests.unit.backup.fake_store import SEGMENT_BYTES, FakeStore, read_values

LARGE = 50_000


@pytest.fixture
def store(tmp_path: Path) -> FakeStore:
    """An open store of one stream with several segments."""
    made = FakeStore(tmp_path / "store")
    stream = made.create("copied", 2)
    for number in range(6):
        stream.commit({0: [bytes([number]) * LARGE], 1: [b"small"]})
    return made


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def restore(folder: Path, target: Path, now_ns: int = 10**18) -> tuple[Path, Path]:
    streams, archive = target / "streams", target / "archive"
    restore_backup(folder, streams, archive, now_ns=now_ns, random=lambda bits: 7)
    return streams, archive


def test_a_backup_has_a_manifest_with_the_hash_of_each_file_and_no_uncommitted_byte(
    store: FakeStore, tmp_path: Path
) -> None:
    stream = store.streams["copied"]
    source = store.source()
    stream.record(0, [b"uncommitted" * 100])
    stream.commit({1: [b"after the cut"]})
    (store.streams_dir / "bans.json").write_text("[]")
    (tmp_path / "keys").write_text("all ...")
    source = replace(
        source, store_files=[store.streams_dir / "bans.json", store.streams_dir / "missing"],
        configuration={"authorized_keys": tmp_path / "keys"},
    )  # fmt: skip
    outcome = write_backup(source, tmp_path / "b")
    assert outcome.manifest == read_manifest(tmp_path / "b")
    found = files_of(tmp_path / "b")
    assert {one.path for one in outcome.manifest.files} | {"manifest.json"} == set(found)
    for one in outcome.manifest.files:
        assert copying.hash_file(tmp_path / "b" / one.path) == (one.bytes, one.sha256)
    assert found["streams/bans.json"] == b"[]"
    assert found["configuration/authorized_keys"] == b"all ..."
    assert b"uncommitted" not in b"".join(found.values())
    assert b"after the cut" not in b"".join(found.values())
    (entry,) = outcome.manifest.streams
    assert (entry.name, entry.transactions, entry.epoch) == ("copied", 6, epoch_text(stream.ledger.epoch))
    assert [one.end for one in entry.partitions] == [one.end for one in source.cuts[0].partitions]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "keys", "store"]


def test_a_restored_store_has_the_rows_and_the_recording_ids_of_the_copy(store: FakeStore, tmp_path: Path) -> None:
    before = read_values(store, store.streams["copied"], 0)
    write_backup(store.source(), tmp_path / "b")
    streams, archive = restore(tmp_path / "b", tmp_path / "r")
    checked = Checked()
    assert list(verify_store(streams, archive, checked)) == []
    assert checked.bytes > 6 * LARGE
    assert {path.stat().st_size for path in archive.glob("*.rec")} == {SEGMENT_BYTES}
    restored = FakeStore(tmp_path / "r", 2 * 10**9)
    restored.open({"copied": "framed"})
    stream = restored.streams["copied"]
    assert stream.ledger.restored_from_ns == read_manifest(tmp_path / "b").time_ns
    assert stream.ledger.recordings == store.streams["copied"].ledger.recordings
    assert restored.catalog.next_recording_id == store.catalog.next_recording_id
    assert read_values(restored, stream, 0) == before
    stream.commit({0: [b"next"]})
    assert stream.ledger.restored_from_ns == 0
    restored.close()


def test_an_incremental_backup_links_whole_segments_of_the_newest_backup(store: FakeStore, tmp_path: Path) -> None:
    stream = store.streams["copied"]
    write_backup(store.source(), tmp_path / "b1")
    stream.commit({0: [b"x" * LARGE] * 3})
    write_backup(store.source(), tmp_path / "b2", find_base(tmp_path / "b2"))
    base = find_base(tmp_path / "b3")
    assert base.folder == tmp_path / "b2"
    stream.commit({0: [b"y" * LARGE]})
    outcome = write_backup(store.source(), tmp_path / "b3", base)
    inodes = {
        name: {path.name: path.stat().st_ino for path in (tmp_path / name / "archive").glob("*.rec")}
        for name in ("b1", "b2", "b3")
    }
    whole = {"0-0.rec", f"0-{SEGMENT_BYTES}.rec"}
    assert {name for name in inodes["b2"] if inodes["b3"][name] == inodes["b2"][name]} >= whole
    assert inodes["b1"]["0-0.rec"] == inodes["b3"]["0-0.rec"]
    assert outcome.linked_bytes >= 2 * SEGMENT_BYTES
    fresh = write_backup(store.source(), tmp_path / "whole")
    assert {one.path: one.sha256 for one in fresh.manifest.files if ".rec" in one.path} == {
        one.path: one.sha256 for one in outcome.manifest.files if ".rec" in one.path
    }


def test_segments_of_a_history_that_was_left_by_a_restore_are_not_linked(store: FakeStore, tmp_path: Path) -> None:
    write_backup(store.source(), tmp_path / "old")
    store.streams["copied"].commit({0: [b"left" * (LARGE // 4)] * 4})
    left = write_backup(store.source(), tmp_path / "left")
    restore(tmp_path / "old", tmp_path / "r", now_ns=store.now_ns())
    restored = FakeStore(tmp_path / "r", store.seconds)
    restored.open({"copied": "framed"})
    restored.streams["copied"].commit({0: [b"kept" * (LARGE // 4)] * 4})
    base = find_base(tmp_path / "new")
    assert base.manifest == left.manifest
    made = write_backup(restored.source(), tmp_path / "new", base)
    changed = {one.path: one.sha256 for one in left.manifest.files}
    segments = [one for one in made.manifest.files if one.path.startswith("archive/0-")]
    assert sum(changed.get(one.path) == one.sha256 for one in segments) < len(segments)
    assert list(verify_store(tmp_path / "new" / "streams", tmp_path / "new" / "archive", Checked())) == []
    restored.kill()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_leaves_nothing(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    written = 0

    def fail(descriptor: int, data: memoryview, offset: int) -> None:
        nonlocal written
        written += len(data)
        if written > SEGMENT_BYTES:
            raise OSError(code, os.strerror(code))
        write_at(descriptor, data, offset)

    monkeypatch.setattr(copying, "write_at", fail)
    with pytest.raises(TransportError, match=r"the backup .* cannot be written") as caught:
        write_backup(store.source(), tmp_path / "b")
    assert "Nothing was kept" in caught.value.remedy
    assert ("Free space" in caught.value.remedy) == (code == errno.ENOSPC)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_an_interrupted_backup_leaves_nothing_and_a_killed_one_is_removed_by_the_next(
    store: FakeStore, tmp_path: Path
) -> None:
    def interrupt(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_backup(store.source(), tmp_path / "b", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    killed, running, other = (tmp_path / f"{day}.partial-{day * 8}" for day in ("0", "1", "2"))
    for folder in (killed, running, other):
        folder.mkdir()
    for folder in (killed, running):
        (folder / LOCK).touch()
    with FileLock(running / LOCK) as lock:
        assert lock.try_own()
        write_backup(store.source(), tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "1.partial-11111111",
        "2.partial-22222222",
        "b",
        "store",
    ]


def test_a_backup_is_refused_in_a_folder_with_files_and_below_none(store: FakeStore, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").touch()
    with pytest.raises(OptionError, match="is not empty"):
        write_backup(store.source(), tmp_path / "b")
    with pytest.raises(OptionError, match="is not a folder"):
        write_backup(store.source(), tmp_path / "missing" / "b")
    (tmp_path / "empty").mkdir()
    write_backup(store.source(), tmp_path / "empty")
    assert (tmp_path / "empty" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["0-0.rec", "archive.catalog", "journal"])
def test_a_damaged_source_is_named_and_leaves_nothing(store: FakeStore, tmp_path: Path, name: str) -> None:
    source = store.source()
    (path,) = store.folder.rglob(name)
    if name == "0-0.rec":
        os.truncate(path, 4096)
    elif name == "journal":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.write_bytes(b"x" * 64)
    with pytest.raises(DataLossError, match="is damaged") as caught:
        write_backup(source, tmp_path / "b")
    assert str(path) in caught.value.what or name == "journal"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_the_journal_of_a_stream_that_was_deleted_meanwhile_is_found(store: FakeStore, tmp_path: Path) -> None:
    source = store.source()
    (store.streams_dir / "copied").rename(store.streams_dir / ".deleted-00-copied")
    (store.streams_dir / "copied").mkdir()  # another stream of that name
    (store.streams_dir / "copied" / "journal").write_bytes(b"other")
    write_backup(source, tmp_path / "b")
    assert list(verify_store(tmp_path / "b" / "streams", tmp_path / "b" / "archive", Checked())) == []


# Restores


def test_each_file_is_compared_before_any_is_visible(store: FakeStore, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("all ...")
    source = replace(store.source(), configuration={"authorized_keys": tmp_path / "keys"})
    write_backup(source, tmp_path / "b")
    for path in sorted(path for path in (tmp_path / "b").rglob("*") if path.is_file()):
        good = path.read_bytes()
        for bad in (good[:-2] + bytes([good[-2] ^ 1]) + good[-1:], good[:-2], None):
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)
            with pytest.raises((DataLossError, OptionError), match=r"damaged|is not a backup"):
                restore(tmp_path / "b", tmp_path / "r")
            assert not (tmp_path / "r" / "streams").exists()
            assert not (tmp_path / "r" / "archive").exists()
        path.write_bytes(good)
    restore(tmp_path / "b", tmp_path / "r")


def test_a_restore_into_a_used_folder_is_refused(store: FakeStore, tmp_path: Path) -> None:
    write_backup(store.source(), tmp_path / "b")
    streams, archive = tmp_path / "r" / "streams", tmp_path / "r" / "archive"
    archive.mkdir(parents=True)
    (archive / "0-0.rec").touch()
    with pytest.raises(OptionError, match=r"--archive-dir .* is not empty: it has 0-0\.rec"):
        restore(tmp_path / "b", tmp_path / "r")
    (archive / "0-0.rec").unlink()
    with lock_store(streams), pytest.raises(InUseError, match="is in use by server process"):
        restore(tmp_path / "b", tmp_path / "r")
    for other in (streams, streams / "archive", tmp_path / "b" / "archive"):
        with pytest.raises(OptionError, match="are not three separate folders"):
            restore_backup(tmp_path / "b", streams, other, now_ns=1)
    with pytest.raises(OptionError, match="is not a backup"):
        restore(tmp_path / "store", tmp_path / "r")
    restore(tmp_path / "b", tmp_path / "r")
    assert not (streams / RESTORING).exists()


def test_a_full_disk_leaves_both_folders_as_they_were(
    store: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_backup(store.source(), tmp_path / "b")
    (tmp_path / "r" / "archive").mkdir(parents=True)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(copying, "write_at", fail)
    with pytest.raises(TransportError, match="the backup cannot be restored: No space left"):
        restore(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r" / "streams").exists()
    assert {path.name for path in (tmp_path / "r" / "archive").iterdir()} <= {"node.lock"}


def test_a_restored_store_does_not_fit_the_archive_that_was_copied_nor_the_reverse(
    store: FakeStore, tmp_path: Path
) -> None:
    """Also if the mark in the archive's folder was not updated since the backup."""
    write_backup(store.source(), tmp_path / "b")
    store.close()
    streams, archive = restore(tmp_path / "b", tmp_path / "r")
    (one,) = verify_store(streams, store.archive_dir, Checked())
    assert "the archive of stream 'copied' is older than its journal" in one.what
    (one,) = verify_store(store.streams_dir, archive, Checked())
    assert "the journal of stream 'copied' is older than its archive" in one.what


# Manifests


def test_a_manifest_is_refused_if_a_byte_changed_or_it_is_of_another_version() -> None:
    made = Manifest(1, "1.2.3", "2026-01-01T00:00:00Z", 1, (), (FileEntry("archive/archive.catalog", 1, "00"),))
    data = encode_manifest(made)
    assert decode_manifest(data, "m") == made
    with pytest.raises(DataLossError, match="its checksum is wrong"):
        decode_manifest(data.replace(b"archive.catalog", b"archive.catalox"), "m")
    with pytest.raises(DataLossError, match="is damaged"):
        decode_manifest(data[:-3], "m")
    members = json.loads(data)
    del members["sha256"]
    members["version"] = 2
    members["sha256"] = manifest._digest(members)
    with pytest.raises(DataFormatError, match="has version 2, expected 1"):
        decode_manifest(json.dumps(members).encode(), "m")


def test_a_manifest_of_any_depth_is_damaged() -> None:
    """Regression: of a depth that could just be parsed, the checksum could not be computed."""
    for depth in range(700, 1_000):
        with pytest.raises(DataLossError, match="is damaged"):
            decode_manifest(b'{"a": ' + b"[" * depth + b"]" * depth + b"}", "m")


@pytest.mark.parametrize("name", ["../x", "/etc", ".", "a/b", ""])
def test_a_manifest_with_a_stream_outside_of_the_backup_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="invalid stream name"):
        Manifest(1, "1", "t", 1, (StreamEntry(name, 1, "0", 0, ()),), ())
