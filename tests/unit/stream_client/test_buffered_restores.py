"""After a restore of its server, a buffered writer sends kept transactions again, or stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aeron_spark.errors import OptionError, RefusedError
from aeron_spark.stream_client.buffer_folder import BufferFolder
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.session import StreamSession
from tests.unit.stream_client.joined import Client, Copy, World, world_with_stream
from tests.waiting import poll_until

TIMEOUT_S = 30.0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_with_stream(tmp_path / "streams", monkeypatch, 1) as made:
        yield made


def open_writer(world: World, folder: Path, keep_seconds: float = 0.0) -> BufferedWriter:
    client: Any = Client(world)
    session = StreamSession(client, 20.0)
    return BufferedWriter(
        client, session, "s", folder, writer_id="w", payload="raw", partition=0, keep_seconds=keep_seconds
    )


def send(out: BufferedWriter, *numbers: int) -> None:
    """Commit a transaction for each number, and wait until the server has them all."""
    for number in numbers:
        out.write(b"%d" % number)
        assert out.commit() == number
    out.flush(TIMEOUT_S)


def restore(world: World, copy: Copy) -> None:
    world.restore(copy)
    world.end_faults()


def stored(world: World) -> list[int]:
    values = world.committed()
    assert values is not None
    return [int(value) for value in values[0]]


def await_loss(out: BufferedWriter) -> RefusedError:
    """Wait until the writer has noticed that the server was restored."""
    found = poll_until(
        lambda: out.trouble if out.trouble is not None and out.trouble.reason == "diverged" else None, TIMEOUT_S,
        "the writer to notice", state=lambda: repr(out.trouble),
    )  # fmt: skip
    assert isinstance(found, RefusedError)
    return found


def test_nothing_is_sent_until_the_loss_is_accepted(world: World, tmp_path: Path) -> None:
    out = open_writer(world, tmp_path / "b")
    send(out, 0, 1)
    copy = world.copy()
    send(out, 2, 3)
    restore(world, copy)
    out.write(b"4")
    assert out.commit() == 4
    trouble = await_loss(out)
    assert f"transactions 2 to 3 of the buffer {tmp_path / 'b'} were acknowledged and are no longer" in trouble.what
    assert "accept_loss()" in trouble.remedy
    out.write(b"5")  # the folder still takes transactions
    assert out.commit() == 5
    with pytest.raises(RefusedError, match="transactions 2 to 3 of the buffer"):
        out.flush(TIMEOUT_S)
    assert [out.outcome(number) for number in range(6)] == [*["acknowledged"] * 2, *["diverged"] * 2, *["buffered"] * 2]
    assert (out.unsent, stored(world)) == (2, [0, 1])
    out.accept_loss()
    out.flush(TIMEOUT_S)
    assert stored(world) == [0, 1, 4, 5]
    assert out.trouble is None
    out.close()

    out = open_writer(world, tmp_path / "b")
    assert [out.outcome(number) for number in range(6)] == [
        *["acknowledged"] * 2, *["diverged"] * 2, *["acknowledged"] * 2,
    ]  # fmt: skip
    send(out, 6)
    assert stored(world) == [0, 1, 4, 5, 6]
    out.close()


def test_a_loss_is_noticed_after_a_restart_of_the_program(world: World, tmp_path: Path) -> None:
    """Also if another writer has added more transactions to the restored stream than were lost."""
    out = open_writer(world, tmp_path / "b")
    send(out, 0)
    copy = world.copy()
    send(out, 1)
    out.close()
    restore(world, copy)
    other = open_other_writer(world, tmp_path / "other")
    for number in (100, 101, 102):
        other.write(b"%d" % number)
        other.commit()
    other.flush(TIMEOUT_S)
    other.close()
    out = open_writer(world, tmp_path / "b")
    out.write(b"2")
    out.commit()
    assert "transaction 1 of the buffer" in await_loss(out).what
    out.close()

    out = open_writer(world, tmp_path / "b")  # the loss was not accepted: it is reported again
    await_loss(out)
    out.accept_loss()
    out.flush(TIMEOUT_S)
    assert stored(world) == [0, 100, 101, 102, 2]
    out.close()


def open_other_writer(world: World, folder: Path) -> BufferedWriter:
    client: Any = Client(world)
    return BufferedWriter(
        client, StreamSession(client, 20.0), "s", folder, writer_id="other", payload="raw", partition=0
    )


def test_kept_transactions_are_sent_again_once(world: World, tmp_path: Path) -> None:
    out = open_writer(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 0, 1)
    copy = world.copy()
    send(out, 2, 3)
    for _ in range(2):  # the same copy can be restored more than once
        restore(world, copy)
        send(out, out.last + 1)
        assert stored(world) == list(range(out.last + 1))
        assert out.trouble is None
        assert out.acknowledged == out.last
    out.close()
    restore(world, copy)
    out = open_writer(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 6)
    assert stored(world) == list(range(7))
    out.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_a_copy_of_a_history_that_was_left_gets_the_kept_transactions_that_it_lacks(
    world: World, tmp_path: Path, reopened: bool
) -> None:
    """It has transactions of the writer from after the copy that was restored first: they are not written twice."""
    folder = tmp_path / "b"
    out = open_writer(world, folder, keep_seconds=3600.0)
    send(out, 0, 1)
    monday = world.copy()
    send(out, 2, 3)
    tuesday = world.copy()
    restore(world, monday)
    send(out, 4, 5)
    assert stored(world) == list(range(6))
    if reopened:
        out.close()
    restore(world, tuesday)
    if reopened:
        out = open_writer(world, folder, keep_seconds=3600.0)
    send(out, 6)
    assert stored(world) == list(range(7))
    assert [out.outcome(number) for number in range(7)] == ["acknowledged"] * 7
    out.close()


def test_transactions_that_were_kept_too_briefly_are_lost_and_the_others_sent_again(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    out = open_writer(world, folder, keep_seconds=3600.0)
    send(out, 0)
    copy = world.copy()
    send(out, 1, 2)
    for number in (0, 1):
        os.utime(folder / f"{number:020d}.kept", (0, 0))
    send(out, 3)
    assert sorted(path.name for path in folder.glob("*.kept")) == [f"{number:020d}.kept" for number in (2, 3)]
    restore(world, copy)
    out.write(b"4")
    out.commit()
    assert "transaction 1 of the buffer" in await_loss(out).what
    assert [out.outcome(number) for number in range(5)] == [
        "acknowledged", "diverged", "acknowledged", "acknowledged", "buffered",
    ]  # fmt: skip
    out.accept_loss()
    out.flush(TIMEOUT_S)
    assert stored(world) == [0, 2, 3, 4]
    assert out.outcome(1) == "diverged"
    out.close()


def test_a_copy_without_the_writers_transactions_is_noticed(world: World, tmp_path: Path) -> None:
    copy = world.copy()
    out = open_writer(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 0, 1)
    restore(world, copy)
    send(out, 2)
    assert stored(world) == [0, 1, 2]
    out.close()


def test_a_program_killed_during_send_again_repeats_it_after_a_restart(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are renamed one by one; the file with the last acknowledgement is changed last."""
    folder = tmp_path / "b"
    out = open_writer(world, folder, keep_seconds=3600.0)
    send(out, 0)
    copy = world.copy()
    send(out, 1, 2)
    out.close()
    restore(world, copy)
    buffer = BufferFolder(folder, "s", "w", keep_seconds=3600.0)
    with monkeypatch.context() as patched:
        patched.setattr(BufferFolder, "_confirm", killed)
        with pytest.raises(KeyboardInterrupt):
            buffer.send_again_from(1, 0, "")
    buffer._lock.release()
    assert sorted(path.suffix for path in folder.glob("0*")) == [".kept", ".sending", ".sending", ".sent"]
    out = open_writer(world, folder, keep_seconds=3600.0)
    send(out, 3)
    assert stored(world) == [0, 1, 2, 3]
    out.close()


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_accepting_a_loss_after_a_newer_restore_loses_nothing(world: World, tmp_path: Path) -> None:
    """The operator restores a newer copy before the program accepts the loss."""
    out = open_writer(world, tmp_path / "b")
    send(out, 0)
    older = world.copy()
    send(out, 1)
    newer = world.copy()
    restore(world, older)
    out.write(b"2")
    out.commit()
    await_loss(out)
    restore(world, newer)
    out.accept_loss()
    out.flush(TIMEOUT_S)
    assert stored(world) == [0, 1, 2]
    assert [out.outcome(number) for number in range(3)] == ["acknowledged"] * 3
    out.close()


