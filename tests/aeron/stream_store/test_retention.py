"""Tests of purges, leases, retention and recording slots; creation and deletion of streams."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataLossError, InUseError, OptionError, RefusedError, TransportError, UsageError
from aeron_spark.node import NodeHandle
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.streams import store as leftovers
from aeron_spark.streams import store as stores
from aeron_spark.streams.recordings import SLOT_TIMEOUT_S
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import NoRoomToRecord, StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from aeron_spark.wire.stream_requests import HeldBytes, PurgedPartition
from tests.aeron.stream_store import rows
from tests.aeron.stream_store.rows import (
    SETTINGS,
    delete_streams,
    ends,
    fail_as_disk_full,
    identities,
    read_values,
    stage_rows,
    write,
)
from tests.aeron.streams import TIMEOUT_S, own_node
from tests.stream_requests import commit_request, create_request, stage_request
from tests.unit.streams.simulated_store import Clock

NS_PER_S = 1_000_000_000
TERM = 64 << 10
SEGMENT = 64 << 10


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with the shortest segments, and three recording slots."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k", max_recordings=3) as handle:
        yield handle


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def streams(node: NodeHandle, tmp_path: Path, clock: Clock, live: LiveOptions) -> Iterator[StreamStore]:
    """A store that uses the clock of the test."""
    settings = replace(SETTINGS, publication_idle_s=10.0, stage_expiry_s=60.0, options=lambda: live.value)
    with StreamStore(
        tmp_path / "streams", StoreParts(embedded(node), settings, clock=clock, wall=clock.wall_ns)
    ) as store:
        yield store
    delete_streams(store, node)


def commit_each_second(stream: Stream, clock: Clock, transactions: int = 10) -> list[int]:
    """Commit one segment of rows each second; return the start of each transaction."""
    begins = []
    first = stream.last_committed("w").transaction + 1
    for transaction in range(first, first + transactions):
        clock.now += 1
        begins.append(ends(stream)[0])
        write(stream, transaction, {0: [bytes([transaction]) * 8_000] * 8})
    return begins


def wait_until_purged(node: NodeHandle, stream: Stream) -> None:
    """Wait until the first segment has the partition's start: the archive responds before it deletes files."""
    start = stream.states()[0].start
    wait_for(
        lambda: segment_positions(node, stream)[0] == start - start % SEGMENT,
        TIMEOUT_S,
        f"the segments before {start} to be deleted",
    )


def segment_positions(node: NodeHandle, stream: Stream, partition: int = 0) -> list[int]:
    """Return the positions at which the existing segments of a partition begin."""
    recording = stream.states()[partition].shape.recording_id
    found = Path(node.archive_dir).glob(f"{recording}-*.rec")
    return sorted(int(path.stem.rpartition("-")[2]) for path in found)


def test_the_position_of_a_time_is_the_start_of_the_next_transaction(streams: StreamStore, clock: Clock) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    began = clock.wall_ns()
    begins = commit_each_second(stream, clock)
    assert stream.position_at(0) == [0, 0]
    for index, begin in enumerate(begins):
        assert stream.position_at(began + (index + 1) * NS_PER_S) == [begin, 0]
        assert stream.position_at(began + index * NS_PER_S + 1) == [begin, 0]
    assert stream.position_at(clock.wall_ns() + 1) == ends(stream)


def test_the_lag_of_a_reader_is_the_age_of_its_first_unread_row(streams: StreamStore, clock: Clock) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    begins = commit_each_second(stream, clock, 3)
    clock.now += 5
    assert stream.lags_ns({0: begins[0]}) == {0: 7 * NS_PER_S}
    assert stream.lags_ns({0: begins[1], 1: 0}) == {0: 6 * NS_PER_S, 1: 0}
    assert stream.lags_ns({0: begins[2] + 32}) == {0: 5 * NS_PER_S}
    assert stream.lags_ns({0: ends(stream)[0]}) == {0: 0}
    clock.now -= 60  # a clock that is set back gives no negative lag
    assert stream.lags_ns({0: 0}) == {0: 0}
    with pytest.raises(OptionError, match="has no partition 2"):
        stream.lags_ns({2: 0})


def starts(report: list[PurgedPartition]) -> list[int]:
    """Return the first positions of the partitions after a purge."""
    return [one.start for one in report]


