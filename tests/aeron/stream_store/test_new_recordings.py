"""A partition without rows continues in a new recording at the same position, and its old files go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataLossError, TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.space import EMPTY_S
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.waiting import wait_for
from tests.aeron.stream_store.rows import (
    SETTINGS,
    delete_streams,
    ends,
    fail_as_disk_full,
    read_values,
    stage_rows,
    write,
)
from tests.aeron.stream_store.test_retention import TERM, Clock, clock, segment_files
from tests.aeron.streams import TIMEOUT_S, own_node
from tests.stream_requests import commit_request, create_request

__all__ = ["clock"]

VALUES = [b"x" * 1_000] * 100  # more than one segment


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with the shortest segments, and three recording slots."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k", max_recordings=3) as handle:
        yield handle


@pytest.fixture
def streams(node: NodeHandle, tmp_path: Path, clock: Clock) -> Iterator[StreamStore]:
    """A store that uses the clock of the test."""
    with StreamStore(
        tmp_path / "streams", StoreParts(embedded(node), SETTINGS, clock=clock, wall=clock.wall_ns)
    ) as store:
        yield store
    delete_streams(store, node)


def recordings_of(node: NodeHandle, stream: Stream) -> set[int]:
    """Return the archive's recordings of the stream."""
    archive = archive_of(embedded(node))
    return {one.id for id_ in stream.definition.stream_ids for one in archive.recordings(id_)}


def assigned(stream: Stream) -> set[int]:
    return {state.shape.recording_id for state in stream.states()}


def test_a_purge_of_all_rows_frees_all_files_and_positions_go_on(
    streams: StreamStore, clock: Clock, node: NodeHandle
) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM))
    write(stream, 0, {0: VALUES, 1: [b"kept"]})
    (before, other) = stream.states()
    assert before.end % TERM > 0  # the new recording begins inside of a term
    (report, _) = stream.purge(before_position=before.end)
    assert (report.start, report.freed_bytes, report.held) == (before.end, before.end, ())
    (now, same) = stream.states()
    assert (now.start, now.end, now.recording.start) == (before.end,) * 3
    old, new = before.shape, now.shape
    assert new.recording_id != old.recording_id
    assert replace(new, recording_id=0, fingerprint="") == replace(old, recording_id=0, fingerprint="")
    assert (now.recording.identity, now.session_id) == (before.recording.identity, 0)
    assert (now.epochs, now.checked_from) == (before.epochs, before.checked_from)
    assert same.shape.recording_id != other.shape.recording_id  # its one row was purged, too
    wait_for(lambda: not segment_files(node, [old.recording_id]), TIMEOUT_S, "the old files to be deleted")
    assert sum(path.stat().st_blocks for path in segment_files(node, [new.recording_id])) == 0
    for transaction in (1, 2):
        write(stream, transaction, {0: [b"%d" % transaction, *VALUES]})
    assert read_values(stream, 0) == [b"1", *VALUES, b"2", *VALUES]
    assert stream.boundary(0, before.end, 1 << 40, 1 << 40, 3, framed=False).rows == 3
    with pytest.raises(DataLossError, match="purged up to"):
        stream.blocks(0, 0, 1 << 40, 100)
    assert recordings_of(node, stream) == assigned(stream)


def test_uncommitted_rows_of_a_new_recording_are_truncated(
    streams: StreamStore, clock: Clock, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: VALUES})
    stream.purge(before_position=1 << 40)
    before = ends(stream)

    for transaction in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(stream._journal, "write", fail_as_disk_full)
            refs = stage_rows(stream, transaction, [(0, 0, VALUES)])
            with pytest.raises(TransportError, match="disk is full"):
                stream.commit(commit_request("w", "r", transaction, refs))
        assert ends(stream) == before
    write(stream, 3, {0: [b"y"]})
    assert read_values(stream, 0) == [b"y"]
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        assert read_values(reopened.get("a"), 0) == [b"y"]
        write(reopened.get("a"), 4, {0: VALUES})
        assert read_values(reopened.get("a"), 0) == [b"y", *VALUES]


