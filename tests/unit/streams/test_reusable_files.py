"""Tests of reusable stage files: their old rows are never read, and their size is limited."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from aeron_spark.streams.stage_files import EXPIRY_S, MAX_TOTAL_BYTES, MIN_FILE_BYTES, ReusableStageFiles, StageSpace
from aeron_spark.streams.stages import Stage, Stages
from aeron_spark.wire.staged_items import encode_values_item
from tests.stream_requests import stage_request
from tests.unit.streams.simulated_store import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reusable_files(tmp_path: Path, clock: Clock) -> ReusableStageFiles:
    return ReusableStageFiles(tmp_path, clock=clock)


def file(folder: Path, name: str, size: int = MIN_FILE_BYTES) -> Path:
    path = folder / f"{name}.stage"
    with path.open("wb") as made:
        made.truncate(size)  # sparse: it takes no space on the disk
    return path


def reopened(reusable_files: ReusableStageFiles, folder: Path) -> int:
    """Open a new file; return its size."""
    descriptor = reusable_files.open(folder / "new.part")
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    (folder / "new.part").unlink()
    return size


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_large_file_is_reused_once(reusable_files: ReusableStageFiles, tmp_path: Path) -> None:
    reusable_files.keep(file(tmp_path, "a"))
    assert names(tmp_path) == ["a.spare"]
    assert reopened(reusable_files, tmp_path) == MIN_FILE_BYTES
    assert names(tmp_path) == []
    assert reopened(reusable_files, tmp_path) == 0


def test_a_small_file_is_removed(reusable_files: ReusableStageFiles, tmp_path: Path) -> None:
    reusable_files.keep(file(tmp_path, "a", MIN_FILE_BYTES - 1))
    assert names(tmp_path) == []


def test_the_total_size_of_reusable_files_is_limited(reusable_files: ReusableStageFiles, tmp_path: Path) -> None:
    reusable_files.keep(file(tmp_path, "a", MAX_TOTAL_BYTES - MIN_FILE_BYTES))
    reusable_files.keep(file(tmp_path, "b", MIN_FILE_BYTES + 1))
    assert names(tmp_path) == ["a.spare"]
    reusable_files.keep(file(tmp_path, "c", MIN_FILE_BYTES))
    assert names(tmp_path) == ["a.spare", "c.spare"]


def test_no_file_is_reusable_on_a_nearly_full_disk(
    reusable_files: ReusableStageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 4 * MIN_FILE_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    reusable_files.keep(file(tmp_path, "a"))
    assert names(tmp_path) == ["a.spare"]
    reusable_files.keep(file(tmp_path, "b"))  # both together have more than a quarter of the free space
    assert names(tmp_path) == ["a.spare"]
    assert shutil.disk_usage(tmp_path).free == free


def test_reusable_files_expire(reusable_files: ReusableStageFiles, tmp_path: Path, clock: Clock) -> None:
    reusable_files.keep(file(tmp_path, "a"))
    clock.now += 1
    reusable_files.keep(file(tmp_path, "b"))
    reusable_files.expire(clock.now + EXPIRY_S - 1)
    assert names(tmp_path) == ["b.spare"]
    reusable_files.clear()
    assert names(tmp_path) == []
    assert reopened(reusable_files, tmp_path) == 0


def test_a_reusable_file_that_another_program_removed_is_replaced(
    reusable_files: ReusableStageFiles, tmp_path: Path
) -> None:
    reusable_files.keep(file(tmp_path, "a"))
    (tmp_path / "a.spare").unlink()
    assert reopened(reusable_files, tmp_path) == 0


def items(value: bytes, count: int) -> bytes:
    parts = encode_values_item(pa.array([value] * count, pa.binary()))
    return b"".join(part.to_pybytes() for part in parts)


LARGE = items(b"old" * 100, MIN_FILE_BYTES // 300 + 1)


def stage_of(stages: Stages, data: bytes) -> Stage:
    stage = stages.open(stage_request("w", "r", 0, 0, 0, "raw"), 0, now=0.0)
    stage.append(data, 0.0)
    return stage


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path / "stages", StageSpace(lambda: 0), now=0.0)


def test_a_stage_in_a_reused_file_has_only_its_own_rows(stages: Stages) -> None:
    old = stage_of(stages, items(b"old", 3) + LARGE)  # the part that is not overwritten begins with an item
    old.finish()
    inode = old.path.stat().st_ino
    old.release()
    assert stages.space.reserved == 0
    new = stage_of(stages, items(b"new", 3))
    assert new.path.stat().st_ino == inode
    assert (
        new.path.stat().st_size > MIN_FILE_BYTES
    )  # the file keeps its length, but readers stop after the written items
    with new.current_items() as found:
        assert [item.rows for _, item in found.complete(0)] == [3]
    ref = new.finish()
    assert (ref.rows, ref.bytes) == (3, new.path.stat().st_size - new.begin)
    with new.items() as whole:
        assert [item.values.to_pylist() for item in whole] == [[b"new"] * 3]


def test_the_file_of_a_discarded_stage_is_not_overwritten(stages: Stages) -> None:
    stage = stage_of(stages, LARGE)
    stage.finish()
    with stage.items() as reading:  # while a reader has the file open
        stage.discard()
        assert list(stages.folder.iterdir()) == []
        assert sum(item.rows for item in reading) == MIN_FILE_BYTES // 300 + 1


def test_a_restart_finds_finished_stages_and_removes_reusable_files(stages: Stages) -> None:
    finished, released = stage_of(stages, items(b"x", 1)), stage_of(stages, LARGE)
    finished.finish()
    released.finish()
    released.release()
    again = Stages(stages.folder, StageSpace(lambda: 0), now=0.0)
    assert [path.suffix for path in stages.folder.iterdir()] == [".stage"]
    assert finished.id in again


def test_the_folder_is_empty_after_closing(stages: Stages) -> None:
    stage = stage_of(stages, LARGE)
    stage.finish()
    stage.release()
    assert [path.suffix for path in stages.folder.iterdir()] == [".spare"]
    stages.close()
    assert list(stages.folder.iterdir()) == []
