"""A recording with a damaged part: each reader fails with its position, or continues behind it with a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from aeron_spark.errors import DataLossError
from aeron_spark.log.follow import Follower
from aeron_spark.log.losses import DataLossWarning
from aeron_spark.log_factory import log_of
from aeron_spark.options import ReadOptions
from tests.aeron.streams import PublishedRecording, Stream, number, numbered
from tests.spark.simulated_engine import Query, read_numbers, read_table

SCHEMA = Path(__file__).parent.parent / "golden" / "sbe" / "book.xml"
COUNT = 200
FRAME = 160  # bytes of a message of 106 bytes in the log
END = COUNT * FRAME
TERM = 64 << 10


@dataclass(frozen=True)
class Hole:
    """Bytes of the only segment that are overwritten, and the position that the error names."""

    begin: int
    end: int
    byte: int = 0
    position: int = -1

    @property
    def damaged_at(self) -> int:
        return self.begin if self.position < 0 else self.position


HOLES = {
    "zeros": Hole(8_000, 11_200),
    "ones": Hole(8_000, 11_200, 0xFF),
    "start": Hole(0, 3_200),
    "end": Hole(END - 3_200, END),
    "inside a frame": Hole(8_064, 11_200, position=8_000),
    "inside a payload": Hole(8_064, 8_096, 0xFF, position=8_000),
}


def overwrite(recording: PublishedRecording, hole: Hole) -> None:
    """Overwrite bytes of a segment file of a recording."""
    base = hole.begin - hole.begin % TERM
    path = Path(recording.stream.address.archive_dir) / f"{recording.recording_id}-{base}.rec"
    with path.open("r+b") as file:
        file.seek(hole.begin - base)
        file.write(bytes([hole.byte]) * (hole.end - hole.begin))


def damaged(stream: Stream, hole: Hole, *, stop: bool = True) -> PublishedRecording:
    """Publish the rows of the finding, and damage their recording."""
    recording = stream.publisher()
    recording.send(numbered(0, COUNT, 106))
    recording.wait_recorded()
    assert recording.stop() == END if stop else recording.position == END
    overwrite(recording, hole)
    return recording


def batch(stream: Stream, **options: object) -> list[int]:
    return read_numbers(stream.options, **options)


def streaming(stream: Stream, **options: object) -> list[int]:
    query = Query(stream.options, **options)
    found = query.run_batch() or []
    assert query.run_batch() is None, "the rows are read once, and so is the damaged part"
    return found


def receive(stream: Stream, **options: object) -> list[int]:
    texts = {name: str(value) for name, value in options.items()}
    parsed = ReadOptions.parse({**stream.options, "payload": "raw", **texts}, streaming=False)
    batches = Follower(parsed, log_of, lambda: False).batches(follow=False)
    return [number(value) for one in batches for value in one.batch.column("value").to_pylist()]


READERS: dict[str, Callable[..., list[int]]] = {"batch": batch, "streaming": streaming, "receive": receive}


@pytest.mark.parametrize("read_path", ["files", "replay"])
@pytest.mark.parametrize("name", HOLES)
def test_each_reader_names_the_damaged_position_or_continues_at_the_end(
    stream: Stream, name: str, read_path: str
) -> None:
    """Regression: the damaged part was taken for the end, and the rest of the rows was missing without an error."""
    hole = HOLES[name]
    recording = damaged(stream, hole)
    text = (
        f"recording {recording.recording_id} of archive embedded is damaged at position {hole.damaged_at}, the "
        f"recording ends at {END}"
    )
    for reader in READERS.values():
        with pytest.raises(DataLossError, match=text):
            reader(stream, readPath=read_path)
        with pytest.warns(DataLossWarning, match=text) as warned:
            found = reader(stream, readPath=read_path, failOnDataLoss="false")
        assert found == list(range(hole.damaged_at // FRAME))
        assert len([one for one in warned if one.category is DataLossWarning]) == 1


@pytest.mark.parametrize("name", ["zeros", "start", "inside a payload"])
def test_a_damaged_recording_among_others_is_named_by_replays_that_overlap(stream: Stream, name: str) -> None:
    hole = HOLES[name]
    publishers = [stream.publisher() for _ in range(3)]
    for index, one in enumerate(publishers):
        one.send(numbered(COUNT * index, COUNT * (index + 1), 106))
        one.wait_recorded()
        one.stop()
    overwrite(publishers[1], hole)
    text = f"recording {publishers[1].recording_id} of archive embedded is damaged at position {hole.damaged_at}, "
    with pytest.raises(DataLossError, match=text):
        batch(stream, readPath="replay")
    with pytest.warns(DataLossWarning, match=text):
        found = batch(stream, readPath="replay", failOnDataLoss="false")
    before = range(COUNT, COUNT + hole.damaged_at // FRAME)
    assert found == [*range(COUNT), *before, *range(2 * COUNT, 3 * COUNT)]


@pytest.mark.parametrize("name", ["zeros", "start", "inside a frame"])
def test_an_archive_whose_files_are_unknown_names_the_damaged_position_by_its_replays(
    stream: Stream, name: str
) -> None:
    hole, handle = HOLES[name], stream.handle
    damaged(stream, hole)
    archive = f"{handle.control_channel}|stream-id={handle.control_stream}"
    for reader in READERS.values():
        with pytest.raises(
            DataLossError, match=f"is damaged at position {hole.damaged_at}, the recording ends at {END}"
        ):
            reader(stream, archive=archive)
        with pytest.warns(DataLossWarning, match=f"is damaged at position {hole.damaged_at}"):
            found = reader(stream, archive=archive, failOnDataLoss="false")
        assert found == list(range(hole.damaged_at // FRAME))


@pytest.mark.parametrize("name", ["batch", "streaming"])
def test_sbe_messages_behind_a_hole_are_not_taken_for_the_end(stream: Stream, name: str) -> None:
    damaged(stream, HOLES["start"])
    options = {"payload": "sbe", "sbeSchema": str(SCHEMA), "sbeMessage": "*"}
    with pytest.raises(DataLossError, match=f"is damaged at position 0, the recording ends at {END}"):
        READERS[name](stream, **options)
    with pytest.warns(DataLossWarning, match="is damaged at position 0"):
        assert READERS[name](stream, failOnDataLoss="false", **options) == []


def test_a_hole_over_two_segments_is_damage_in_each(stream: Stream) -> None:
    recording = stream.publisher()
    recording.send(numbered(0, 600, 106))
    recording.stop()
    overwrite(recording, Hole(60_000, TERM))
    overwrite(recording, Hole(TERM, 70_400))
    for reader in READERS.values():
        with pytest.raises(DataLossError, match="is damaged at position 60000"):
            reader(stream)
        with pytest.warns(DataLossWarning) as warned:
            assert reader(stream, failOnDataLoss="false") == list(range(375))
        texts = [str(one.message) for one in warned if one.category is DataLossWarning]
        assert [text.split("damaged at position ")[1].split(",")[0] for text in texts] == ["60000", str(TERM)]


@pytest.mark.parametrize("position", [8_160, 12_800, END - FRAME])
@pytest.mark.parametrize("given", ["startingOffsets", "startPosition", "--start"])
def test_a_given_position_behind_a_hole_is_damage_and_not_inside_a_message(
    stream: Stream, given: str, position: int
) -> None:
    recording = damaged(stream, HOLES["zeros"])
    named = json.dumps({str(recording.recording_id): position})

    def read(**more: str) -> list[int]:
        if given == "startingOffsets":
            return streaming(stream, startingOffsets=named, **more)
        if given == "startPosition":
            return batch(stream, startPosition=position, **more)
        options = ReadOptions.parse({**stream.options, "payload": "raw", **more}, streaming=True)
        follower = Follower(options, log_of, lambda: False)
        batches = follower.batches(follow=True, position=position)
        return [number(value) for one in batches for value in one.batch.column("value").to_pylist()]

    with pytest.raises(DataLossError, match=f"is damaged at position 8000, the recording ends at {END}"):
        read()
    with pytest.warns(DataLossWarning, match="is damaged at position 8000"):
        assert read(failOnDataLoss="false") == []


def test_an_active_recording_continues_behind_the_damage_and_waits_at_its_end(stream: Stream) -> None:
    recording = damaged(stream, HOLES["zeros"], stop=False)
    strict = Query(stream.options)
    with pytest.raises(DataLossError, match=f"is damaged at position 8000, the recording ends at {END}"):
        strict.run_batch()
    query = Query(stream.options, failOnDataLoss="false")
    with pytest.warns(DataLossWarning, match="is damaged at position 8000"):
        assert query.run_batch() == list(range(50))
    assert query.run_batch() is None, "the unwritten tail of an active recording is not damage"
    recording.send(numbered(COUNT, COUNT + 5, 106))
    recording.wait_recorded()
    assert query.run_batch() == list(range(COUNT, COUNT + 5))


@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_group_with_a_damaged_part_is_lost_and_the_next_term_is_read(stream: Stream, payload: str) -> None:
    values = [bytes([index]) * (30_000 if index % 2 else 100) for index in range(12)]
    for index, value in enumerate(values):
        column = pa.array([value], pa.binary())
        stream.append(payload, column if payload == "framed" else pa.record_batch({"value": column}), 1_000 * index)
    options = {"payload": payload, "includeMetadata": "true"}
    whole = read_table(stream.options, **options)
    assert whole["value"].to_pylist() == values
    path = next(Path(stream.address.archive_dir).glob(f"{whole['_aeron_recordingId'][0].as_py()}-{TERM}.rec"))
    with path.open("r+b") as file:
        file.seek(20_000 - 20_000 % 32)
        file.write(bytes(3_200))
    with pytest.raises(DataLossError, match="is damaged at position"):
        read_table(stream.options, **options)
    with pytest.warns(DataLossWarning, match="is damaged at position"):
        found = read_table(stream.options, failOnDataLoss="false", **options)["value"].to_pylist()
    assert found == [value for value in values if value in found], "rows are whole, in order, and not repeated"
    assert values[0] in found
    assert values[-1] in found
    assert len(found) < len(values)


# A change of the archive between the planning of a micro-batch and its reading.


def purge(recording: PublishedRecording) -> None:
    """Purge the first segment."""
    recording.stream.archive.purge_segments(recording.recording_id, TERM)


def truncate(recording: PublishedRecording) -> None:
    """Truncate a stopped recording after its first segment."""
    recording.stop()
    recording.stream.archive.truncate(recording.recording_id, TERM)


def delete(recording: PublishedRecording) -> None:
    """Delete a stopped recording."""
    recording.stop()
    recording.stream.archive.delete(recording.recording_id)


IN_FIRST_TERM = 409  # messages of 160 bytes in 64 KiB
CHANGES: dict[str, tuple[Callable[[PublishedRecording], None], Callable[[int], list[int]]]] = {
    "was purged": (purge, lambda count: list(range(IN_FIRST_TERM, count))),
    "was truncated": (truncate, lambda count: list(range(IN_FIRST_TERM))),
    "does not exist any more": (delete, lambda count: []),
}


@pytest.mark.parametrize("read_path", ["files", "replay"])
@pytest.mark.parametrize("text", CHANGES)
def test_rows_that_go_between_planning_and_reading_are_a_loss(stream: Stream, text: str, read_path: str) -> None:
    """Regression: the query failed, and advised failOnDataLoss=false, which it had."""
    change, remaining = CHANGES[text]
    recording = stream.publisher()
    recording.send(numbered(0, 600, 106))
    recording.wait_recorded()
    query = Query(stream.options, failOnDataLoss="false", readPath=read_path, record="never")
    assert query.plan_batch()
    assert query._start is not None
    (partition,) = query.reader.partitions(json.loads(query._start), json.loads(query.planned_ends[0]))
    change(recording)
    with pytest.warns(DataLossWarning, match=text) as warned:
        found = [number(row) for one in query.reader.read(partition) for row in one.column("value").to_pylist()]
    assert found == remaining(600)
    assert len([one for one in warned if one.category is DataLossWarning]) == 1
    strict = Query(stream.options, readPath=read_path, record="never")
    with pytest.raises(DataLossError, match=text):
        list(strict.reader.read(partition))
