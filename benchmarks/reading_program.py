"""The readers of :mod:`benchmarks.many_readers`, all in one process, which runs one request per line of input.

``python -m benchmarks.reading_program ADDRESS SERVER_KEY IDENTITY AERON_DIR``. The request ``STREAM READERS`` reads all
rows of the stream with READERS clients at once; the response is the number of rows of all of them, and the seconds.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aeron_spark
from benchmarks.measure import take_over_output

TIMEOUT_S: Final = 300.0


def main() -> None:
    """Run the requests that come on standard input, each with as many connected clients as it has readers."""
    output = take_over_output()
    address, server_key, identity, aeron_dir = sys.argv[1:]
    clients: list[Any] = []
    try:
        print("ready", file=output)
        for line in sys.stdin:
            stream, readers = line.split()
            while len(clients) < int(readers):
                clients.append(
                    aeron_spark.connect(
                        address, identity=identity, server_key=server_key, aeron_dir=aeron_dir, ipc="never",
                        timeout=TIMEOUT_S,
                    )
                )  # fmt: skip
            while len(clients) > int(readers):  # an idle connection has a cost, too
                clients.pop().close()
            rows, seconds = read_all(clients, stream)
            print(rows, seconds, file=output)
    finally:
        for client in clients:
            client.close()


def read_all(clients: list[Any], stream: str) -> tuple[int, float]:
    """Read the stream with all clients at once; return the number of rows of all of them, and the seconds."""
    with ThreadPoolExecutor(len(clients)) as pool:
        started = time.perf_counter()
        counts = list(pool.map(lambda client: sum(batch.num_rows for batch in client.reader(stream)), clients))
        return sum(counts), time.perf_counter() - started


if __name__ == "__main__":
    main()
