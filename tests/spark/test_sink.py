"""The sink: payloads and columns, options and refusals, and what plain Aeron then finds in the log."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import read_backlog
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, OptionError, WaitTimeout
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from spark_jobs.session import begin
from tests.aeron.streams import TIMEOUT_S, Stream, frame, open_stream
from tests.spark.simulated_engine import make_batch, make_numbered_batch, read_table, save


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


@pytest.fixture
def other(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


@pytest.fixture
def idle_subscriber(node: NodeHandle, stream: Stream) -> Iterator[Any]:
    """A subscriber that never polls: connected, and soon full."""
    subscription = client_of(node.aeron_dir).subscription(stream.channel, stream.id)
    yield subscription
    subscription.close()


def write(rows: DataFrame, stream: Stream, mode: str = "append", **options: object) -> None:
    texts = {name: str(value) for name, value in options.items()}
    rows.write.format("aeron").mode(mode).options(**{"record": "auto", **stream.options, **texts}).save()


def messages(stream: Stream) -> list[bytes]:
    """Every message on the stream's log, in its order, as plain Aeron sees it."""
    rows = read_table(stream.options).to_pylist() if stream.archive.recordings(stream.id) else []
    return [row["value"] for row in sorted(rows, key=lambda row: (row["recordingId"], row["position"]))]


def put(stream: Stream, *batches: pa.RecordBatch, **options: object) -> None:
    """Write the rows of one task by hand."""
    save({"record": "auto", **stream.options}, list(batches), **options)


def subscribers(stream: Stream, node: NodeHandle) -> int:
    """Return how many subscribers of a stream the driver knows."""
    found = [one for one in read_backlog(node.aeron_dir) if one.stream_id == stream.id]
    return sum(len(one.subscribers) for one in found)


def read(spark: SparkSession, stream: Stream, **options: str) -> DataFrame:
    return spark.read.format("aeron").options(**stream.options, **options).load()


def texts(spark: SparkSession, count: int, length: int = 0) -> DataFrame:
    value = "concat('value ', id)" if not length else f"rpad(concat('value ', id), {length}, '.')"
    return spark.range(0, count, 1, 1).selectExpr(f"{value} as value")


def decoded(message: bytes) -> dict[str, Any]:
    """Take a message of docs/wire-format.md apart, from that page alone."""
    names = "content flags writer_length crc rows group_position total offset published batch row partition reserved"
    magic, version, *fields = struct.unpack_from("<4sBBBBIIqQQqqqiI", message)
    found: dict[str, Any] = dict(zip(names.split(), fields, strict=True))
    assert (magic, version) == (b"AsF1", 1)
    assert found["crc"] == zlib.crc32(message[:8] + message[12:])
    begin = 72 + (found["writer_length"] + 7) // 8 * 8
    found["writer"] = message[72 : 72 + found["writer_length"]].decode()
    assert not any(message[72 + found["writer_length"] : begin])
    found["payload"] = message[begin:]
    assert bool(found["flags"] & 1) == (found["offset"] == 0) == (found["group_position"] == -1)
    assert bool(found["flags"] & 2) == (found["offset"] + len(found["payload"]) == found["total"])
    return found


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_auto_writes_value_columns_raw_and_adds_nothing_to_the_bytes(
    spark: SparkSession, stream: Stream, kind: str
) -> None:
    write(texts(spark, 3).selectExpr(f"cast(value as {kind}) as value"), stream)
    assert messages(stream) == [b"value 0", b"value 1", b"value 2"]
    assert read(spark, stream).schema.fieldNames()[-1] == "timestamp"  # the columns of raw


@pytest.mark.parametrize("columns", ["value, 1 as more", "cast(1 as double) as value"])
def test_auto_writes_anything_else_as_arrow(spark: SparkSession, stream: Stream, columns: str) -> None:
    rows_in = texts(spark, 3).selectExpr(*columns.split(", "))
    write(rows_in, stream)
    assert all(decoded(message)["content"] == 2 for message in messages(stream))
    assert read(spark, stream).collect() == rows_in.collect()


def test_a_framed_message_decodes_by_the_page_of_the_wire_format(spark: SparkSession, stream: Stream) -> None:
    write(texts(spark, 3), stream, payload="framed", writerId="edge-7 ü")
    found = [decoded(message) for message in messages(stream)]
    assert [one["payload"] for one in found] == [b"value 0", b"value 1", b"value 2"]
    assert [(one["content"], one["flags"], one["rows"]) for one in found] == [(1, 3, 1)] * 3
    assert [(one["writer"], one["batch"], one["partition"], one["row"]) for one in found] == [
        ("edge-7 ü", -1, 0, row) for row in range(3)
    ]
    assert len({one["published"] for one in found}) == 1
    assert [bytes(row.value) for row in read(spark, stream).collect()] == [b"value 0", b"value 1", b"value 2"]


