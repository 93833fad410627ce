"""Rows for tests of the store: staged as a client does, and decoded from raw log bytes independently of the product."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from aeron_spark.direct.archive_recordings import embedded
from aeron_spark.errors import TransportError
from aeron_spark.node import NodeHandle
from aeron_spark.streams import archive_mark
from aeron_spark.streams.stages import Stage
from aeron_spark.streams.store import StreamStore
from aeron_spark.streams.store_parts import StoreParts, StreamSettings
from aeron_spark.streams.stream import Stream
from aeron_spark.wire.chunks import Content, Group, Header, Reassembler, decode
from aeron_spark.wire.staged_items import encode_group_item, encode_values_item
from aeron_spark.wire.stream_requests import Committed, StagedPart
from tests.aeron.streams import TIMEOUT_S
from tests.stream_requests import commit_request, stage_request

SETTINGS: Final = StreamSettings(timeout_s=TIMEOUT_S)
# length, version, flags, type, term offset, session id (in a file: the checksum), stream id, term id, reserved value
FRAME: Final = struct.Struct("<ibBHiiiiq")
PADDING: Final = 0
BEGIN: Final = 0x80
END: Final = 0x40

Task = tuple[int, int, Sequence[bytes]]  # partition, task, values


def stage_rows(
    stream: Stream, transaction: int, tasks: Sequence[Task], *, writer: str = "w", run: str = "r", ahead: bool = False
) -> list[StagedPart]:
    """Stage the values of each task, and publish them ahead if ``ahead``; return the references for the commit."""
    refs = []
    for partition, task, values in tasks:
        stage = stream.open_stage(stage_request(writer, run, transaction, partition, task, "raw"))
        fill(stage, values)
        if ahead:
            assert stream.publish_ahead(stage) in (
                stage.bytes,
                -1,
            )  # -1: not published, because the partition has another stage
        refs.append(stage.finish())
    return refs


def fill(stage: Stage, values: Sequence[bytes]) -> None:
    """Append the values as one item."""
    for buffer in encode_values_item(pa.array(values, pa.binary())):
        stage.append(buffer, stage.used_at)  # housekeeping would expire a stage with an earlier time


def write(
    stream: Stream,
    transaction: int,
    values: Mapping[int, Sequence[bytes]],
    *,
    writer: str = "w",
    run: str = "r",
    ahead: bool = False,
) -> Committed:
    """Stage and commit one task's values for each partition."""
    tasks = [(partition, 0, rows) for partition, rows in values.items()]
    refs = stage_rows(stream, transaction, tasks, writer=writer, run=run, ahead=ahead)
    return stream.commit(commit_request(writer, run, transaction, refs))


def write_group(stream: Stream, transaction: int, partition: int, payload: bytes) -> Committed:
    """Stage and commit one value that becomes a group of chunks."""
    stage = stream.open_stage(stage_request("w", "r", transaction, partition, 0, "framed"))
    header = Header(Content.BYTES, total=len(payload), published_ns=7, batch=transaction, partition=partition)
    for buffer in encode_group_item(header, payload):
        for at in range(0, buffer.size, 1 << 20):
            stage.append(buffer.slice(at, min(1 << 20, buffer.size - at)), stage.used_at)
    return stream.commit(commit_request("w", "r", transaction, [stage.finish()]))


def read_log(stream: Stream, partition: int, start: int | None = None, max_bytes: int = 1 << 20) -> tuple[int, bytes]:
    """Return the first position and all log bytes of a partition; check that the blocks are contiguous."""
    state = stream.states()[partition]
    begin = at = state.start if start is None else start
    parts = []
    for position, data in stream.blocks(partition, begin, state.end, max_bytes):
        assert position == at
        assert 0 < len(data) <= max_bytes
        parts.append(data)
        at += len(data)
    assert at == state.end
    return begin, b"".join(parts)


def read_messages(stream: Stream, partition: int, start: int | None = None) -> list[tuple[int, bytes]]:
    """Return position and bytes of every message of a partition."""
    state = stream.states()[partition]
    return list(_messages(*read_log(stream, partition, start), state.shape.term_length, state.shape.initial_term_id))


def _messages(begin: int, log: bytes, term_length: int, initial_term_id: int) -> Iterator[tuple[int, bytes]]:
    at, first, parts = 0, 0, []
    while at < len(log):
        length, _, flags, kind, term_offset, _, _, term_id, _ = FRAME.unpack_from(log, at)
        assert length >= FRAME.size, (begin + at, length)
        assert term_offset == (begin + at) % term_length
        assert (term_id - initial_term_id) % 2**32 == (begin + at) // term_length
        if kind != PADDING:
            payload = log[at + FRAME.size : at + length]
            if flags & BEGIN:
                first, parts = begin + at, []
            parts.append(payload)
            if flags & END:
                yield first, b"".join(parts)
        at += -(-length // 32) * 32
    assert at == len(log)


def read_values(stream: Stream, partition: int) -> list[bytes]:
    return [value for _, value in read_messages(stream, partition)]


def read_groups(stream: Stream, partition: int) -> list[Group]:
    reassembler = Reassembler(stream.states()[partition].start)
    found = [reassembler.feed(decode(message), at) for at, message in read_messages(stream, partition)]
    assert reassembler.unfinished is None
    assert not reassembler.discarded
    return [group for group in found if group is not None]


def identities(stream: Stream) -> list[tuple[int, str]]:
    """Return the recording id and fingerprint of each partition, which never change."""
    return [(state.shape.recording_id, state.recording.identity) for state in stream.states()]


def ends(stream: Stream) -> list[int]:
    """Return the position at which each partition's committed rows end."""
    return [state.end for state in stream.states()]


def reserved_bytes(streams: StreamStore) -> int:
    """Return how many bytes the stages of a store reserve."""
    return streams.staged_bytes


def fail_as_disk_full(_: object) -> None:
    """Replace a write of the journal, on a full disk."""
    raise TransportError("the disk is full")


def remove_marks(archive_dir: str) -> None:
    """Delete the marks in the archive's folder, as the remedy of the error about an older journal says."""
    shutil.rmtree(Path(archive_dir) / archive_mark.MARKS_FOLDER, ignore_errors=True)


def delete_streams(streams: StreamStore, node: NodeHandle) -> None:
    """Delete every stream of a closed store, and check that its folder is empty."""
    with StreamStore(streams.folder, StoreParts(embedded(node), SETTINGS)) as store:
        for name in [*(stream.definition.name for stream in store.all()), *store.failed]:
            store.delete(name)
    assert [path.name for path in streams.folder.iterdir()] == ["lock"]
