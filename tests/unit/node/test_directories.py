from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import DriverLiveness
from aeron_spark.errors import InUseError, SetupError
from aeron_spark.node import paths
from aeron_spark.node.locks import FileLock
from aeron_spark.node.state_files import MARK_HEADER


def alive(pid: int) -> object:
    return lambda folder: DriverLiveness(pid, 0.0, 1.0)


def test_a_private_folder_is_for_its_user_only(tmp_path: Path) -> None:
    paths.make_private(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    paths.make_private(tmp_path / "a" / "b")


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for folder in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(SetupError, match="is not a directory"):
            paths.make_private(folder)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SetupError, match="is not a directory"):
        paths.require_own(tmp_path / "link")


def test_the_error_of_another_users_directory_has_both_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(SetupError, match=f"belongs to user {user}, not to user {user + 1}.*AERON_SPARK_AERON_DIR"):
        paths.require_own(tmp_path)


def test_an_ended_drivers_directory_is_removed(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    (driver / "publications").mkdir(parents=True)
    (driver / "cnc.dat").write_bytes(b"")
    paths.remove_dead_driver(driver, None)
    assert not driver.exists()
    paths.remove_dead_driver(driver, None)  # a missing directory is not an error


def test_a_live_drivers_directory_is_not_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    monkeypatch.setattr(paths, "driver_liveness", alive(42))
    with pytest.raises(SetupError, match="a media driver of process 42 is alive"):
        paths.remove_dead_driver(tmp_path, 41)
    assert (tmp_path / "cnc.dat").exists()


def test_a_killed_nodes_directory_is_removed_even_with_a_recent_heartbeat(
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


def test_only_one_node_can_lock_an_archive(tmp_path: Path) -> None:
    lock = paths.lock_archive(tmp_path / "archive")
    with pytest.raises(InUseError, match=f"is used by the node of process {os.getpid()}"):
        paths.lock_archive(tmp_path / "archive")
    lock.release()
    paths.lock_archive(tmp_path / "archive").release()


def test_only_the_mark_file_of_the_killed_node_is_removed(tmp_path: Path) -> None:
    mark = tmp_path / "archive-mark.dat"
    with FileLock(tmp_path / paths.ARCHIVE_LOCK) as lock:
        lock.try_acquire()
        lock.write_owner()
    mark.write_bytes(MARK_HEADER.pack(1, 2, 3, os.getpid() + 1))
    paths.lock_archive(tmp_path).release()
    assert mark.exists()
    mark.write_bytes(MARK_HEADER.pack(1, 2, 3, os.getpid()))
    paths.lock_archive(tmp_path).release()
    assert not mark.exists()


def test_a_foreign_driver_is_usable_if_it_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    paths.require_usable_foreign_driver(tmp_path, chosen=True)
    with pytest.raises(SetupError, match="cannot be written"):
        paths.require_usable_foreign_driver(tmp_path / "none", chosen=True)


def test_the_default_directory_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(SetupError, match="belongs to user"):
        paths.require_usable_foreign_driver(tmp_path, chosen=False)
