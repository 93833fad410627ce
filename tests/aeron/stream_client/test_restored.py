"""Readers and writers notice that a server was restored from an older copy, with a real driver and archive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pytest

from aeron_spark import node as nodes
from aeron_spark.client.client import Client
from aeron_spark.errors import DataLossError, RefusedError
from aeron_spark.log.epochs import DIVERGED
from aeron_spark.log.writing import Source
from aeron_spark.node import NodeHandle
from aeron_spark.protocol.admin_messages import SOCKET_NAME
from aeron_spark.server.server import Server
from aeron_spark.stream_client.buffered_writer import BufferedWriter
from aeron_spark.stream_client.reader import Positions
from aeron_spark.stream_client.staging import ServerAppender, begin, commit
from aeron_spark.stream_client.writer import StreamWriter, Writer
from aeron_spark.wire.stream_requests import OpenStage, Transaction
from tests.aeron.stream_client.following import FollowingReader
from tests.aeron.stream_store.rows import remove_marks
from tests.aeron.streams import own_node
from tests.cli.conftest import run_program
from tests.ports import free_address
from tests.server_processes import ServerProcess, connect
from tests.stream_requests import known_run_request

TIMEOUT_S = 120.0
SETTINGS = {"term_length": "16m", "ipc_term_length": "16m", "segment_length": "16m"}


class Machine(Protocol):
    """A server that can be stopped, copied and restored, as an operator does it."""

    address: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def copy(self) -> None: ...

    def restore(self) -> None: ...


class StoreAlone:
    """A server in this process on the module's node: only its store is copied; its archive is truncated to the copy."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        self.address = free_address()
        self._folder = folder
        self._archive_dir = node.archive_dir
        self._options = {
            "aeron_dir": node.aeron_dir, "identity": str(folder / "server.key"), "handshakes_per_second": 0,
            "streams_dir": str(folder / "streams"), "allow_any_key": True,
        }  # fmt: skip
        self._server: Server | None = None

    def start(self) -> None:
        self._server = Server(self.address, **self._options)
        self._server.start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def copy(self) -> None:
        shutil.copytree(self._folder / "streams", self._folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self._folder / "streams")
        shutil.copytree(self._folder / "copy", self._folder / "streams")
        remove_marks(self._archive_dir)


class WholeServer:
    """A server and a separate node, each in a process; the store and the archive are copied together."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        self._process = ServerProcess(node.aeron_dir, folder)
        self.address = self._process.address
        self._node = node
        archive = Path(node.archive_dir)
        self._folders = {archive: folder / "archive", Path(f"{archive}.streams"): folder / "streams"}

    def start(self) -> None:
        self._node = nodes.ensure(Path(self._node.aeron_dir), **SETTINGS)
        self._process.start()

    def stop(self) -> None:
        self._process.kill()
        self._node.close()
        nodes.stop(Path(self._node.aeron_dir), force=True, timeout=30)

    def copy(self) -> None:
        for folder, kept in self._folders.items():
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(SOCKET_NAME))  # a killed server leaves it

    def restore(self) -> None:
        for folder, kept in self._folders.items():
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)


class BackedUpServer(WholeServer):
    """The same with 'server backup' while the server runs, and 'server restore'."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        super().__init__(node, folder)
        self._folder = folder
        self._archive, self._streams = (str(one) for one in self._folders)

    def copy(self) -> None:
        self.start()
        self.back_up("backup")
        self.stop()

    def back_up(self, name: str) -> None:
        """Back up the running server."""
        self._run("backup", str(self._folder / name), "--streams-dir", self._streams)

    def restore(self, name: str = "backup") -> None:
        for folder in self._folders:
            shutil.rmtree(folder)
        backup = str(self._folder / name)
        self._run("restore", backup, "--streams-dir", self._streams, "--archive-dir", self._archive)

    def _run(self, *arguments: str) -> None:
        done = run_program("server", *arguments)
        assert done.code == 0, done.err


@contextmanager
def connected(machine: Machine, node: NodeHandle) -> Iterator[Client]:
    """Start the server; yield a client on the module's media driver, which runs while the server is stopped."""
    machine.start()
    try:
        with connect(machine.address, node.aeron_dir) as client:
            yield client
    finally:
        machine.stop()


def commit_rows(client: Client, writer: str, numbers: range) -> tuple[int, str]:
    """Commit one transaction for each number, to partition 0; return the last one's number and stamp."""
    session = client._stream_session()
    begun = begin(session, "flights", Transaction(writer, "run", -1))
    last, stamp = begun.last, begun.stamp
    for number in numbers:
        last += 1
        one = Transaction(writer, "run", last)
        appender = ServerAppender(session, OpenStage("flights", one, 0, 0, "arrow"), Source(writer, last, 0))
        appender.arrow(pa.record_batch({"n": [number]}))
        committed = commit(session, known_run_request("flights", one, appender.finish(), 1))
        assert not committed.repeated
        stamp = committed.stamp
    return last, stamp


