"""``cluster=log`` reads the log of a real Aeron Cluster: its clients' SBE messages, and its own events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.node import NodeHandle
from tests.aeron.cluster.members import Member, running_cluster
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order, encode_order_of_version_1
from tests.spark.queries import run_to_end
from tests.spark.simulated_engine import read_table


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory, run_name: str, node: NodeHandle) -> Iterator[Member]:
    """The only member of a cluster, whose clients have sent three orders and a heartbeat."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, Path(f"/dev/shm/{run_name}-cluster"), 1) as cluster:
        with cluster.client(node.aeron_dir) as client:
            client.send([encode_order(1), encode_heartbeat(), encode_order_of_version_1(2), encode_order(3)])
        yield cluster.members[0]


def options_of(member: Member, **more: str) -> dict[str, str]:
    # the default of 10 s is too short for an archive whose disk is busy: its one thread also writes the log
    return {"cluster": "log", "aeronDir": member.aeron_dir, "payload": "sbe", "connectTimeout": "60s", **more}


def test_messages_of_clients_become_typed_columns(member: Member) -> None:
    options = options_of(member, sbeSchema=SCHEMA, sbeMessage="Order", includeMetadata="true")
    table = read_table(options)
    rows = table.to_pylist()
    assert [(row["id"], row["symbol"], row["desk"]) for row in rows] == [
        (1, "ÄBC", "EU"),
        (2, "ÄBC", None),
        (3, "ÄBC", "EU"),
    ]
    assert len({(row["_aeron_leadershipTermId"], row["_aeron_clusterSessionId"]) for row in rows}) == 1
    times = table["_aeron_clusterTimestamp"].cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert times[0] > 0


def test_a_streaming_query_reads_the_log(spark: SparkSession, member: Member, tmp_path: Path) -> None:
    options = options_of(member, sbeSchema=SCHEMA, sbeMessage="Order", startingOffsets="earliest")
    found: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        found.extend(row.id for row in frame.select("id").collect())

    for _ in range(2):  # the second run finds nothing new
        run_to_end(spark.readStream.format("aeron").options(**options).load(), tmp_path / "checkpoint", collect)
    assert found == [1, 2, 3]


def test_events_of_the_cluster_become_rows(member: Member) -> None:
    rows = read_table(options_of(member, clusterEvents="true")).to_pylist()
    names = [row["message"] for row in rows]
    assert names == ["NewLeadershipTermEvent", "SessionOpenEvent", "SessionCloseEvent"]
    term, opened, closed = (row[name] for row, name in zip(rows, names, strict=True))
    assert term["leadershipTermId"] == opened["leadershipTermId"]
    assert closed["closeReason"] == "CLIENT_ACTION"
    assert opened["clusterSessionId"] == closed["clusterSessionId"]
    one = read_table(options_of(member, clusterEvents="true", sbeMessage="SessionOpenEvent"))
    assert one["clusterSessionId"].to_pylist() == [opened["clusterSessionId"]]
