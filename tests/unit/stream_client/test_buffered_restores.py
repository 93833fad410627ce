"""Finding C3: a buffered writer whose server was restored from an older copy sends again what it kept, or stops."""

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
from tests.unit.stream_client.joined import Client, Copy, World
from tests.waiting import look_for

SECONDS = 30.0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path / "streams", monkeypatch)
    assert made.server is not None
    made.server.store.create("s", 1, term_bytes=1 << 16)
    yield made
    made.close()


def opened(world: World, folder: Path, keep_seconds: float = 0.0) -> BufferedWriter:
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
    out.flush(SECONDS)


def restore(world: World, copy: Copy) -> None:
    world.restore(copy)
    world.calm()


def stored(world: World) -> list[int]:
    values = world.committed()
    assert values is not None
    return [int(value) for value in values[0]]


def await_loss(out: BufferedWriter) -> RefusedError:
    """Wait until the writer has noticed that the server was restored."""
    found = look_for(
        lambda: out.trouble if out.trouble is not None and out.trouble.reason == "diverged" else None, SECONDS,
        "the writer to notice", state=lambda: repr(out.trouble),
    )  # fmt: skip
    assert isinstance(found, RefusedError)
    return found


def test_nothing_is_sent_until_the_loss_is_accepted(world: World, tmp_path: Path) -> None:
    out = opened(world, tmp_path / "b")
    send(out, 0, 1)
    copy = world.copy()
    send(out, 2, 3)
    restore(world, copy)
    out.write(b"4")
    assert out.commit() == 4
    trouble = await_loss(out)
    assert f"transactions 2 to 3 of the buffer {tmp_path / 'b'} were acknowledged and are no longer" in trouble.what
    assert "accept_loss()" in trouble.remedy
    out.write(b"5")  # the folder takes transactions all the same
    assert out.commit() == 5
    with pytest.raises(RefusedError, match="transactions 2 to 3 of the buffer"):
        out.flush(SECONDS)
    assert [out.outcome(number) for number in range(6)] == [*["acknowledged"] * 2, *["diverged"] * 2, *["buffered"] * 2]
    assert (out.unsent, stored(world)) == (2, [0, 1])
    out.accept_loss()
    out.flush(SECONDS)
    assert stored(world) == [0, 1, 4, 5]
    assert out.trouble is None
    out.close()

    out = opened(world, tmp_path / "b")
    assert [out.outcome(number) for number in range(6)] == [
        *["acknowledged"] * 2, *["diverged"] * 2, *["acknowledged"] * 2,
    ]  # fmt: skip
    send(out, 6)
    assert stored(world) == [0, 1, 4, 5, 6]
    out.close()


def test_the_loss_is_noticed_after_a_restart_of_the_program_too(world: World, tmp_path: Path) -> None:
    """Also where the restored stream has grown past what was acknowledged, by another writer."""
    out = opened(world, tmp_path / "b")
    send(out, 0)
    copy = world.copy()
    send(out, 1)
    out.close()
    restore(world, copy)
    other = opened_other(world, tmp_path / "other")
    for number in (100, 101, 102):
        other.write(b"%d" % number)
        other.commit()
    other.flush(SECONDS)
    other.close()
    out = opened(world, tmp_path / "b")
    out.write(b"2")
    out.commit()
    assert "transaction 1 of the buffer" in await_loss(out).what
    out.close()

    out = opened(world, tmp_path / "b")  # what is not accepted is asked about again
    await_loss(out)
    out.accept_loss()
    out.flush(SECONDS)
    assert stored(world) == [0, 100, 101, 102, 2]
    out.close()


def opened_other(world: World, folder: Path) -> BufferedWriter:
    client: Any = Client(world)
    return BufferedWriter(
        client, StreamSession(client, 20.0), "s", folder, writer_id="other", payload="raw", partition=0
    )


def test_what_is_kept_is_sent_again_once(world: World, tmp_path: Path) -> None:
    out = opened(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 0, 1)
    copy = world.copy()
    send(out, 2, 3)
    for _ in range(2):  # the same copy may come back more than once
        restore(world, copy)
        send(out, out.last + 1)
        assert stored(world) == list(range(out.last + 1))
        assert out.trouble is None
        assert out.acknowledged == out.last
    out.close()
    restore(world, copy)
    out = opened(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 6)
    assert stored(world) == list(range(7))
    out.close()


def test_what_was_kept_for_too_short_a_time_is_lost_and_the_rest_is_sent_again(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    out = opened(world, folder, keep_seconds=3600.0)
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
    out.flush(SECONDS)
    assert stored(world) == [0, 2, 3, 4]
    assert out.outcome(1) == "diverged"
    out.close()


def test_a_copy_without_anything_of_the_writer_is_noticed(world: World, tmp_path: Path) -> None:
    copy = world.copy()
    out = opened(world, tmp_path / "b", keep_seconds=3600.0)
    send(out, 0, 1)
    restore(world, copy)
    send(out, 2)
    assert stored(world) == [0, 1, 2]
    out.close()


def test_a_program_killed_while_it_goes_back_has_it_done_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are renamed one by one; the note of what the server acknowledged is changed last."""
    folder = tmp_path / "b"
    out = opened(world, folder, keep_seconds=3600.0)
    send(out, 0)
    copy = world.copy()
    send(out, 1, 2)
    out.close()
    restore(world, copy)
    unsent = BufferFolder(folder, "s", "w", keep_seconds=3600.0)
    with monkeypatch.context() as patched:
        patched.setattr(BufferFolder, "_confirm", killed)
        with pytest.raises(KeyboardInterrupt):
            unsent.send_again_from(1, 0, "")
    unsent._lock.release()
    assert sorted(path.suffix for path in folder.glob("0*")) == [".kept", ".sending", ".sending", ".sent"]
    out = opened(world, folder, keep_seconds=3600.0)
    send(out, 3)
    assert stored(world) == [0, 1, 2, 3]
    out.close()


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_loss_that_is_over_when_it_is_accepted_is_no_loss(world: World, tmp_path: Path) -> None:
    """The operator finds a newer copy while sending rests."""
    out = opened(world, tmp_path / "b")
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
    out.flush(SECONDS)
    assert stored(world) == [0, 1, 2]
    assert [out.outcome(number) for number in range(3)] == ["acknowledged"] * 3
    out.close()


def test_accepting_where_nothing_is_lost_accepts_nothing_later(world: World, tmp_path: Path) -> None:
    out = opened(world, tmp_path / "b")
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


def test_a_folder_of_an_earlier_release_is_taken_once(world: World, tmp_path: Path) -> None:
    """Its note of the last one that was sent is an empty file."""
    folder = tmp_path / "b"
    out = opened(world, folder)
    send(out, 0, 1)
    out.close()
    (folder / f"{1:020d}.sent").write_bytes(b"")
    out = opened(world, folder)
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
def test_a_time_to_keep_that_is_none_is_refused(wrong: str | float) -> None:
    from aeron_spark.client.client import _parse_seconds

    with pytest.raises(OptionError, match="keep_sent must be a duration of 0 or more"):
        _parse_seconds("keep_sent", wrong)
    assert [_parse_seconds("keep_sent", right) for right in ("24h", 60, "0", 0.0)] == [86400.0, 60.0, 0.0, 0.0]
