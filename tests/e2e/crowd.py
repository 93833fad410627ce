"""Many clients in one process, each with its own connection and writer: ``python -m tests.e2e.crowd SETTINGS``.

The program prints ``connected`` when all are connected. Then it executes the lines of its input, ``round``, ``begin``,
``pause`` and ``close``, and prints each when it is done.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError
from aeron_spark.keys.stores import MemoryPeerStore
from aeron_spark.protocol.keypair import KeyPair, keypair_from
from aeron_spark.stream_client.writer import StreamWriter

CONNECT_TIMEOUT_S: Final = 240.0  # for the clients of four processes on two busy cores
OUTAGE_TIMEOUT_S: Final = 180.0  # of a writer's calls; no outage of a test is longer
REPEAT_TIMEOUT_S: Final = 240.0  # of repeating a failed call
MAX_ROWS: Final = 1_000_000  # of one client
PAUSE_S: Final = 0.1  # between two transactions of a client that writes continuously, and before a failed call's next
MAX_AT_ONCE: Final = 64  # more than the clients of one process
ROUND_AT_ONCE: Final = 4  # clients of one process that commit in a round at a time
T = TypeVar("T")


def keys_of(name: str) -> KeyPair:
    """Return the key pair of the client key with this name, the same in each process."""
    return keypair_from(name.encode().ljust(32, b"-"))


@dataclass(frozen=True)
class CrowdSettings:
    """The clients of one process: ``count`` connections with the key ``name``, numbered from ``first``.

    ``busy`` of them write continuously between :meth:`Crowd.begin` and :meth:`Crowd.pause`. ``ledger`` is a file that
    gets the id of each row whose commit was confirmed; errors of calls are in the same file with ``.failures``.
    """

    address: str
    aeron_dir: str
    name: str
    first: int
    count: int
    busy: int
    stream: str
    ledger: str


class Ledger:
    """A file with the ids of the rows whose commits were confirmed. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.failures: Final = path.with_suffix(".failures")
        self._lock: Final = threading.Lock()

    def add(self, row: int) -> None:
        """Note a committed row."""
        with self._lock, self.path.open("a") as out:
            out.write(f"{row}\n")

    def add_failure(self, error: AeronSparkError) -> None:
        """Note the error of a call that is repeated."""
        with self._lock, self.failures.open("a") as out:
            out.write(f"{error.what}\n")


class Member:
    """One client, which commits transactions of one row. Its rows have the ids from ``number * MAX_ROWS``.

    It repeats failed calls until ``closing`` is set.
    """

    def __init__(self, client: Client, number: int, stream: str, ledger: Ledger, closing: threading.Event) -> None:
        self.client: Final = client
        self._closing: Final = closing
        self._ledger: Final = ledger
        self._next = number * MAX_ROWS
        self._make: Final = partial(client.writer, stream, writer_id=f"member-{number}", timeout=OUTAGE_TIMEOUT_S)
        self._writer: StreamWriter | None = None

    def commit_row(self) -> None:
        """Commit the next row; repeat a failed call, and note its error."""
        if self._writer is None:
            self._writer = self._repeat(self._make)
        rows = pa.record_batch({"id": pa.array([self._next], pa.int64())})
        self._repeat(partial(self._writer.write, rows))
        self._repeat(self._writer.commit)
        self._ledger.add(self._next)
        self._next += 1

    def write_until(self, stopped: threading.Event) -> None:
        """Commit rows until ``stopped`` is set."""
        while not stopped.wait(PAUSE_S):
            try:
                self.commit_row()
            except AeronSparkError:
                if not self._closing.is_set():
                    raise
                return

    def _repeat(self, call: Callable[[], T]) -> T:
        end = time.monotonic() + REPEAT_TIMEOUT_S
        while True:
            try:
                return call()
            except AeronSparkError as error:
                self._ledger.add_failure(error)
                if time.monotonic() > end or self._closing.wait(PAUSE_S):
                    raise


class Crowd:
    """The clients of this process."""

    def __init__(self, settings: CrowdSettings) -> None:
        keys, ledger = keys_of(settings.name), Ledger(Path(settings.ledger))
        self._closing: Final = threading.Event()
        self._members: Final = [
            Member(
                Client.to(
                    settings.address, aeron_dir=settings.aeron_dir, ipc="never", idle="sleeping",
                    tag=f"{settings.name}-{number}", store=MemoryPeerStore(keys), connect_timeout="0",
                ),
                settings.first + number, settings.stream, ledger, self._closing,
            )
            for number in range(settings.count)
        ]  # fmt: skip
        self._busy: Final = self._members[: settings.busy]
        self._stopped: Final = threading.Event()
        self._writing: list[threading.Thread] = []

    def connect(self) -> None:
        self._each(lambda member: member.client.connect(CONNECT_TIMEOUT_S))

    def round(self) -> None:
        """Let each client commit a row. Not between ``begin`` and ``pause``: a writer is for one thread."""
        self._each(Member.commit_row, ROUND_AT_ONCE)

    def begin(self) -> None:
        """Let the busy clients write continuously."""
        self._stopped.clear()
        self._writing = [threading.Thread(target=one.write_until, args=(self._stopped,)) for one in self._busy]
        for thread in self._writing:
            thread.start()

    def pause(self) -> None:
        """Let the busy clients finish their transactions."""
        self._stopped.set()
        for thread in self._writing:
            thread.join()

    def close(self) -> None:
        """Close all clients, which repeat no call any more."""
        self._closing.set()
        self.pause()
        self._each(lambda member: member.client.close())

    def _each(self, do: Callable[[Member], object], at_once: int = MAX_AT_ONCE) -> None:
        with ThreadPoolExecutor(min(at_once, len(self._members))) as pool:
            list(pool.map(do, self._members))


def arguments_of(settings: CrowdSettings) -> str:
    return json.dumps(asdict(settings))


def main(settings: str) -> None:
    """Connect, then execute the lines of the input."""
    logging.getLogger("aeron_spark").setLevel(logging.ERROR)  # each killed server makes each client log a lost session
    crowd = Crowd(CrowdSettings(**json.loads(settings)))
    crowd.connect()
    print("connected", flush=True)
    for line in sys.stdin:
        word = line.strip()
        {"round": crowd.round, "begin": crowd.begin, "pause": crowd.pause, "close": crowd.close}[word]()
        print(word, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
