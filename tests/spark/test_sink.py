"""The sink of the direct route: payloads and columns, options and errors, and the messages in the recording."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from aeron_spark.aeron.client import client_of
from aeron_spark.aeron.counters import read_backlog
from aeron_spark.errors import AeronSparkError, ConnectError, DataFormatError, OptionError, WaitTimeout
from aeron_spark.jobs.session import begin
from aeron_spark.node import NodeHandle
from aeron_spark.waiting import wait_for
from tests.aeron.streams import TIMEOUT_S, Stream, frame, open_stream
from tests.spark.simulated_engine import make_batch, make_numbered_batch, make_source, read_table, save


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


@pytest.fixture
def other(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


@pytest.fixture
def idle_subscriber(node: NodeHandle, stream: Stream) -> Iterator[Any]:
    """A connected subscriber that never polls, so that its window fills."""
    subscription = client_of(node.aeron_dir).subscription(stream.channel, stream.id)
    yield subscription
    subscription.close()


def messages(stream: Stream) -> list[bytes]:
    """Return all messages in the stream's recordings, in order."""
    rows = read_table(stream.options).to_pylist() if stream.archive.recordings(stream.id) else []
    return [row["value"] for row in sorted(rows, key=lambda row: (row["recordingId"], row["position"]))]


def write_without_spark(stream: Stream, *batches: pa.RecordBatch, **options: object) -> None:
    """Write record batches as one task of the simulated engine."""
    save({"record": "auto", **stream.options}, list(batches), **options)


def count_subscribers(stream: Stream, node: NodeHandle) -> int:
    """Return how many subscribers of a stream the driver has."""
    publications = [one for one in read_backlog(node.aeron_dir) if one.stream_id == stream.id]
    return sum(len(one.subscribers) for one in publications)


def make_values(count: int, length: int = 0) -> pa.RecordBatch:
    """Return values that begin with ``value`` and their number, filled up with dots to ``length``."""
    return pa.record_batch({"value": [f"value {number}".ljust(length, ".") for number in range(count)]})


def decode(message: bytes) -> dict[str, Any]:
    """Return the fields of a message; written from docs/wire-format.md, without the package's decoder."""
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


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=["binary", "string"])
def test_auto_writes_a_value_column_as_raw_messages_without_additional_bytes(stream: Stream, kind: pa.DataType) -> None:
    write_without_spark(stream, pa.record_batch({"value": pa.array(["value 0", "value 1", "value 2"]).cast(kind)}))
    assert messages(stream) == [b"value 0", b"value 1", b"value 2"]
    assert make_source(stream.options, payload="auto").schema().fieldNames()[-1] == "timestamp"  # the columns of raw


@pytest.mark.parametrize(
    "columns", [{"value": ["x", "y"], "more": [1, 1]}, {"value": [1.0, 1.0]}], ids=["two", "double"]
)
def test_auto_writes_other_columns_as_arrow(stream: Stream, columns: dict[str, list[object]]) -> None:
    write_without_spark(stream, pa.record_batch(columns))
    assert all(decode(message)["content"] == 2 for message in messages(stream))
    assert read_table(stream.options, payload="auto").to_pydict() == columns


def test_a_framed_message_has_the_format_of_the_documentation(stream: Stream) -> None:
    write_without_spark(stream, make_values(3), payload="framed", writerId="edge-7 ü")
    found = [decode(message) for message in messages(stream)]
    assert [one["payload"] for one in found] == [b"value 0", b"value 1", b"value 2"]
    assert [(one["content"], one["flags"], one["rows"]) for one in found] == [(1, 3, 1)] * 3
    assert [(one["writer"], one["batch"], one["partition"], one["row"]) for one in found] == [
        ("edge-7 ü", -1, 0, row) for row in range(3)
    ]
    assert len({one["published"] for one in found}) == 1
    assert read_table(stream.options, payload="auto")["value"].to_pylist() == [b"value 0", b"value 1", b"value 2"]


