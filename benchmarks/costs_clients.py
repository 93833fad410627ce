"""The clients of :mod:`benchmarks.costs`, all in one process, which executes one command per line of input.

``python -m benchmarks.costs_clients FOLDER ADDRESS SERVER_KEY AERON_DIR``; each client has its own key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa

import aeron_spark
from aeron_spark import node
from aeron_spark.client.client import Client
from aeron_spark.keys.stores import ensure_identity
from benchmarks.measure import take_over_output

STREAM: Final = "costs"
TIMEOUT_S: Final = 60.0
WRITERS: Final = 8


class Clients:
    """Executes commands with clients that stay connected until the end; the first client creates the stream."""

    def __init__(self, folder: Path, address: str, server_key: str, aeron_dir: str) -> None:
        self._folder = folder
        self._address, self._server_key, self._aeron_dir = address, server_key, aeron_dir
        self._clients: list[Client] = []
        self._readers: list[object] = []

    def connect(self, count: int) -> None:
        """Connect ``count`` more clients."""
        for _ in range(count):
            key = self._folder / f"client-{len(self._clients)}.key"
            ensure_identity(key)
            self._clients.append(
                aeron_spark.connect(
                    self._address, identity=str(key), server_key=self._server_key, aeron_dir=self._aeron_dir,
                    ipc="never", timeout=TIMEOUT_S,
                )
            )  # fmt: skip

    def create(self, partitions: int) -> None:
        """Create the stream."""
        self._clients[0].create_stream(STREAM, partitions)

    def write(self, partitions: int) -> None:
        """Commit one row to each partition."""
        row = pa.RecordBatch.from_pydict({"value": ["x" * 100]})
        with self._clients[0].writer(STREAM) as writer:
            for partition in range(partitions):
                writer.write(row, partition=partition)

    def follow(self, count: int) -> None:
        """Follow ``count`` partitions from their first row, with clients other than the writer's."""
        for number in range(count):
            reader = self._clients[1 + number % (len(self._clients) - 1)].reader(
                STREAM, follow=True, partitions=[number]
            )
            rows = iter(reader)
            assert next(rows).num_rows == 1
            self._readers += [reader, rows]

    def commit(self, count: int) -> None:
        """Commit ``count`` transactions of one row with WRITERS concurrent writers, each to its own partition."""
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
        """Close all clients."""
        for client in self._clients:
            client.close()


def main() -> None:
    """Execute the commands that come on standard input."""
    output = take_over_output()
    folder, address, server_key, aeron_dir = sys.argv[1:]
    running = node.ensure(aeron_dir)
    clients = Clients(Path(folder), address, server_key, aeron_dir)
    commands: dict[str, Callable[[int], None]] = {
        "connect": clients.connect, "create": clients.create, "write": clients.write, "follow": clients.follow,
        "commit": clients.commit,
    }  # fmt: skip
    try:
        print("done", file=output)
        for line in sys.stdin:
            name, count = line.split()
            commands[name](int(count))
            print("done", file=output)
    finally:
        clients.close()
        running.close()


if __name__ == "__main__":
    main()
