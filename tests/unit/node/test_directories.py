from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aeron_spark.errors import InUseError, SetupError
from aeron_spark.node import paths
from aeron_spark.node.liveness import MARK_HEADER, Liveness
from aeron_spark.node.locks import FileLock


def alive(pid: int) -> object:
    return lambda folder: Liveness(pid, 0.0, 1.0)


def test_a_folder_of_ours_is_for_us_alone(tmp_path: Path) -> None:
    paths.make_private(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    paths.make_private(tmp_path / "a" / "b")


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for place in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(SetupError, match="is not a directory"):
            paths.make_private(place)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(SetupError, match="is not a directory"):
        paths.refuse_others(tmp_path / "link")


def test_anothers_directory_is_refused_with_both_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(SetupError, match=f"belongs to user {me}, not to user {me + 1}.*AERON_SPARK_AERON_DIR"):
        paths.refuse_others(tmp_path)


def test_a_dead_drivers_directory_goes(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    (driver / "publications").mkdir(parents=True)
    (driver / "cnc.dat").write_bytes(b"")
    paths.remove_dead_driver(driver, None)
    assert not driver.exists()
    paths.remove_dead_driver(driver, None)  # nothing there is fine


def test_a_live_drivers_directory_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    monkeypatch.setattr(paths, "driver_liveness", alive(42))
    with pytest.raises(SetupError, match="a media driver of process 42 is alive"):
        paths.remove_dead_driver(tmp_path, 41)
    assert (tmp_path / "cnc.dat").exists()


def test_a_killed_node_is_known_by_its_lock_though_its_heartbeat_is_fresh(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    monkeypatch.setattr(paths, "driver_liveness", alive(42))
    paths.remove_dead_driver(tmp_path, 42)
    assert not tmp_path.exists()


def test_a_directory_with_other_files_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SetupError, match=r"files that are not a media driver's, such as thesis\.tex"):
        paths.remove_dead_driver(tmp_path, None)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_an_archive_is_taken_by_one(tmp_path: Path) -> None:
    lock = paths.take_archive(tmp_path / "archive")
    with pytest.raises(InUseError, match=f"is used by the node of process {os.getpid()}"):
        paths.take_archive(tmp_path / "archive")
    lock.release()
    paths.take_archive(tmp_path / "archive").release()


def test_the_mark_of_a_killed_node_goes_and_a_strangers_stays(tmp_path: Path) -> None:
    mark = tmp_path / "archive-mark.dat"
    with FileLock(tmp_path / paths.ARCHIVE_LOCK) as lock:
        lock.try_acquire()
        lock.write_owner()
    mark.write_bytes(MARK_HEADER.pack(1, 2, 3, os.getpid() + 1))
    paths.take_archive(tmp_path).release()
    assert mark.exists()
    mark.write_bytes(MARK_HEADER.pack(1, 2, 3, os.getpid()))
    paths.take_archive(tmp_path).release()
    assert not mark.exists()


def test_a_foreign_driver_is_used_where_it_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    paths.foreign_driver_may_be_used(tmp_path, chosen=True)
    with pytest.raises(SetupError, match="cannot be written"):
        paths.foreign_driver_may_be_used(tmp_path / "none", chosen=True)


def test_the_default_directory_is_never_taken_on_trust(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(SetupError, match="belongs to user"):
        paths.foreign_driver_may_be_used(tmp_path, chosen=False)