def test_a_value_in_chunks_has_the_format_of_the_documentation(stream: Stream) -> None:
    write_without_spark(stream, make_values(2, length=20_000), payload="framed", maxMessageBytes="8k")
    log = messages(stream)
    assert max(map(len, log)) == 8192
    found = [decode(message) for message in log]
    assert [one["flags"] for one in found] == [1, 0, 2, 1, 0, 2]
    for row in range(2):
        group = found[3 * row : 3 * row + 3]
        assert {(one["total"], one["row"]) for one in group} == {(20_000, row)}
        assert b"".join(one["payload"] for one in group) == f"value {row}".encode().ljust(20_000, b".")
        assert [one["offset"] for one in group] == [0, 8192 - group[0]["writer_length"] // 8 * 8 - 72 - 8,
                                                    group[1]["offset"] + len(group[1]["payload"])]  # fmt: skip


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_reserved_values_are_written_to_aerons_reserved_value_field(stream: Stream, payload: str) -> None:
    rows = make_values(3).append_column("reservedValue", pa.array([-5_000_000_000, None, -5_000_000_000]))
    write_without_spark(stream, rows, payload=payload)
    assert read_table(stream.options)["reservedValue"].to_pylist() == [-5_000_000_000, 0, -5_000_000_000]
    if payload == "framed":
        found = read_table(stream.options, payload="framed", includeMetadata=True)
        assert found["_aeron_reservedValue"].to_pylist() == [-5_000_000_000, 0, -5_000_000_000]


