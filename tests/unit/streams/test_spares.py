"""Files of stages that are written over: their old content never shows, and they do not fill the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from aeron_spark.streams import stage_files as module
from aeron_spark.streams.stage_files import LEAST_BYTES, MOST_BYTES, SECONDS, ReusableStageFiles, StageSpace
from aeron_spark.streams.stages import Stage, Stages
from aeron_spark.wire.staged_items import encode_values_item


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spares(tmp_path: Path, clock: Clock) -> ReusableStageFiles:
    return ReusableStageFiles(tmp_path, clock=clock)


def file(folder: Path, name: str, size: int = LEAST_BYTES) -> Path:
    path = folder / f"{name}.stage"
    with path.open("wb") as made:
        made.truncate(size)  # sparse: it takes no room
    return path


def reopened(spares: ReusableStageFiles, folder: Path) -> int:
    """Open a new file; return its size."""
    descriptor = spares.open(folder / "new.part")
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    (folder / "new.part").unlink()
    return size


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_large_file_is_used_again_once(spares: ReusableStageFiles, tmp_path: Path) -> None:
    spares.keep(file(tmp_path, "a"))
    assert names(tmp_path) == ["a.spare"]
    assert reopened(spares, tmp_path) == LEAST_BYTES
    assert names(tmp_path) == []
    assert reopened(spares, tmp_path) == 0


def test_a_small_file_is_removed(spares: ReusableStageFiles, tmp_path: Path) -> None:
    spares.keep(file(tmp_path, "a", LEAST_BYTES - 1))
    assert names(tmp_path) == []


def test_together_they_take_no_more_than_a_limit(spares: ReusableStageFiles, tmp_path: Path) -> None:
    spares.keep(file(tmp_path, "a", MOST_BYTES - LEAST_BYTES))
    spares.keep(file(tmp_path, "b", LEAST_BYTES + 1))
    assert names(tmp_path) == ["a.spare"]
    spares.keep(file(tmp_path, "c", LEAST_BYTES))
    assert names(tmp_path) == ["a.spare", "c.spare"]


def test_none_is_kept_where_the_disk_is_filling_up(
    spares: ReusableStageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 4 * LEAST_BYTES
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    spares.keep(file(tmp_path, "a"))
    assert names(tmp_path) == ["a.spare"]
    spares.keep(file(tmp_path, "b"))  # together they would be more than a quarter of it
    assert names(tmp_path) == ["a.spare"]
    assert shutil.disk_usage(tmp_path).free == free


def test_they_go_after_a_while(spares: ReusableStageFiles, tmp_path: Path, clock: Clock) -> None:
    spares.keep(file(tmp_path, "a"))
    clock.now += 1
    spares.keep(file(tmp_path, "b"))
    spares.expire(clock.now + SECONDS - 1)
    assert names(tmp_path) == ["b.spare"]
    spares.clear()
    assert names(tmp_path) == []
    assert reopened(spares, tmp_path) == 0


def test_one_that_somebody_removed_does_no_harm(spares: ReusableStageFiles, tmp_path: Path) -> None:
    spares.keep(file(tmp_path, "a"))
    (tmp_path / "a.spare").unlink()
    assert reopened(spares, tmp_path) == 0


def items(value: bytes, count: int) -> bytes:
    parts = encode_values_item(pa.array([value] * count, pa.binary()))
    return b"".join(part.to_pybytes() for part in parts)


LARGE = items(b"old" * 100, LEAST_BYTES // 300 + 1)


def stage_of(stages: Stages, data: bytes) -> Stage:
    stage = stages.open("w", "r", 0, 0, 0, "raw", now=0.0)
    stage.append(data, 0.0)
    return stage


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path / "stages", StageSpace(0), now=0.0)


def test_a_stage_in_the_file_of_another_holds_its_own_rows_alone(stages: Stages) -> None:
    old = stage_of(stages, items(b"old", 3) + LARGE)  # what is left of it begins where an item begins
    old.finish()
    inode = old.path.stat().st_ino
    old.release()
    assert stages.space.taken == 0
    new = stage_of(stages, items(b"new", 3))
    assert new.path.stat().st_ino == inode
    assert new.path.stat().st_size > LEAST_BYTES  # still, but nobody reads further than what was written
    with new.grown() as found:
        assert [item.rows for _, item in found.so_far(0)] == [3]
    ref = new.finish()
    assert (ref.rows, ref.bytes) == (3, new.path.stat().st_size - new.begin)
    with new.items() as whole:
        assert [item.values.to_pylist() for item in whole] == [[b"new"] * 3]  # type: ignore[union-attr]


def test_a_file_that_is_discarded_is_not_written_over(stages: Stages) -> None:
    stage = stage_of(stages, LARGE)
    stage.finish()
    with stage.items() as reading:  # and somebody may still be
        stage.discard()
        assert list(stages.folder.iterdir()) == []
        assert sum(item.rows for item in reading) == LEAST_BYTES // 300 + 1


def test_a_restart_finds_whole_stages_and_no_spare_files(stages: Stages) -> None:
    whole, gone = stage_of(stages, items(b"x", 1)), stage_of(stages, LARGE)
    whole.finish()
    gone.finish()
    gone.release()
    again = Stages(stages.folder, StageSpace(0), now=0.0)
    assert [path.suffix for path in stages.folder.iterdir()] == [".stage"]
    assert whole.id in again


def test_the_folder_is_empty_after_closing(stages: Stages) -> None:
    stage = stage_of(stages, LARGE)
    stage.finish()
    stage.release()
    assert [path.suffix for path in stages.folder.iterdir()] == [".spare"]
    stages.close()
    assert list(stages.folder.iterdir()) == []