def test_a_silent_stream_with_a_retention_holds_nothing_within_a_minute(
    streams: StreamStore, clock: Clock, node: NodeHandle
) -> None:
    stream = streams.create(create_request("a", 2, segment_bytes=TERM, retention_seconds=60))
    write(stream, 0, {0: VALUES, 1: VALUES})
    first = assigned(stream)
    clock.now += 61
    assert streams.tick() == []
    assert [state.start for state in stream.states()] == ends(stream)
    assert assigned(stream) == first, "rows that come soon need no new recording"
    clock.now += EMPTY_S
    assert streams.tick() == []
    assert not first & assigned(stream)
    assert recordings_of(node, stream) == assigned(stream)
    wait_for(lambda: not segment_files(node, sorted(first)), TIMEOUT_S, "the old files to be deleted")
    second = assigned(stream)
    clock.now += 2 * EMPTY_S
    assert streams.tick() == []
    assert assigned(stream) == second, "a recording without bytes stays"


def test_new_recordings_take_the_slots_of_idle_streams(streams: StreamStore, clock: Clock) -> None:
    stream, other = (
        streams.create(create_request("a", 1, segment_bytes=TERM)),
        streams.create(create_request("b", 3, segment_bytes=TERM)),
    )
    write(stream, 0, {0: VALUES})
    write(other, 0, {0: VALUES, 1: VALUES, 2: VALUES})  # all slots are in use
    before = assigned(stream)
    (report,) = stream.purge(before_position=1 << 40)
    assert (report.held, before & assigned(stream)) == ((), set())
    write(stream, 1, {0: [b"y"]})
    write(other, 1, {0: VALUES, 1: VALUES, 2: VALUES})
    with other._lock_writing():  # a commit of the other stream: its slots stay in use
        (report,) = stream.purge(before_position=1 << 40)
    assert [held.why for held in report.held] == ["recording"]
    clock.now += EMPTY_S
    assert streams.tick() == []
    assert read_values(other, 2) == VALUES * 2
    assert stream.space._recordings.unreadable_bytes(0, ends(stream)[0]) == (0, 0)


class Crash(BaseException):
    """The end of the server, in the middle of a step."""


def test_a_recording_that_the_journal_did_not_take_is_deleted(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: VALUES})
    before = assigned(stream)
    append = stream._journal._journal.append

    def fail_the_second(payload: bytes) -> None:
        append(payload)
        monkeypatch.setattr(stream._journal._journal, "append", fail_as_disk_full)

    monkeypatch.setattr(stream._journal._journal, "append", fail_the_second)
    with pytest.raises(TransportError, match="disk is full"):
        stream.purge(before_position=1 << 40)
    assert recordings_of(node, stream) == assigned(stream) == before
    monkeypatch.undo()
    assert stream.purge(before_position=1 << 40)[0].held == ()
    assert recordings_of(node, stream) == assigned(stream) != before


@pytest.mark.parametrize("step", ["before the journal", "after the journal"])
def test_a_crash_in_the_middle_leaves_one_recording(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: VALUES})
    before = stream.states()[0]

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        if step == "before the journal":
            patched.setattr(stream._recordings.partitions[0], "create_successor", _create_and_crash(stream))
        else:
            patched.setattr(stream._recordings, "move_to", crash)
        with pytest.raises(Crash):
            stream.purge(before_position=1 << 40)
    assert len(recordings_of(node, stream)) == 2
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        stream = reopened.get("a")
        now = stream.states()[0]
        assert (now.shape.recording_id == before.shape.recording_id) == (step == "before the journal")
        assert (now.start, now.end, now.recording.identity) == (before.end, before.end, before.recording.identity)
        assert reopened.tick() == []
        assert recordings_of(node, stream) == {now.shape.recording_id}
        write(stream, 1, {0: [b"y"]})
        assert read_values(stream, 0) == [b"y"]


def _create_and_crash(stream: Stream) -> object:
    create = stream._recordings.partitions[0].create_successor

    def crash(end: int) -> None:
        create(end)
        raise Crash

    return crash