def test_a_value_in_chunks_decodes_by_the_page_of_the_wire_format(spark: SparkSession, stream: Stream) -> None:
    write(texts(spark, 2, length=20_000), stream, payload="framed", maxMessageBytes="8k")
    log = messages(stream)
    assert max(map(len, log)) == 8192
    found = [decoded(message) for message in log]
    assert [one["flags"] for one in found] == [1, 0, 2, 1, 0, 2]
    for row in range(2):
        group = found[3 * row : 3 * row + 3]
        assert {(one["total"], one["row"]) for one in group} == {(20_000, row)}
        assert b"".join(one["payload"] for one in group) == f"value {row}".encode().ljust(20_000, b".")
        assert [one["offset"] for one in group] == [0, 8192 - group[0]["writer_length"] // 8 * 8 - 72 - 8,
                                                    group[1]["offset"] + len(group[1]["payload"])]  # fmt: skip


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_reserved_values_stand_in_aerons_own_field(spark: SparkSession, stream: Stream, payload: str) -> None:
    rows_in = texts(spark, 3).selectExpr("value", "if(value like '%1', null, -5000000000L) as reservedValue")
    write(rows_in, stream, payload=payload)
    assert read_table(stream.options)["reservedValue"].to_pylist() == [-5_000_000_000, 0, -5_000_000_000]
    if payload == "framed":
        found = read(spark, stream, includeMetadata="true").orderBy("_aeron_position").collect()
        assert [row._aeron_reservedValue for row in found] == [-5_000_000_000, 0, -5_000_000_000]


def test_each_row_may_name_its_own_stream(spark: SparkSession, stream: Stream, other: Stream) -> None:
    rows_in = texts(spark, 4).selectExpr(
        "value",
        "if(value < 'value 2', 'aeron:ipc?alias=named', null) as channel",
        f"if(value in ('value 1', 'value 3'), {other.id}, null) as streamId",
    )
    write(rows_in, stream)
    assert sorted(messages(stream)) == [b"value 0", b"value 2"]
    assert sorted(messages(other)) == [b"value 1", b"value 3"]


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_a_value_that_is_null_is_refused_with_the_remedy(stream: Stream, payload: str) -> None:
    rows_in = pa.record_batch({"value": ["value 0", None, "value 2"]})
    with pytest.raises(DataFormatError, match="1 of 3 values are null") as refused:
        put(stream, rows_in, payload=payload)
    assert "payload=arrow" in str(refused.value)
    assert messages(stream.record()) == []


