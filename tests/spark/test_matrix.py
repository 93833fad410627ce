"""The promises that `make test-matrix` shows for each version of Spark, besides marked tests of other modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from aeron_spark.node import NodeHandle
from aeron_spark.spark import error_text
from aeron_spark.spark.pyspark_api import HAS_READ_LIMITS
from tests.aeron.streams import TIMEOUT_S, Stream, numbered
from tests.ports import free_port
from tests.programs import ROOT
from tests.spark.queries import (
    QUERY_TIMEOUT_S,
    CollectingSink,
    read_batch,
    read_stream,
    run_to_end,
    run_to_end_after_failure,
)
from tests.spark.test_kills import PlannerKiller
from tests.spark_conf import spark_conf
from tests.waiting import poll_until

pytestmark = pytest.mark.full("other tests of tests/spark show the same, with the one Spark of this environment")

PROGRAM: Final = ROOT / "tests" / "spark" / "connect_program.py"
CONNECT_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.mark.matrix("stream")
def test_a_query_copies_a_stream_to_a_stream(
    spark: SparkSession, stream: Stream, node: NodeHandle, tmp_path: Path
) -> None:
    stream.publisher().send(numbered(0, 40))
    target = {"channel": "aeron:ipc", "streamId": str(stream.id + 10_000), "aeronDir": node.aeron_dir}
    writer = read_stream(spark, stream.options).select("value").writeStream.format("aeron").options(**target)
    query = writer.options(record="auto", ack="archive", checkpointLocation=str(tmp_path)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    copied = read_batch(spark, target).select("value").collect()
    assert sorted(bytes(row.value) for row in copied) == sorted(numbered(0, 40))


@pytest.mark.matrix("AvailableNow")
def test_available_now_reads_what_is_there_and_ends(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    publisher, seen = stream.publisher(), CollectingSink()
    frame = read_stream(spark, stream.options)
    for end in (20, 50):
        publisher.send(numbered(len(seen.numbers), end))
        run_to_end(frame, tmp_path, seen)
        assert seen.numbers == list(range(end))
    assert seen.sizes == [20, 30]


@pytest.mark.matrix("limits")
def test_limits_divide_available_now_or_are_refused_by_name(
    spark: SparkSession, stream: Stream, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    stream.publisher().send(numbered(0, 40))
    frame, seen = read_stream(spark, stream.options, maxRowsPerTrigger=20), CollectingSink()
    if HAS_READ_LIMITS:
        run_to_end(frame, tmp_path, seen)
        assert seen.sizes == [20, 20]
        return
    record_property("outcome", "from 4.2")
    with pytest.raises(StreamingQueryException) as error:
        run_to_end(frame, tmp_path, seen)
    release = pyspark.__version__
    assert f"'maxRowsPerTrigger' of a streaming query needs Spark 4.2 or newer, and this is Spark {release}" in (
        error_text(error.value) or ""
    )
    assert not seen.batches


@pytest.mark.matrix("kill")
def test_each_row_is_read_once_after_a_kill_of_the_planner(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 40))
    killer = PlannerKiller(spark)

    def kill_planner(_: int) -> None:
        if killer.kill():
            raise RuntimeError("the batch fails, too")

    seen = CollectingSink(before_batch=kill_planner)
    frame = read_stream(spark, stream.options)
    with pytest.raises(StreamingQueryException):
        run_to_end(frame, tmp_path, seen)
    assert killer.killed
    publisher.send(numbered(40, 60))
    run_to_end_after_failure(frame, tmp_path, seen)
    assert seen.numbers == list(range(60))


@pytest.mark.matrix("Delta")
@pytest.mark.delta
def test_a_delta_table_has_each_row_once_after_a_restart(spark: SparkSession, stream: Stream, tmp_path: Path) -> None:
    publisher = stream.publisher()
    frame = read_stream(spark, stream.options).selectExpr("string(value) AS value")
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
    for first in (0, 30):
        publisher.send(numbered(first, first + 30))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        assert query.awaitTermination(QUERY_TIMEOUT_S), query.status
    rows = spark.read.format("delta").load(str(tmp_path / "table")).collect()
    assert sorted(row.value.encode() for row in rows) == sorted(numbered(0, 60))


@pytest.mark.matrix("Connect")
def test_a_client_of_spark_connect_writes_reads_and_follows_a_stream(node: NodeHandle, tmp_path: Path) -> None:
    """The client has the Python of `make test-matrix`, whose package may be pyspark-client, or this one."""
    options = {"channel": "aeron:ipc", "streamId": "9611", "aeronDir": node.aeron_dir}
    client = os.environ.get("MATRIX_CLIENT_PYTHON", sys.executable)
    with connect_server(tmp_path) as remote:
        done = subprocess.run(
            [client, str(PROGRAM), remote, json.dumps(options), str(tmp_path / "out")],
            env={**os.environ, "PYSPARK_PYTHON": client},
            capture_output=True,
            text=True,
            timeout=QUERY_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [100, 100, 200, 200]


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server of Spark Connect, whose workers run this Python; yield its address."""
    port = free_port()
    conf = spark_conf(folder) | {"spark.connect.grpc.binding.port": str(port), "spark.master": "local[2]"}
    settings = [f"--conf={name}={value}" for name, value in conf.items()]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [str(submit), "--class", CONNECT_SERVER, *settings, "spark-internal"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            poll_until(
                lambda: server.poll() is not None or "Spark Connect server started" in log.read_text(),
                TIMEOUT_S,
                "the start of a server of Spark Connect",
                state=lambda: log.read_text()[-2000:],
            )
            assert server.poll() is None, log.read_text()[-4000:]
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=60)
