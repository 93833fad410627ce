"""Tests of committed ends at the end of a term and segment, and of unfinished creations and deletions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.aeron.archive import archive_of, replay
from aeron_spark.aeron.recording import segment_at
from aeron_spark.aeron.row_sources import ReceivedRange, drain
from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import AeronSparkError, ConnectError, SetupError, TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.streams import store
from aeron_spark.streams import store as stores
from aeron_spark.streams.recordings import Recordings
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.stream_requests import Transaction
from tests.aeron.stream_store.rows import SETTINGS, ends, identities, read_values, stage_rows, write
from tests.aeron.streams import own_node
from tests.stream_requests import commit_request, create_request

TERM = SEGMENT = 64 << 10
LONGEST_PAYLOAD = 8_192 - 32  # bytes in the longest frame
FULL_TERM = [b"e" * LONGEST_PAYLOAD] * 8  # the rows of a whole term


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with the shortest segments: one term each."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


def publish_uncommitted(stream: Stream, rows: list[bytes]) -> None:
    """Publish and record rows that are never committed."""
    refs = stage_rows(stream, 1_000_000, [(0, 0, rows)])
    stages = {0: [stream._stages.take(ref, 0.0) for ref in refs]}
    stream._recordings.publish(stages, stream._ledger.ends)
    stream._recordings.mark_uncommitted([0])
    stream.abort(Transaction("w", "r", 1_000_000))


@pytest.mark.parametrize(
    "uncommitted",
    [[], [b"g"], [b"g" * LONGEST_PAYLOAD] * 8, [b"g" * LONGEST_PAYLOAD] * 9, [b"g" * LONGEST_PAYLOAD] * 30],
)
@pytest.mark.parametrize("before", [[], FULL_TERM[:-1], FULL_TERM, [*FULL_TERM, b"x"], FULL_TERM * 3])
@pytest.mark.parametrize("restart", [False, True])
def test_uncommitted_bytes_are_truncated_at_any_position(
    streams: StreamStore, node: NodeHandle, before: list[bytes], uncommitted: list[bytes], restart: bool
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    if before:
        write(stream, 0, {0: before})
    end, identity = ends(stream), identities(stream)
    if uncommitted:
        publish_uncommitted(stream, uncommitted)
    else:
        stream.release_slots()
    if restart:
        streams.close()
        streams = StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS))
        stream = streams.get("a")
    try:
        assert ends(stream) == end
        write(stream, 1, {0: [b"after", *FULL_TERM]})
        assert read_values(stream, 0) == [*before, b"after", *FULL_TERM]
        assert identities(stream) == identity
    finally:
        streams.close()


@pytest.mark.parametrize("extended", [False, True])
def test_all_rows_can_be_purged_if_the_end_is_the_end_of_a_segment(
    streams: StreamStore, node: NodeHandle, extended: bool
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: FULL_TERM * 2})
    assert ends(stream) == [2 * SEGMENT]
    if extended:
        stream.release_slots()
    (purged,) = stream.purge(before_position=2**60)
    assert (purged.start, purged.freed_bytes, purged.held) == (2 * SEGMENT, 2 * SEGMENT, ())
    assert list(stream.blocks(0, 2 * SEGMENT, 2**60, 100)) == []
    stream.release_slots()
    write(stream, 1, {0: [b"after"]})
    assert read_values(stream, 0) == [b"after"]
    streams.close()
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        assert read_values(reopened.get("a"), 0) == [b"after"]
        write(reopened.get("a"), 2, {0: FULL_TERM * 2})
        assert read_values(reopened.get("a"), 0) == [b"after", *FULL_TERM, *FULL_TERM]


def test_a_start_removes_streams_that_were_not_completely_created_or_deleted(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {recording.id for recording in archive_of(embedded(node)).recordings()}
    write(streams.create(create_request("deleted", 2, segment_bytes=TERM)), 0, {0: [b"x"], 1: [b"x"]})

    def fail(*_: object) -> None:
        raise TransportError("no")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete_recording", fail)
        patched.setattr(stores, "create_ledger", fail)
        with pytest.raises(TransportError):
            streams.create(create_request("made", 2, segment_bytes=TERM))
        streams.delete("deleted")
        streams.close()
    assert len(list(streams.folder.iterdir())) == 3
    (streams.folder / ".creating-0-early").mkdir()  # a creation that ended before its definition was written
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as reopened:
        assert reopened.all() == []
        assert [path.name for path in reopened.folder.iterdir()] == ["lock"]
        assert {recording.id for recording in archive_of(embedded(node)).recordings()} == before


def test_housekeeping_opens_a_stream_after_a_temporary_failure(
    streams: StreamStore, node: NodeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(streams.create(create_request("a", 1, segment_bytes=TERM)), 0, {0: [b"x"]})
    streams.close()

    def fail(*_: object) -> None:
        raise ConnectError("the archive does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Recordings, "recover", fail)
        reopened = StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS))
    with reopened:
        with pytest.raises(ConnectError, match="does not answer"):
            reopened.get("a")
        reopened.tick()
        assert read_values(reopened.get("a"), 0) == [b"x"]


def test_a_replayed_recording_is_truncated_after_the_replay(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: FULL_TERM * 2})
    publish_uncommitted(stream, FULL_TERM)
    archive = archive_of(embedded(node))
    recording = archive.recording(stream.states()[0].shape.recording_id)
    assert recording is not None
    with replay(archive, recording, 0, 3 * SEGMENT, timeout=10), pytest.raises(AeronSparkError) as failed:
        write(stream, 1, {0: [b"after"]})
    assert failed.value.retriable
    stream.commit(commit_request("w", "r", 1, stage_rows(stream, 1, [(0, 0, [b"after"])])))
    assert read_values(stream, 0) == [*FULL_TERM, *FULL_TERM, b"after"]


def test_an_archive_without_local_files_is_refused(streams: StreamStore, node: NodeHandle, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="its own node"):
        StreamStore(tmp_path / "other", StoreParts(replace(embedded(node), archive_dir=""), SETTINGS))


def test_segments_are_counted_from_position_0_after_a_purge(streams: StreamStore, node: NodeHandle) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    for transaction in range(2):
        write(stream, transaction, {0: FULL_TERM * 2})
    stream.purge(before_position=2 * SEGMENT + 5)
    recording = archive_of(embedded(node)).recording(stream.states()[0].shape.recording_id)
    assert recording.start_position == 2 * SEGMENT
    found = segment_at(Path(node.archive_dir), recording, 3 * SEGMENT + 7)
    assert found[1] == 3 * SEGMENT


@pytest.mark.parametrize("max_bytes", [128 << 10, 256 << 10, 512 << 10])
def test_a_receiver_skips_padding_that_is_longer_than_a_frame(
    streams: StreamStore, node: NodeHandle, max_bytes: int
) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=4 << 20))
    rows = [bytes([n]) * (350 << 10) for n in range(25)]  # a term holds eleven of them, and 256 KiB of padding
    write(stream, 0, {0: rows})
    recording = archive_of(embedded(node)).recording(identities(stream)[0][0])
    assert recording is not None
    blocks = (memoryview(data) for _, data in stream.blocks(0, 0, ends(stream)[0], max_bytes))
    source = ReceivedRange("a", 0, ends(stream)[0], lambda: next(blocks))
    assert [value for found in drain(source, recording) for value in found.values.to_pylist()] == rows


def test_blocks_can_be_read_into_memory_of_the_caller(streams: StreamStore) -> None:
    stream = streams.create(create_request("a", 1, segment_bytes=TERM))
    write(stream, 0, {0: FULL_TERM * 3})
    memory = memoryview(bytearray(10_000))
    copied = b"".join(bytes(data) for _, data in stream.blocks(0, 0, ends(stream)[0], len(memory), memory))
    assert copied == b"".join(data for _, data in stream.blocks(0, 0, ends(stream)[0], len(memory)))
    assert len(copied) == ends(stream)[0]
