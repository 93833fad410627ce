"""A buffered producer is killed between its commit and the server's: each transaction is in the stream once.

``test_client_restarts`` kills producers and servers at random points; here the point is fixed.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aeron_spark.node import NodeHandle
from aeron_spark.server.server import Server
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.stream_client.conftest import Connect
from tests.programs import start_interpreter
from tests.stream_requests import create_request

TIMEOUT_S = 120.0
WRITER = "edge-7"
TRANSACTIONS = 3
ROWS = 20

# Commits transactions to a buffer, prints how many, and waits to be killed.
PRODUCER = f"""
import sys
import pyarrow as pa
import aeron_spark
from aeron_spark.keys.stores import MemoryPeerStore

address, aeron_dir, stream, folder = sys.argv[1:]
client = aeron_spark.connect(address, aeron_dir=aeron_dir, ipc="never", store=MemoryPeerStore(), wait=False)
out = client.writer(stream, writer_id="{WRITER}", buffer=folder)
for number in range({TRANSACTIONS}):
    out.write(pa.record_batch({{"n": [number] * {ROWS}, "row": list(range({ROWS}))}}))
    out.commit()
print(out.last + 1, flush=True)
sys.stdin.read()
"""


class BlockedCommit:
    """Replaces a stream's commit: sets ``begun``, waits for ``go``, and then commits."""

    def __init__(self, stream: Stream) -> None:
        self._commit = stream.commit
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.begun.set()
        assert self.go.wait(TIMEOUT_S)
        return self._commit(*arguments, **keywords)


@pytest.fixture
def stream(server: Server) -> Stream:
    return server.streams.create(create_request(f"s-{secrets.token_hex(4)}", 1))


@pytest.fixture
def blocked_commit(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedCommit]:
    one = BlockedCommit(stream)
    monkeypatch.setattr(stream, "commit", one)
    yield one
    one.go.set()


def files(folder: Path) -> list[str]:
    """Return the transactions in a folder, in order, each with its state."""
    found = (path.name.split(".") for path in sorted(folder.glob("0*")))
    return [f"{int(number)}.{state}" for number, state in found]


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(batch.column("n").to_pylist(), batch.column("row").to_pylist(), strict=True))


@pytest.mark.sampled
def test_a_producer_killed_between_its_commits_and_the_servers_has_each_transaction_in_the_stream_once(
    server: Server, node: NodeHandle, connect: Connect, stream: Stream, blocked_commit: BlockedCommit, tmp_path: Path
) -> None:
    """The producer is killed while the server is about to commit the first of three transactions, which it then does.

    The folder does not know of that commit: the next process sends all three, and the server commits two of them.
    """
    name, folder = stream.definition.name, tmp_path / "unsent"
    arguments = [server.addresses[0], node.aeron_dir, name, str(folder)]
    with start_interpreter("-W", "error", "-c", PRODUCER, *arguments) as process:
        try:
            assert process.stdout.readline() == f"{TRANSACTIONS}\n"
            assert blocked_commit.begun.wait(TIMEOUT_S)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert files(folder) == ["0.sending", "1.unsent", "2.unsent"]
    assert stream.last_committed(WRITER).transaction == -1, "the server has a transaction already"
    blocked_commit.go.set()
    wait_for(
        lambda: stream.last_committed(WRITER).transaction == 0, TIMEOUT_S, "the server to commit the first transaction"
    )

    client = connect()
    out = client.writer(name, buffer=folder)
    assert out.writer_id == WRITER
    assert out.unsent == TRANSACTIONS
    out.flush(TIMEOUT_S)
    out.write(pa.record_batch({"n": [TRANSACTIONS] * ROWS, "row": list(range(ROWS))}))
    out.commit()
    out.flush(TIMEOUT_S)
    assert out.unsent == 0
    out.close()
    found = [row for batch in client.reader(name) for row in rows_of(batch)]
    assert found == [(number, row) for number in range(TRANSACTIONS + 1) for row in range(ROWS)]
    client.close()
