from __future__ import annotations

import os
from pathlib import Path

import pytest

from aeron_spark.errors import SetupError
from aeron_spark.node import paths
from aeron_spark.node.settings import MIB, NodeSettings


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return a table of the free bytes of each path, which the test fills."""
    table: dict[str, int] = {}
    monkeypatch.setattr(paths, "space_of", lambda path: paths.Space(str(path), table[str(path)], 10**12))
    return table


SHM, DISK = Path("/dev/shm/node"), Path("/home/node/aeron")


def test_shared_memory_is_used_if_it_is_large_enough(free: dict[str, int]) -> None:
    free[str(SHM)] = paths.required_driver_bytes(NodeSettings())
    assert paths.choose_aeron_dir(SHM, DISK, False, NodeSettings()) == (SHM, "")


def test_the_default_falls_back_to_disk_with_a_warning(free: dict[str, int]) -> None:
    free |= {str(SHM): 64 * MIB, str(DISK): 10**10}
    chosen, warning = paths.choose_aeron_dir(SHM, DISK, False, NodeSettings())
    assert chosen == DISK
    assert "/dev/shm/node has 64 MiB free, and 240 MiB are needed" in warning
    assert "--shm-size" in warning
    small = "'aeron-spark node start --term-length 1MiB --ipc-term-length 1MiB' needs 60 MiB."
    assert warning.endswith(f"both term_length and ipc_term_length: {small}")


def test_the_files_of_a_dead_driver_count_as_free_space(free: dict[str, int], tmp_path: Path) -> None:
    """Regression: another program had filled the memory, and `doctor` counted what the next start removes as used."""
    dead = tmp_path / "driver"
    (dead / "publications").mkdir(parents=True)
    (dead / "publications" / "1.logbuffer").write_bytes(bytes(2 * MIB))
    free[str(dead)] = paths.required_driver_bytes(NodeSettings()) - 2 * MIB
    assert paths.choose_aeron_dir(dead, DISK, True, NodeSettings()) == (dead, "")
    free[str(dead)] -= MIB
    with pytest.raises(SetupError, match="239 MiB free, and 240 MiB are needed"):
        paths.choose_aeron_dir(dead, DISK, True, NodeSettings())


def test_a_chosen_directory_does_not_fall_back(free: dict[str, int]) -> None:
    free |= {str(SHM): 64 * MIB, str(DISK): 10**10}
    with pytest.raises(SetupError, match=r"64 MiB free, and 240 MiB are needed\. Enlarge it"):
        paths.choose_aeron_dir(SHM, DISK, True, NodeSettings())


def test_the_error_of_two_full_file_systems_names_both(free: dict[str, int]) -> None:
    free |= {str(SHM): 1 * MIB, str(DISK): 2 * MIB}
    with pytest.raises(SetupError, match=r"/dev/shm/node has 1 MiB.*/home/node/aeron has 2 MiB"):
        paths.choose_aeron_dir(SHM, DISK, False, NodeSettings())


def test_smaller_terms_need_less() -> None:
    small = NodeSettings(term_length=MIB, ipc_term_length=MIB)
    assert paths.required_driver_bytes(small) == 60 * MIB


def test_an_archive_needs_space_for_two_segments(free: dict[str, int]) -> None:
    free["/a"] = 2 * 128 * MIB + MIB
    paths.check_archive_space(Path("/a"), NodeSettings())
    free["/a"] -= 1
    with pytest.raises(SetupError, match=r"archive's directory /a has 25\d MiB free, and 257 MiB are needed"):
        paths.check_archive_space(Path("/a"), NodeSettings())
    assert paths.check_archive_space(Path("/a"), NodeSettings(archive=False)) == ""


def test_an_archive_with_recordings_starts_with_less_and_a_warning(free: dict[str, int], tmp_path: Path) -> None:
    """Regression: with less than 33 MiB free, a killed node was not started again, so that nothing could be purged."""
    (tmp_path / "archive.catalog").write_bytes(b"")
    settings = NodeSettings(segment_length=MIB)
    free[str(tmp_path)] = 33 * MIB
    assert paths.check_archive_space(tmp_path, settings) == ""
    free[str(tmp_path)] = 8 * MIB
    warning = paths.check_archive_space(tmp_path, settings)
    assert warning.startswith(
        f"the archive's directory {tmp_path} has 8 MiB free, and 33 MiB are needed: recordings can"
    )
    assert warning.endswith("Free some space on this disk.")


def test_the_space_of_a_missing_directory_is_that_of_its_parent(tmp_path: Path) -> None:
    found = paths.space_of(tmp_path / "not" / "there" / "yet")
    assert found.free > 0
    assert found.path == str(tmp_path / "not" / "there" / "yet")


def test_what_sparse_files_may_still_take_is_not_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "space_of", lambda path: paths.Space(str(path), 100 * MIB, 200 * MIB))
    (tmp_path / "images").mkdir()
    with (tmp_path / "images" / "1.logbuffer").open("wb") as log:
        log.truncate(6 * MIB)
        log.write(bytes(MIB))
        log.flush()
        os.fsync(log.fileno())
        assert paths.driver_space(tmp_path).free == 95 * MIB
    assert paths.driver_space(tmp_path / "missing").free == 100 * MIB