def test_columns_select_channel_and_stream_id_of_each_row(stream: Stream, other: Stream) -> None:
    rows = make_values(4).append_column("channel", pa.array(["aeron:ipc?alias=named"] * 2 + [None] * 2))
    rows = rows.append_column("streamId", pa.array([None, other.id, None, other.id], pa.int32()))
    write_without_spark(stream, rows)
    assert sorted(messages(stream)) == [b"value 0", b"value 2"]
    assert sorted(messages(other)) == [b"value 1", b"value 3"]


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_null_values_are_refused_and_the_error_suggests_arrow(stream: Stream, payload: str) -> None:
    rows_in = pa.record_batch({"value": ["value 0", None, "value 2"]})
    with pytest.raises(DataFormatError, match="1 of 3 values are null") as refused:
        write_without_spark(stream, rows_in, payload=payload)
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
def test_wrong_columns_are_refused_by_name_before_a_task_runs(
    stream: Stream, columns: dict[str, list[object]], payload: str, sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        write_without_spark(stream, pa.record_batch(columns), payload=payload)
    assert sentence in str(refused.value)


def test_spark_shows_the_errors_for_wrong_columns_and_overwriting(spark: SparkSession, stream: Stream) -> None:
    options = {**stream.options, "record": "auto", "payload": "raw"}
    with pytest.raises(Exception, match=r"(?s)OptionError.*Did you mean 'vaule'"):
        spark.sql("SELECT 'x' AS vaule").write.format("aeron").mode("append").options(**options).save()
    with pytest.raises(Exception, match="published messages cannot be deleted"):
        spark.sql("SELECT 'x' AS value").write.format("aeron").mode("overwrite").options(**options).save()


def test_a_write_without_a_subscriber_fails_after_the_connect_timeout(stream: Stream) -> None:
    with pytest.raises(ConnectError) as failed:
        write_without_spark(stream, make_numbered_batch(0, 1), record="never", connectTimeout="300ms")
    text = str(failed.value)
    assert f"waited 0.3 s for a subscriber on aeron:ipc stream {stream.id}" in text
    assert "whenUnconnected=drop" in text


@pytest.mark.parametrize("payload", ["raw", "framed", "arrow"])
def test_a_write_without_a_subscriber_drops_its_rows_with_when_unconnected_drop(stream: Stream, payload: str) -> None:
    options = {"record": "never", "whenUnconnected": "drop", "payload": payload}
    write_without_spark(stream, make_numbered_batch(0, 2_000), **options)
    # A recording that starts later gets the rows of later writes, and none of the dropped rows.
    stream.record()
    wait_for(lambda: is_recorded(stream), TIMEOUT_S, "a recording of the kept publication")
    write_without_spark(
        stream, make_batch("value 0"), **{**options, "payload": "raw", "ack": "archive", "whenUnconnected": "fail"}
    )
    assert messages(stream) == [b"value 0"]


def is_recorded(stream: Stream) -> bool:
    return any(one.stop_position is None for one in stream.archive.recordings(stream.id))


def test_a_write_fails_when_back_pressure_lasts_longer_than_the_offer_timeout(
    stream: Stream, idle_subscriber: Any
) -> None:
    with pytest.raises(WaitTimeout) as failed:
        write_without_spark(stream, make_numbered_batch(0, 1_000, 1_000), record="never", offerTimeout="500ms")
    text = str(failed.value)
    assert f"waited 0.5 s for room to publish on aeron:ipc stream {stream.id}" in text
    assert "Aeron answered BACK_PRESSURED: a subscriber is slower than the publisher" in text


def test_a_write_with_acknowledgement_by_the_archive_returns_after_all_rows_are_recorded(stream: Stream) -> None:
    write_without_spark(stream, make_values(2_000, length=200), ack="archive")
    assert len(messages(stream)) == 2_000
    # ack=auto means archive for a recorded stream
    write_without_spark(stream, make_values(2_000, length=200), record="never")
    assert len(messages(stream)) == 4_000


def test_acknowledgement_by_the_archive_is_refused_for_a_stream_that_is_not_recorded(stream: Stream) -> None:
    with pytest.raises(AeronSparkError, match=r"is 'archive', and stream [0-9]+ of aeron:ipc is not recorded"):
        write_without_spark(stream, make_batch("x"), ack="archive", record="never")


@pytest.mark.parametrize("ack", ["driver", "auto"])
def test_a_write_without_a_recording_returns_when_the_driver_has_the_rows(
    stream: Stream, idle_subscriber: Any, ack: str
) -> None:
    write_without_spark(stream, make_batch(*(f"value {row}" for row in range(10))), ack=ack, record="never")
    assert stream.archive.recordings(stream.id) == []
    # The idle subscriber has not read the messages, so they are still in the log for a recording that starts now.
    assert idle_subscriber.imageCount() == 1
    stream.record()
    wait_for(lambda: recorded_bytes(stream) == 10 * frame(len("value 0")), TIMEOUT_S, "the recording")
    assert messages(stream) == [f"value {row}".encode() for row in range(10)]


def recorded_bytes(stream: Stream) -> int:
    return sum(stream.archive.position(one.id) for one in stream.archive.recordings(stream.id))


def test_max_message_bytes_splits_record_batches_between_rows_and_larger_rows_into_chunks(stream: Stream) -> None:
    values = [*make_values(2_000, length=50)["value"].to_pylist(), *make_values(1, length=30_000)["value"].to_pylist()]
    write_without_spark(stream, pa.record_batch({"v": values}), maxMessageBytes="4k")
    log = [decode(message) for message in messages(stream)]
    assert max(len(one["payload"]) for one in log) <= 4096 - 72
    assert sum(one["flags"] == 3 for one in log) > 20
    assert [one["flags"] for one in log[-9:]] == [3, 1, 0, 0, 0, 0, 0, 0, 2]
    assert read_table(stream.options, payload="auto").to_pydict() == {"v": values}


def test_max_message_bytes_above_the_channels_longest_message_is_refused(stream: Stream) -> None:
    with pytest.raises(OptionError, match="'maxMessageBytes' is 65536, and this channel's longest message has 32768"):
        write_without_spark(stream, make_batch("x"), payload="framed", maxMessageBytes="64k")


@pytest.mark.matrix("write")
def test_a_streaming_query_writes_its_id_and_batch_numbers_as_metadata(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps({"number": number}))
    source = spark.readStream.schema("number int").option("maxFilesPerTrigger", 1).json(str(tmp_path / "*.json"))
    writer = source.writeStream.format("aeron").options(record="auto", payload="arrow", **stream.options)
    query = begin(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    assert query.awaitTermination(120)
    rows = read_table(stream.options, payload="auto", includeMetadata=True).to_pylist()
    assert sorted(row["_aeron_batch"] for row in rows) == [0, 1, 2]
    assert sorted(row["number"] for row in rows) == [0, 1, 2]
    origins = {(row["_aeron_writer"], row["_aeron_partition"], row["_aeron_row"]) for row in rows}
    assert origins == {(str(query.id), 0, 0)}


def test_a_write_waits_for_a_new_subscriber_after_the_last_one_has_gone(stream: Stream, node: NodeHandle) -> None:
    subscription = client_of(node.aeron_dir).subscription(stream.channel, stream.id)
    write_without_spark(stream, make_batch("x"), record="never")
    subscription.close()
    wait_for(lambda: not count_subscribers(stream, node), TIMEOUT_S, "the driver to end the subscription")
    with pytest.raises(ConnectError, match="for a subscriber"):
        write_without_spark(stream, make_batch("x"), record="never", connectTimeout="300ms")
