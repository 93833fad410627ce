"""Programs that write and follow while their server, or they themselves, are killed with -9: nothing lost, or twice."""

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

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError, ConnectError, OptionError, RefusedError, UsageError, WaitTimeout
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import Deadline, wait_for
from tests.aeron.node.programs import Program
from tests.aeron.stream_client.serving import ENVIRON, ServerProcess

PATIENCE = 120.0  # seconds for a restarted server on a busy machine
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
    one = ServerProcess(node, tmp_path)
    one.start()
    yield one
    one.kill()


Connecting = Callable[..., Client]


@pytest.fixture
def reach(server: ServerProcess, node: NodeHandle) -> Iterator[Connecting]:
    opened: list[Client] = []

    def one(**options: object) -> Client:
        given = {"aeron_dir": node.aeron_dir, "ipc": "never", "store": MemoryPeerStore(), **options}
        client = aeron_spark.connect(server.address, **given)  # type: ignore[arg-type]
        opened.append(client)
        return client

    yield one
    for client in opened:
        client.close()


def numbered(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number] * ROWS, "row": list(range(ROWS))})


def whole(rows: list[tuple[int, int]]) -> list[int]:
    """The transactions in these rows, in their order; each has to be whole, and in one piece."""
    found = [rows[at : at + ROWS] for at in range(0, len(rows), ROWS)]
    assert [[row for _, row in one] for one in found] == [list(range(ROWS))] * len(found)
    assert all(len({number for number, _ in one}) == 1 for one in found)
    return [one[0][0] for one in found]


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(batch.column("n").to_pylist(), batch.column("row").to_pylist(), strict=True))


def stored(client: Client, stream: str) -> list[list[int]]:
    """All transactions, by partition."""
    partitions = len(client.stream(stream).partitions)
    return [
        whole([row for batch in client.reader(stream, partitions=[at]) for row in rows_of(batch)])
        for at in range(partitions)
    ]


def until_done(call: Callable[[], T]) -> T:
    """Repeat a writer's call that failed, as its documentation allows."""
    deadline = Deadline(PATIENCE, "a call of a writer to succeed")
    while True:
        try:
            return call()
        except AeronSparkError as error:
            deadline.idle(error.what)


@pytest.mark.full("five servers, each with a JVM of its own")
def test_writing_and_following_while_the_server_is_killed(
    server: ServerProcess, reach: Connecting, rng: random.Random
) -> None:
    client, other = reach(), reach()
    client.create_stream("killed", 2)
    came: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    readers = [other.reader("killed", partitions=[at], follow=True) for at in came]

    def follow(at: int) -> None:
        for batch in readers[at]:
            came[at].extend(rows_of(batch))

    following = [threading.Thread(target=follow, args=(at,)) for at in came]
    for thread in following:
        thread.start()
    over = threading.Event()
    committed = [0]

    def kill() -> None:
        for _ in range(4):
            enough = committed[0] + rng.randrange(3, 12)
            wait_for(lambda goal=enough: committed[0] >= goal, PATIENCE, "transactions")
            time.sleep(0.1 * rng.random())  # somewhere in the next one
            server.kill()
            server.start()
        over.set()

    killing = threading.Thread(target=kill)
    killing.start()
    number = 0
    with client.writer("killed", writer_id="w", timeout=PATIENCE) as out:
        while not over.is_set() or number % 2:
            out.write(numbered(number))
            out.commit()
            number += 1
            committed[0] = number
    killing.join()
    wanted = [list(range(at, number, 2)) for at in (0, 1)]
    wait_for(
        lambda: sum(map(len, came.values())) >= number * ROWS, PATIENCE, "all rows",
        state=lambda: f"{[len(rows) for rows in came.values()]} of {number * ROWS}",
    )  # fmt: skip
    for reader in readers:
        reader.stop()
    for thread in following:
        thread.join(PATIENCE)
    assert sorted(whole(rows) for rows in came.values()) == sorted(wanted)
    assert sorted(stored(client, "killed")) == sorted(wanted)
    assert number >= 12


def test_a_transaction_begun_before_the_server_was_killed_is_committed_after(
    server: ServerProcess, reach: Connecting
) -> None:
    client = reach()
    client.create_stream("begun")
    with client.writer("begun", timeout=PATIENCE) as out:
        out.write(numbered(0))
        server.kill()
        server.start()
        out.write(numbered(1))
        out.write(numbered(2))
    assert stored(client, "begun") == [[0, 1, 2]]


