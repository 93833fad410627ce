"""Reading an archive's files in place gives the messages of a replay, or a clear error for a damaged file."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from aeron_spark.direct.archive_log import ArchiveLog
from aeron_spark.direct.archive_recordings import StreamAddress
from aeron_spark.errors import DataLossError, SetupError, TransportError
from aeron_spark.log.api import Range, RecordingState
from aeron_spark.node import NodeHandle
from tests.aeron.streams import TIMEOUT_S, Stream, open_stream

SIZES = (0, 1, 31, 32, 33, 500, 1_375, 1_376, 1_377, 5_000, 8_192)


def log_of(stream: Stream, read_path: str) -> tuple[ArchiveLog, RecordingState]:
    log = ArchiveLog(StreamAddress(stream.channel, stream.id, (stream.address,), TIMEOUT_S, read_path))
    (state,) = log.states()
    return log, state


def whole(state: RecordingState) -> Range:
    return Range(state.key, state.fingerprint, state.start, state.end, state.end, state.term_length)


def rows_of(log: ArchiveLog, wanted: Range) -> list[tuple[int, bytes]]:
    found = []
    for rows in log.read(wanted):
        found += zip(rows.positions.to_pylist(), rows.values.to_pylist(), strict=True)
    return found


def segments_of(stream: Stream, state: RecordingState) -> list[Path]:
    folder = Path(stream.address.archive_dir)
    found = folder.glob(f"{state.recording_id}-*.rec")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))


def test_the_files_have_the_messages_of_a_replay(stream: Stream, rng: random.Random) -> None:
    values = [rng.randbytes(rng.choice(SIZES)) for _ in range(300)]
    begins = stream.publisher().send(values)
    files, state = log_of(stream, "files")
    replayed, _ = log_of(stream, "replay")
    assert len(segments_of(stream, state)) > 5
    assert rows_of(files, whole(state)) == list(zip(begins, values, strict=True))
    edges = [*begins, state.end]
    for _ in range(20):
        first, last = sorted(rng.sample(range(len(edges)), 2))
        part = replace(whole(state), start=edges[first], end=edges[last], overrun=edges[last])
        assert rows_of(files, part) == rows_of(replayed, part) == list(zip(begins, values, strict=True))[first:last]


def test_padding_that_is_longer_than_a_read_batch_is_skipped(node_of_16m: NodeHandle) -> None:
    for stream in open_stream(node_of_16m):
        # a message of 2 MiB does not fit after seven others and their headers, so the rest of the term is padding
        values = [bytes([n]) * (2 << 20) for n in range(9)]
        begins = stream.record().publisher().send(values)
        log, state = log_of(stream, "files")
        assert begins[7] == 16 << 20, begins
        assert [value for _, value in rows_of(log, whole(state))] == values


def test_a_range_whose_file_is_missing_is_requested_from_the_archive(stream: Stream) -> None:
    values = [bytes([n]) * 5_000 for n in range(100)]
    begins = stream.publisher().send(values)
    log, state = log_of(stream, "auto")
    hidden = segments_of(stream, state)[2]
    moved = hidden.with_suffix(".away")
    hidden.rename(moved)
    try:
        with pytest.raises(TransportError) as failed:
            rows_of(log, whole(state))
        assert "replay" in str(failed.value)
    finally:
        moved.rename(hidden)
    assert rows_of(log, whole(state)) == list(zip(begins, values, strict=True))


def test_the_error_for_a_changed_bit_has_the_recording_and_the_position(stream: Stream) -> None:
    begins = stream.publisher().send([bytes([n]) * 1_000 for n in range(100)])
    log, state = log_of(stream, "files")
    assert len(rows_of(log, whole(state))) == 100
    with segments_of(stream, state)[0].open("r+b") as file:
        file.seek(begins[20] + 32 + 500)
        file.write(b"\xff")
    with pytest.raises(DataLossError) as failed:
        rows_of(log, whole(state))
    assert f"recording {state.recording_id} " in str(failed.value)
    assert f"is damaged at position {begins[20]}," in str(failed.value)


@pytest.mark.parametrize("length", [0, 31, -1, -(2**31), 2**31 - 1, 100_000_000])
def test_an_invalid_frame_length_is_an_error_and_not_a_crash(stream: Stream, length: int) -> None:
    begins = stream.publisher().send([bytes([n]) * 1_000 for n in range(100)])
    log, state = log_of(stream, "files")
    with segments_of(stream, state)[0].open("r+b") as file:
        file.seek(begins[10])
        file.write(length.to_bytes(4, "little", signed=True))
    with pytest.raises(DataLossError, match=f"is damaged at position {begins[10]}, the recording ends at {state.end}"):
        rows_of(log, whole(state))


def test_the_read_path_files_is_refused_without_the_archives_directory(stream: Stream) -> None:
    stream.publisher().send([b"x"])
    foreign = replace(stream.address, archive_dir="")
    log = ArchiveLog(StreamAddress(stream.channel, stream.id, (foreign,), TIMEOUT_S, "files"))
    (state,) = log.states()
    with pytest.raises(SetupError, match="readPath=replay"):
        rows_of(log, whole(state))
