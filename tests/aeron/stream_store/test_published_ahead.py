"""Tests of publishing a growing stage ahead of its commit; other commits truncate its bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.direct.archives import embedded
from aeron_spark.errors import DataFormatError, RefusedError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.partition import Partition
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.stages import Stage, StageRef
from aeron_spark.streams.store import Streams
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.staged_items import ITEM
from tests.aeron.stream_store.rows import SETTINGS, ends, fill, ids, reserved_bytes, staged, values, write

FIRST = [bytes([n]) * 9_000 for n in range(100)]
SECOND = [bytes([n]) * 1_000 for n in range(100, 200)]
OTHER = [b"other" * 100] * 10


def growing(
    stream: Stream, *items: Sequence[bytes], task: int = 0, writer: str = "w", transaction: int = 1, partition: int = 0
) -> Stage:
    """Open a stage with these items."""
    stage = stream.open_stage(writer, "r", transaction, partition, task, "raw")
    for item in items:
        fill(stage, item)
    return stage


def commit(stream: Stream, *refs: StageRef, writer: str = "w", transaction: int = 1) -> None:
    """Commit a transaction of these stages."""
    assert not stream.commit(writer, "r", transaction, refs).is_repeated


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each item that is published."""
    found: list[int] = []
    publish = Partition.publish

    def counted(self: Partition, item: object, between: object) -> None:
        found.append(item.rows)  # type: ignore[attr-defined]
        publish(self, item, between)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "publish", counted)
    return found


