"""The clients' end of :mod:`benchmarks.costs`: one process with many of them, which does an order a line.

``python -m benchmarks.costs_end FOLDER ADDRESS SERVER_KEY AERON_DIR``; each client has a key of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.keys.identity import ensure_identity
from benchmarks.measure import own_output

STREAM: Final = "costs"
TIMEOUT: Final = 60.0  # seconds
WRITERS: Final = 8


class Clients:
    """Clients that stay until the end; the first one looks after the stream."""

    def __init__(self, folder: Path, address: str, server_key: str, aeron_dir: str) -> None:
        self._folder = folder
        self._address, self._server_key, self._aeron_dir = address, server_key, aeron_dir
        self._clients: list[Client] = []
        self._readers: list[object] = []

    def connect(self, count: int) -> None:
        """Connect so many more."""
        for _ in range(count):
            key = self._folder / f"client-{len(self._clients)}.key"
            ensure_identity(key)
            self._clients.append(
                aeron_spark.connect(
                    self._address, identity=str(key), server_key=self._server_key, aeron_dir=self._aeron_dir,
                    ipc="never", timeout=TIMEOUT,
                )
            )  # fmt: skip

    def create(self, partitions: int) -> None:
        """Make the stream."""
        self._clients[0].create_stream(STREAM, partitions)

    def write(self, partitions: int) -> None:
        """Commit one row to each partition, and leave it at that."""
        row = pa.RecordBatch.from_pydict({"value": ["x" * 100]})
        with self._clients[0].writer(STREAM) as writer:
            for partition in range(partitions):
                writer.write(row, partition=partition)

    def follow(self, count: int) -> None:
        """Let so many clients follow a partition each, from its first row on; not the one that wrote it."""
        for number in range(count):
            reader = self._clients[1 + number % (len(self._clients) - 1)].reader(
                STREAM, follow=True, partitions=[number]
            )
            rows = iter(reader)
            assert next(rows).num_rows == 1
            self._readers += [reader, rows]

    def commit(self, count: int) -> None:
        """Commit so many transactions of one row, WRITERS clients at once, each to its partition."""
        row = pa.RecordBatch.from_pydict({"value": ["x" * 100]})
        partitions = len(self._clients[0].stream(STREAM).partitions)

        def write(number: int) -> None:
            with self._clients[number % len(self._clients)].writer(STREAM, partition=number % partitions) as writer:
                for _ in range(count // WRITERS):
                    writer.write(row)
                    writer.commit()

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, range(WRITERS)))

    def close(self) -> None:
        """Let all go."""
        for client in self._clients:
            client.close()


def main() -> None:
    """Do what standard input says."""
    answers = own_output()
    folder, address, server_key, aeron_dir = sys.argv[1:]
    clients = Clients(Path(folder), address, server_key, aeron_dir)
    orders: dict[str, Callable[[int], None]] = {
        "connect": clients.connect, "create": clients.create, "write": clients.write, "follow": clients.follow,
        "commit": clients.commit,
    }  # fmt: skip
    try:
        print("done", file=answers)
        for line in sys.stdin:
            word, count = line.split()
            orders[word](int(count))
            print("done", file=answers)
    finally:
        clients.close()


if __name__ == "__main__":
    main()
