"""The folder of a buffered writer: complete transactions in order, also after a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError, TransportError, UsageError
from aeron_spark.stream_client.buffer_folder import BufferedTransaction, BufferFolder
from aeron_spark.stream_client.row_input import BYTES, WriteBatch

BATCHES = [
    WriteBatch("arrow", pa.record_batch({"n": [1, 2, 3], "text": ["a", None, "c"]})),
    WriteBatch(BYTES, pa.record_batch({"value": [b"", b"x" * 1001]}), 3),
    WriteBatch("raw", pa.record_batch({"value": [b"a"], "reservedValue": [7]}), 0),
]


def open_folder(folder: Path) -> BufferFolder:
    return BufferFolder(folder, "flights", "edge-7")


def folder_with(folder: Path, count: int) -> BufferFolder:
    buffer = open_folder(folder)
    for _ in range(count):
        for batch in BATCHES:
            buffer.add(batch)
        buffer.commit()
    return buffer


def file_names(folder: Path) -> list[str]:
    return sorted(path.name.lstrip("0") for path in folder.iterdir() if path.name[0] == "0")


def first(buffer: BufferFolder) -> BufferedTransaction:
    found = buffer.first()
    assert found is not None
    return found


def test_a_committed_transaction_is_read_unchanged(tmp_path: Path) -> None:
    buffer = folder_with(tmp_path / "deep" / "b", 2)
    assert len(buffer) == 2
    assert buffer.size_bytes == sum(path.stat().st_size for path in (tmp_path / "deep" / "b").glob("*.unsent"))
    assert list(buffer.read(first(buffer))) == BATCHES
    buffer.close()
    again = open_folder(tmp_path / "deep" / "b")
    assert list(again.read(first(again))) == BATCHES
    again.close()


def test_files_pass_through_their_states_and_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    buffer = folder_with(tmp_path, 2)
    assert buffer.base is None
    buffer.set_base(42)
    transaction = first(buffer)
    buffer.mark_sending(transaction)
    assert file_names(tmp_path) == [".sending", "1.unsent"]
    for _ in range(2):
        buffer.mark_sending(first(buffer))
        buffer.mark_sent(first(buffer), "a stamp", "")
    assert file_names(tmp_path) == ["1.sent"]
    buffer.close()
    again = folder_with(tmp_path, 1)
    assert again.confirmed == (43, "a stamp")
    assert (again.base, first(again).number, file_names(tmp_path)) == (42, 2, ["1.sent", "2.unsent"])
    again.close()


def test_a_draft_is_removed_at_a_restart_and_a_file_that_is_sending_stays(tmp_path: Path) -> None:
    buffer = folder_with(tmp_path, 1)
    buffer.mark_sending(first(buffer))
    buffer.add(BATCHES[0])
    (tmp_path / f"{7:020d}.draft").write_bytes(b"left by a crash")
    assert buffer._draft is not None
    buffer._draft.close()  # the end of the process closes the file and the lock
    buffer._lock.release()
    again = open_folder(tmp_path)
    assert file_names(tmp_path) == [".sending"]
    assert first(again).is_sending
    assert list(again.read(first(again))) == BATCHES
    again.add(BATCHES[0])
    again.drop()
    again.commit()
    assert len(again) == 1
    again.close()


def test_a_transaction_is_sent_again_after_a_crash_before_its_file_was_removed(tmp_path: Path) -> None:
    buffer = folder_with(tmp_path, 1)
    buffer.set_base(0)
    buffer.mark_sending(first(buffer))
    (tmp_path / f"{0:020d}.sent").touch()
    buffer.close()
    again = open_folder(tmp_path)
    assert first(again) == BufferedTransaction(0, first(again).bytes, is_sending=True)
    again.mark_sent(first(again), "a stamp", "")
    assert file_names(tmp_path) == [".sent"]
    again.close()


def test_a_folder_is_refused_to_a_second_process_stream_or_writer(tmp_path: Path) -> None:
    buffer = open_folder(tmp_path)
    with pytest.raises(UsageError, match="this process has another writer"):
        open_folder(tmp_path)
    buffer.close()
    with pytest.raises(OptionError, match="of stream 'flights', not 'other'"):
        BufferFolder(tmp_path, "other", "edge-7")
    with pytest.raises(OptionError, match="of writer 'edge-7', not 'edge-8'"):
        BufferFolder(tmp_path, "flights", "edge-8")
    without_writer = BufferFolder(tmp_path, "flights", "")
    assert without_writer.writer == "edge-7"
    without_writer.close()
    (tmp_path / "buffer.json").write_text("{")
    with pytest.raises(DataFormatError, match="is not a buffer's"):
        open_folder(tmp_path)
    new = BufferFolder(tmp_path / "new", "flights", "")
    assert new.writer.startswith("buffer-")
    new.close()


def test_a_damaged_file_is_refused_before_its_first_batch(tmp_path: Path) -> None:
    buffer = folder_with(tmp_path, 1)
    path = tmp_path / f"{0:020d}.unsent"
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DataFormatError, match="is not the transaction"):
            next(buffer.read(first(buffer)))
    for length in range(1, len(data), 101):
        path.write_bytes(data[:length])
        with pytest.raises(DataFormatError, match="is not the transaction"):
            next(buffer.read(first(buffer)))
    path.write_bytes(data)
    assert list(buffer.read(first(buffer))) == BATCHES
    buffer.close()


def test_a_failed_commit_loses_only_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = folder_with(tmp_path, 1)
    buffer.add(BATCHES[0])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TransportError, match="No space left"):
        buffer.commit()
    monkeypatch.undo()
    assert file_names(tmp_path) == [".unsent"]
    assert buffer.draft_bytes == 0
    for call in (buffer.commit, lambda: buffer.add(BATCHES[1])):
        with pytest.raises(TransportError, match=r"rows of transaction 1 of the buffer .* are lost"):
            call()
    buffer.drop()
    buffer.add(BATCHES[1])
    assert buffer.commit() == 1
    assert file_names(tmp_path) == [".unsent", "1.unsent"]
    buffer.close()


def commit(buffer: BufferFolder, token: str, *batches: WriteBatch) -> int:
    for batch in batches:
        buffer.add(batch)
    return buffer.commit(token)


def send_first(buffer: BufferFolder) -> None:
    buffer.mark_sending(first(buffer))
    buffer.mark_sent(first(buffer), "a stamp", buffer.read(first(buffer)).token)


def reopened(buffer: BufferFolder) -> BufferFolder:
    buffer.close()
    return open_folder(buffer.path)


def test_the_last_token_is_known_before_and_after_its_transaction_was_sent(tmp_path: Path) -> None:
    buffer = open_folder(tmp_path)
    assert buffer.last_token == ""
    assert commit(buffer, "row 3", *BATCHES) == 0
    assert commit(buffer, "row 7 ö", BATCHES[0]) == 1
    buffer = reopened(buffer)
    buffer.set_base(0)
    found = buffer.read(first(buffer))
    assert (found.token, list(found)) == ("row 3", BATCHES)
    for _ in range(2):
        assert (buffer.last, buffer.last_token) == (1, "row 7 ö")
        send_first(buffer)
        buffer = reopened(buffer)
    assert (file_names(tmp_path), len(buffer)) == (["1.sent"], 0)
    assert (buffer.last, buffer.last_token) == (1, "row 7 ö")
    assert commit(buffer, "", BATCHES[0]) == 2
    assert buffer.last_token == ""
    assert reopened(buffer).last_token == ""


def test_a_token_without_rows_makes_a_transaction(tmp_path: Path) -> None:
    buffer = open_folder(tmp_path)
    assert [buffer.commit(), buffer.commit("end"), buffer.commit()] == [-1, 0, -1]
    buffer = reopened(buffer)
    assert (buffer.last_token, list(buffer.read(first(buffer)))) == ("end", [])
    buffer.close()


def test_a_token_is_on_the_disk_before_its_transactions_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may lose what was not synced, but not the removal."""
    buffer = open_folder(tmp_path)
    commit(buffer, "row 3", BATCHES[0])
    buffer.set_base(0)
    events, sync, unlink = [], os.fsync, Path.unlink

    def note_sync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path)).lstrip("/0"))
        sync(descriptor)

    def note_removal(path: Path, missing_ok: bool = False) -> None:
        events.append(f"removed {path.name.lstrip('0')}")
        unlink(path, missing_ok)

    buffer.mark_sending(first(buffer))
    monkeypatch.setattr("os.fsync", note_sync)
    monkeypatch.setattr(Path, "unlink", note_removal)
    buffer.mark_sent(first(buffer), "a stamp", "row 3")
    assert events == [".sent.new", "", "removed .sending"]
    buffer.close()


