"""Tests of transactions: complete, exactly once, in order, unchanged; and of refused ones."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.aeron.archive import archive_of
from aeron_spark.aeron.row_sources import SegmentSource, drain
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import DataFormatError, OptionError, RefusedError, TransportError, UsageError
from aeron_spark.node import NodeHandle
from aeron_spark.streams.ledger import AlreadyCommitted
from aeron_spark.streams.schema_changes import serialize
from aeron_spark.streams.store import StreamStore
from aeron_spark.wire.arrow import encode_batch
from aeron_spark.wire.chunks import Content, Header
from aeron_spark.wire.foreign_arrow import read_schema
from aeron_spark.wire.staged_items import encode_group_item
from aeron_spark.wire.stream_requests import Transaction
from tests.aeron.stream_store.rows import (
    ends,
    fail_as_disk_full,
    identities,
    read_groups,
    read_log,
    read_messages,
    read_values,
    reserved_bytes,
    stage_rows,
    write,
    write_group,
)
from tests.stream_requests import commit_request, create_request, empty_request, stage_request

SIZES = (0, 1, 31, 32, 33, 500, 8_159, 8_160, 8_161, 8_192, 70_000)  # bytes; 8160 fit into one frame


def test_values_are_read_unchanged_in_the_order_of_tasks(streams: StreamStore, rng: random.Random) -> None:
    stream = streams.create(create_request("a", 3))
    assert stream.content() == ("", None)
    rows = {task: [rng.randbytes(rng.choice(SIZES)) for _ in range(50)] for task in range(4)}
    refs = stage_rows(stream, 5, [(1, 3, rows[3]), (0, 0, rows[0]), (1, 1, rows[1]), (1, 2, rows[2])])
    before = stream.states()
    assert [state.end for state in before] == [0, 0, 0]
    outcome = stream.commit(commit_request("w", "r", 5, refs))
    assert not outcome.repeated
    assert list(outcome.ends) == ends(stream)
    assert read_values(stream, 0) == rows[0]
    assert read_values(stream, 1) == [*rows[1], *rows[2], *rows[3]]
    assert read_values(stream, 2) == []
    assert stream.content() == ("raw", None)
    assert stream.last_committed("w").transaction == 5
    assert stream.last_committed("x").transaction == -1
    assert reserved_bytes(streams) == 0


@pytest.mark.parametrize("max_bytes", [1, 31, 4_096, 1 << 20])
def test_the_log_is_the_same_in_blocks_of_any_size(streams: StreamStore, max_bytes: int) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: [b"x" * 3_000]})
    assert read_log(stream, 0, max_bytes=max_bytes) == read_log(stream, 0)
    assert next(stream.blocks(0, 32, 96, 1 << 20))[1] == read_log(stream, 0)[1][32:96]
    assert b"".join(data for _, data in stream.blocks(0, 0, 2**40, 1 << 20)) == read_log(stream, 0)[1]


def test_recorded_frames_have_the_archives_checksums(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1))
    rows = [bytes([n]) * 5_000 for n in range(200)]
    write(stream, 0, {0: rows[:100]})
    write(stream, 1, {0: rows[100:]})
    (state,) = stream.states()
    recording = archive_of(embedded(node)).recording(state.shape.recording_id)
    assert recording is not None
    with SegmentSource(Path(node.archive_dir), recording, 0, state.end) as files:
        found = [value for batch in drain(files, recording) for value in batch.values.to_pylist()]
    assert found == rows


def test_a_row_of_40_mib_is_a_group_of_chunks(streams: StreamStore, rng: random.Random) -> None:
    stream = streams.create(create_request("a", 1))
    payload = rng.randbytes(40 << 20)
    write_group(stream, 0, 0, b"small")
    write_group(stream, 1, 0, payload)
    write_group(stream, 2, 0, b"")
    found = read_groups(stream, 0)
    assert [group.payload.to_pybytes() for group in found] == [b"small", payload, b""]
    assert [group.header.batch for group in found] == [0, 1, 2]
    assert stream.content()[0] == "framed"
    # A range does not end within a group.
    second = found[1].position
    (state,) = stream.states()
    assert stream.boundary(0, 0, second + (20 << 20), state.end, None, framed=True).position == second
    assert stream.boundary(0, second, second + 1, state.end, None, framed=True).position == found[2].position
    assert stream.boundary(0, 0, state.end, state.end, 2, framed=True).position == found[2].position


def test_boundaries_lie_between_messages_and_before_the_committed_end(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: [bytes([n]) * 1_000 for n in range(100)]})
    edges = [*(at for at, _ in read_messages(stream, 0)), ends(stream)[0]]
    assert stream.boundary(0, 0, edges[10] + 40, 2**40, None, framed=False).position == edges[10]
    found = stream.boundary(0, edges[3], 2**40, 2**40, 7, framed=False)
    assert (found.position, found.rows) == (edges[10], 7)
    assert stream.boundary(0, edges[-1], 2**40, 2**40, None, framed=False).position == edges[-1]


def test_a_repeated_commit_changes_nothing(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 2))
    refs = stage_rows(stream, 0, [(0, 0, [b"one"]), (1, 1, [b"two"])])
    first = stream.commit(commit_request("w", "r", 0, refs))
    again = stream.commit(commit_request("w", "r", 0, refs))
    assert (again.repeated, again.ends) == (True, first.ends)
    with pytest.raises(AlreadyCommitted):
        stream.open_stage(stage_request("w", "r", 0, 0, 0, "raw"))
    assert stream.begin(Transaction("w", "r2", 0)).last == 0
    assert stream.commit(commit_request("w", "r2", 0, [])).repeated
    assert read_values(stream, 0) == [b"one"]
    assert reserved_bytes(streams) == 0


def test_a_newer_run_fences_the_older_one(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    old = stage_rows(stream, 0, [(0, 0, [b"old"])], run="first")
    assert stream.begin(Transaction("w", "second", 0)).last == -1
    for attempt in (
        lambda: stream.commit(commit_request("w", "first", 0, old)),
        lambda: stream.open_stage(stage_request("w", "first", 0, 0, 0, "raw")),
        lambda: stream.begin(Transaction("w", "first", 0)),
    ):
        with pytest.raises(RefusedError, match=r"'first'.*fenced.*'second'"):
            attempt()
    write(stream, 0, {0: [b"new"]}, run="second")
    assert read_values(stream, 0) == [b"new"]
    assert reserved_bytes(streams) == 0


def test_another_producers_rows_are_refused_and_its_run_does_not_fence_the_writers(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    first = stage_rows(stream, 0, [(0, 0, [b"A0"])], run="a1")
    stream.commit(commit_request("w", "a1", 0, first, producer="A"))
    for refused in (
        lambda: stream.open_stage(stage_request("w", "b1", 0, 0, 0, "raw", producer="B")),
        lambda: stream.begin(Transaction("w", "b1", 0, producer="B")),
        lambda: stream.commit(commit_request("w", "b1", 0, [], producer="B")),
    ):
        with pytest.raises(RefusedError, match=r"'b1'.*'a1'"):
            refused()
    assert not stream.commit(
        commit_request("w", "a1", 1, stage_rows(stream, 1, [(0, 0, [b"A1"])], run="a1"), producer="A")
    ).repeated
    # After a restart from its checkpoint, A repeats its last micro-batch as another run.
    assert stream.begin(Transaction("w", "a2", 1, producer="A")).last == 1
    assert stream.commit(commit_request("w", "a2", 1, [], producer="A")).repeated
    assert [stream.last_committed("w", producer).transaction for producer in ("", "A", "B")] == [1, 1, -1]
    # B commits a later transaction and takes over; then an equal transaction of A is refused.
    assert not stream.commit_empty(empty_request("w", "b1", 2, producer="B")).repeated
    with pytest.raises(RefusedError, match="fenced"):
        stream.commit(commit_request("w", "a2", 2, [], producer="A"))
    with pytest.raises(RefusedError, match=r"'a3'.*'b1'"):
        stream.commit(commit_request("w", "a3", 2, [], producer="A"))
    assert read_values(stream, 0) == [b"A0", b"A1"]
    assert reserved_bytes(streams) == 0


def test_an_abort_removes_stages_and_keeps_committed_rows(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    refs = stage_rows(stream, 0, [(0, 0, [b"aborted"])])
    stream.abort(Transaction("w", "r", 0))
    assert reserved_bytes(streams) == 0
    with pytest.raises(RefusedError, match="unknown stage"):
        stream.commit(commit_request("w", "r", 0, refs))
    write(stream, 0, {0: [b"committed"]})
    stream.abort(Transaction("w", "r", 0))
    assert read_values(stream, 0) == [b"committed"]
    assert stream.last_committed("w").transaction == 0


def test_stages_that_a_commit_does_not_name_are_removed(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    first, second = stage_rows(stream, 0, [(0, 0, [b"attempt 0"]), (0, 0, [b"attempt 1"])])
    unfinished = stream.open_stage(stage_request("w", "r", 0, 0, 1, "raw"))
    other = stream.open_stage(stage_request("w", "r", 1, 0, 1, "raw"))
    stream.commit(commit_request("w", "r", 0, [second]))
    assert read_values(stream, 0) == [b"attempt 1"]
    for stage_id in (first.id, unfinished.id):
        with pytest.raises(RefusedError):
            stream.stage(stage_id)
    assert stream.stage(other.id) is other
    other.discard()
    assert reserved_bytes(streams) == 0


def test_a_transaction_without_rows_is_committed(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 2))
    assert not stream.commit_empty(empty_request("w", "r", 3)).repeated
    assert stream.commit_empty(empty_request("w", "r", 3)).repeated
    assert stream.last_committed("w").transaction == 3
    empty = stream.open_stage(stage_request("w", "r", 4, 0, 0, "raw")).finish()
    assert stream.commit(commit_request("w", "r", 4, [empty])).ends == (0, 0)
    assert stream.content() == ("", None)


def test_a_commit_is_refused_if_a_stage_is_changed_repeated_or_of_another_transaction(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    (ref,) = stage_rows(stream, 0, [(0, 0, [b"x"])])
    with pytest.raises(RefusedError, match="checksum"):
        stream.commit(commit_request("w", "r", 0, [type(ref)(ref.id, ref.rows, ref.bytes, ref.crc ^ 1)]))
    with pytest.raises(UsageError, match="twice"):
        stream.commit(commit_request("w", "r", 0, [ref, ref]))
    with pytest.raises(UsageError, match="transaction 0"):
        stream.commit(commit_request("w", "r", 1, [ref]))
    with pytest.raises(OptionError, match="no partition 7"):
        stream.open_stage(stage_request("w", "r", 0, 7, 0, "raw"))
    assert read_values(stream, 0) == []
    assert not stream.commit(commit_request("w", "r", 0, [ref])).repeated


def test_a_value_longer_than_a_message_is_refused_before_it_is_committed(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=64 << 10))
    with pytest.raises(DataFormatError, match="limit 8192 bytes"):
        write(stream, 0, {0: [b"x" * 8_193]})
    write(stream, 0, {0: [b"x" * 8_192]})
    assert [len(value) for value in read_values(stream, 0)] == [8_192]


def test_the_schemas_of_two_tasks_are_merged(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    narrow = serialize(pa.schema([pa.field("a", pa.int64())]))
    wide = serialize(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())]))
    refs = []
    for task, schema in enumerate((narrow, wide)):
        stage = stream.open_stage(stage_request("w", "r", 0, 0, task, "arrow", schema))
        for buffer in _group(encode_batch(pa.RecordBatch.from_pylist([{"a": task}], read_schema(schema)))):
            stage.append(buffer, stage.used_at)
        refs.append(stage.finish())
    stream.commit(commit_request("w", "r", 0, refs))
    content, schema = stream.content()
    assert content == "arrow"
    assert schema is not None
    assert read_schema(schema).names == ["a", "b"]
    other = serialize(pa.schema([pa.field("a", pa.string())]))
    with pytest.raises(DataFormatError, match=r"string[\s\S]*int64"):
        stream.open_stage(stage_request("w", "r", 1, 0, 0, "arrow", other))
    with pytest.raises(DataFormatError, match="has arrow rows"):
        stream.open_stage(stage_request("w", "r", 1, 0, 0, "raw"))


def _group(payload: pa.Buffer) -> list[pa.Buffer]:
    return encode_group_item(Header(Content.ARROW, total=payload.size, rows=1), payload)


def test_a_commit_that_fails_before_the_journal_has_no_effect_and_can_be_repeated(
    streams: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.create(create_request("a", 2))
    write(stream, 0, {0: [b"first"], 1: [b"first"]})
    before, identity = ends(stream), identities(stream)
    refs = stage_rows(stream, 1, [(0, 0, [b"second"] * 100), (1, 1, [b"second"])])

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(stream._journal, "write", fail_as_disk_full)
            with pytest.raises(TransportError, match="disk is full"):
                stream.commit(commit_request("w", "r", 1, refs))
        assert ends(stream) == before
        assert read_values(stream, 0) == read_values(stream, 1) == [b"first"]
        assert stream.last_committed("w").transaction == 0
    stream.commit(commit_request("w", "r", 1, refs))
    assert read_values(stream, 0) == [b"first", *[b"second"] * 100]
    assert read_values(stream, 1) == [b"first", b"second"]
    assert identities(stream) == identity


def test_a_run_that_is_fenced_during_its_commit_is_refused(
    streams: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = streams.create(create_request("a", 1))
    refs = stage_rows(stream, 0, [(0, 0, [b"old"])], run="first")
    publish = stream._recordings.publish

    def publish_and_fence(stages: object, at: object) -> object:
        found = publish(stages, at)
        stream.begin(Transaction("w", "second", 0))
        return found

    monkeypatch.setattr(stream._recordings, "publish", publish_and_fence)
    with pytest.raises(RefusedError, match="fenced"):
        stream.commit(commit_request("w", "first", 0, refs))
    monkeypatch.undo()
    assert ends(stream) == [0]
    write(stream, 0, {0: [b"new"]}, run="second")
    assert read_values(stream, 0) == [b"new"]


def test_the_wait_for_commits_ends_with_a_commit(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 2))
    refs = stage_rows(stream, 0, [(1, 0, [b"x"])])
    waiting = stream.when_beyond([0, 0])
    assert not waiting.done()
    stream.commit(commit_request("w", "r", 0, refs))
    assert waiting.result(60)
    assert stream.when_beyond([0, 0]).result(0)
    assert not stream.when_beyond(ends(stream)).done()


def test_writers_commit_concurrently_and_readers_see_complete_transactions(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 2))
    writers, transactions = 4, 12
    errors: list[BaseException] = []
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def commit_repeatedly(writer: int) -> None:
        try:
            for transaction in range(transactions):
                row = b"%d.%d" % (writer, transaction)
                write(stream, transaction, {0: [row] * 3, 1: [row] * 3}, writer=f"w{writer}")
        except BaseException as error:
            errors.append(error)

    def watch_ends() -> None:
        while not done.is_set():
            first, second = ends(stream)
            seen.append((first, second))
            done.wait(0.001)

    watcher = threading.Thread(target=watch_ends, daemon=True)
    watcher.start()
    committing = [threading.Thread(target=commit_repeatedly, args=(writer,), daemon=True) for writer in range(writers)]
    for thread in committing:
        thread.start()
    for thread in committing:
        thread.join(120)
    done.set()
    watcher.join(10)
    assert not errors
    assert all(first == second for first, second in seen)
    for partition in (0, 1):
        rows = read_values(stream, partition)
        assert len(rows) == 3 * writers * transactions
        for at in range(0, len(rows), 3):
            assert len(set(rows[at : at + 3])) == 1
        for writer in range(writers):
            of_writer = [row for row in rows if row.startswith(b"%d." % writer)]
            assert of_writer == [b"%d.%d" % (writer, n) for n in range(transactions) for _ in range(3)]


def test_a_writer_and_a_waiting_reader_of_a_deleted_stream_get_an_error(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1))
    write(stream, 0, {0: [b"x"] * 100})
    errors: list[BaseException] = []

    def collect_error(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    def commit_repeatedly() -> None:
        for transaction in range(1, 10_000):
            write(stream, transaction, {0: [b"x"] * 100})

    calls = (commit_repeatedly, stream.when_beyond([2**60]).result)
    threads = [threading.Thread(target=collect_error, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    streams.delete("a")
    for thread in threads:
        thread.join(60)
    # A call during the staging raises that the stage was removed (EndedError); other calls raise the reason.
    assert len(errors) == 2, errors
    assert all(isinstance(error, UsageError) for error in errors), errors
    assert any("deleted" in str(error) for error in errors)
    with pytest.raises(UsageError, match="deleted"):
        stream.begin(Transaction("w", "r", 10_000))
    assert reserved_bytes(streams) == 0
