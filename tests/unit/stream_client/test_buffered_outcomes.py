"""What became of a buffered transaction, also one whose commit() died inside: known from the folder (finding C13)."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.errors import ConnectError, TransportError
from aeron_spark.stream_client.buffer_folder import BufferFolder
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.write_batches import WriteBatch
from tests.unit.stream_client.joined import Client, World

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 30.0

# Commits two transactions, and is killed in the third commit before the named step of it.
PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from tests.unit.stream_client.test_buffered_outcomes import away

step, out = sys.argv[1], away(Path(sys.argv[2]))
for n in range(2):
    out.write(b"%d" % n)
    assert out.commit() == n
out.write(b"2")

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

match step:
    case "sync": os.fsync = kill
    case "rename": Path.rename = kill
    case "sync of the folder":
        os.fsync, sync = lambda descriptor: setattr(os, "fsync", kill), os.fsync
    case "return":  # not where the sender notes that there is no server
        main, notify = threading.main_thread(), out._changed.notify_all
        out._changed.notify_all = lambda: kill() if threading.current_thread() is main else notify()
out.commit()
"""


def refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(ConnectError("nobody listens"))
    return future


def away(folder: Path) -> BufferedWriter:
    """A writer whose server is never there. It learns that at once, so that ``close`` does not wait for the server."""
    client: Any = SimpleNamespace(closed=False, connected=False, begin_connecting=refused)
    return BufferedWriter(client, StreamSession(client, 1.0), "s", folder, writer_id="w", payload="raw", partition=0)


def there(world: World, folder: Path) -> BufferedWriter:
    client: Any = Client(world)
    return BufferedWriter(client, StreamSession(client, 20.0), "s", folder, writer_id="w", payload="raw", partition=0)


@pytest.mark.parametrize(
    ("step", "committed"), [("sync", False), ("rename", False), ("sync of the folder", True), ("return", True)]
)
def test_a_commit_that_was_killed_is_resolved_after_a_restart(step: str, committed: bool, tmp_path: Path) -> None:
    """Finding C13."""
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, step, str(tmp_path)], cwd=ROOT, timeout=SECONDS, capture_output=True, text=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'connector'}"}, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    out = away(tmp_path)
    assert out.last == (2 if committed else 1)
    assert out.acknowledged == -1
    assert [out.outcome(n) for n in range(-1, 4)] == [
        "absent", "buffered", "buffered", "buffered" if committed else "absent", "absent",
    ]  # fmt: skip
    out.write(b"next")
    assert out.commit() == (3 if committed else 2)
    out.close()


def test_outcomes_follow_a_transaction_to_the_server_and_outlive_the_program(world: World, tmp_path: Path) -> None:
    """Finding C13."""
    out = away(tmp_path / "b")
    for n in range(3):
        out.write(b"%d" % n)
        assert out.commit() == n
    assert out.commit() == -1
    out.close()
    out = there(world, tmp_path / "b")
    out.flush(SECONDS)
    assert (out.last, out.acknowledged) == (2, 2)
    out.close()
    out = away(tmp_path / "b")
    out.write(b"3")
    assert out.commit() == 3
    assert (out.last, out.acknowledged) == (3, 2)
    assert [out.outcome(n) for n in range(5)] == [*["acknowledged"] * 3, "buffered", "absent"]
    out.close()
    assert world.committed() == [[b"0", b"1", b"2"], []]


def test_a_transaction_whose_file_was_taken_away_is_absent_for_ever(world: World, tmp_path: Path) -> None:
    """Finding C13: later ones are sent, and it is not counted among them."""
    out = away(tmp_path)
    for n in range(3):
        out.write(b"%d" % n)
        out.commit()
    out.close()
    (tmp_path / f"{1:020d}.unsent").unlink()
    for _ in range(2):
        out = there(world, tmp_path)
        out.flush(SECONDS)
        assert [out.outcome(n) for n in range(4)] == ["acknowledged", "absent", "acknowledged", "absent"]
        out.close()
    assert world.committed() == [[b"0", b"2"], []]