def test_accepting_without_a_loss_does_not_accept_a_later_one(world: World, tmp_path: Path) -> None:
    out = open_writer(world, tmp_path / "b")
    send(out, 0)
    copy = world.copy()
    send(out, 1)
    out.accept_loss()
    restore(world, copy)
    out.write(b"2")
    out.commit()
    await_loss(out)
    assert stored(world) == [0]
    out.close()


def test_a_folder_without_a_stamp_is_accepted_once(world: World, tmp_path: Path) -> None:
    """In an earlier release the file of the last sent transaction was empty."""
    folder = tmp_path / "b"
    out = open_writer(world, folder)
    send(out, 0, 1)
    out.close()
    (folder / f"{1:020d}.sent").write_bytes(b"")
    out = open_writer(world, folder)
    assert out.acknowledged == 1
    send(out, 2)
    copy = world.copy()
    send(out, 3)
    restore(world, copy)
    out.write(b"4")
    out.commit()
    await_loss(out)
    out.close()


@pytest.mark.parametrize("wrong", ["soon", "-1h", -1, "24 hours"])
def test_an_invalid_keep_sent_is_refused(wrong: str | float) -> None:
    from aeron_spark.client.client import _parse_seconds

    with pytest.raises(OptionError, match="keep_sent must be a duration of 0 or more"):
        _parse_seconds("keep_sent", wrong)
    assert [_parse_seconds("keep_sent", right) for right in ("24h", 60, "0", 0.0)] == [86400.0, 60.0, 0.0, 0.0]