def numbers_of(batch: pa.RecordBatch) -> list[int]:
    return list(batch.column("n").to_pylist())


def read(client: Client, start: str) -> list[int]:
    return [number for batch in client.reader("flights", start=start) for number in numbers_of(batch)]


@pytest.mark.parametrize("grown", [4, 20], ids=["shorter than it was", "grown past the old end"])
def test_readers_and_writers_notice_a_restored_store(node: NodeHandle, tmp_path: Path, grown: int) -> None:
    """Positions and acknowledgements after the copy are refused; earlier ones stay valid."""
    machine = StoreAlone(node, tmp_path)
    with connected(machine, node) as client:
        restore_and_read_on(machine, client, grown)
        client.delete_stream("flights")


@pytest.mark.full("a separate node is started three times, 20 CPU seconds; make test restores the store alone")
@pytest.mark.parametrize("kind", [WholeServer, BackedUpServer], ids=["by cp", "by server restore"])
def test_readers_and_writers_notice_a_server_restored_with_its_archive(
    run_name: str, node: NodeHandle, tmp_path: Path, kind: type[WholeServer]
) -> None:
    """The same with the archive's folder, in processes that are killed."""
    with own_node(run_name, **SETTINGS) as handle:
        machine = kind(handle, tmp_path)
        with connected(machine, node) as client:
            restore_and_read_on(machine, client, 20)


@pytest.mark.full(
    "a separate node is started three times; tests/unit/stream_client/test_buffered_restores.py simulates"
)
def test_buffered_writers_send_again_or_stop_after_a_restore_from_a_backup(
    run_name: str, node: NodeHandle, tmp_path: Path
) -> None:
    with own_node(run_name, **SETTINGS) as handle:
        machine = BackedUpServer(handle, tmp_path)
        with connected(machine, node) as client:
            client.create_stream("fares", 1)
            keeping = client.writer("fares", writer_id="keeping", buffer=tmp_path / "keeping", keep_sent="24h")
            forgetting = client.writer("fares", writer_id="forgetting", buffer=tmp_path / "forgetting")
            send(keeping, b"k0")
            send(forgetting, b"f0")
            machine.stop()
            machine.copy()
            machine.start()
            send(keeping, b"k1")
            send(forgetting, b"f1")
            machine.stop()
            machine.restore()
            machine.start()
            send(keeping, b"k2")  # which sends the lost one again, first
            forgetting.write(b"f2")
            forgetting.commit()
            with pytest.raises(RefusedError, match=r"transaction 1 of the buffer .* was acknowledged and is no longer"):
                forgetting.flush(TIMEOUT_S)
            assert forgetting.outcome(1) == DIVERGED
            forgetting.accept_loss()
            forgetting.flush(TIMEOUT_S)
            values = [value for batch in client.reader("fares") for value in batch.column("value").to_pylist()]
            assert sorted(values) == [b"f0", b"f2", b"k0", b"k1", b"k2"]
            keeping.close()
            forgetting.close()


@pytest.mark.full("a separate node is started three times; tests/unit/streams/test_restored.py has a model")
def test_backups_restored_in_the_wrong_order_lose_no_row_of_a_reader_and_of_a_writer(
    run_name: str, node: NodeHandle, tmp_path: Path
) -> None:
    """Tuesday's backup is of the history that the restore of Monday's ended. It is restored after that of Monday.

    The reader's error names the position where the two histories separated: Tuesday's has rows after it. The buffered
    writer sends again exactly those of its transactions that Tuesday's lacks.
    """
    with own_node(run_name, **SETTINGS) as handle:
        machine = BackedUpServer(handle, tmp_path)
        with connected(machine, node) as client:
            client.create_stream("flights", 1)
            client.create_stream("fares", 1)
            keeping = client.writer("fares", writer_id="keeping", buffer=tmp_path / "keeping", keep_sent="24h")
            commit_rows(client, "desk-7", range(0, 3))
            send(keeping, b"0")
            machine.back_up("monday")
            common = positions_at_end(client)
            commit_rows(client, "desk-7", range(10, 15))
            send(keeping, b"1")
            machine.back_up("tuesday")
            machine.stop()
            machine.restore("monday")
            machine.start()
            last, stamp = commit_rows(client, "desk-7", range(20, 30))
            send(keeping, b"2")
            saved = positions_at_end(client)
            assert saved[0] > common[0]
            machine.stop()
            machine.restore("tuesday")
            machine.start()
            commit_rows(client, "desk-8", range(100, 110))  # the partition grows beyond the reader's position
            error = _refused(client, saved.to_json())
            assert error.positions == common
            assert f"has the same rows up to {common[0]}" in error.what
            assert read(client, error.positions.to_json()) == [*range(10, 15), *range(100, 110)]
            kept = Transaction("desk-7", "run", -1, acknowledged=last, stamp=stamp)
            with pytest.raises(RefusedError, match="transactions 3 to 12 of writer 'desk-7' were acknowledged and are"):
                begin(client._stream_session(), "flights", kept)
            send(keeping, b"3")
            values = [value for batch in client.reader("fares") for value in batch.column("value").to_pylist()]
            assert values == [b"0", b"1", b"2", b"3"]
            keeping.close()


