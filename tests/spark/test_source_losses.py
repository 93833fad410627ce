"""Data loss: recordings that are purged, truncated, deleted or replaced; and checkpoints that do not fit the query."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from aeron_spark import node as nodes
from aeron_spark.errors import DataFormatError, DataLossError, OptionError, TransportError
from aeron_spark.log.query import DataLossWarning
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, PublishedRecording, Stream, close_client, numbered, own_node
from tests.spark.queries import CollectingSink, read_stream, run_query, wait_for_query
from tests.spark.simulated_engine import Query

SEGMENT_LENGTH = 64 * 1024
COUNT = 300  # of messages of 1,000 bytes, in five segments
ROWS_PER_BATCH = 30


@pytest.fixture(scope="module")
def node(run_name: str) -> Iterator[NodeHandle]:
    """A node with small segments, so that a test can purge some."""
    with own_node(run_name, term_length="64k", ipc_term_length="64k", segment_length="64k") as handle:
        yield handle


def change_recording(change: Callable[[], object]) -> None:
    """Call ``change`` until the archive accepts it: for a moment, a replay that has just ended prevents changes."""

    def is_changed() -> bool:
        try:
            change()
        except TransportError as error:
            if "replay" not in str(error):
                raise
            return False
        return True

    wait_for(is_changed, TIMEOUT_S, "the last replay to end")


def purge(recording: PublishedRecording, position: int) -> None:
    """Purge the segments of a recording before a position."""
    archive = recording.stream.archive
    change_recording(lambda: archive.purge_segments(recording.recording_id, position))
    assert recording.descriptor.start_position == position


def delete(recording: PublishedRecording) -> None:
    """Delete a stopped recording."""
    change_recording(lambda: recording.stream.archive.delete(recording.recording_id))


def warns_of_loss(source: str, text: str) -> AbstractContextManager[object]:
    """Check that the block warns of a loss; ``aeron-jvm`` writes its warnings to Spark's log."""
    return pytest.warns(DataLossWarning, match=text) if source == "aeron" else nullcontext()


def test_a_running_query_fails_after_a_purge_of_its_next_rows(
    spark: SparkSession, stream: Stream, source: str, tmp_path: Path
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, COUNT, 1_000))
    started, purged = threading.Event(), threading.Event()

    def wait_in_the_first_batch(batch: int) -> None:
        if batch == 0:
            started.set()
            assert purged.wait(TIMEOUT_S)

    seen = CollectingSink(before_batch=wait_in_the_first_batch)
    start = 2 * SEGMENT_LENGTH
    frame = read_stream(spark, stream.options, source=source, maxRowsPerTrigger=ROWS_PER_BATCH)
    with run_query(frame, tmp_path, seen) as query:
        wait_for_query(query, "the first batch", started.is_set)
        purge(publisher, start)
        purged.set()
        with pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination(TIMEOUT_S)
    text = str(raised.value)
    assert f"recording {publisher.recording_id} of archive embedded was purged: the query's next position is" in text
    assert f"the recording begins at {start} now" in text
    assert "set failOnDataLoss=false" in text
    assert seen.numbers == list(range(ROWS_PER_BATCH))


