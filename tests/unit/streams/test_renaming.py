"""A stream is renamed in two steps, and a start finishes a rename that a crash interrupted between any two of them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from msgspec import structs

from aeron_spark.errors import OptionError, TransportError
from aeron_spark.streams import definition as renaming
from aeron_spark.streams.archive_mark import ArchiveMark
from aeron_spark.streams.definition import (
    MAX_FORMER_NAMES,
    Definition,
    FormerName,
    finish_rename,
    read_definition,
    rename_files,
    write_definition,
)
from aeron_spark.streams.partition import alias_of

OLD = Definition("old", 1, (101,), 1 << 20, created_ns=255)
NEW = OLD.renamed("new")


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "old"
    path.mkdir()
    write_definition(path, OLD)
    (path / "journal").write_bytes(b"rows")
    return path


def test_a_renamed_stream_has_its_files_under_the_new_name(folder: Path) -> None:
    rename_files(folder, NEW)
    assert not folder.exists()
    target = folder.with_name("new")
    assert read_definition(target) == NEW
    assert (target / "journal").read_bytes() == b"rows"
    assert finish_rename(target) == target


@pytest.mark.parametrize("step", ["before the definition", "before the folder", "before the sync", "never"])
def test_a_start_finds_the_old_or_the_new_stream_after_a_crash_at_each_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        match step:
            case "before the definition":
                patch.setattr(renaming, "write_definition", crash)
            case "before the folder":
                patch.setattr(Path, "rename", crash)
            case "before the sync":
                patch.setattr(renaming, "sync_folder", crash)
        if step == "never":
            rename_files(folder, NEW)
        else:
            with pytest.raises(Crash):
                rename_files(folder, NEW)
    (left,) = list(folder.parent.iterdir())
    found = finish_rename(left)
    assert list(folder.parent.iterdir()) == [found]
    definition = read_definition(found)
    assert definition.name == found.name
    assert definition == (OLD if step == "before the definition" else NEW)
    assert (found / "journal").read_bytes() == b"rows"


def test_a_failed_rename_leaves_the_former_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(TransportError):
            rename_files(folder, NEW)
    assert read_definition(folder) == OLD
    assert finish_rename(folder) == folder


def test_a_folder_that_its_owner_moved_is_not_renamed(folder: Path) -> None:
    """Only a former name of the stream shows a half-done rename; another one is an error of the operator."""
    moved = folder.rename(folder.with_name("copy"))
    assert finish_rename(moved) == moved
    write_definition(moved, NEW)
    assert finish_rename(moved) == moved


def test_a_half_done_rename_does_not_replace_another_stream(folder: Path) -> None:
    write_definition(folder, NEW)
    other = folder.with_name("new")
    other.mkdir()
    assert finish_rename(folder) == folder
    assert list(other.iterdir()) == []


def test_a_damaged_definition_is_left_for_the_error_of_its_stream(folder: Path) -> None:
    (folder / "definition.json").write_text("{")
    assert finish_rename(folder) == folder


def test_recordings_and_the_mark_keep_the_original_name(tmp_path: Path) -> None:
    twice = NEW.renamed("third")
    assert alias_of(twice, 0) == alias_of(OLD, 0) == "aeron-spark:old:0:ff"
    marks = {ArchiveMark(str(tmp_path), one).path for one in (OLD, NEW, twice, twice.renamed("old"))}
    assert len(marks) == 1


def test_a_stream_that_is_renamed_often_keeps_its_latest_former_names() -> None:
    renamed = structs.replace(OLD, name="name-0")
    for number in range(1, 3 * MAX_FORMER_NAMES):
        renamed = renamed.renamed(f"name-{number}")
    assert renamed.names_before == tuple(
        f"name-{number}" for number in range(2 * MAX_FORMER_NAMES - 1, 3 * MAX_FORMER_NAMES - 1)
    )
    assert renamed.original_name == "name-0"


def test_former_names_answer_for_the_stream_until_they_are_reused() -> None:
    twice = NEW.renamed("third")
    assert twice.names_before == ("old", "new")
    assert twice.is_former_name("old")
    reused = twice.with_reused_name("old")
    assert not reused.is_former_name("old")
    assert reused.is_former_name("new")
    assert reused.names_before == ("old", "new")
    back = reused.renamed("old")
    assert (back.name, back.former_names) == ("old", (FormerName("new"), FormerName("third")))


def test_a_stream_cannot_get_an_invalid_name() -> None:
    with pytest.raises(OptionError, match="invalid stream name"):
        OLD.renamed("../x")
