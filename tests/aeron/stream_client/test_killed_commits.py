"""A server is killed in each step of a commit for which others wait: each transaction is in the stream once.

``tests/unit/stream_client/test_commit_states.py`` has many more histories, with a simulated server and archive.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from aeron_spark.node import NodeHandle
from aeron_spark.stream_client.staging import MAX_INLINE_BYTES
from aeron_spark.stream_client.writer import StreamWriter
from aeron_spark.streams import journal
from aeron_spark.streams.journal_records import decode_record
from aeron_spark.streams.ledger import Ledger
from aeron_spark.waiting import wait_for
from tests.e2e.faulty_server import JOURNAL, JOURNALLED, PARTLY_PUBLISHED, PUBLISHED, RESPONDED, STAGED, UNPUBLISHED
from tests.server_processes import ServerProcess, connect

TIMEOUT_S: Final = 120.0  # for a restart of the server on a busy machine
WRITERS: Final = 3
ROWS: Final = 3
INLINE, LARGE = 10, MAX_INLINE_BYTES  # bytes of a value; a commit request carries rows of the first size only
# The points at which the server is killed, and whether the journal then has the transaction.
POINTS: Final = {
    "before publishing": {STAGED: False, UNPUBLISHED: False},
    "while publishing": {PARTLY_PUBLISHED: False, PUBLISHED: False},
    "from the journal on": {JOURNAL: False, JOURNALLED: True, RESPONDED: True},
}
# Here the server holds the stream's lock for its ledger, so that no stage can be opened.
LOCKED: Final = (PUBLISHED, JOURNAL, JOURNALLED)
LARGE_FIRST: Final = pytest.mark.full(
    "ten servers, each in a separate process; make test has as many, in commits with the rows in the request"
)


class FaultyServer:
    """A server process with points at which it is killed, on the module's node, and a client with one stream of it."""

    def __init__(self, node: NodeHandle, folder: Path) -> None:
        self.process = ServerProcess(node.aeron_dir, folder)
        self.stream = f"killed-{secrets.token_hex(4)}"
        self._faults = folder / "faults"
        self._faults.mkdir()
        self._journal = Path(f"{node.archive_dir}.streams") / self.stream / journal.JOURNAL_FILE
        self.start()
        self.client = connect(self.process.address, node.aeron_dir, timeout=TIMEOUT_S)

    def start(self) -> None:
        self.process.start("tests.e2e.faulty_server", str(self._faults))

    def arm(self, point: str, commits: int) -> Callable[[], bool]:
        """Arm a point, at which the server waits for so many commits; return whether the server has reached it."""
        armed = self._faults / f"{point}.{self.stream}"
        draft = self._faults / "draft"
        draft.write_text(str(commits))
        draft.rename(armed)  # the server never meets an empty file
        return lambda: not armed.exists()

    def last_transactions(self, writers: list[StreamWriter]) -> list[int]:
        """Return the last transaction of each writer in the journal, while no server runs."""
        payloads, _ = journal.read_entries(self._journal.read_bytes(), self._journal)
        ledger = Ledger.replay(2, map(decode_record, payloads))
        return [ledger.last_transaction(writer.writer_id) for writer in writers]


@pytest.fixture
def server(node: NodeHandle, tmp_path: Path) -> Iterator[FaultyServer]:
    one = FaultyServer(node, tmp_path)
    try:
        one.client.create_stream(one.stream, 2)
        yield one
    finally:
        one.client.close()
        one.process.kill()


def values_of(writer: StreamWriter, transaction: int, partition: int, size: int) -> list[bytes]:
    return [f"{writer.writer_id}/{transaction}/{partition}/{row}/".encode() + bytes(size) for row in range(ROWS)]


def commit(writer: StreamWriter, size: int) -> int:
    """Write rows to both partitions, commit them, and return the number of the transaction."""
    for partition in (0, 1):
        writer.write(values_of(writer, writer.last + 1, partition, size), partition=partition)
    return writer.commit()


def read(server: FaultyServer) -> list[list[bytes]]:
    """Return the values of each partition, without the bytes that make them large."""
    readers = [server.client.reader(server.stream, partitions=[partition]) for partition in (0, 1)]
    return [
        [value.rstrip(b"\0") for batch in reader for value in batch.column("value").to_pylist()] for reader in readers
    ]


def kill_in_commit(server: FaultyServer, point: str, size: int, *, is_committed: bool) -> None:
    """Kill the server in a commit with values of ``size`` bytes; other commits wait for it, or come later."""
    sizes = [size, INLINE, INLINE if point in LOCKED else LARGE]
    others_wait = point not in (STAGED, RESPONDED)
    with ThreadPoolExecutor(WRITERS) as pool:
        names = [f"{point}-{number}" for number in range(WRITERS)]
        writers = [
            server.client.writer(server.stream, writer_id=name, payload="raw", timeout=TIMEOUT_S) for name in names
        ]
        assert [commit(writer, INLINE) for writer in writers] == [0] * WRITERS
        before = read(server)
        reached = server.arm(point, WRITERS if others_wait else 0)

        def commit_others() -> list[Future[int]]:
            return [pool.submit(commit, *one) for one in zip(writers[1:], sizes[1:], strict=True)]

        commits = [pool.submit(commit, writers[0], size)]
        wait_for(reached, TIMEOUT_S, f"the server to reach {point}")
        commits += commit_others() if others_wait else []
        server.process.await_killed(TIMEOUT_S)
        assert server.last_transactions(writers) == [int(is_committed), 0, 0]
        server.start()
        commits += [] if others_wait else commit_others()
        assert [one.result(TIMEOUT_S) for one in commits] == [1] * WRITERS
        for writer in writers:
            writer.close()
    for partition, values in enumerate(read(server)):
        assert values[: len(before[partition])] == before[partition]
        added = values[len(before[partition]) :]
        found = [added[at : at + ROWS] for at in range(0, len(added), ROWS)]
        assert sorted(found) == sorted(values_of(writer, 1, partition, 0) for writer in writers)


@pytest.mark.sampled
@pytest.mark.parametrize("size", [INLINE, pytest.param(LARGE, marks=LARGE_FIRST)], ids=["inline", "staged"])
@pytest.mark.parametrize("steps", POINTS)
def test_the_commits_of_a_server_that_is_killed_in_one_of_them_are_done_once(
    server: FaultyServer, steps: str, size: int
) -> None:
    for point, is_committed in POINTS[steps].items():
        kill_in_commit(server, point, size, is_committed=is_committed)