def test_a_query_continues_after_a_purge_of_its_next_rows(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    positions = publisher.send(numbered(0, COUNT, 1_000))
    query = Query(stream.options, source=source, maxRowsPerTrigger=ROWS_PER_BATCH, failOnDataLoss=False)
    assert query.run_batch() == list(range(ROWS_PER_BATCH))
    start = 2 * SEGMENT_LENGTH
    purge(publisher, start)
    kept = [number for number, position in enumerate(positions) if position >= start]
    assert kept[0] > ROWS_PER_BATCH
    with warns_of_loss(source, "was purged"):
        assert [number for batch in query.run_batches() for number in batch] == kept


def test_a_query_fails_or_continues_after_a_purge_of_planned_rows(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    positions = publisher.send(numbered(0, COUNT, 1_000))
    query = Query(stream.options, source=source, maxRowsPerTrigger=100)
    assert query.run_batch() == list(range(100))
    assert query.plan_batch()
    start = 2 * SEGMENT_LENGTH
    purge(publisher, start)
    query.restart()
    with pytest.raises(
        DataLossError, match=r"was purged: the query's next position is \d+, but the recording begins at 131072"
    ):
        query.run_batch()
    query.restart(failOnDataLoss=False)
    with warns_of_loss(source, "was purged"):
        found = query.run_batch()
    kept = [number for number, position in enumerate(positions) if position >= start]
    assert found == [number for number in kept if number < 200]
    assert query.run_available_now() == [list(range(200, 300))], (
        "the query must read the other rows, without a second warning"
    )


def test_a_purge_of_rows_that_were_read_does_not_affect_a_query(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, COUNT, 1_000))
    query = Query(stream.options, source=source)
    assert query.run_batch() == list(range(COUNT))
    purge(publisher, 3 * SEGMENT_LENGTH)
    publisher.send(numbered(COUNT, COUNT + 5))
    query.restart()
    assert query.run_batch() == list(range(COUNT, COUNT + 5))
    assert Query(stream.options, source=source).run_batch()[-5:] == list(range(COUNT, COUNT + 5)), (
        "a new query must start at the first remaining row"
    )


def test_a_query_fails_or_continues_after_a_truncation_before_its_position(stream: Stream, source: str) -> None:
    publisher = stream.publisher()
    positions = publisher.send(numbered(0, 20))
    query = Query(stream.options, source=source, record="never")
    assert query.run_batch() == list(range(20))
    end = publisher.stop()
    change_recording(lambda: stream.archive.truncate(publisher.recording_id, positions[10]))
    query.restart()
    text = rf"was truncated: the query is at position {end}, but the recording ends at {positions[10]} now"
    with pytest.raises(DataLossError, match=text):
        query.run_batch()
    query.restart(failOnDataLoss=False)
    with warns_of_loss(source, "was truncated"):
        assert (query.run_batch() or []) == []
    extended = stream.extend(publisher)
    extended.send(numbered(100, 105))
    assert list(query.run_batches()) == [list(range(100, 105))]


def test_a_query_fails_or_continues_after_the_deletion_of_a_recording_with_unread_rows(
    stream: Stream, source: str
) -> None:
    publisher = stream.publisher()
    publisher.send(numbered(0, 20))
    query = Query(stream.options, source=source, maxRowsPerTrigger=5)
    finished = Query(stream.options, source=source)
    assert query.run_batch() == list(range(5))
    assert finished.run_batch() == list(range(20))
    publisher.stop()
    assert finished.run_batch() is None
    delete(publisher)
    query.restart()
    with pytest.raises(DataLossError, match=r"was deleted: the query's next position is \d+.*Check that 'archive'"):
        query.run_batch()
    again = stream.publisher()
    again.send(numbered(50, 53))
    query.restart(failOnDataLoss=False)
    with warns_of_loss(source, "was deleted"):
        assert query.run_batch() == [50, 51, 52]


def test_a_query_continues_after_the_deletion_of_a_completely_read_recording(stream: Stream, source: str) -> None:
    publisher, other = stream.publisher(), stream.publisher()
    publisher.send(numbered(0, 20))
    publisher.stop()
    other.send(numbered(20, 22))
    query = Query(stream.options, source=source)
    assert sorted(query.run_batch() or []) == list(range(22))
    delete(publisher)
    again = stream.publisher()
    again.send(numbered(22, 25))
    query.restart()
    assert query.run_batch() == [22, 23, 24]


def test_a_query_detects_that_its_recording_was_replaced_by_one_of_a_new_archive(run_name: str) -> None:
    with own_node(run_name) as first:
        stream = Stream(first).record()
        publisher = stream.publisher()
        publisher.send(numbered(0, 20))
        query = Query(stream.options, maxRowsPerTrigger=15)
        assert query.run_batch() == list(range(15))
        stream.close()
        close_client(first.aeron_dir)
        assert nodes.stop(first.aeron_dir, force=True)
        shutil.rmtree(first.archive_dir)
        with nodes.ensure(first.aeron_dir) as second:
            stream.handle = second
            stream.record()
            replaced = stream.publisher()
            replaced.send(numbered(100, 120))
            assert replaced.key == publisher.key
            query.restart()
            with pytest.raises(DataLossError, match=r"was replaced: up to position \d+ the query read the recording"):
                query.run_batch()
            query.restart(failOnDataLoss=False)
            with pytest.warns(DataLossWarning, match="was replaced"):
                assert query.run_batch() == list(range(100, 115))
            assert query.run_batch() == list(range(115, 120))
            stream.close()
            close_client(first.aeron_dir)
            nodes.stop(first.aeron_dir, force=True)


UNSUITABLE_OFFSETS = {
    "another version": (
        lambda offset: {**offset, "v": 99},
        "offset of version 99, expected at most 1.*Run the query with the newer aeron-spark",
    ),
    "another archive": (
        lambda offset: json.loads(
            json.dumps({**offset, "marks": ""}).replace("embedded/", "archive-host:8010/").replace(', "marks": ""', "")
        ),
        "of archive archive-host:8010, but the query reads archive embedded.*the option 'archive' of the checkpoint",
    ),
    "another source": (lambda offset: {"prices": {"0": 7}}, "not one of format.'aeron'.*or a new checkpointLocation"),
    "garbage": (lambda offset: {**offset, "recordings": 7}, "is damaged: 'recordings' is 7"),
}


@pytest.mark.parametrize("kind", UNSUITABLE_OFFSETS)
def test_a_checkpoint_that_does_not_fit_the_query_is_refused_with_a_remedy(
    stream: Stream, source: str, kind: str
) -> None:
    change, text = UNSUITABLE_OFFSETS[kind]
    stream.publisher().send(numbered(0, 5))
    query = Query(stream.options, source=source)
    assert query.run_batch() == list(range(5))
    query.planned_ends = [json.dumps(change(json.loads(end))) for end in query.planned_ends]
    query.restart()
    with pytest.raises((DataFormatError, OptionError), match=f"(?s){text}"):
        query.run_batch()
