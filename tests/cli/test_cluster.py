"""``receive --cluster log`` writes the log of a real Aeron Cluster: its clients' SBE messages, and its own events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aeron.cluster.members import Member, running_cluster
from tests.cli.conftest import run
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order, encode_order_of_version_1


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory, run_name: str, shared: Path) -> Iterator[Member]:
    """The only member of a cluster, whose clients have sent two orders and a heartbeat."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, Path(f"/dev/shm/{run_name}-cluster"), 1) as cluster:
        with cluster.client(str(shared)) as client:
            client.send([encode_order(1), encode_heartbeat(), encode_order_of_version_1(2)])
        yield cluster.members[0]


def test_messages_of_clients_and_events_become_json_lines(member: Member, tmp_path: Path) -> None:
    schema = tmp_path / "orders.xml"
    schema.write_text(SCHEMA)
    log = ["receive", "--cluster", "log", "--aeron-dir", member.aeron_dir, "--payload", "sbe", "--json"]
    orders = run(*log, "--sbe-schema", str(schema), "--sbe-message", "Order", "--metadata")
    assert orders.code == 0, orders.err
    assert [(row["id"], row["symbol"], row["desk"]) for row in orders.lines] == [(1, "ÄBC", "EU"), (2, "ÄBC", None)]
    assert len({row["_aeron_clusterSessionId"] for row in orders.lines}) == 1
    followed = run(
        *log, "--sbe-schema", str(schema), "--sbe-message", "Order", "--follow", "--start", "earliest", "--count", "2"
    )
    assert [row["id"] for row in followed.lines] == [1, 2], followed.err
    events = run(*log, "--option", "clusterEvents=true")
    assert events.code == 0, events.err
    assert [row["message"] for row in events.lines] == [
        "NewLeadershipTermEvent", "SessionOpenEvent", "SessionCloseEvent",
    ]  # fmt: skip
    session = events.lines[1]["SessionOpenEvent"]["clusterSessionId"]
    assert session == orders.lines[0]["_aeron_clusterSessionId"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["--channel", "aeron:ipc", "--stream-id", "1"],
            "option 'cluster' selects the log of a cluster, and 'channel'",
        ),
        (["--server", "127.0.0.1:1", "--stream", "x"], "a server and option 'cluster' exclude each other"),
    ],
)
def test_another_stream_beside_the_log_is_refused(arguments: list[str], reason: str) -> None:
    refused = run("receive", "--cluster", "log", *arguments)
    assert (refused.code, reason in refused.err) == (2, True), refused.err