@pytest.fixture
def truncations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions at which partitions are truncated."""
    found: list[int] = []
    truncate_to = Partition.truncate_to

    def recorded_truncation(self: Partition, end: int, *known: object) -> int:
        found.append(end)
        return truncate_to(self, end, *known)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "truncate_to", recorded_truncation)
    return found


def recorded(node: NodeHandle, stream: Stream, partition: int = 0) -> int:
    """Return the position up to which the archive has recorded a partition."""
    return int(archive_of(embedded(node)).position(ids(stream)[partition][0]))


def test_a_commit_publishes_only_the_rest_of_the_stage(
    streams: Streams, node: NodeHandle, published: list[int]
) -> None:
    stream = streams.create("a", 2)
    stage = growing(stream, FIRST)
    assert stream.publish_ahead(stage) == stage.bytes
    assert published == [100]
    fill(stage, SECOND)
    assert stream.publish_ahead(stage) == stage.bytes
    fill(stage, OTHER)
    assert ends(stream) == [0, 0]  # readers see none of it
    assert stream.content() == ("", None)
    commit(stream, stage.finish())
    assert published == [100, 100, 10]
    assert values(stream, 0) == [*FIRST, *SECOND, *OTHER]
    assert recorded(node, stream) == ends(stream)[0]
    write(stream, 2, {0: OTHER, 1: SECOND})
    assert values(stream, 0) == [*FIRST, *SECOND, *OTHER, *OTHER]
    assert values(stream, 1) == SECOND
    assert reserved_bytes(streams) == 0


def test_only_complete_items_are_published_ahead(streams: Streams, published: list[int]) -> None:
    stream = streams.create("a", 1)
    source = growing(stream, FIRST, SECOND, partition=0, writer="source")
    data = source.path.read_bytes()[source.begin :]
    source.discard()
    stage = stream.open_stage("w", "r", 1, 0, 0, "raw")
    reached = set()
    for at in range(0, len(data), 50_001):
        stage.append(data[at : at + 50_001], stage.used_at)
        reached.add(stream.publish_ahead(stage))
    assert published == [100, 100]
    assert len(reached) == 3  # nothing, the first item, both
    commit(stream, stage.finish())
    assert values(stream, 0) == [*FIRST, *SECOND]


def test_another_commit_comes_first_and_both_are_complete(streams: Streams, published: list[int]) -> None:
    stream = streams.create("a", 1)
    stage = growing(stream, FIRST)
    stream.publish_ahead(stage)
    write(stream, 1, {0: OTHER}, writer="x")
    assert values(stream, 0) == OTHER
    commit(stream, stage.finish())
    assert values(stream, 0) == [*OTHER, *FIRST]
    assert published == [100, 10, 100]


def test_bytes_published_ahead_by_a_failed_attempt_are_truncated(streams: Streams) -> None:
    stream = streams.create("a", 1)
    failed = growing(stream, FIRST)
    stream.publish_ahead(failed)
    successful = growing(stream, SECOND)
    assert stream.publish_ahead(successful) == -1  # the partition has two stages
    commit(stream, successful.finish())
    assert values(stream, 0) == SECOND


def test_rows_are_in_the_order_of_tasks_if_a_later_task_was_published_first(streams: Streams) -> None:
    stream = streams.create("a", 1)
    second = growing(stream, SECOND, task=1)
    stream.publish_ahead(second)
    first = growing(stream, FIRST, task=0)
    commit(stream, second.finish(), first.finish())
    assert values(stream, 0) == [*FIRST, *SECOND]


def test_the_stage_of_the_first_task_may_be_ahead_of_others(streams: Streams, published: list[int]) -> None:
    stream = streams.create("a", 1)
    first = growing(stream, FIRST, task=0)
    stream.publish_ahead(first)
    (second,) = staged(stream, 1, [(0, 1, SECOND)])
    commit(stream, second, first.finish())
    assert values(stream, 0) == [*FIRST, *SECOND]
    assert published == [100, 100]


@pytest.mark.parametrize("removal", ["abort", "discard", "expire"])
def test_a_removed_stage_releases_its_space_and_its_published_bytes(
    streams: Streams, node: NodeHandle, removal: str
) -> None:
    stream = streams.create("a", 1)
    write(stream, 0, {0: OTHER})
    (end,) = ends(stream)
    stage = growing(stream, FIRST)
    stream.publish_ahead(stage)
    if removal == "abort":
        stream.abort("w", "r", 1)
    elif removal == "discard":
        stage.discard()
    else:
        stage.used_at -= SETTINGS.stage_expiry_s + 1
        assert stream.tick() == []
    assert stream.tick() == []
    found = archive_of(embedded(node)).recording(ids(stream)[0][0])
    assert found is not None
    assert found.stop_position == end
    assert (ends(stream), values(stream, 0), reserved_bytes(streams)) == ([end], OTHER, 0)
    write(stream, 2, {0: SECOND})
    assert values(stream, 0) == [*OTHER, *SECOND]


def test_housekeeping_keeps_bytes_of_existing_and_committed_stages(streams: Streams, truncations: list[int]) -> None:
    stream = streams.create("a", 1)
    stage = growing(stream, FIRST)
    stream.publish_ahead(stage)
    truncations.clear()
    assert stream.tick() == []
    commit(stream, stage.finish())
    assert stream.tick() == []
    write(stream, 2, {0: SECOND})
    assert truncations == []  # the first publication is still open
    assert values(stream, 0) == [*FIRST, *SECOND]


def test_a_restart_truncates_bytes_published_ahead(streams: Streams, node: NodeHandle) -> None:
    stream = streams.create("a", 1)
    write(stream, 0, {0: OTHER})
    (end,) = ends(stream)
    stream.publish_ahead(growing(stream, FIRST))
    streams.close()
    with Streams(streams.folder, embedded(node), SETTINGS) as again:
        stream = again.get("a")
        assert (ends(stream), values(stream, 0)) == ([end], OTHER)
        write(stream, 2, {0: SECOND})
        assert values(stream, 0) == [*OTHER, *SECOND]


def test_an_invalid_item_is_reported_when_the_stage_is_finished(streams: Streams) -> None:
    stream = streams.create("a", 1)
    stage = growing(stream, FIRST)
    stage.append(ITEM.pack(9, 1, 8) + bytes(8), stage.used_at)
    with pytest.raises(DataFormatError, match="its kind is 9"):
        stream.publish_ahead(stage)
    with pytest.raises(DataFormatError, match="its kind is 9"):
        stage.finish()
    write(stream, 2, {0: SECOND})
    assert values(stream, 0) == SECOND


def test_a_failed_commit_publishes_the_whole_stage_again(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = streams.create("a", 1)
    stage = growing(stream, FIRST)
    stream.publish_ahead(stage)
    ref = stage.finish()
    with monkeypatch.context() as broken:

        def fails(self: Recordings, *given: object) -> None:
            self.mark_uncommitted([0])
            raise RefusedError("once")

        broken.setattr(Recordings, "publish", fails)
        with pytest.raises(RefusedError, match="once"):
            stream.commit("w", "r", 1, [ref])
    commit(stream, ref)
    assert values(stream, 0) == FIRST


def test_publishing_ahead_does_not_wait_for_a_commit(streams: Streams) -> None:
    stream = streams.create("a", 1)
    stage = growing(stream, FIRST)
    found: list[int] = []
    with stream._lock_writing():  # a commit is under way
        other = threading.Thread(target=lambda: found.append(stream.publish_ahead(stage)))
        other.start()
        other.join(20.0)
    assert found == [-1]
