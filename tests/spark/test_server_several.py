"""A stream that lives on two servers: micro-batches take turns, and a reader has all of it, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.protocol.keypair import public_text
from spark_jobs.session import begin
from tests.aeron.streams import number
from tests.spark.queries import read_stream
from tests.spark.served import Served, lines, numbered_rows, read, write, write_values
from tests.spark.test_server_exactly_once import copy, forget_last_commit
from tests.waiting import poll_until

pytestmark = pytest.mark.usefixtures("copied")


@pytest.mark.full("two queries of seven batches; test_server_sink writes to two servers by hand")
def test_micro_batches_are_spread_over_two_servers_and_read_once(
    spark: SparkSession, served: Served, second: Served, tmp_path: Path
) -> None:
    source = served.stream()
    write(numbered_rows(spark, 200, 1), served.options(source))
    parts = [one.server.streams.create("spread", 2) for one in (served, second)]
    both = served.options(
        "spread",
        server=",".join(one.server.addresses[0] for one in (served, second)),
        serverKey=",".join(public_text(one.server.public_key) for one in (served, second)),
    )
    frame = read_stream(spark, served.options(source), maxRowsPerTrigger=40).select("value")
    query = copy(frame, both, tmp_path / "c")
    lasts = sorted(part.last_transaction(str(query.id)) for part in parts)
    assert lasts[1] - lasts[0] == 1  # each took every second batch
    assert all(any(state.end for state in part.states()) for part in parts)
    before = [part.states() for part in parts]
    forget_last_commit(tmp_path / "c")
    copy(frame, both, tmp_path / "c")
    assert [part.states() for part in parts] == before
    found = read(spark, both, payload="raw").collect()
    assert sorted(number(row.value) for row in found) == list(range(200))
    alone = [read(spark, {**both, "server": one.server.addresses[0], "serverKey": public_text(one.server.public_key)},
                  payload="raw").count() for one in (served, second)]  # fmt: skip
    assert sum(alone) == 200
    assert min(alone) > 0


@pytest.mark.full("two queries of ten batches; test_server_sink reads and writes a server that is added by hand")
def test_a_server_is_added_while_the_query_runs(
    spark: SparkSession, served: Served, second: Served, tmp_path: Path
) -> None:
    for one in (served, second):
        one.server.streams.create("grows", 2)
    file = tmp_path / "servers"
    file.write_text(lines(served))
    options = served.options("grows", server=f"@{file}")
    del options["serverKey"]
    write(numbered_rows(spark, 100, 2), served.options("grows"))
    write(numbered_rows(spark, 100, 2, first=100), second.options("grows"))
    frame = read_stream(spark, options, payload="raw", maxRowsPerTrigger=30).select("value")
    seen: set[int] = set()

    def take(rows: DataFrame, _: int) -> None:
        found = [number(row.value) for row in rows.collect()]
        assert not seen & set(found)
        seen.update(found)

    query = begin(frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c")).start)
    try:
        poll_until(lambda: len(seen) == 100 or not query.isActive, 60.0, "the first server's rows")
        assert query.isActive
        assert seen == set(range(100))
        # as an editor does it: the file is there, whole, at every moment
        (tmp_path / "servers.new").write_text("# two by now\n" + lines(served, second))
        (tmp_path / "servers.new").rename(file)
        poll_until(lambda: len(seen) == 200 or not query.isActive, 60.0, "the second server's rows")
        assert query.isActive
        assert seen == set(range(200))
    finally:
        query.stop()
    parts = [one.server.streams.create("spread-by-file", 2) for one in (served, second)]
    target = {**options, "stream": "spread-by-file"}
    copied = copy(frame, target, tmp_path / "d")
    lasts = sorted(part.last_transaction(str(copied.id)) for part in parts)
    assert lasts[1] - lasts[0] == 1
    assert sorted(number(row.value) for row in read(spark, target, payload="raw").collect()) == list(range(200))


@pytest.mark.full("a query on two servers takes 10 CPU seconds; test_server_sink adds a server by hand")
def test_a_server_is_added_while_a_query_writes(
    spark: SparkSession, served: Served, second: Served, tmp_path: Path
) -> None:
    source = served.stream()
    parts = [one.server.streams.create("widens", 2) for one in (served, second)]
    file = tmp_path / "servers"
    file.write_text(lines(served))
    target = served.options("widens", server=f"@{file}")
    del target["serverKey"]
    frame = read_stream(spark, served.options(source)).select("value")
    writer = frame.writeStream.format("aeron").options(**target).option("checkpointLocation", str(tmp_path / "c"))
    query = begin(writer.start)
    name = str(query.id)
    written = 0

    def batches(count: int) -> None:
        nonlocal written
        for _ in range(count):
            write_values(source, written, written + 5)
            written += 5
            query.processAllAvailable()

    try:
        batches(2)
        before = parts[0].last_transaction(name)
        assert before >= 1  # there may be one without rows, before the first ones
        assert parts[1].last_transaction(name) == -1
        file.write_text(lines(served, second))
        batches(2)
        last = sorted(part.last_transaction(name) for part in parts)
        assert last[0] > before
        assert last[1] == last[0] + 1  # they take turns
    finally:
        query.stop()
    found = [number(row.value) for row in read(spark, target, payload="raw").collect()]
    assert sorted(found) == list(range(written))