def test_a_folder_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """Finding C13: its settings have fewer fields."""
    out = away(tmp_path)
    out.write(b"0")
    out.commit()
    out.close()
    settings = tmp_path / "buffer.json"
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({name: known[name] for name in ("version", "stream", "writer", "base")}))
    (tmp_path / f"{0:020d}.unsent").rename(tmp_path / f"{4:020d}.unsent")
    (tmp_path / f"{3:020d}.sent").touch()
    out = away(tmp_path)
    assert (out.last, out.acknowledged) == (4, 3)
    assert [out.outcome(n) for n in (0, 3, 4, 5)] == ["acknowledged", "acknowledged", "buffered", "absent"]
    out.close()


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_a_commit_that_failed_fails_again_or_commits_the_same_rows(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding C1, of a buffered writer: rows that the disk lost are never taken for no rows."""
    out = there(world, tmp_path)
    out.write([b"a", b"b"])
    with monkeypatch.context() as patched:
        patched.setattr("aeron_spark.stream_client.buffer_folder.BufferFolder._write", full)
        for call in (out.commit, lambda: out.write(b"c"), out.commit):
            with pytest.raises(TransportError, match="No space left"):
                call()
    assert out.commit() == 0  # the room came back
    out.flush(SECONDS)  # the server's journal is in this process, and its disk works
    out.write(b"lost")
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(TransportError, match="No space left"):
            out.commit()
    for call in (out.commit, lambda: out.write(b"c"), out.commit):
        with pytest.raises(TransportError, match=r"rows of transaction 1 .* are lost.* Call abort\(\)"):
            call()
    assert out.last == 0
    assert not list(tmp_path.glob("*1.*"))
    out.abort()
    out.write(b"d")
    assert out.commit() == 1
    out.flush(SECONDS)
    out.close()
    assert world.committed() == [[b"a", b"b", b"d"], []]


def test_a_write_that_failed_leaves_the_transaction_as_it_was(world: World, tmp_path: Path) -> None:
    """Finding C1, of a buffered writer: all of its rows, or none."""
    import pyarrow as pa

    client: Any = Client(world)
    out = BufferedWriter(
        client, StreamSession(client, 20.0), "s", tmp_path, writer_id="w", payload="raw", partition=0, max_bytes=2_000,
        timeout=0.0,
    )  # fmt: skip
    out.write(b"a")
    two = [pa.record_batch({"value": pa.array([value], pa.binary())}) for value in (b"not", b"x" * 1_900)]
    with pytest.raises(ValueError, match="larger than the buffer"):
        out.write(pa.Table.from_batches(two))
    out.write(b"b")
    assert out.commit() == 0
    out.flush(SECONDS)
    out.close()
    assert world.committed() == [[b"a", b"b"], []]


def test_a_base_that_could_not_be_written_is_not_used(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding C1, of a buffered writer: after a full disk a transaction was sent a second time by the next process."""
    folder = tmp_path / "b"
    real, failed = BufferFolder._write_settings, []

    def write(unsent: BufferFolder, base: int | None = None) -> None:
        if base is not None and not failed:
            failed.append(base)
            raise TransportError("the disk is full")
        real(unsent, base)

    monkeypatch.setattr(BufferFolder, "_write_settings", write)
    out = there(world, folder)
    out.write(b"0")
    out.commit()
    out.flush(SECONDS)
    assert failed == [0]
    assert json.loads((folder / "buffer.json").read_bytes())["base"] == 0
    out.close()


def test_a_folder_is_closed_once(tmp_path: Path) -> None:
    """Finding C13: a second close() removed what another process had committed meanwhile."""
    out = away(tmp_path / "b")
    out.close()
    other = BufferFolder(tmp_path / "b", "s", "w")
    other.add(WriteBatch("raw", pa.record_batch({"value": [b"other"]}), 0))
    assert other.commit() == 0
    out._folder.close()
    assert len(other) == 1
    assert (tmp_path / "b" / f"{0:020d}.unsent").exists()
    other.close()
