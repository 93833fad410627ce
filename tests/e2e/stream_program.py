"""A program that uses a server's streams through the Python client, for tests that kill things around it.

python -m tests.e2e.stream_program OPTIONS create STREAM PARTITIONS
python -m tests.e2e.stream_program OPTIONS rows STREAM
python -m tests.e2e.stream_program OPTIONS produce STREAM LEDGER SEED
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

import aeron_spark
from aeron_spark.client.opening import Client

MOST_ROWS = 40  # of a transaction
PAUSE = 0.05  # seconds between two of them, on average


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


def produce(client: Client, stream: str, ledger: Path, seed: int) -> None:
    """Commit rows until standard input ends."""
    rng = random.Random(seed)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    first = 0
    with client.writer(stream, writer_id="producer", timeout=100.0) as writer, ledger.open("a") as out:
        while not over.is_set():
            count = rng.randint(1, MOST_ROWS)
            ids = pa.array(range(first, first + count), pa.int64())
            writer.write(pa.record_batch({"id": ids, "text": pa.array(["x" * rng.randint(0, 500)] * count)}))
            writer.commit()
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
            case "produce", (stream, ledger, seed):
                produce(client, stream, Path(ledger), int(seed))
            case _:
                raise SystemExit(f"there is no {do!r} with {len(more)} arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
