"""A server is killed and restarted in a task of a query of Spark that reads from it and writes to it: each row once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aeron_spark.jobs.session import begin
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.node import NodeHandle
from aeron_spark.pool import POOL
from aeron_spark.protocol.keypair import public_text
from tests.aeron.streams import numbered
from tests.server_processes import ServerProcess, connect, started_server
from tests.spark.queries import read_stream, wait_for_query
from tests.spark.simulated_engine import read_numbers

BATCH_ROWS = 30_000
ROWS = 2 * BATCH_ROWS
WAITING_ROW = BATCH_ROWS + 20_000  # Spark gives the sink 10,000 rows at a time: some of the second batch are staged
LENGTH = 100  # bytes of a row


@pytest.fixture
def restarted(node: NodeHandle, tmp_path: Path) -> Iterator[ServerProcess]:
    with started_server(node, tmp_path) as one:
        yield one
        POOL.close()


def waiting_for(path: str, row: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that passes on all rows, those from ``row`` on after the file ``path`` was made."""

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + 120
        for batch in batches:
            while any(value.startswith(row) for value in batch["value"].to_pylist()) and not Path(path).exists():
                assert time.monotonic() < deadline, f"no file {path}"
                time.sleep(0.05)
            yield batch

    return pass_on


@pytest.mark.full("two servers, and a query of Spark; test_sink_restarts has a task without Spark")
def test_a_query_goes_on_if_its_server_is_killed_in_a_task(
    spark: SparkSession, restarted: ServerProcess, node: NodeHandle, tmp_path: Path
) -> None:
    with connect(restarted.address, node.aeron_dir) as client:
        client.create_stream("killed-source")
        client.create_stream("killed-target")
        with client.writer("killed-source", payload="raw") as out:
            out.write(numbered(0, ROWS, LENGTH))
    options = {
        "server": restarted.address, "identity": str(tmp_path / "client.key"), "aeronDir": node.aeron_dir,
        "serverKey": public_text(ensure_identity(tmp_path / "server.key").public), "connectTimeout": "60s",
    }  # fmt: skip
    ensure_identity(tmp_path / "client.key")
    source, target = ({**options, "stream": f"killed-{name}"} for name in ("source", "target"))
    rows = read_stream(spark, source, maxRowsPerTrigger=BATCH_ROWS).select("value")
    is_back = tmp_path / "is-back"
    rows = rows.mapInArrow(waiting_for(str(is_back), b"%d." % WAITING_ROW), rows.schema)
    writer = rows.writeStream.format("aeron").options(**target).option("checkpointLocation", str(tmp_path / "c"))
    query = begin(writer.trigger(processingTime="0 seconds").start)
    folder = Path(f"{node.archive_dir}.streams") / "killed-target"
    try:
        wait_for_query(query, "the first micro-batch", lambda: len(read_numbers(target)) == BATCH_ROWS)
        wait_for_query(
            query,
            "rows of the second one on the server",
            lambda: any(one.stat().st_size for one in folder.rglob("*.part")),
        )
        restarted.kill()
        restarted.start()
        is_back.touch()
        wait_for_query(query, "all rows", lambda: len(read_numbers(target)) >= ROWS)
    finally:
        query.stop()
    assert query.exception() is None
    assert sorted(read_numbers(target)) == list(range(ROWS))
