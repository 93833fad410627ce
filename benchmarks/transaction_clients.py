"""The writers of :mod:`benchmarks.transactions`, all in one process, which runs one request per line of input.

``python -m benchmarks.transaction_clients ADDRESS SERVER_KEY IDENTITY AERON_DIR``. The request ``STREAM WRITERS COUNT``
commits COUNT transactions of one row with WRITERS concurrent writers; the response is the seconds of the commits. The
request ``STREAM`` counts the stream's rows.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

import aeron_spark
from benchmarks.measure import take_over_output

TIMEOUT_S: Final = 300.0
ROW: Final = pa.RecordBatch.from_pydict({"value": ["x" * 100]})


def commit_rows(client: Any, stream: str, writers: int, count: int) -> float:
    """Commit ``count`` transactions of one row, by writers that each have their partition; return the seconds.

    Opening the writers is not measured: each has committed one transaction before.
    """
    with ExitStack() as stack, ThreadPoolExecutor(writers) as pool:
        opened = [stack.enter_context(client.writer(stream, partition=number)) for number in range(writers)]

        def write(writer: Any, transactions: int) -> None:
            for _ in range(transactions):
                writer.write(ROW)
                writer.commit()

        list(pool.map(write, opened, [1] * writers))
        started = time.perf_counter()
        list(pool.map(write, opened, [count // writers] * writers))
        return time.perf_counter() - started


def main() -> None:
    """Run the requests that come on standard input."""
    output = take_over_output()
    address, server_key, identity, aeron_dir = sys.argv[1:]
    client = aeron_spark.connect(
        address, identity=identity, server_key=server_key, aeron_dir=aeron_dir, ipc="never", timeout=TIMEOUT_S
    )
    with client:
        print("ready", file=output)
        for line in sys.stdin:
            stream, *numbers = line.split()
            if numbers:
                print(commit_rows(client, stream, *(int(number) for number in numbers)), file=output)
            else:
                print(sum(batch.num_rows for batch in client.reader(stream)), file=output)


if __name__ == "__main__":
    main()
