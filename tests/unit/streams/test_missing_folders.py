"""The folder of a stream, or of all streams, is gone: before a start, or while the server runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.errors import DataLossError, OptionError, TransportError
from aeron_spark.streams.store import DAMAGED, OK, READ_ONLY, Condition, has_streams
from aeron_spark.wire.stream_requests import NEXT_NUMBER, Transaction
from tests.stream_requests import create_request
from tests.unit.stream_client.recorded import ADDRESS
from tests.unit.streams.simulated_store import PARTITIONS, SEGMENT, Clock, Site


@pytest.fixture
def archive_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@pytest.fixture
def site(archive_dir: Path) -> Iterator[Site]:
    """A store with the stream "s" and two rows."""
    found = Site(address=replace(ADDRESS, archive_dir=str(archive_dir)))
    found.commit({0: [10], 1: [10]})
    yield found
    found.close()


def state(site: Site, name: str = "s") -> str:
    return site.store.condition(name).state


def test_a_stream_whose_folder_is_gone_at_the_start_is_damaged(site: Site, archive_dir: Path) -> None:
    """Regression: the server was ready with 0 streams, 0 damaged, although the mark in the archive named the stream."""
    site.kill()
    shutil.rmtree(site.folder / "s")
    assert has_streams(site.folder, archive_dir)
    site.open()
    (mark,) = (archive_dir / "aeron-spark-streams").iterdir()
    problem = (
        f"the stream is damaged: its folder {site.folder / 's'} is gone, but {mark} in the archive's folder names it"
    )
    assert site.store.names == ["s"]
    assert state(site) == DAMAGED
    assert site.store.condition("s").problem.startswith(problem)
    assert site.problems.damaged == [("s", problem)]
    assert site.store.problem == "the folder of stream 's' is gone"
    with pytest.raises(DataLossError, match="Mount or restore the folder of the streams, then restart the server"):
        site.store.get("s")
    with pytest.raises(OptionError, match="exists already"):
        site.store.create(create_request("s", 1))
    assert len(site.archive.kept) == PARTITIONS


def test_all_streams_of_a_store_are_damaged_if_another_folder_is_mounted(site: Site) -> None:
    site.store.create(create_request("t", 1, segment_bytes=SEGMENT))  # without a change, it has no mark and no rows
    site.kill()
    kept = site.folder.with_name(site.folder.name + "-kept")
    site.folder.rename(kept)
    site.folder.mkdir()
    site.open()
    assert (site.store.names, state(site)) == (["s"], DAMAGED)
    site.store.close()
    shutil.rmtree(site.folder)
    kept.rename(site.folder)
    site.open()
    assert (site.store.names, state(site), site.store.problem) == (["s", "t"], OK, "")
    site.commit({0: [10]})


def test_a_stream_without_a_folder_can_be_given_up(site: Site, archive_dir: Path) -> None:
    site.store.create(create_request("other", 1, segment_bytes=SEGMENT))
    site.kill()
    shutil.rmtree(site.folder / "s")
    site.open()
    site.store.delete("s")
    assert (site.store.names, site.store.problem) == (["other"], "")
    assert list((archive_dir / "aeron-spark-streams").iterdir()) == []
    assert [one.described.stream_id for one in site.archive.kept.values()] == [
        *site.store.get("other").definition.stream_ids
    ]
    site.store.create(create_request("s", 1, segment_bytes=SEGMENT))


def test_streams_of_another_store_deleted_and_renamed_ones_are_not_missing(site: Site, archive_dir: Path) -> None:
    site.store.create(create_request("gone", 1, segment_bytes=SEGMENT))
    site.store.get("gone").begin(Transaction("w", "r", NEXT_NUMBER))
    site.store.delete("gone")
    site.store.rename("s", "renamed")
    other = Site(address=site.address, archive=site.archive, clock=Clock(2_000.0))
    try:
        other.commit({0: [10]})
        site.kill()
        site.open()
        assert (site.store.names, site.store.failed, site.store.problem) == (["renamed"], {}, "")
    finally:
        other.close()


def test_a_missing_stream_whose_name_another_stream_has_is_shown_by_its_mark(site: Site) -> None:
    site.store.rename("s", "renamed")
    site.clock.now += 1
    site.store.create(create_request("s", 1, segment_bytes=SEGMENT))
    site.kill()
    shutil.rmtree(site.folder / "renamed")
    site.open()
    (missing,) = site.store.failed
    assert missing.startswith("s-")
    assert (state(site), state(site, missing)) == (OK, DAMAGED)


def test_a_folder_that_is_removed_under_a_running_server_makes_the_stream_read_only(site: Site) -> None:
    """Regression: all states stayed ok, and commits went into a file that no start would find."""
    away = site.folder / ".away"
    (site.folder / "s").rename(away)
    problem = f"{site.folder / 's' / 'journal'} is not the file any more that the server has opened"
    condition = site.store.condition("s")
    assert isinstance(condition, Condition)
    assert condition.state == READ_ONLY
    assert condition.problem.startswith(problem)
    with pytest.raises(TransportError, match="Mount or restore the folder of the streams, then restart the server"):
        site.commit({0: [10]})
    site.tick()
    site.tick()
    assert [(stream, what.startswith(problem)) for stream, what in site.problems.damaged] == [("s", True)]
    assert [len(site.readable(index)) for index in range(PARTITIONS)] == [1, 1]
    away.rename(site.folder / "s")
    assert state(site) == OK
    site.commit({0: [10]})


def test_a_store_that_is_removed_or_cannot_be_written_has_a_problem(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.store.problem == ""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert site.store.problem == f"the folder {site.folder} of the streams cannot be written"
    monkeypatch.undo()
    away = site.folder.with_name(site.folder.name + "-away")
    site.folder.rename(away)
    assert "was removed or replaced, or a file system is mounted over it" in site.store.problem
    site.folder.mkdir()
    assert "was removed or replaced, or a file system is mounted over it" in site.store.problem
    site.folder.rmdir()
    away.rename(site.folder)
    assert site.store.problem == ""
