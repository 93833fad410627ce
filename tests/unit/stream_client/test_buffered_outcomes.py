"""The outcome of a buffered transaction is known from its folder, also after a crash in commit()."""

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

from aeron_spark.errors import ConnectError, DataFormatError, TransportError, UsageError
from aeron_spark.stream_client.buffer_folder import BufferFolder
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.row_input import WriteBatch
from aeron_spark.stream_client.session import StreamSession
from aeron_spark.stream_client.writer import StreamWriter
from tests.unit.stream_client.joined import Client, World

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30.0

# Commits two transactions, and is killed in the third commit before the named step of it.
PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from tests.unit.stream_client.test_buffered_outcomes import offline_writer

step, out = sys.argv[1], offline_writer(Path(sys.argv[2]))
for n in range(2):
    out.write(b"%d" % n)
    assert out.commit(f"row {n}") == n
out.write(b"2")

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

match step:
    case "sync": os.fsync = kill
    case "rename": Path.rename = kill
    case "sync of the folder":
        os.fsync, sync = lambda descriptor: setattr(os, "fsync", kill), os.fsync
    case "return":  # not in the sender's thread, which reports that it cannot connect
        main, notify = threading.main_thread(), out._changed.notify_all
        out._changed.notify_all = lambda: kill() if threading.current_thread() is main else notify()
out.commit("row 2")
"""


def failed_connection() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(ConnectError("the server does not respond"))
    return future


def offline_writer(folder: Path) -> BufferedWriter:
    """Return a writer that cannot connect. The attempts fail at once, so ``close`` does not wait for the server."""
    client: Any = SimpleNamespace(closed=False, connected=False, begin_connecting=failed_connection)
    return BufferedWriter(client, StreamSession(client, 1.0), "s", folder, writer_id="w", payload="raw", partition=0)


def online_writer(world: World, folder: Path) -> BufferedWriter:
    client: Any = Client(world)
    return BufferedWriter(client, StreamSession(client, 20.0), "s", folder, writer_id="w", payload="raw", partition=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "committed"), [("sync", False), ("rename", False), ("sync of the folder", True), ("return", True)]
)
def test_the_outcome_of_a_killed_commit_is_known_after_a_restart(step: str, committed: bool, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, step, str(tmp_path)], cwd=ROOT, timeout=TIMEOUT_S, capture_output=True,
        text=True, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'connector'}"}, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    out = offline_writer(tmp_path)
    assert (out.last, out.last_token) == ((2, "row 2") if committed else (1, "row 1"))
    assert out.acknowledged == -1
    assert [out.outcome(n) for n in range(-1, 4)] == [
        "absent", "buffered", "buffered", "buffered" if committed else "absent", "absent",
    ]  # fmt: skip
    out.write(b"next")
    assert out.commit() == (3 if committed else 2)
    out.close()


def test_outcomes_change_with_the_servers_acknowledgement_and_survive_a_restart(world: World, tmp_path: Path) -> None:
    out = offline_writer(tmp_path / "b")
    for n in range(3):
        out.write(b"%d" % n)
        assert out.commit(f"row {n}") == n
    assert out.commit() == -1
    out.close()
    out = online_writer(world, tmp_path / "b")
    out.flush(TIMEOUT_S)
    assert (out.last, out.last_token, out.acknowledged) == (2, "row 2", 2)
    out.close()
    direct = StreamWriter(world.stream_session(), "s", writer_id="w", payload="raw")
    assert (direct.last, direct.last_token) == (2, "row 2")  # the server has the token, too
    direct.close()
    out = offline_writer(tmp_path / "b")
    assert out.last_token == "row 2"
    out.write(b"3")
    assert out.commit() == 3
    assert (out.last, out.acknowledged) == (3, 2)
    assert [out.outcome(n) for n in range(5)] == [*["acknowledged"] * 3, "buffered", "absent"]
    out.close()
    assert world.committed() == [[b"0", b"1", b"2"], []]


def test_a_transaction_whose_file_was_removed_stays_absent(world: World, tmp_path: Path) -> None:
    """The later ones are sent."""
    out = offline_writer(tmp_path)
    for n in range(3):
        out.write(b"%d" % n)
        out.commit()
    out.close()
    (tmp_path / f"{1:020d}.unsent").unlink()
    for _ in range(2):
        out = online_writer(world, tmp_path)
        out.flush(TIMEOUT_S)
        assert [out.outcome(n) for n in range(4)] == ["acknowledged", "absent", "acknowledged", "absent"]
        out.close()
    assert world.committed() == [[b"0", b"2"], []]


def test_a_folder_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    """Its settings have fewer fields."""
    out = offline_writer(tmp_path)
    out.write(b"0")
    out.commit()
    out.close()
    settings = tmp_path / "buffer.json"
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({name: known[name] for name in ("version", "stream", "writer", "base")}))
    (tmp_path / f"{0:020d}.unsent").rename(tmp_path / f"{4:020d}.unsent")
    (tmp_path / f"{3:020d}.sent").touch()
    out = offline_writer(tmp_path)
    assert (out.last, out.acknowledged) == (4, 3)
    assert [out.outcome(n) for n in (0, 3, 4, 5)] == ["acknowledged", "acknowledged", "buffered", "absent"]
    out.close()


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_a_failed_commit_fails_again_or_commits_the_same_rows(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit after the disk lost the rows must not count as a commit without rows."""
    out = online_writer(world, tmp_path)
    out.write([b"a", b"b"])
    with monkeypatch.context() as patched:
        patched.setattr("aeron_spark.stream_client.buffer_folder.BufferFolder._write", full)
        for call in (out.commit, lambda: out.write(b"c"), out.commit):
            with pytest.raises(TransportError, match="No space left"):
                call()
    assert out.commit() == 0  # the disk has space again
    out.flush(TIMEOUT_S)  # before the next fault: the server's journal uses the same os.fsync
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
    out.flush(TIMEOUT_S)
    out.close()
    assert world.committed() == [[b"a", b"b", b"d"], []]


