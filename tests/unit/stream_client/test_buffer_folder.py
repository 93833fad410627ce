"""The folder of a buffered writer: whole transactions in order, whatever a crash leaves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError, TransportError, UsageError
from aeron_spark.stream_client.buffer_folder import BufferedTransaction, BufferFolder
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch

PIECES = [
    WriteBatch("arrow", pa.record_batch({"n": [1, 2, 3], "text": ["a", None, "c"]})),
    WriteBatch(BYTES, pa.record_batch({"value": [b"", b"x" * 1001]}), 3),
    WriteBatch("raw", pa.record_batch({"value": [b"a"], "reservedValue": [7]}), 0),
]


def opened(folder: Path) -> BufferFolder:
    return BufferFolder(folder, "flights", "edge-7")


def filled(folder: Path, count: int) -> BufferFolder:
    unsent = opened(folder)
    for _ in range(count):
        for piece in PIECES:
            unsent.add(piece)
        unsent.commit()
    return unsent


def names(folder: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in folder.iterdir() if path.name[0] == "0")


def first(unsent: BufferFolder) -> BufferedTransaction:
    found = unsent.first()
    assert found is not None
    return found


def test_what_is_committed_is_read_as_it_was(tmp_path: Path) -> None:
    unsent = filled(tmp_path / "deep" / "b", 2)
    assert len(unsent) == 2
    assert unsent.size_bytes == sum(path.stat().st_size for path in (tmp_path / "deep" / "b").glob("*.unsent"))
    assert list(unsent.read(first(unsent))) == PIECES
    unsent.close()
    again = opened(tmp_path / "deep" / "b")
    assert list(again.read(first(again))) == PIECES
    again.close()


def test_states_follow_each_other_and_numbers_go_on(tmp_path: Path) -> None:
    unsent = filled(tmp_path, 2)
    assert unsent.base is None
    unsent.set_base(42)
    one = first(unsent)
    unsent.mark_sending(one)
    assert names(tmp_path) == [".sending", "1.unsent"]
    for _ in range(2):
        unsent.mark_sending(first(unsent))
        unsent.mark_sent(first(unsent), "a stamp")
    assert names(tmp_path) == ["1.sent"]
    unsent.close()
    again = filled(tmp_path, 1)
    assert again.confirmed == (43, "a stamp")
    assert (again.base, first(again).number, names(tmp_path)) == (42, 2, ["1.sent", "2.unsent"])
    again.close()


def test_a_draft_is_no_transaction_and_what_was_begun_stays_begun(tmp_path: Path) -> None:
    unsent = filled(tmp_path, 1)
    unsent.mark_sending(first(unsent))
    unsent.add(PIECES[0])
    (tmp_path / f"{7:020d}.draft").write_bytes(b"of a crash")
    assert unsent._draft is not None
    unsent._draft.close()  # these two as the end of the process does
    unsent._lock.release()
    again = opened(tmp_path)
    assert names(tmp_path) == [".sending"]
    assert first(again).is_sending
    assert list(again.read(first(again))) == PIECES
    again.add(PIECES[0])
    again.drop()
    again.commit()
    assert len(again) == 1
    again.close()


def test_a_crash_between_sent_and_gone_has_it_sent_again(tmp_path: Path) -> None:
    unsent = filled(tmp_path, 1)
    unsent.set_base(0)
    unsent.mark_sending(first(unsent))
    (tmp_path / f"{0:020d}.sent").touch()
    unsent.close()
    again = opened(tmp_path)
    assert first(again) == BufferedTransaction(0, first(again).bytes, is_sending=True)
    again.mark_sent(first(again), "a stamp")
    assert names(tmp_path) == [".sent"]
    again.close()


def test_the_folder_is_one_processes_and_one_streams_and_writers(tmp_path: Path) -> None:
    unsent = opened(tmp_path)
    with pytest.raises(UsageError, match="another process"):
        opened(tmp_path)
    unsent.close()
    with pytest.raises(OptionError, match="of stream 'flights', not 'other'"):
        BufferFolder(tmp_path, "other", "edge-7")
    with pytest.raises(OptionError, match="of writer 'edge-7', not 'edge-8'"):
        BufferFolder(tmp_path, "flights", "edge-8")
    whose = BufferFolder(tmp_path, "flights", "")
    assert whose.writer == "edge-7"
    whose.close()
    (tmp_path / "buffer.json").write_text("{")
    with pytest.raises(DataFormatError, match="is not a buffer's"):
        opened(tmp_path)
    new = BufferFolder(tmp_path / "new", "flights", "")
    assert new.writer.startswith("buffer-")
    new.close()


def test_what_the_disk_lost_is_noticed_before_any_of_it_is_given(tmp_path: Path) -> None:
    unsent = filled(tmp_path, 1)
    path = tmp_path / f"{0:020d}.unsent"
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataFormatError, match="is not the transaction"):
            next(unsent.read(first(unsent)))
    for length in range(1, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(DataFormatError, match="is not the transaction"):
            next(unsent.read(first(unsent)))
    path.write_bytes(whole)
    assert list(unsent.read(first(unsent))) == PIECES
    unsent.close()


def test_a_disk_that_fails_drops_the_draft_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsent = filled(tmp_path, 1)
    unsent.add(PIECES[0])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TransportError, match="No space left"):
        unsent.commit()
    monkeypatch.undo()
    assert names(tmp_path) == [".unsent"]
    assert unsent.draft_bytes == 0
    for call in (unsent.commit, lambda: unsent.add(PIECES[1])):
        with pytest.raises(TransportError, match=r"rows of transaction 1 of the buffer .* are lost"):
            call()
    unsent.drop()
    unsent.add(PIECES[1])
    assert unsent.commit() == 1
    assert names(tmp_path) == [".unsent", "1.unsent"]
    unsent.close()