def test_a_purge_deletes_whole_segments_and_reads_before_it_fail(
    streams: StreamStore, clock: Clock, node: NodeHandle
) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    begins = commit_each_second(stream, clock)
    assert len(segment_positions(node, stream)) > 8
    start = begins[5]
    freed = start - start % SEGMENT
    assert stream.purge(partition=0, before_position=start + 100) == [
        PurgedPartition(0, 0, start, freed, (HeldBytes(start % SEGMENT, "segment"),))
    ]
    wait_until_purged(node, stream)
    assert [state.start for state in stream.states()] == [start, 0]
    with pytest.raises(DataLossError, match=f"purged up to position {start}"):
        stream.blocks(0, 0, 100, 100)
    with pytest.raises(DataLossError):
        stream.boundary(0, 0, 100, 100, None, framed=False)
    assert sum(len(data) for _, data in stream.blocks(0, start, 2**40, 1 << 16)) == ends(stream)[0] - start
    assert stream.position_at(0) == [start, 0]
    assert starts(stream.purge(before_time_ns=clock.wall_ns())) == [begins[9], 0]
    assert starts(stream.purge(before_position=begins[2])) == [begins[9], 0]
    commit_each_second(stream, clock, 2)
    assert starts(stream.purge(before_position=2**60)) == ends(stream)


