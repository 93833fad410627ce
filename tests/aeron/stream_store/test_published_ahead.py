"""Tests of publishing a growing stage ahead of its commit; other commits truncate its bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.partition import Partition
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.staged_items import ITEM
from aeron_spark.wire.stream_requests import StagedPart, Transaction
from tests.aeron.stream_store.rows import (
    SETTINGS,
    ends,
    fill,
    identities,
    read_values,
    reserved_bytes,
    stage_rows,
    write,
)
from tests.stream_requests import commit_request, create_request, stage_request

FIRST_ROWS = [bytes([n]) * 9_000 for n in range(100)]
SECOND_ROWS = [bytes([n]) * 1_000 for n in range(100, 200)]
OTHER_ROWS = [b"other" * 100] * 10


def open_filled_stage(
    stream: Stream, *items: Sequence[bytes], task: int = 0, writer: str = "w", transaction: int = 1, partition: int = 0
) -> Stage:
    """Open a stage, and append these items of rows; it is not finished."""
    stage = stream.open_stage(stage_request(writer, "r", transaction, partition, task, "raw"))
    for item in items:
        fill(stage, item)
    return stage


def commit(stream: Stream, *refs: StagedPart, writer: str = "w", transaction: int = 1) -> None:
    """Commit a transaction of these stages."""
    assert not stream.commit(commit_request(writer, "r", transaction, refs)).repeated


@pytest.fixture
def published_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each published item appends its number of rows."""
    found: list[int] = []
    publish = Partition.publish

    def count_and_publish(self: Partition, item: object, between: object) -> None:
        found.append(item.rows)
        publish(self, item, between)

    monkeypatch.setattr(Partition, "publish", count_and_publish)
    return found


