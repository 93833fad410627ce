"""Programs write and follow while their server or they are killed: no row is lost or duplicated."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, ConnectError, OptionError, RefusedError, UsageError, WaitTimeout
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import Deadline, wait_for
from tests.programs import Program, python_environ
from tests.server_processes import ServerProcess, connections, started_server

TIMEOUT_S = 120.0  # for a restart of the server on a busy machine
ROWS = 20
T = TypeVar("T")

# Writes transactions of ROWS rows through a buffer from number FIRST on, and prints each once it is committed.
PRODUCER = """
import sys, time
import pyarrow as pa
import aeron_spark
from aeron_spark.keys.stores import MemoryPeerStore

address, aeron_dir, stream, folder, first, count = sys.argv[1:]
client = aeron_spark.connect(address, aeron_dir=aeron_dir, ipc="never", store=MemoryPeerStore(), wait=False)
out = client.writer(stream, writer_id="edge-7", buffer=folder)
print("ready", flush=True)
for number in range(int(first), int(first) + int(count)):
    out.write(pa.record_batch({"n": [number] * 20, "row": list(range(20))}))
    out.commit()
    print(number, flush=True)
    time.sleep(0.02)
out.flush(120)
print("flushed", flush=True)
client.close()
"""


@pytest.fixture
def server(node: NodeHandle, tmp_path: Path) -> Iterator[ServerProcess]:
    with started_server(node, tmp_path) as one:
        yield one


Connecting = Callable[..., Client]


@pytest.fixture
def connect(server: ServerProcess, node: NodeHandle) -> Iterator[Connecting]:
    with connections(server.address, node.aeron_dir) as one:
        yield one


def numbered(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number] * ROWS, "row": list(range(ROWS))})


def transactions_of(rows: list[tuple[int, int]]) -> list[int]:
    """Return the numbers of the transactions in these rows, in order; check that each is complete and contiguous."""
    found = [rows[at : at + ROWS] for at in range(0, len(rows), ROWS)]
    assert [[row for _, row in one] for one in found] == [list(range(ROWS))] * len(found)
    assert all(len({number for number, _ in one}) == 1 for one in found)
    return [one[0][0] for one in found]


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(batch.column("n").to_pylist(), batch.column("row").to_pylist(), strict=True))


def stored(client: Client, stream: str) -> list[list[int]]:
    """Return all transactions of each partition."""
    partitions = len(client.stream(stream).partitions)
    return [
        transactions_of([row for batch in client.reader(stream, partitions=[at]) for row in rows_of(batch)])
        for at in range(partitions)
    ]


def until_done(call: Callable[[], T]) -> T:
    """Repeat a failed call of a writer until it succeeds, as its documentation allows."""
    deadline = Deadline(TIMEOUT_S, "a call of a writer to succeed")
    while True:
        try:
            return call()
        except AeronSparkError as error:
            deadline.idle(error.what)


@pytest.mark.full("five servers, each with a separate JVM")
@pytest.mark.parametrize("ipc", ["never", "auto"])
def test_writing_and_following_while_the_server_is_killed(
    server: ServerProcess, connect: Connecting, rng: random.Random, ipc: str
) -> None:
    client, other = connect(ipc=ipc), connect(ipc=ipc)
    stream = f"killed-{ipc}"
    client.create_stream(stream, 2)
    read_rows: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    readers = [other.reader(stream, partitions=[at], follow=True) for at in read_rows]

    def follow(at: int) -> None:
        for batch in readers[at]:
            read_rows[at].extend(rows_of(batch))

    following = [threading.Thread(target=follow, args=(at,)) for at in read_rows]
    for thread in following:
        thread.start()
    over = threading.Event()
    committed = [0]

    def kill() -> None:
        for _ in range(4):
            enough = committed[0] + rng.randrange(3, 12)
            wait_for(lambda goal=enough: committed[0] >= goal, TIMEOUT_S, "transactions")
            time.sleep(0.1 * rng.random())  # at a random point of the next transaction
            server.kill()
            server.start()
        over.set()

    killing = threading.Thread(target=kill)
    killing.start()
    number = 0
    with client.writer(stream, writer_id="w", timeout=TIMEOUT_S) as out:
        while not over.is_set() or number % 2:
            out.write(numbered(number))
            out.commit()
            number += 1
            committed[0] = number
    killing.join()
    wanted = [list(range(at, number, 2)) for at in (0, 1)]
    wait_for(
        lambda: sum(map(len, read_rows.values())) >= number * ROWS, TIMEOUT_S, "all rows",
        state=lambda: f"{[len(rows) for rows in read_rows.values()]} of {number * ROWS}",
    )  # fmt: skip
    for reader in readers:
        reader.stop()
    for thread in following:
        thread.join(TIMEOUT_S)
    assert sorted(transactions_of(rows) for rows in read_rows.values()) == sorted(wanted)
    assert sorted(stored(client, stream)) == sorted(wanted)
    assert number >= 12


@pytest.mark.sampled
def test_a_stopped_server_is_noticed_before_aeron_does_and_its_session_goes_on(
    server: ServerProcess, connect: Connecting
) -> None:
    """Its media driver runs, and so Aeron reports the link as connected for 10 s."""
    client = connect(keep_alive="0.4s")
    client.create_stream("stopped")
    with client.writer("stopped", timeout=TIMEOUT_S) as out:
        out.write(numbered(0))
        out.commit()
        before = client.connection
        server.suspend()
        try:
            wait_for(lambda: not client.connected, 8.0, "the client to notice", state=lambda: client.state)
            assert client.state == "reconnecting"
        finally:
            server.resume()
        out.write(numbered(1))
    assert client.connection is before
    assert stored(client, "stopped") == [[0, 1]]


@pytest.mark.sampled
@pytest.mark.parametrize("ipc", ["never", "auto"])
def test_a_transaction_begun_before_the_server_was_killed_is_committed_after(
    server: ServerProcess, connect: Connecting, ipc: str
) -> None:
    client = connect(ipc=ipc)
    assert client.connection.is_ipc is (ipc == "auto")
    stream = f"begun-{ipc}"
    client.create_stream(stream)
    with client.writer(stream, timeout=TIMEOUT_S) as out:
        out.write(numbered(0))
        server.kill()
        server.start()
        out.write(numbered(1))
        out.write(numbered(2))
    assert stored(client, stream) == [[0, 1, 2]]


@pytest.mark.sampled
def test_a_commit_that_failed_during_an_outage_is_repeated_and_done_once(
    server: ServerProcess, connect: Connecting
) -> None:
    """Regression: the second commit() returned without an error, and the transaction was not in the stream."""
    client = connect()
    client.create_stream("repeated")
    with until_done(lambda: client.writer("repeated", timeout=1.0)) as out:
        until_done(lambda: out.write(numbered(0)))
        server.kill()
        for _ in range(2):
            with pytest.raises((WaitTimeout, ConnectError)):
                out.commit()
        server.start()
        assert until_done(out.commit) == 0
        until_done(lambda: out.write(numbered(1)))
        assert until_done(out.commit) == 1
    assert stored(client, "repeated") == [[0, 1]]


@pytest.mark.sampled
def test_a_reader_continues_at_its_positions_after_the_server_was_killed(
    server: ServerProcess, connect: Connecting
) -> None:
    client = connect()
    client.create_stream("kept")
    with client.writer("kept", timeout=TIMEOUT_S) as out:
        for number in range(3):
            out.write(numbered(number))
    reader = client.reader("kept")
    next(iter(reader))
    kept = reader.positions
    server.kill()
    server.start()
    assert [row for batch in client.reader("kept", start=kept) for row in rows_of(batch)] == [
        row for number in (1, 2) for row in rows_of(numbered(number))
    ]


@pytest.mark.full("five producers and three servers, each with a separate JVM")
def test_a_buffered_producer_and_the_server_are_killed_and_restarted(
    server: ServerProcess, node: NodeHandle, connect: Connecting, tmp_path: Path, rng: random.Random
) -> None:
    connect().create_stream("buffered", 2)
    folder, printed = tmp_path / "unsent", []
    for run in range(5):
        last = run == 4
        if run == 1:
            server.kill()  # it restarts during the next run of the producer
        arguments = [server.address, node.aeron_dir, "buffered", str(folder), str(1000 * run), "30" if last else "999"]
        with Program(
            [sys.executable, "-W", "error", "-c", PRODUCER, *arguments], env=python_environ(), stdout=subprocess.PIPE,
            text=True,
        ) as process:  # fmt: skip
            assert process.stdout.readline() == "ready\n"
            if run == 2:
                server.start()
            for _ in range(10_000 if last else rng.randrange(5, 40)):
                line = process.stdout.readline()
                if not line:
                    break
                printed.append(line.strip())
            if not last:
                process.kill()
                printed += [line.strip() for line in process.stdout if line.endswith("\n")]
            if run == 3:
                server.kill()
                server.start()
        assert process.returncode == (0 if last else -9)
    assert printed.pop() == "flushed"
    assert not list(folder.glob("*.unsent"))
    found = stored(connect(), "buffered")
    both = sorted(found[0] + found[1])
    assert len(both) == len(set(both))
    assert set(map(int, printed)) <= set(both)
    assert len(both) - len(printed) <= 4  # committed, and not printed before the kill
    for one in found:
        assert one == sorted(one)
        assert one


@pytest.mark.sampled
def test_a_buffer_takes_rows_without_a_server_up_to_its_limit(
    server: ServerProcess, connect: Connecting, tmp_path: Path
) -> None:  # fmt: skip
    connect().create_stream("bounded")
    server.kill()
    client = connect(wait=False)
    with pytest.raises(ConnectError):
        client.ping()
    out = client.writer("bounded", buffer=tmp_path / "b", buffer_bytes=60_000, timeout=0.2)
    with pytest.raises(OptionError, match="larger than the buffer"):
        out.write(bytes(70_000))
    for number in range(5):
        out.write([b"%d" % number * 10_000])
        out.commit()
    with pytest.raises(WaitTimeout, match=f"room in the buffer {tmp_path / 'b'}"):
        out.write([b"x" * 10_000])
    out.write([b"5"])  # a small one fits
    out.abort()
    assert out.unsent == 5
    with pytest.raises(WaitTimeout, match="5 transactions of the buffer"):
        out.flush(0.2)
    with pytest.raises(UsageError, match="this process has another writer"):
        client.writer("bounded", buffer=tmp_path / "b")
    out.close()
    out = client.writer("bounded", buffer=tmp_path / "b", buffer_bytes=60_000, timeout=TIMEOUT_S)
    server.start()
    out.write([b"6" * 10_000] * 2)  # waits for room
    out.commit()
    out.flush(TIMEOUT_S)
    assert out.unsent == 0
    assert out.trouble is None
    out.close()
    client.create_stream("other")
    with pytest.raises(OptionError, match="'bounded', not 'other'"):
        client.writer("other", buffer=tmp_path / "b")
    found = [value for batch in client.reader("bounded") for value in batch.column("value").to_pylist()]
    assert [value[:1] for value in found] == [b"0", b"1", b"2", b"3", b"4", b"6", b"6"]


def test_another_writer_of_the_same_id_is_noticed(server: ServerProcess, connect: Connecting, tmp_path: Path) -> None:
    client = connect()
    client.create_stream("shared")
    with client.writer("shared", writer_id="w", partition=0) as out:
        out.write(numbered(0))
    buffered = client.writer("shared", writer_id="w", buffer=tmp_path / "b")
    buffered.write(numbered(1))
    buffered.commit()
    buffered.flush(TIMEOUT_S)
    with client.writer("shared", writer_id="w") as out:
        assert out.last == 1
        out.write(numbered(2))
    buffered.write(numbered(3))
    buffered.commit()
    with pytest.raises(RefusedError, match="fenced"):
        buffered.flush(TIMEOUT_S)
    with pytest.raises(RefusedError, match="fenced"):
        buffered.write(numbered(4))
    buffered.close()
    again = client.writer("shared", writer_id="w", buffer=tmp_path / "b")
    with pytest.raises(RefusedError, match="another writer has used this id"):
        again.flush(TIMEOUT_S)
    again.close()
    assert stored(client, "shared") == [[0, 1, 2]]