def test_the_token_of_a_damaged_file_is_not_given(tmp_path: Path) -> None:
    buffer = open_folder(tmp_path)
    commit(buffer, "row 3", BATCHES[0])
    path = tmp_path / f"{0:020d}.unsent"
    path.write_bytes(path.read_bytes().replace(b"row 3", b"row 4"))
    again = reopened(buffer)
    with pytest.raises(DataFormatError, match="is not the transaction that was written"):
        _ = again.last_token
    again.close()


def test_a_loss_on_the_server_does_not_change_the_last_token(tmp_path: Path) -> None:
    buffer = BufferFolder(tmp_path, "flights", "edge-7", keep_seconds=60.0)
    buffer.set_base(0)
    for number in range(2):
        commit(buffer, f"row {number}", BATCHES[0])
        send_first(buffer)
    assert buffer.send_again_from(1, 0, "another stamp") == 1
    buffer = reopened(buffer)
    assert (len(buffer), buffer.last, buffer.last_token) == (1, 1, "row 1")
    send_first(buffer)
    assert buffer.send_again_from(1, 0, "another stamp") == 0  # it is lost now
    buffer = reopened(buffer)
    assert (buffer.outcome(1), buffer.last, buffer.last_token) == ("diverged", 1, "row 1")
    buffer.close()
