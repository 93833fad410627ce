"""Tests of the mark in the archive's folder, which detects a journal of another time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aeron_spark.errors import DataLossError, TransportError
from aeron_spark.streams.archive_mark import MARKS_FOLDER, ArchiveMark
from aeron_spark.streams.definition import Definition

DEFINITION = Definition("flights", 1, (1_100_000_000,), 1 << 16, created_ns=255)


def mark(folder: Path) -> ArchiveMark:
    return ArchiveMark(str(folder), DEFINITION)


def text_of_error(folder: Path, epoch: int, transactions: int) -> str:
    """Return the text of the error for a journal with this epoch and number of transactions."""
    with pytest.raises(DataLossError) as caught:
        mark(folder).check(epoch, transactions)
    assert "copies of one time" in caught.value.remedy
    return caught.value.what


def test_a_journal_of_the_same_time_is_accepted_at_each_step_of_an_opening(tmp_path: Path) -> None:
    """A kill may come between the mark and the journal."""
    mark(tmp_path).check(0, 0)  # without a mark
    for before, epoch, transactions in ((0, 7, 0), (7, 9, 5)):
        mark(tmp_path).announce(epoch, before, transactions)
        for newest in (before, epoch):
            mark(tmp_path).check(newest, transactions)
        mark(tmp_path).confirm(epoch, transactions)
        mark(tmp_path).check(epoch, transactions)
        mark(tmp_path).check(epoch, transactions + 3)


def test_an_older_journal_is_refused(tmp_path: Path) -> None:
    """The same for a journal without the last epoch: a copy that was made before the last opening."""
    mark(tmp_path).confirm(7, 0)
    archive_mark = mark(tmp_path)
    archive_mark.check(7, 4)
    archive_mark.update(4)
    archive_mark.announce(9, 7, 4)
    assert "has 3 transactions and epoch 0000000000000007" in text_of_error(tmp_path, 7, 3)
    archive_mark.confirm(9, 4)
    archive_mark.update(6)
    for epoch, transactions in ((0, 0), (7, 4), (9, 5)):
        what = text_of_error(tmp_path, epoch, transactions)
        assert "the journal of stream 'flights' is older than its archive" in what
        assert "at least 6 transactions and epoch 0000000000000009" in what


def test_an_older_archive_is_refused(tmp_path: Path) -> None:
    mark(tmp_path).confirm(7, 4)
    assert "the archive of stream 'flights' is older than its journal" in text_of_error(tmp_path, 9, 6)


def test_the_remedy_names_the_file_to_remove(tmp_path: Path) -> None:
    mark(tmp_path).confirm(7, 4)
    with pytest.raises(DataLossError) as caught:
        mark(tmp_path).check(0, 0)
    path = tmp_path / MARKS_FOLDER / "flights-ff.json"
    assert f"remove {path} and restart the server" in caught.value.remedy
    path.unlink()
    mark(tmp_path).check(0, 0)


def test_an_update_writes_the_file_only_if_the_number_changed(tmp_path: Path) -> None:
    archive_mark = mark(tmp_path)
    archive_mark.update(5)  # before the first change of an opening
    assert not archive_mark.path.exists()
    archive_mark.confirm(7, 5)
    written = archive_mark.path.stat().st_ino
    archive_mark.update(5)
    assert archive_mark.path.stat().st_ino == written
    archive_mark.update(6)
    assert archive_mark.path.stat().st_ino != written
    archive_mark.remove()
    archive_mark.remove()
    assert not archive_mark.path.exists()


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{}", b'{"v":1,"epoch":-1}', b"\xff"),
        b'{"v":1,"epoch":18446744073709551616,"before":0,"begun":true,"transactions":0}',
        b'{"v":1,"epoch":1,"before":0,"begun":true,"transactions":9223372036854775808}',
    ],
)
def test_an_unreadable_mark_is_logged_and_ignored(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    mark(tmp_path).confirm(7, 4)
    mark(tmp_path).path.write_bytes(text)
    with caplog.at_level(logging.WARNING, "aeron_spark.streams"):
        mark(tmp_path).check(0, 0)
    assert "its mark is ignored: " in caplog.text


def test_no_mark_is_written_without_the_archives_folder(tmp_path: Path) -> None:
    archive_mark = mark(tmp_path / "elsewhere")
    archive_mark.announce(7, 0, 0)
    archive_mark.confirm(7, 0)
    archive_mark.check(0, 0)
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_write_of_the_mark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / MARKS_FOLDER).write_bytes(b"")
    with pytest.raises(TransportError, match=r"flights-ff\.json cannot be written"):
        mark(tmp_path).announce(7, 0, 0)
