"""The mark in the archive's folder tells a journal of another time from the one that the archive belongs to."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aeron_spark.errors import DataLossError, TransportError
from aeron_spark.streams.archive_mark import FOLDER, ArchiveMark
from aeron_spark.streams.definition import Definition

DEFINITION = Definition("flights", 1, (1_100_000_000,), 1 << 16, created_ns=255)


def mark(folder: Path) -> ArchiveMark:
    return ArchiveMark(str(folder), DEFINITION)


def older(folder: Path, epoch: int, transactions: int) -> str:
    """What is wrong with a journal that ends so."""
    with pytest.raises(DataLossError) as caught:
        mark(folder).check(epoch, transactions)
    assert "copies of one time" in caught.value.remedy
    return caught.value.what


def test_a_journal_of_the_same_time_is_accepted_at_each_step_of_an_opening(tmp_path: Path) -> None:
    """A kill may come between the mark and the journal."""
    mark(tmp_path).check(0, 0)  # there is none yet
    for before, epoch, transactions in ((0, 7, 0), (7, 9, 5)):
        mark(tmp_path).announce(epoch, before, transactions)
        for newest in (before, epoch):
            mark(tmp_path).check(newest, transactions)
        mark(tmp_path).confirm(epoch, transactions)
        mark(tmp_path).check(epoch, transactions)
        mark(tmp_path).check(epoch, transactions + 3)


def test_an_older_journal_is_refused(tmp_path: Path) -> None:
    """Also one whose last epoch is the one before, as a copy that was made before the last opening has it."""
    mark(tmp_path).confirm(7, 0)
    one = mark(tmp_path)
    one.check(7, 4)
    one.update(4)
    one.announce(9, 7, 4)
    assert "has 3 transactions and epoch 0000000000000007" in older(tmp_path, 7, 3)
    one.confirm(9, 4)
    one.update(6)
    for epoch, transactions in ((0, 0), (7, 4), (9, 5)):
        what = older(tmp_path, epoch, transactions)
        assert "the journal of stream 'flights' is older than its archive" in what
        assert "at least 6 transactions and epoch 0000000000000009" in what


def test_an_older_archive_is_refused(tmp_path: Path) -> None:
    mark(tmp_path).confirm(7, 4)
    assert "the archive of stream 'flights' is older than its journal" in older(tmp_path, 9, 6)


def test_the_remedy_names_the_file_whose_removal_gives_up_the_rest(tmp_path: Path) -> None:
    mark(tmp_path).confirm(7, 4)
    with pytest.raises(DataLossError) as caught:
        mark(tmp_path).check(0, 0)
    path = tmp_path / FOLDER / "flights-ff.json"
    assert f"remove {path} and restart the server" in caught.value.remedy
    path.unlink()
    mark(tmp_path).check(0, 0)


def test_a_note_is_written_where_there_is_something_new(tmp_path: Path) -> None:
    one = mark(tmp_path)
    one.update(5)  # of an opening that has changed nothing
    assert not one.path.exists()
    one.confirm(7, 5)
    written = one.path.stat().st_ino
    one.update(5)
    assert one.path.stat().st_ino == written
    one.update(6)
    assert one.path.stat().st_ino != written
    one.remove()
    one.remove()
    assert not one.path.exists()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"v":1,"epoch":-1}', b"\xff"])
def test_a_mark_that_cannot_be_read_is_logged_and_ignored(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    mark(tmp_path).confirm(7, 4)
    mark(tmp_path).path.write_bytes(text)
    with caplog.at_level(logging.WARNING, "aeron_spark.streams"):
        mark(tmp_path).check(0, 0)
    assert "cannot be read, and is ignored" in caplog.text


def test_without_the_archives_folder_on_this_machine_there_is_no_mark(tmp_path: Path) -> None:
    one = mark(tmp_path / "elsewhere")
    one.announce(7, 0, 0)
    one.confirm(7, 0)
    one.check(0, 0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_mark_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_bytes(b"")
    with pytest.raises(TransportError, match=r"flights-ff\.json cannot be written"):
        mark(tmp_path).announce(7, 0, 0)