def test_a_purge_during_a_read_is_a_data_loss(streams: StreamStore, clock: Clock, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    begins = commit_each_second(stream, clock)
    reading = stream.blocks(0, 0, 2**40, 1 << 12)
    next(reading)
    stream.purge(before_position=begins[8])
    wait_until_purged(node, stream)
    with pytest.raises(DataLossError, match=r"recording \d+ has no bytes at position \d+ any more"):
        list(reading)


def test_a_lease_keeps_the_segments_of_its_reader(streams: StreamStore, clock: Clock, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    begins = commit_each_second(stream, clock)
    stream.lease("slow", {0: begins[3]}, 60)
    stream.lease("fast", {0: begins[8]}, 60)
    (found,) = stream.purge(before_position=begins[9])
    assert found.start == begins[3]
    assert found.held == (
        HeldBytes(begins[3] % SEGMENT, "segment"),
        HeldBytes(begins[9] - begins[3], "lease", "", "slow", clock.wall_ns() + 60 * NS_PER_S),
    )
    stream.lease("slow", {0: begins[6] + 100}, 60)
    assert starts(stream.purge(before_position=begins[8])) == [begins[6]]
    clock.now += 61
    assert streams.tick() == []
    assert stream.states()[0].start == begins[9], "a purge goes on when the lease has ended"


def test_housekeeping_applies_the_retention_by_bytes_and_by_time(
    streams: StreamStore, clock: Clock, node: NodeHandle
) -> None:
    by_bytes = streams.create(create_request("bytes", 1, segment_bytes=TERM, retention_bytes=3 * SEGMENT))
    by_time = streams.create(create_request("time", 1, segment_bytes=TERM, retention_seconds=4.5))
    of_bytes = commit_each_second(by_bytes, clock)
    begins = commit_each_second(by_time, clock)
    assert streams.tick() == []
    for stream, first in ((by_bytes, of_bytes[7]), (by_time, begins[5])):
        assert stream.states()[0].start == first
        wait_until_purged(node, stream)
    by_time.lease("reader", {0: begins[5]}, 300)
    clock.now += 100
    assert streams.tick() == []
    assert by_time.states()[0].start == begins[5]
    clock.now += 300
    streams.tick()
    assert by_time.states()[0].start == ends(by_time)[0]
    assert by_bytes.states()[0].start == of_bytes[7]


def test_retention_wins_over_a_lease_that_delays_it_for_too_long(streams: StreamStore, clock: Clock) -> None:
    by_bytes = streams.create(create_request("bytes", 1, segment_bytes=TERM, retention_bytes=3 * SEGMENT))
    by_time = streams.create(create_request("time", 1, segment_bytes=TERM, retention_seconds=4.5))
    for stream in (by_bytes, by_time):
        commit_each_second(stream, clock)

    def renew_leases_until(end: float) -> None:
        while clock.now < end:
            clock.now += 100
            for stream in (by_bytes, by_time):
                stream.lease("slow", {0: 0}, 300)
            assert streams.tick() == []

    last_commit = clock.now
    renew_leases_until(last_commit + ServerOptions.lease_delay - 200)
    assert [(stream.states()[0].start, stream.space.lease_overrides) for stream in (by_bytes, by_time)] == [(0, 0)] * 2
    renew_leases_until(last_commit + ServerOptions.lease_delay + 200)
    for stream, limit in ((by_bytes, 3 * SEGMENT), (by_time, 0)):
        assert ends(stream)[0] - stream.states()[0].start <= limit
        assert stream.space.lease_overrides >= 1


def test_a_shorter_delay_by_leases_applies_to_open_streams(
    streams: StreamStore, live: LiveOptions, clock: Clock
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM, retention_bytes=3 * SEGMENT))
    commit_each_second(stream, clock)
    clock.now += 100
    stream.lease("slow", {0: 0}, 300)
    assert streams.tick() == []
    assert (stream.states()[0].start, stream.space.lease_overrides) == (0, 0)
    live.replace(ServerOptions(lease_delay=50.0))
    assert streams.tick() == []
    assert ends(stream)[0] - stream.states()[0].start <= 3 * SEGMENT
    assert stream.space.lease_overrides == 1


def test_streams_have_a_limit_of_partitions_in_all_and_for_each_creator(node: NodeHandle, tmp_path: Path) -> None:
    options = ServerOptions(max_partitions=5)
    settings = replace(SETTINGS, options=lambda: options)
    with StreamStore(tmp_path / "limited", StoreParts(embedded(node), settings)) as store:
        store.create(create_request("a", 2, segment_bytes=TERM), "alice", 3)
        with pytest.raises(
            RefusedError, match=r"streams of your key have 2 partitions, and 2 more exceed the limit 3"
        ) as one:
            store.create(create_request("b", 2, segment_bytes=TERM), "alice", 3)
        store.create(create_request("b", 2, segment_bytes=TERM), "bob", 3)
        with pytest.raises(
            RefusedError, match=r"the server's streams have 4 partitions, and 2 more exceed .* 5"
        ) as all_:
            store.create(create_request("c", 2, segment_bytes=TERM))
        assert [error.value.reason for error in (one, all_)] == ["limit", "limit"]
    with StreamStore(
        tmp_path / "limited", StoreParts(embedded(node), settings)
    ) as store:  # the creators survive a restart
        store.create(create_request("c", 1, segment_bytes=TERM), "alice", 3)
        store.delete("b")
        with pytest.raises(RefusedError, match="streams of your key have 3 partitions"):
            store.create(create_request("d", 1, segment_bytes=TERM), "alice", 3)
        store.delete("a")
        store.create(create_request("d", 2, segment_bytes=TERM), "alice", 3)
    delete_streams(store, node)


def test_a_failed_purge_is_finished_after_a_restart(
    streams: StreamStore, clock: Clock, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    begins = commit_each_second(stream, clock)
    partition = stream._recordings.partitions[0]

    def refuse(position: int) -> None:
        raise TransportError("invalid detach: replay in progress")

    with monkeypatch.context() as patched:
        patched.setattr(partition, "purge", refuse)
        with pytest.raises(TransportError, match="replay in progress"):
            stream.purge(before_position=begins[5])
        assert streams.tick()  # the housekeeping also reports the failure
    start = stream.states()[0].start
    assert start > 0
    assert segment_positions(node, stream)[0] == 0
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        assert reopened.get("a").states()[0].start == start
        reopened.tick()
        wait_until_purged(node, reopened.get("a"))


def test_a_hold_delays_the_deletion_of_files_and_not_of_rows(
    streams: StreamStore, clock: Clock, node: NodeHandle
) -> None:
    kept, deleted = (
        streams.create(create_request("kept", 1, segment_bytes=TERM)),
        streams.create(create_request("deleted", 1, segment_bytes=TERM)),
    )
    begins = commit_each_second(kept, clock)
    write(deleted, 0, {0: [b"x"]})
    archive, recording_id = archive_of(embedded(node)), deleted.states()[0].shape.recording_id
    with streams.holds.hold("backup", 60):
        before = segment_positions(node, kept)
        (found,) = kept.purge(before_position=begins[5])
        assert (found.start, found.freed_bytes, found.held[0].why, found.held[0].holder) == (
            begins[5],
            0,
            "hold",
            "backup",
        )
        streams.delete("deleted")
        assert streams.tick() == []
        with pytest.raises(DataLossError):
            kept.blocks(0, 0, 100, 100)
        with pytest.raises(OptionError):
            streams.get("deleted")
        assert segment_positions(node, kept) == before
        assert archive.recording(recording_id) is not None
    assert streams.tick() == []
    wait_until_purged(node, kept)
    assert archive.recording(recording_id) is None
    assert sorted(path.name for path in streams.folder.iterdir()) == ["kept", "lock"]


def test_an_idle_publication_is_closed_and_its_recording_is_extended_later(streams: StreamStore, clock: Clock) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    write(stream, 0, {0: [b"x"], 1: [b"x"]})
    before, identity = ends(stream), identities(stream)
    clock.now += 9
    streams.tick()
    assert [partition.is_open for partition in stream._recordings.partitions] == [True, True]
    clock.now += 2
    streams.tick()
    assert [partition.is_open for partition in stream._recordings.partitions] == [False, False]
    write(stream, 1, {0: [b"y"]})
    assert read_values(stream, 0) == [b"x", b"y"]
    assert ends(stream)[1] == before[1]
    assert identities(stream) == identity


def test_streams_take_turns_with_the_recording_slots(streams: StreamStore) -> None:
    pair_streams = [streams.create(create_request(f"s{n}", 2)) for n in range(3)]
    for transaction in range(3):
        for stream in pair_streams:
            write(stream, transaction, {0: [b"%d" % transaction], 1: [b"%d" % transaction]})
    for stream in pair_streams:
        assert read_values(stream, 0) == read_values(stream, 1) == [b"0", b"1", b"2"]
    single = streams.create(create_request("single", 3))
    write(single, 0, {partition: [b"x"] for partition in range(3)})
    # In an earlier version, a commit closed its own publications while other slots were about to become free.
    assert [partition.is_open for partition in single._recordings.partitions] == [True] * 3
    with single._lock_writing(), pytest.raises(NoRoomToRecord, match="max_recordings"):
        write(pair_streams[0], 3, {0: [b"3"], 1: [b"3"]})  # the other stream commits, so its slots stay in use
    write(pair_streams[0], 4, {0: [b"3"], 1: [b"3"]})


def test_the_logs_of_all_streams_share_a_limit(node: NodeHandle, tmp_path: Path) -> None:
    """Regression: a key that wrote to many partitions took all shared memory, and the server refused new clients."""
    settings = replace(SETTINGS, log_bytes=2 * 3 * TERM)
    with StreamStore(tmp_path / "limited", StoreParts(embedded(node), settings)) as store:
        first, second = (store.create(create_request(name, 5, segment_bytes=TERM)) for name in ("first", "second"))
        for transaction in range(2):
            for stream in (first, second):
                write(stream, transaction, {partition: [b"%d" % transaction] for partition in range(5)})
                active = [one for one in archive_of(embedded(node)).recordings() if one.stop_position is None]
                assert 1 <= len(active) <= 2
        assert [read_values(stream, 4) for stream in (first, second)] == [[b"0", b"1"]] * 2

        def has_both_logs() -> bool:  # not while the driver deletes the logs of others
            write(second, second.last_committed("w").transaction + 1, {0: [b"2"], 1: [b"2"]})
            return sum(partition.is_open for partition in second._recordings.partitions) == 2

        wait_for(has_both_logs, TIMEOUT_S, "both logs to be those of one stream")
        with second._lock_writing():  # the other stream commits, so its logs stay
            for use in (
                lambda: write(first, 2, {0: [b"2"]}),
                lambda: store.create(create_request("third", 1, segment_bytes=TERM)),
            ):
                with pytest.raises(NoRoomToRecord, match="half of the media driver's file system"):
                    use()
        write(first, 3, {0: [b"3"]})
    delete_streams(store, node)


def test_recording_slots_are_free_when_their_release_returns(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 3))
    archive = archive_of(embedded(node))
    for transaction in range(5):
        write(stream, transaction, {partition: [b"x"] for partition in range(3)})
        assert stream.release_slots()
        found = [archive.recording(partition.shape.recording_id) for partition in stream._recordings.partitions]
        assert [one is not None and one.stop_position is not None for one in found] == [True] * 3
    assert not stream.release_slots()


def test_a_transaction_may_have_more_partitions_than_recording_slots(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = streams.create(create_request("wide", 10, segment_bytes=TERM))
    identity = identities(wide)

    def rows(transaction: int) -> dict[int, list[bytes]]:
        return {partition: [b"%d/%d" % (partition, transaction)] * 100 for partition in range(10)}

    write(wide, 0, rows(0))
    write(wide, 1, {partition: [b"%d/1" % partition] for partition in (7, 8, 9)})  # their publications stay open
    before = ends(wide)

    with monkeypatch.context() as patched:
        patched.setattr(wide._journal, "write", fail_as_disk_full)
        with pytest.raises(TransportError, match="disk is full"):
            write(wide, 2, rows(2))
    assert ends(wide) == before
    write(wide, 3, rows(3))
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        wide = reopened.get("wide")
        for partition, of_first in rows(0).items():
            one = [b"%d/1" % partition] if partition > 6 else []
            assert read_values(wide, partition) == [*of_first, *one, *rows(3)[partition]]
        assert identities(wide) == identity


def test_abandoned_stages_expire_and_release_their_space(streams: StreamStore, clock: Clock) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    stage_rows(stream, 0, [(0, 0, [b"x" * 1_000])])
    assert streams.staged_bytes > 1_000
    clock.now += 61
    streams.tick()
    assert streams.staged_bytes == 0


def test_a_stream_is_created_once_and_found_by_name(streams: StreamStore) -> None:
    stream = streams.create(create_request("flights", 3))
    assert streams.get("flights") is stream
    assert [state.end for state in stream.states()] == [0, 0, 0]
    assert len({state.shape.stream_id for state in stream.states()}) == 3
    with pytest.raises(OptionError, match="stream 'flights' exists already"):
        streams.create(create_request("flights", 1))
    with pytest.raises(OptionError, match="Did you mean 'flights'"):
        streams.get("flight")
    for name in ("", "..", ".hidden", "a/b", "x" * 129):
        with pytest.raises(OptionError):
            streams.create(create_request(name, 1))
    with pytest.raises(OptionError):
        streams.create(create_request("none", 0))


def test_the_files_and_recordings_of_a_deleted_stream_are_removed(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    write(stream, 0, {0: [b"x"], 1: [b"x"]})
    before = stream.states()
    streams.delete("a")
    archive = archive_of(embedded(node))
    assert [archive.recording(state.shape.recording_id) for state in before] == [None, None]
    deleted = [state.shape.recording_id for state in before]
    wait_for(lambda: not segment_files(node, deleted), TIMEOUT_S, "the files of the stream's recordings to be deleted")
    assert [path.name for path in streams.folder.iterdir()] == ["lock"]
    with pytest.raises(OptionError):
        streams.get("a")
    for attempt in (
        stream.states,
        lambda: stream.last_committed("w").transaction,
        lambda: stream.commit(commit_request("w", "r", 1, [])),
    ):
        with pytest.raises(UsageError, match="deleted"):
            attempt()
    recreated = streams.create(create_request("a", 1, segment_bytes=TERM))
    assert ends(recreated) == [0]
    assert recreated.last_committed("w").transaction == -1


def segment_files(node: NodeHandle, recordings: list[int]) -> list[Path]:
    return [path for one in recordings for path in Path(node.archive_dir).glob(f"{one}-*.rec")]


@pytest.mark.parametrize("archive_fails", [False, True])
def test_a_failed_creation_is_undone(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch, archive_fails: bool
) -> None:
    before = {recording.id for recording in archive_of(embedded(node)).recordings()}

    def fail(*_: object) -> None:
        raise TransportError("no")

    with monkeypatch.context() as patched:
        patched.setattr(stores, "create_ledger", fail)
        if archive_fails:
            patched.setattr(leftovers, "delete_recording", fail)
        with pytest.raises(TransportError, match="no"):
            streams.create(create_request("a", 2, segment_bytes=TERM))
        if archive_fails:
            assert [str(error) for error in streams.tick()] == ["no"]
    assert streams.tick() == []
    assert {recording.id for recording in archive_of(embedded(node)).recordings()} == before
    assert [path.name for path in streams.folder.iterdir()] == ["lock"]
    streams.create(create_request("a", 1, segment_bytes=TERM))


def test_a_folder_in_use_by_a_server_cannot_be_opened_by_another(streams: StreamStore, node: NodeHandle) -> None:
    with pytest.raises(InUseError, match=f"in use by server process {os.getpid()}"):
        StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS))
    streams.close()
    streams.close()
    with pytest.raises(UsageError):
        streams.get("a")
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        assert reopened.all() == []


def test_publishing_ahead_does_not_take_a_recording_slot_of_another_stream(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    others = [streams.create(create_request(f"other-{index}", 1, segment_bytes=TERM)) for index in range(3)]
    for other in others:
        write(other, 0, {0: [b"x"]})  # all recording slots are in use
    stage = stream.open_stage(stage_request("w", "r", 0, 0, 0, "raw"))
    rows.fill(stage, [b"y"] * 100)
    begun = time.monotonic()
    with pytest.raises(NoRoomToRecord):
        stream.publish_ahead(stage)
    assert time.monotonic() - begun < SLOT_TIMEOUT_S  # it does not wait for a slot, so that other commits can run
    assert [other.states()[0].session_id != 0 for other in others] == [True] * 3
    stream.commit(commit_request("w", "r", 0, [stage.finish()]))
    assert read_values(stream, 0) == [b"y"] * 100