def positions_at_end(client: Client) -> Positions:
    """Return the positions of a reader that has read all of the stream."""
    reader = client.reader("flights")
    assert sum(len(batch) for batch in reader)
    return reader.positions


def send(writer: BufferedWriter, value: bytes) -> None:
    writer.write(value)
    writer.commit()
    writer.flush(TIMEOUT_S)


def restore_and_read_on(machine: Machine, client: Client, grown: int) -> None:
    """Read, copy, write and read more; restore the copy, let it grow, and continue with the earlier positions."""
    client.create_stream("flights", 2)
    commit_rows(client, "desk-7", range(0, 6))
    partial = client.reader("flights")
    rows = iter(partial)
    assert [number for _ in range(3) for number in numbers_of(next(rows))] == [0, 1, 2]
    early = partial.positions.to_json()
    partial.stop()
    assert list(rows) == []  # which ends the reader's lease
    whole = client.reader("flights")
    assert [number for batch in whole for number in numbers_of(batch)] == list(range(6))
    at_copy = whole.positions
    client.create_stream("prices", 1)
    writer = client.writer("prices", writer_id="desk-9")
    assert commit_with(writer, b"kept") == 0
    machine.stop()
    machine.copy()
    machine.start()
    assert [commit_with(writer, value) for value in (b"lost 1", b"lost 2")] == [1, 2]
    last, stamp = commit_rows(client, "desk-7", range(6, 16))
    late_reader = client.reader("flights")
    assert [number for batch in late_reader for number in numbers_of(batch)] == list(range(16))
    late = late_reader.positions.to_json()
    following = FollowingReader(client, "flights")
    following.await_rows(16)
    machine.stop()
    machine.restore()
    machine.start()
    commit_rows(client, "desk-8", range(100, 100 + grown))

    continue_writing(client, writer)
    following.await_end()
    assert following.numbers == list(range(16))
    assert isinstance(following.error, DataLossError)
    for error in (following.error, _refused(client, late)):
        assert error.reason == DIVERGED
        assert error.positions == at_copy
        assert "partition 0 of stream 'flights' diverged: the reader is at" in error.what
        assert read(client, error.positions.to_json()) == list(range(100, 100 + grown))
    assert read(client, early) == [3, 4, 5, *range(100, 100 + grown)]
    assert read(client, at_copy.to_json()) == list(range(100, 100 + grown))

    session = client._stream_session()
    text = "transactions 6 to 15 of writer 'desk-7' were acknowledged and are no longer in the stream"
    kept = Transaction("desk-7", "run", -1, acknowledged=last, stamp=stamp)
    with pytest.raises(RefusedError, match=text) as caught:
        begin(session, "flights", kept)
    assert caught.value.reason == DIVERGED
    commit_rows(client, "desk-7", range(200, 220))  # by another run of the program, which stored no stamp
    with pytest.raises(RefusedError, match=text):
        begin(session, "flights", kept)


def commit_with(writer: Writer, value: bytes) -> int:
    writer.write(value)
    return writer.commit()


def continue_writing(client: Client, writer: Writer) -> None:
    """A writer is refused until its program accepts that acknowledged transactions are lost."""
    assert isinstance(writer, StreamWriter)
    writer.write(b"next")
    for _ in range(2):
        with pytest.raises(RefusedError, match="transactions 1 to 2 of writer 'desk-9' were acknowledged") as caught:
            writer.commit()
        assert (caught.value.reason, writer.last) == (DIVERGED, 2)
        assert "accept_loss()" in caught.value.remedy
    assert writer.accept_loss() == 0
    assert writer.commit() == 3  # the open transaction keeps its rows, and no number is used again
    assert commit_with(writer, b"last") == 4
    writer.close()
    values = [value for batch in client.reader("prices") for value in batch.column("value").to_pylist()]
    assert values == [b"kept", b"next", b"last"]
    client.delete_stream("prices")


def _refused(client: Client, start: str) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        client.reader("flights", start=start)
    return caught.value
