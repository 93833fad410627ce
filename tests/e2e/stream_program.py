"""A program that uses a server's streams with the Python client, for tests that kill the server or other processes.

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

MAX_ROWS = 40  # of a transaction
MEAN_PAUSE_S = 0.05  # between two transactions
T = TypeVar("T")
REPEAT_TIMEOUT_S = 300.0  # of repeating a failed call; longer than any outage of a test


def connected(options: dict[str, str]) -> Client:
    """Return a client that is connected with the options."""
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
    """Return the file of the failed calls of ``produce``; a line has the method's name and the error."""
    return ledger.with_suffix(".failures")


def repeat(method: str, call: Callable[[], T], failures: Path) -> T:
    """Call ``method`` until it succeeds, as a writer's documentation allows after any error; note each error."""
    end = time.monotonic() + REPEAT_TIMEOUT_S
    while True:
        try:
            return call()
        except AeronSparkError as error:
            with failures.open("a") as out:
                out.write(f"{method} {error.what}\n")
            if time.monotonic() > end:
                raise
            time.sleep(MEAN_PAUSE_S)


def produce(client: Client, stream: str, ledger: Path, seed: int, timeout: float) -> None:
    """Commit rows until standard input ends.

    ``timeout`` is the writer's. In a longer outage its calls fail, and each failed call is repeated.
    """
    rng = random.Random(seed)
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    first, failures = 0, failures_of(ledger)
    new = partial(client.writer, stream, writer_id="producer", timeout=timeout)
    with repeat("writer", new, failures) as writer, ledger.open("a") as out:
        while not stopped.is_set():
            count = rng.randint(1, MAX_ROWS)
            ids = pa.array(range(first, first + count), pa.int64())
            rows = pa.record_batch({"id": ids, "text": pa.array(["x" * rng.randint(0, 500)] * count)})
            repeat("write", partial(writer.write, rows), failures)
            repeat("commit", writer.commit, failures)
            first += count
            out.write(f"{first}\n")
            out.flush()
            time.sleep(rng.expovariate(1 / MEAN_PAUSE_S))


def main(options: str, command: str, *more: str) -> None:
    with connected(json.loads(options)) as client:
        match command, more:
            case "create", (stream, partitions):
                client.create_stream(stream, int(partitions))
            case "rows", (stream,):
                print(json.dumps(rows(client, stream)))
            case "produce", (stream, ledger, seed, timeout):
                produce(client, stream, Path(ledger), int(seed), float(timeout))
            case _:
                raise SystemExit(f"unknown command {command!r} with {len(more)} arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