def test_a_failed_write_leaves_the_transaction_unchanged(world: World, tmp_path: Path) -> None:
    """A write adds all of its rows, or none."""
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
    out.flush(TIMEOUT_S)
    out.close()
    assert world.committed() == [[b"a", b"b"], []]


def test_a_base_that_was_not_stored_is_not_used(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after a full disk, the next process sent a transaction a second time."""
    folder = tmp_path / "b"
    real, failed = BufferFolder._write_settings, []

    def write(folder_: BufferFolder, base: int | None = None) -> None:
        if base is not None and not failed:
            failed.append(base)
            raise TransportError("the disk is full")
        real(folder_, base)

    monkeypatch.setattr(BufferFolder, "_write_settings", write)
    out = online_writer(world, folder)
    out.write(b"0")
    out.commit()
    out.flush(TIMEOUT_S)
    assert failed == [0]
    assert json.loads((folder / "buffer.json").read_bytes())["base"] == 0
    out.close()


def test_a_folder_is_closed_once(tmp_path: Path) -> None:
    """Regression: a second close() removed a transaction that another process had committed in the meantime."""
    out = offline_writer(tmp_path / "b")
    out.close()
    other = BufferFolder(tmp_path / "b", "s", "w")
    other.add(WriteBatch("raw", pa.record_batch({"value": [b"other"]}), 0))
    assert other.commit() == 0
    out._folder.close()
    assert len(other) == 1
    assert (tmp_path / "b" / f"{0:020d}.unsent").exists()
    other.close()


def test_a_token_without_rows_is_sent(world: World, tmp_path: Path) -> None:
    out = online_writer(world, tmp_path)
    assert out.commit("nothing before row 9") == 0
    out.flush(TIMEOUT_S)
    assert (out.outcome(0), out.last_token) == ("acknowledged", "nothing before row 9")
    with pytest.raises(UsageError, match="has 1025 bytes of UTF-8, expected at most 1024"):
        out.commit("x" * 1025)
    out.close()
    assert world.committed() == [[], []]


def rows_writer(client: Any, folder: Path, schema: pa.Schema | None = None) -> BufferedWriter:
    return BufferedWriter(client, StreamSession(client, 20.0), "s", folder, writer_id="w", schema=schema, partition=0)


def test_a_folder_keeps_the_schema_for_a_program_that_starts_offline(tmp_path: Path) -> None:
    offline: Any = SimpleNamespace(closed=False, connected=False, begin_connecting=failed_connection)
    out = rows_writer(offline, tmp_path)
    out.write({"symbol": "A", "price": 1.5})
    assert out.commit() == 0
    out.close()
    out = rows_writer(offline, tmp_path)
    with pytest.raises(DataFormatError, match="row 0 has a column 'prise', which is not in the schema"):
        out.write({"prise": 2.5})
    out.write({"price": None})  # which told nothing without the schema
    assert out.commit() == 1
    out.close()
    wider = pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("n", pa.int8())])
    out = rows_writer(offline, tmp_path, wider)
    out.write({"n": 1})
    out.commit()
    out.close()
    folder = BufferFolder(tmp_path, "s", "w")
    assert folder.schema == wider
    found = [batch.rows.to_pylist() for one in list(folder._pending) for batch in folder.read(one)]
    assert found == [
        [{"symbol": "A", "price": 1.5}], [{"symbol": None, "price": None}], [{"symbol": None, "price": None, "n": 1}]
    ]  # fmt: skip
    folder.close()


def test_an_aborted_transaction_tells_the_folder_no_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline: Any = SimpleNamespace(closed=False, connected=False, begin_connecting=failed_connection)
    out = rows_writer(offline, tmp_path)
    out.write({"price": "a slip"})
    with monkeypatch.context() as patched:
        patched.setattr("aeron_spark.stream_client.buffer_folder.BufferFolder._write", full)
        with pytest.raises(TransportError, match="No space left"):
            out.commit()
    out.abort()
    out.close()
    out = rows_writer(offline, tmp_path)
    out.write({"price": 1.5})
    assert out.commit() == 0
    out.close()


def test_rows_that_wait_are_part_of_the_transaction(world: World, tmp_path: Path) -> None:
    out = online_writer(world, tmp_path)
    out.write({"value": b"dropped"})
    out.abort()
    out.write({"value": b"0"})
    out.write([{"value": b"1"}])
    with pytest.raises(DataFormatError, match="row 1, column 'value'"):
        out.write([{"value": b"2"}, {"value": "text"}])
    assert (out.last, out.commit("row 1"), out.commit()) == (-1, 0, -1)
    out.write({"value": b"never"})
    out.flush(TIMEOUT_S)
    out.close()
    assert world.committed() == [[b"0", b"1"], []]


def test_rows_wait_when_the_disk_is_full(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = online_writer(world, tmp_path)
    out.write({"value": b"0"})
    with monkeypatch.context() as patched:
        patched.setattr("aeron_spark.stream_client.buffer_folder.BufferFolder._write", full)
        for _ in range(2):
            with pytest.raises(TransportError, match="No space left"):
                out.commit("row 0")
    out.write({"value": b"1"})
    assert out.commit("row 1") == 0
    out.flush(TIMEOUT_S)
    out.close()
    assert world.committed() == [[b"0", b"1"], []]
