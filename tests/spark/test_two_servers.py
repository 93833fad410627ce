"""A stream on two servers: micro-batches alternate between them, and a query reads all rows once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.protocol.keypair import public_text
from spark_jobs.session import begin
from tests.aeron.streams import number
from tests.spark.queries import read_stream
from tests.spark.stream_server import (
    StreamServer,
    commit_values,
    format_server_list,
    make_numbered_rows,
    read_frame,
    write_frame,
)
from tests.spark.test_server_exactly_once import copy_available, remove_last_commit
from tests.waiting import poll_until

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


@pytest.mark.full("two queries of seven batches; test_server_sink writes to two servers without Spark")
def test_micro_batches_alternate_between_two_servers_and_their_rows_are_read_once(
    spark: SparkSession, server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    source = server.create_stream()
    write_frame(make_numbered_rows(spark, 200, 1), server.options(source))
    streams = [one.endpoint.streams.create("spread", 2) for one in (server, second_server)]
    both = server.options(
        "spread",
        server=",".join(one.endpoint.addresses[0] for one in (server, second_server)),
        serverKey=",".join(public_text(one.endpoint.public_key) for one in (server, second_server)),
    )
    frame = read_stream(spark, server.options(source), maxRowsPerTrigger=40).select("value")
    query = copy_available(frame, both, tmp_path / "c")
    last = sorted(stream.last_committed(str(query.id)).transaction for stream in streams)
    assert last[1] - last[0] == 1  # each server has every second batch
    assert all(any(state.end for state in stream.states()) for stream in streams)
    before = [stream.states() for stream in streams]
    remove_last_commit(tmp_path / "c")
    copy_available(frame, both, tmp_path / "c")
    assert [stream.states() for stream in streams] == before
    found = read_frame(spark, both, payload="raw").collect()
    assert sorted(number(row.value) for row in found) == list(range(200))
    counts = [read_frame(spark, one.options("spread"), payload="raw").count() for one in (server, second_server)]
    assert sum(counts) == 200
    assert min(counts) > 0


@pytest.mark.full("two queries of ten batches; test_server_sink adds a server without Spark")
def test_running_queries_read_and_write_a_server_that_is_added(
    spark: SparkSession, server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    for one in (server, second_server):
        one.endpoint.streams.create("grows", 2)
    file = tmp_path / "servers"
    file.write_text(format_server_list(server))
    options = server.options("grows", server=f"@{file}")
    del options["serverKey"]
    write_frame(make_numbered_rows(spark, 100, 2), server.options("grows"))
    write_frame(make_numbered_rows(spark, 100, 2, first=100), second_server.options("grows"))
    frame = read_stream(spark, options, payload="raw", maxRowsPerTrigger=30).select("value")
    seen: set[int] = set()

    def collect(rows: DataFrame, _: int) -> None:
        found = [number(row.value) for row in rows.collect()]
        assert not seen & set(found)
        seen.update(found)

    query = begin(frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "c")).start)
    try:
        poll_until(lambda: len(seen) == 100 or not query.isActive, 60.0, "the first server's rows")
        assert query.isActive
        assert seen == set(range(100))
        # As editors do, replace the file, so that it is complete at every moment.
        (tmp_path / "servers.new").write_text("# two servers\n" + format_server_list(server, second_server))
        (tmp_path / "servers.new").rename(file)
        poll_until(lambda: len(seen) == 200 or not query.isActive, 60.0, "the second server's rows")
        assert query.isActive
        assert seen == set(range(200))
    finally:
        query.stop()
    streams = [one.endpoint.streams.create("spread-by-file", 2) for one in (server, second_server)]
    target = {**options, "stream": "spread-by-file"}
    copied = copy_available(frame, target, tmp_path / "d")
    last = sorted(stream.last_committed(str(copied.id)).transaction for stream in streams)
    assert last[1] - last[0] == 1
    assert sorted(number(row.value) for row in read_frame(spark, target, payload="raw").collect()) == list(range(200))


@pytest.mark.full("a query on two servers takes 10 CPU seconds; test_server_sink adds a server without Spark")
def test_a_running_query_writes_to_a_server_that_is_added(
    spark: SparkSession, server: StreamServer, second_server: StreamServer, tmp_path: Path
) -> None:
    source = server.create_stream()
    streams = [one.endpoint.streams.create("widens", 2) for one in (server, second_server)]
    file = tmp_path / "servers"
    file.write_text(format_server_list(server))
    target = server.options("widens", server=f"@{file}")
    del target["serverKey"]
    frame = read_stream(spark, server.options(source)).select("value")
    writer = frame.writeStream.format("aeron").options(**target).option("checkpointLocation", str(tmp_path / "c"))
    query = begin(writer.start)
    name = str(query.id)
    written = 0

    def run_batches(count: int) -> None:
        nonlocal written
        for _ in range(count):
            commit_values(source, written, written + 5)
            written += 5
            query.processAllAvailable()

    try:
        run_batches(2)
        before = streams[0].last_committed(name).transaction
        assert before >= 1  # the first batch may have no rows
        assert streams[1].last_committed(name).transaction == -1
        file.write_text(format_server_list(server, second_server))
        run_batches(2)
        last = sorted(stream.last_committed(name).transaction for stream in streams)
        assert last[0] > before
        assert last[1] == last[0] + 1  # the batches alternate
    finally:
        query.stop()
    found = [number(row.value) for row in read_frame(spark, target, payload="raw").collect()]
    assert sorted(found) == list(range(written))