def test_a_commit_that_failed_while_the_server_was_down_is_repeated_and_done_once(
    server: ServerProcess, reach: Connecting
) -> None:
    """Finding C1: the second commit() returned without an error, and the transaction was not in the stream."""
    client = reach()
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


def test_positions_of_a_reader_are_good_after_the_server_was_killed(server: ServerProcess, reach: Connecting) -> None:
    client = reach()
    client.create_stream("kept")
    with client.writer("kept", timeout=PATIENCE) as out:
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


@pytest.mark.full("five producers and three servers, each with a JVM of its own")
def test_a_buffered_producer_killed_and_started_again_while_the_server_is_killed_too(
    server: ServerProcess, node: NodeHandle, reach: Connecting, tmp_path: Path, rng: random.Random
) -> None:
    reach().create_stream("buffered", 2)
    folder, said = tmp_path / "unsent", []
    for life in range(5):
        last = life == 4
        if life == 1:
            server.kill()  # and it stays away for a whole life of the producer
        arguments = [server.address, node.aeron_dir, "buffered", str(folder), str(1000 * life), "30" if last else "999"]
        with Program(
            [sys.executable, "-W", "error", "-c", PRODUCER, *arguments], env=ENVIRON, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if life == 2:
                server.start()
            for _ in range(10_000 if last else rng.randrange(5, 40)):
                line = process.stdout.readline()
                if not line:
                    break
                said.append(line.strip())
            if not last:
                process.kill()
                said += [line.strip() for line in process.stdout if line.endswith("\n")]
            if life == 3:
                server.kill()
                server.start()
        assert process.returncode == (0 if last else -9)
    assert said.pop() == "flushed"
    assert not list(folder.glob("*.unsent"))
    found = stored(reach(), "buffered")
    both = sorted(found[0] + found[1])
    assert len(both) == len(set(both))
    assert set(map(int, said)) <= set(both)
    assert len(both) - len(said) <= 4  # committed, and not told any more
    for one in found:
        assert one == sorted(one)
        assert one


def test_a_buffer_needs_no_server_and_has_a_bound(
    server: ServerProcess, reach: Connecting, tmp_path: Path
) -> None:  # fmt: skip
    reach().create_stream("bounded")
    server.kill()
    client = reach(wait=False)
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
    with pytest.raises(UsageError, match="another process"):
        client.writer("bounded", buffer=tmp_path / "b")
    out.close()
    out = client.writer("bounded", buffer=tmp_path / "b", buffer_bytes=60_000, timeout=PATIENCE)
    server.start()
    out.write([b"6" * 10_000] * 2)  # waits for room
    out.commit()
    out.flush(PATIENCE)
    assert out.unsent == 0
    assert out.trouble is None
    out.close()
    client.create_stream("other")
    with pytest.raises(OptionError, match="'bounded', not 'other'"):
        client.writer("other", buffer=tmp_path / "b")
    found = [value for batch in client.reader("bounded") for value in batch.column("value").to_pylist()]
    assert [value[:1] for value in found] == [b"0", b"1", b"2", b"3", b"4", b"6", b"6"]


def test_another_writer_of_the_same_id_is_noticed(server: ServerProcess, reach: Connecting, tmp_path: Path) -> None:
    client = reach()
    client.create_stream("shared")
    with client.writer("shared", writer_id="w", partition=0) as out:
        out.write(numbered(0))
    buffered = client.writer("shared", writer_id="w", buffer=tmp_path / "b")
    buffered.write(numbered(1))
    buffered.commit()
    buffered.flush(PATIENCE)
    with client.writer("shared", writer_id="w") as out:
        assert out.last == 1
        out.write(numbered(2))
    buffered.write(numbered(3))
    buffered.commit()
    with pytest.raises(RefusedError, match="fenced"):
        buffered.flush(PATIENCE)
    with pytest.raises(RefusedError, match="fenced"):
        buffered.write(numbered(4))
    buffered.close()
    again = client.writer("shared", writer_id="w", buffer=tmp_path / "b")
    with pytest.raises(RefusedError, match="another writer has used this id"):
        again.flush(PATIENCE)
    again.close()
    assert stored(client, "shared") == [[0, 1, 2]]
