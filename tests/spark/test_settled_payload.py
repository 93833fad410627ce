"""``payload=auto`` is settled by what the stream holds: for a writer, a query, a batch, ``send`` and ``receive``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from aeron_spark.direct.writing import DirectAppender
from aeron_spark.errors import DataFormatError
from aeron_spark.log.follow import Follower
from aeron_spark.log.writing import Source
from aeron_spark.log_factory import log_of
from aeron_spark.node import NodeHandle
from aeron_spark.options import ReadOptions, WriteOptions
from tests.aeron.streams import Stream, open_stream
from tests.spark.simulated_engine import make_batch, make_source, read_table, save

ARROW_ROWS = pa.record_batch({"id": pa.array(range(1_000), pa.int64())})


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (pa.record_batch({"key": ["k"], "value": ["v"]}), "arrow, with the columns key, value. Select only the column"),
        (pa.record_batch({"vlaue": ["v"]}), "arrow, with the columns vlaue. Did you mean 'value'"),
    ],
)
@pytest.mark.parametrize("ack", ["auto", "driver"])
def test_rows_of_another_payload_than_the_streams_are_refused_with_both_names(
    stream: Stream, rows: pa.RecordBatch, names: str, ack: str
) -> None:
    save({"record": "auto", **stream.options}, [make_batch(b"raw")])
    with pytest.raises(DataFormatError, match=f"stream {stream.id} of aeron:ipc has raw rows, .* {names}"):
        save({**stream.options, "ack": ack}, [rows])
    assert read_table(stream.options)["value"].to_pylist() == [b"raw"]


def test_a_writer_of_values_is_refused_by_a_stream_of_arrow_rows_and_by_its_own_first_rows(stream: Stream) -> None:
    stream.append("arrow", ARROW_ROWS, 1_000)
    for payload in ("auto", "framed"):
        with pytest.raises(DataFormatError, match=r"has arrow rows, and the new rows are .*payload=arrow"):
            save(stream.options, [make_batch(b"value")], payload=payload)
    empty = Stream(stream.handle)
    appender = DirectAppender(WriteOptions.parse({**empty.options, "record": "auto"}, streaming=False), Source("w"))
    appender.raw(pa.array([b"value"]))
    with pytest.raises(DataFormatError, match="has raw rows, and the new rows are arrow"):  # as send with two files
        appender.arrow(ARROW_ROWS)
    appender.finish()


def test_a_query_that_begins_before_the_first_row_never_gives_wire_bytes(stream: Stream) -> None:
    """Regression: 1,000 Arrow rows became 2 rows of wire bytes."""
    stream.record()
    options = {**stream.options, "startingOffsets": "earliest"}
    batch_source, source = (make_source(stream.options, payload="auto") for _ in range(2))
    batch_schema = batch_source.schema()
    streaming_source = make_source(options, payload="auto")
    reader = streaming_source.streamReader(streaming_source.schema())
    start = reader.initialOffset()
    follower = Follower(
        ReadOptions.parse({**options, "payload": "auto"}, streaming=True), log_of, iter([True, False]).__next__
    )
    assert next(follower.batches(follow=True), None) is None
    stream.append("arrow", ARROW_ROWS, 1_000)

    limit = reader.getDefaultReadLimit()
    with pytest.raises(DataFormatError, match=r"has arrow rows, .* columns of raw ones"):
        reader.latestOffset(start, limit)
    batch_reader = batch_source.reader(batch_schema)
    (partition,) = batch_reader.partitions()
    with pytest.raises(DataFormatError, match="is arrow, and payload=auto began with raw ones"):
        list(batch_reader.read(partition))

    restarted = make_source(options, payload="auto")
    reader = restarted.streamReader(restarted.schema())
    end = reader.latestOffset(start, limit)
    assert end["payload"] == "arrow"
    ids = [
        number
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for number in batch["id"].to_pylist()
    ]
    assert ids == list(range(1_000))
    assert source.schema().fieldNames() == ["id"]


def test_a_copy_of_raw_rows_with_all_their_columns_is_read_as_arrow(stream: Stream) -> None:
    """The columns are those of raw messages; the stream's content decides."""
    columns = pa.record_batch(
        {
            "value": [b"v"], "channel": ["c"], "streamId": pa.array([1], pa.int32()),
            "sessionId": pa.array([2], pa.int32()), "recordingId": [3], "position": [4], "reservedValue": [5],
            "timestamp": pa.array([6], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    stream.append("arrow", columns, 1_000)
    assert read_table(stream.options, payload="auto")["position"].to_pylist() == [4]
