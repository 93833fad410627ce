"""The log of a real cluster is read up to what its members have agreed on, from each member."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from aeron_spark.aeron.counters import commit_positions
from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.cluster.members import TIMEOUT_S, Cluster, running_cluster
from tests.aeron.cluster.reading import StreamingQuery, read_log


def numbered(first: int, last: int, size: int = 40) -> list[bytes]:
    """Return messages with these numbers."""
    return [struct.pack("<q", number).ljust(size, b".") for number in range(first, last)]


def in_order(messages: list[bytes]) -> list[bytes]:
    """Return messages without repetitions: after an election, a client sends a message again."""
    return list(dict.fromkeys(messages))


@pytest.fixture
def single(tmp_path: Path, aeron_dir: Path) -> Iterator[Cluster]:
    """A cluster of one member."""
    with running_cluster(tmp_path / "cluster", aeron_dir, 1) as cluster:
        yield cluster


def test_the_log_of_a_member_has_the_messages_of_its_clients(single: Cluster, node_of_256k: NodeHandle) -> None:
    (member,) = single.members
    sent = [*numbered(0, 50), b"fragmented" * 500, *numbered(50, 60)]
    with single.client(node_of_256k.aeron_dir) as client:
        client.send(sent)
        query = StreamingQuery(member.aeron_dir)
        query.run()
        assert query.messages == sent
        assert read_log(member.aeron_dir) == sent
        client.send(numbered(60, 70))
    query.run()
    assert query.messages == [*sent, *numbered(60, 70)]
    ((cluster, position),) = commit_positions(member.aeron_dir).items()
    assert cluster == 0
    assert position >= max(query.offset.positions().values()) > 0


@pytest.mark.full("a member and a ClusterBackup, each a JVM")
def test_the_log_of_a_backup_is_read_to_its_end(single: Cluster, node_of_256k: NodeHandle, aeron_dir: Path) -> None:
    with single.client(node_of_256k.aeron_dir) as client:
        client.send(numbered(0, 20))
        backup_dir = aeron_dir.with_name(f"{aeron_dir.name}-backup")
        with single.backup(backup_dir):
            assert commit_positions(str(backup_dir)) == {}
            wait_for(lambda: _has_log(str(backup_dir)), TIMEOUT_S, "the backup to record the log")
            query = StreamingQuery(str(backup_dir))
            wait_for(lambda: (query.run(), len(query.messages))[1] == 20, TIMEOUT_S, "the backup to have all")
            client.send(numbered(20, 30))
            wait_for(lambda: (query.run(), len(query.messages))[1] == 30, TIMEOUT_S, "the backup to follow")
            assert query.messages == read_log(str(backup_dir)) == numbered(0, 30)


def _has_log(aeron_dir: str) -> bool:
    try:
        read_log(aeron_dir)
    except OptionError as error:
        if "has no cluster's log" in error.what:
            return False
        raise
    return True


def test_a_driver_without_a_member_is_refused(node_of_256k: NodeHandle) -> None:
    with pytest.raises(OptionError, match="no member and no ClusterBackup uses the media driver"):
        read_log(node_of_256k.aeron_dir)
    with pytest.raises(OptionError, match="the archive embedded has no cluster's log"):
        read_log(node_of_256k.aeron_dir, clusterUncommitted="true")


@pytest.mark.full("three members, each a JVM, and two elections")
def test_entries_that_the_cluster_takes_back_are_never_read(
    tmp_path: Path, aeron_dir: Path, node_of_256k: NodeHandle
) -> None:
    with running_cluster(tmp_path / "cluster", aeron_dir, 3) as cluster:
        old = cluster.leader()
        others = [one for one in cluster.members if one is not old]
        with cluster.client(node_of_256k.aeron_dir) as client:
            client.send(numbered(0, 20))
            query = StreamingQuery(old.aeron_dir)
            query.run()
            assert query.messages == numbered(0, 20)
            for one in others:
                one.kill()
            for message in numbered(1000, 1010):  # nobody agrees to these
                client.offer(message)
            wait_for(
                lambda: numbered(1000, 1010)[-1] in read_log(old.aeron_dir, clusterUncommitted="true"), TIMEOUT_S,
                "the leader to record what it was sent",
            )  # fmt: skip
            query.run()
            assert query.messages == numbered(0, 20)
            assert read_log(old.aeron_dir) == numbered(0, 20)
        old.kill()
        for one in others:
            one.start()
        for one in others:
            one.await_ready()
        new = cluster.leader(others)
        with cluster.client(node_of_256k.aeron_dir) as client:
            client.send(numbered(20, 40))
            committed = read_log(new.aeron_dir)
            assert in_order(committed) == numbered(0, 40)
            old.start()
            old.await_ready()
            query = StreamingQuery(old.aeron_dir, query.offset)
            wait_for(lambda: (query.run(), query.messages)[1] == committed[20:], TIMEOUT_S, "the old leader to follow")
            client.send(numbered(40, 50))
        for one in cluster.members:
            wait_for(
                lambda one=one: in_order(read_log(one.aeron_dir)) == numbered(0, 50), TIMEOUT_S,
                f"member {one.number} to have all",
            )  # fmt: skip
            assert numbered(1000, 1001)[0] not in read_log(one.aeron_dir, clusterUncommitted="true")