@pytest.mark.parametrize(
    ("columns", "payload", "sentence"),
    [
        ({"vaule": ["x"]}, "raw", "Did you mean 'vaule'? Rename it to 'value'"),
        ({"text": ["x"]}, "framed", "needs a column 'value' (BINARY or STRING), but the DataFrame has text"),
        ({"value": [1.5]}, "raw", "the column 'value' is DOUBLE, expected BINARY or STRING"),
        ({"value": ["x"], "reservedValue": ["x"]}, "framed", "the column 'reservedValue' is STRING, expected"),
        ({"value": ["x"], "topic": ["x"]}, "raw", "payload=raw does not support the column 'topic'"),
    ],
)
def test_wrong_columns_are_refused_by_name_before_anything_runs(
    stream: Stream, columns: dict[str, list[object]], payload: str, sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        put(stream, pa.record_batch(columns), payload=payload)
    assert sentence in str(refused.value)


def test_spark_shows_why_columns_are_refused(spark: SparkSession, stream: Stream) -> None:
    with pytest.raises(Exception, match=r"(?s)OptionError.*Did you mean 'vaule'"):
        write(texts(spark, 1).selectExpr("value as vaule"), stream, payload="raw")
    with pytest.raises(Exception, match="published messages cannot be deleted"):
        write(texts(spark, 1), stream, mode="overwrite")


def test_without_a_subscriber_a_write_fails_once_its_time_to_connect_is_over(stream: Stream) -> None:
    with pytest.raises(ConnectError) as failed:
        put(stream, make_numbered_batch(0, 1), record="never", connectTimeout="300ms")
    text = str(failed.value)
    assert f"waited 0.3 s for a subscriber on aeron:ipc stream {stream.id}" in text
    assert "whenUnconnected=drop" in text


@pytest.mark.parametrize("payload", ["raw", "framed", "arrow"])
def test_without_a_subscriber_rows_are_dropped_where_that_is_wanted(stream: Stream, payload: str) -> None:
    options = {"record": "never", "whenUnconnected": "drop", "payload": payload}
    put(stream, make_numbered_batch(0, 2_000), **options)
    # Once somebody listens, what is written then arrives, and nothing of what was dropped.
    stream.record()
    wait_for(stream_is_recorded(stream), TIMEOUT_S, "a recording of the kept publication")
    put(stream, make_batch("value 0"), **{**options, "payload": "raw", "ack": "archive", "whenUnconnected": "fail"})
    assert messages(stream) == [b"value 0"]


def stream_is_recorded(stream: Stream) -> Any:
    return lambda: any(one.stop_position is None for one in stream.archive.recordings(stream.id))


def test_back_pressure_beyond_the_offer_timeout_fails_with_what_aeron_answered(
    stream: Stream, idle_subscriber: Any
) -> None:
    with pytest.raises(WaitTimeout) as failed:
        put(stream, make_numbered_batch(0, 1_000, 1_000), record="never", offerTimeout="500ms")
    text = str(failed.value)
    assert f"waited 0.5 s for room to publish on aeron:ipc stream {stream.id}" in text
    assert "Aeron answered BACK_PRESSURED: a subscriber is slower than the publisher" in text


def test_acknowledged_by_the_archive_means_that_all_of_it_is_recorded(spark: SparkSession, stream: Stream) -> None:
    write(texts(spark, 2_000, length=200), stream, ack="archive")
    assert len(messages(stream)) == 2_000
    write(texts(spark, 2_000, length=200), stream, record="never")  # auto: the archive's word, as it is recorded
    assert len(messages(stream)) == 4_000


def test_acknowledgement_by_an_archive_that_does_not_record_is_refused(stream: Stream) -> None:
    with pytest.raises(AeronSparkError, match=r"is 'archive', and stream [0-9]+ of aeron:ipc is not recorded"):
        put(stream, make_batch("x"), ack="archive", record="never")


@pytest.mark.parametrize("ack", ["driver", "auto"])
def test_without_a_recording_the_drivers_word_is_enough(stream: Stream, idle_subscriber: Any, ack: str) -> None:
    put(stream, make_batch(*(f"value {row}" for row in range(10))), ack=ack, record="never")
    assert stream.archive.recordings(stream.id) == []
    # The one subscriber has not taken them yet, so that they are still there for a second one.
    assert idle_subscriber.imageCount() == 1
    stream.record()
    wait_for(lambda: recorded_bytes(stream) == 10 * frame(len("value 0")), TIMEOUT_S, "the recording")
    assert messages(stream) == [f"value {row}".encode() for row in range(10)]


def recorded_bytes(stream: Stream) -> int:
    return sum(stream.archive.position(one.id) for one in stream.archive.recordings(stream.id))


def test_a_limit_on_messages_splits_batches_by_rows_and_one_larger_row_in_chunks(
    spark: SparkSession, stream: Stream
) -> None:
    rows_in = (
        texts(spark, 2_000, length=50).unionAll(texts(spark, 1, length=30_000)).coalesce(1).selectExpr("value as v")
    )
    write(rows_in, stream, maxMessageBytes="4k")
    log = [decoded(message) for message in messages(stream)]
    assert max(len(one["payload"]) for one in log) <= 4096 - 72
    assert sum(one["flags"] == 3 for one in log) > 20
    assert [one["flags"] for one in log[-9:]] == [3, 1, 0, 0, 0, 0, 0, 0, 2]
    assert read(spark, stream).exceptAll(rows_in).count() == 0
    assert read(spark, stream).count() == 2_001


def test_a_limit_above_what_the_channel_takes_is_refused(stream: Stream) -> None:
    with pytest.raises(OptionError, match="'maxMessageBytes' is 65536, and this channel's longest message has 32768"):
        put(stream, make_batch("x"), payload="framed", maxMessageBytes="64k")


def test_a_query_writes_under_its_id_with_its_batch_numbers(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps({"number": number}))
    source = spark.readStream.schema("number int").option("maxFilesPerTrigger", 1).json(str(tmp_path / "*.json"))
    writer = source.writeStream.format("aeron").options(record="auto", payload="arrow", **stream.options)
    query = begin(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    assert query.awaitTermination(120)
    rows = read(spark, stream, includeMetadata="true").orderBy("_aeron_batch").collect()
    assert [row._aeron_batch for row in rows] == [0, 1, 2]
    assert sorted(row.number for row in rows) == [0, 1, 2]
    assert {(row._aeron_writer, row._aeron_partition, row._aeron_row) for row in rows} == {(str(query.id), 0, 0)}


def test_a_subscriber_that_is_gone_is_waited_for_again(stream: Stream, node: NodeHandle) -> None:
    subscription = client_of(node.aeron_dir).subscription(stream.channel, stream.id)
    put(stream, make_batch("x"), record="never")
    subscription.close()
    wait_for(lambda: not subscribers(stream, node), TIMEOUT_S, "the driver to end the subscription")
    with pytest.raises(ConnectError, match="for a subscriber"):
        put(stream, make_batch("x"), record="never", connectTimeout="300ms")