@pytest.fixture
def truncations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each truncation of a partition appends its position."""
    found: list[int] = []
    truncate_to = Partition.truncate_to

    def record_and_truncate(self: Partition, end: int, *known: object) -> int:
        found.append(end)
        return truncate_to(self, end, *known)

    monkeypatch.setattr(Partition, "truncate_to", record_and_truncate)
    return found


def recorded_position(node: NodeHandle, stream: Stream, partition: int = 0) -> int:
    """Return the position up to which the archive has recorded a partition."""
    return int(archive_of(embedded(node)).position(identities(stream)[partition][0]))


def test_a_commit_publishes_only_rows_that_were_not_published_ahead(
    streams: StreamStore, node: NodeHandle, published_rows: list[int]
) -> None:
    stream = streams.create(create_request("a", 2))
    stage = open_filled_stage(stream, FIRST_ROWS)
    assert stream.publish_ahead(stage) == stage.bytes
    assert published_rows == [100]
    fill(stage, SECOND_ROWS)
    assert stream.publish_ahead(stage) == stage.bytes
    fill(stage, OTHER_ROWS)
    assert ends(stream) == [0, 0]  # readers see none of it
    assert stream.content() == ("", None)
    commit(stream, stage.finish())
    assert published_rows == [100, 100, 10]
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS, *OTHER_ROWS]
    assert recorded_position(node, stream) == ends(stream)[0]
    write(stream, 2, {0: OTHER_ROWS, 1: SECOND_ROWS})
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS, *OTHER_ROWS, *OTHER_ROWS]
    assert read_values(stream, 1) == SECOND_ROWS
    assert reserved_bytes(streams) == 0


def test_only_complete_items_are_published_ahead(streams: StreamStore, published_rows: list[int]) -> None:
    stream = streams.create(create_request("a", 1))
    source = open_filled_stage(stream, FIRST_ROWS, SECOND_ROWS, partition=0, writer="source")
    data = source.path.read_bytes()[source.begin :]
    source.discard()
    stage = stream.open_stage(stage_request("w", "r", 1, 0, 0, "raw"))
    published_positions = set()
    for at in range(0, len(data), 50_001):
        stage.append(data[at : at + 50_001], stage.used_at)
        published_positions.add(stream.publish_ahead(stage))
    assert published_rows == [100, 100]
    assert len(published_positions) == 3  # no item, the first one, both
    commit(stream, stage.finish())
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS]


def test_after_another_commit_a_stage_published_ahead_is_published_again(
    streams: StreamStore, published_rows: list[int]
) -> None:
    stream = streams.create(create_request("a", 1))
    stage = open_filled_stage(stream, FIRST_ROWS)
    stream.publish_ahead(stage)
    write(stream, 1, {0: OTHER_ROWS}, writer="x")
    assert read_values(stream, 0) == OTHER_ROWS
    commit(stream, stage.finish())
    assert read_values(stream, 0) == [*OTHER_ROWS, *FIRST_ROWS]
    assert published_rows == [100, 10, 100]


def test_bytes_published_ahead_by_a_failed_attempt_are_truncated(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    failed = open_filled_stage(stream, FIRST_ROWS)
    stream.publish_ahead(failed)
    successful = open_filled_stage(stream, SECOND_ROWS)
    assert stream.publish_ahead(successful) == -1  # the partition has two stages
    commit(stream, successful.finish())
    assert read_values(stream, 0) == SECOND_ROWS


def test_rows_are_in_the_order_of_tasks_if_a_later_task_was_published_first(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    second = open_filled_stage(stream, SECOND_ROWS, task=1)
    stream.publish_ahead(second)
    first = open_filled_stage(stream, FIRST_ROWS, task=0)
    commit(stream, second.finish(), first.finish())
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS]


def test_only_the_stage_of_the_first_task_was_published_ahead(streams: StreamStore, published_rows: list[int]) -> None:
    stream = streams.create(create_request("a", 1))
    first = open_filled_stage(stream, FIRST_ROWS, task=0)
    stream.publish_ahead(first)
    (second,) = stage_rows(stream, 1, [(0, 1, SECOND_ROWS)])
    commit(stream, second, first.finish())
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS]
    assert published_rows == [100, 100]


@pytest.mark.parametrize("removal", ["abort", "discard", "expire"])
def test_a_removed_stage_releases_its_space_and_its_published_bytes(
    streams: StreamStore, node: NodeHandle, removal: str
) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: OTHER_ROWS})
    (end,) = ends(stream)
    stage = open_filled_stage(stream, FIRST_ROWS)
    stream.publish_ahead(stage)
    if removal == "abort":
        stream.abort(Transaction("w", "r", 1))
    elif removal == "discard":
        stage.discard()
    else:
        stage.used_at -= SETTINGS.stage_expiry_s + 1
        assert streams.tick() == []
    assert streams.tick() == []
    found = archive_of(embedded(node)).recording(identities(stream)[0][0])
    assert found.stop_position == end
    assert (ends(stream), read_values(stream, 0), reserved_bytes(streams)) == ([end], OTHER_ROWS, 0)
    write(stream, 2, {0: SECOND_ROWS})
    assert read_values(stream, 0) == [*OTHER_ROWS, *SECOND_ROWS]


def test_housekeeping_keeps_bytes_of_existing_and_committed_stages(
    streams: StreamStore, truncations: list[int]
) -> None:
    stream = streams.create(create_request("a", 1))
    stage = open_filled_stage(stream, FIRST_ROWS)
    stream.publish_ahead(stage)
    truncations.clear()
    assert streams.tick() == []
    commit(stream, stage.finish())
    assert streams.tick() == []
    write(stream, 2, {0: SECOND_ROWS})
    assert truncations == []  # the first publication is still open
    assert read_values(stream, 0) == [*FIRST_ROWS, *SECOND_ROWS]


def test_a_restart_truncates_bytes_published_ahead(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: OTHER_ROWS})
    (end,) = ends(stream)
    stream.publish_ahead(open_filled_stage(stream, FIRST_ROWS))
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        stream = reopened.get("a")
        assert (ends(stream), read_values(stream, 0)) == ([end], OTHER_ROWS)
        write(stream, 2, {0: SECOND_ROWS})
        assert read_values(stream, 0) == [*OTHER_ROWS, *SECOND_ROWS]


def test_an_invalid_item_is_reported_when_the_stage_is_finished(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    stage = open_filled_stage(stream, FIRST_ROWS)
    stage.append(ITEM.pack(9, 1, 8) + bytes(8), stage.used_at)
    with pytest.raises(DataFormatError, match="its kind is 9"):
        stream.publish_ahead(stage)
    with pytest.raises(DataFormatError, match="its kind is 9"):
        stage.finish()
    write(stream, 2, {0: SECOND_ROWS})
    assert read_values(stream, 0) == SECOND_ROWS


def test_a_failed_commit_publishes_the_whole_stage_again(streams: StreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams.create(create_request("a", 1))
    stage = open_filled_stage(stream, FIRST_ROWS)
    stream.publish_ahead(stage)
    ref = stage.finish()
    with monkeypatch.context() as broken:

        def fail_once(self: Recordings, *given: object) -> None:
            self.mark_uncommitted([0])
            raise RefusedError("once")

        broken.setattr(Recordings, "publish", fail_once)
        with pytest.raises(RefusedError, match="once"):
            stream.commit(commit_request("w", "r", 1, [ref]))
    commit(stream, ref)
    assert read_values(stream, 0) == FIRST_ROWS


def test_publishing_ahead_does_not_wait_for_a_commit(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    stage = open_filled_stage(stream, FIRST_ROWS)
    found: list[int] = []
    with stream._lock_writing():  # a commit is under way
        other = threading.Thread(target=lambda: found.append(stream.publish_ahead(stage)))
        other.start()
        other.join(20.0)
    assert found == [-1]
