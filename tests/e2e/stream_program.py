"""A program that uses a server's streams through the Python client, for tests that kill things around it.

python -m tests.e2e.stream_program OPTIONS create STREAM PARTITIONS
python -m tests.e2e.stream_program OPTIONS rows STREAM
python -m tests.e2e.stream_program OPTIONS produce STREAM LEDGER SEED TIMEOUT
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

import aeron_spark
from aeron_spark.client.client import Client
from aeron_spark.errors import AeronSparkError

MOST_ROWS = 40  # of a transaction
PAUSE = 0.05  # seconds between two of them, on average
T = TypeVar("T")
REPEATING = 300.0  # seconds for which a failed call is repeated; longer than any outage of a test


def connected(options: dict[str, str]) -> Client:
    """Connect as the options say."""
    return aeron_spark.connect(
        options["server"], identity=options["identity"], server_key=options["serverKey"],
        aeron_dir=options["aeronDir"], ipc=options["ipc"], timeout=60.0,
    )  # fmt: skip


def rows(client: Client, stream: str) -> dict[int, list[int]]:
    """Read all ids, by partition."""
    count = len(client.stream(stream).partitions)
    return {
        partition: [one for batch in client.reader(stream, partitions=[partition]) for one in batch["id"].to_pylist()]
        for partition in range(count)
    }


def failures_of(ledger: Path) -> Path:
    """Where ``produce`` writes down its failed calls, one a line: the method's name and the error."""
    return ledger.with_suffix(".failures")


def repeat(method: str, call: Callable[[], T], failures: Path) -> T:
    """Call ``method`` until it succeeds, as a writer's documentation allows after any error; write down each error."""
    end = time.monotonic() + REPEATING
    while True:
        try:
            return call()
        except AeronSparkError as error:
            with failures.open("a") as out:
                out.write(f"{method} {error.what}\n")
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)


def produce(client: Client, stream: str, ledger: Path, seed: int, timeout: float) -> None:
    """Commit rows until standard input ends.

    ``timeout`` is the writer's: an outage that is longer makes its calls fail, and each failed call is repeated.
    """
    rng = random.Random(seed)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    first, failures = 0, failures_of(ledger)
    new = partial(client.writer, stream, writer_id="producer", timeout=timeout)
    with repeat("writer", new, failures) as writer, ledger.open("a") as out:
        while not over.is_set():
            count = rng.randint(1, MOST_ROWS)
            ids = pa.array(range(first, first + count), pa.int64())
            rows = pa.record_batch({"id": ids, "text": pa.array(["x" * rng.randint(0, 500)] * count)})
            repeat("write", partial(writer.write, rows), failures)
            repeat("commit", writer.commit, failures)
            first += count
            out.write(f"{first}\n")
            out.flush()
            time.sleep(rng.expovariate(1 / PAUSE))


def main(options: str, do: str, *more: str) -> None:
    """Do one thing."""
    with connected(json.loads(options)) as client:
        match do, more:
            case "create", (stream, partitions):
                client.create_stream(stream, int(partitions))
            case "rows", (stream,):
                print(json.dumps(rows(client, stream)))
            case "produce", (stream, ledger, seed, timeout):
                produce(client, stream, Path(ledger), int(seed), float(timeout))
            case _:
                raise SystemExit(f"there is no {do!r} with {len(more)} arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
