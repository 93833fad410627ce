"""Writing a DataFrame on the server route: one transaction, all of it or nothing; and the refused options and rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aeron_spark.errors import AeronSparkError, DataFormatError, OptionError, RefusedError, ServerKeyChanged
from aeron_spark.keys.stores import ensure_identity
from aeron_spark.protocol.keypair import public_text
from tests.spark.simulated_engine import make_batch, make_numbered_batch, read_table, save
from tests.spark.stream_server import StreamServer, make_numbered_rows, read_frame, write_frame

pytestmark = pytest.mark.usefixtures("server_route_warmed_up")


def test_tasks_are_distributed_over_the_partitions_and_keep_the_order_of_their_rows(
    spark: SparkSession, server: StreamServer
) -> None:
    stream = server.create_stream(3)
    write_frame(
        spark.range(0, 70, 1, 7).selectExpr("cast(id as string) as value", "id as reservedValue"),
        server.options(stream),
    )
    found = read_frame(spark, server.options(stream)).collect()
    tasks = {
        partition: [row.reservedValue // 10 for row in found if row.recordingId == partition] for partition in range(3)
    }
    assert tasks == {0: [0] * 10 + [3] * 10 + [6] * 10, 1: [1] * 10 + [4] * 10, 2: [2] * 10 + [5] * 10}
    assert all(row.value == str(row.reservedValue).encode() for row in found)


def test_each_save_is_a_separate_transaction_with_its_writer_id_in_the_metadata(server: StreamServer) -> None:
    options = server.options(server.create_stream())
    for _ in range(2):
        save(options, [make_numbered_batch(0, 3)], [make_numbered_batch(3, 5)], payload="framed", writerId="desk")
    found = read_table(options, payload="framed", includeMetadata=True)
    assert found["_aeron_writer"].to_pylist() == ["desk"] * 10


def test_large_values_are_framed_and_arrow_rows_keep_their_nulls(server: StreamServer) -> None:
    stream, rows = server.create_stream(segment_bytes=1 << 16), server.create_stream(segment_bytes=1 << 16)
    large = [letter * 300_000 * count for count, letter in enumerate("ABC")]
    save(server.options(stream), [make_batch(*large)], payload="framed")
    assert read_table(server.options(stream), payload="auto")["value"].to_pylist() == [one.encode() for one in large]
    with pytest.raises(AeronSparkError, match=r"the longest message of stream .* has 8192.*Write with payload=framed"):
        save(server.options(server.create_stream(segment_bytes=1 << 16)), [make_batch(bytes(300_000))], payload="raw")
    columns = {"a": [1, None], "b": [None, "x"]}
    save(server.options(rows), [pa.record_batch(columns)])
    assert read_table(server.options(rows), payload="auto").to_pydict() == columns


def test_a_save_that_fails_writes_no_rows(spark: SparkSession, server: StreamServer) -> None:
    stream = server.create_stream(2)
    rows = spark.range(0, 1_000, 1, 4).selectExpr("if(id = 999, raise_error('broken'), cast(id as string)) as value")
    with pytest.raises(PySparkException, match="broken"):
        write_frame(rows, server.options(stream), payload="raw")
    assert [state.end for state in stream.states()] == [0, 0]
    save(server.options(stream), [make_numbered_batch(0, 0)], [make_numbered_batch(0, 0)])
    assert read_table(server.options(stream)).num_rows == 0


def test_rows_that_do_not_fit_the_streams_schema_are_refused_and_the_error_shows_both(server: StreamServer) -> None:
    stream = server.create_stream()
    options = server.options(stream)
    save(options, [pa.record_batch({"id": [0, 1, 2]})])
    with pytest.raises(DataFormatError, match="the stream has arrow rows, and the new rows are raw"):
        save(options, [make_batch("0.")])
    with pytest.raises(DataFormatError, match=r"(?s)id.*string"):
        save(options, [pa.record_batch({"id": ["0"]})])
    # Spark marks literals and ids as not nullable, which the stream ignores.
    not_nullable = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("more", pa.string(), nullable=False)]
    )
    more = pa.record_batch({"id": [3], "more": ["new"]}, schema=not_nullable)
    with pytest.raises(RefusedError, match="the data adds the columns 'more'") as error:
        save(options, [more])
    assert error.value.reason == "schema"
    save(options, [more], evolveSchema=True)
    save(options, [pa.record_batch({"id": pa.array([None], pa.int64())})])
    found = read_table(options, payload="arrow").to_pylist()
    assert [row["id"] for row in found] == [0, 1, 2, 3, None]
    assert [row["more"] for row in found] == [None, None, None, "new", None]


def test_a_key_file_can_be_distributed_by_spark_and_missing_keys_are_errors(
    spark: SparkSession, server: StreamServer, tmp_path: Path
) -> None:
    stream = server.create_stream()
    key = tmp_path / f"{server.name.replace(':', '-')}-distributed.key"
    ensure_identity(key)
    spark.sparkContext.addFile(str(key))
    write_frame(make_numbered_rows(spark, 3, 1), server.options(stream, identity=key.name))
    assert server.count_handshakes(key, at_least=1)
    assert len(read_frame(spark, server.options(stream, identity=key.name)).collect()) == 3
    with pytest.raises(AeronSparkError, match="the environment variable NOT_SET of the identity 'env:NOT_SET' is not"):
        save(server.options(stream, identity="env:NOT_SET"), [make_numbered_batch(0, 3)])
    with pytest.raises(AeronSparkError, match=r"there is no file missing\.key in .* or in Spark"):
        read_table(server.options(stream, identity="missing.key"))


WRONG_READS = [
    ({"record": "never"}, "option 'record' is only for the direct route"),
    ({"channel": "aeron:ipc"}, "and 'channel' the direct route"),
    ({"serverKey": ""}, "option 'serverKey' has no value"),
    ({"mtu": "1200"}, "option 'mtu' is 1200 bytes, not a multiple of 32"),
    ({"pingTimeout": "soon"}, "option 'pingTimeout' must be a duration above zero"),
    ({"validate": "false"}, "contradict"),
    ({"maxConections": "1"}, "unknown option 'maxconections'. Did you mean"),
    ({"maxConnections": "1"}, "option 'maxConnections' is only for a server, not for a client"),
    ({"identity": "Q0FGRUJBQkVDQUZFQkFCRUNBRkVCQUJFQ0FGRUJBQkU="}, "looks like a key itself"),
    ({"stream": "nothing-like-it"}, "nothing-like-it"),
]


@pytest.mark.parametrize(("more", "text"), WRONG_READS, ids=[text for _, text in WRONG_READS])
def test_a_read_with_wrong_options_is_refused(server: StreamServer, more: dict[str, str], text: str) -> None:
    with pytest.raises(AeronSparkError) as caught:
        read_table(server.options(more.get("stream", "none")) | more)
    assert text in str(caught.value)
    assert "Q0FGRUJB" not in str(caught.value)


def test_spark_shows_the_error_of_a_refused_read_without_secrets(spark: SparkSession, server: StreamServer) -> None:
    more, text = WRONG_READS[-2]
    with pytest.raises(PySparkException) as caught:
        read_frame(spark, server.options("none") | more, payload="raw").collect()
    assert text in str(caught.value)
    assert "Q0FGRUJB" not in str(caught.value)


WRONG_WRITES = [
    ({"ack": "driver"}, "option 'ack' is only for the direct route"),
    ({"offerTimeout": "1s"}, "option 'offerTimeout' is only for the direct route"),
    ({"whenUnconnected": "drop"}, "option 'whenUnconnected' is only for the direct route"),
    ({"maxMessageBytes": "8m"}, "option 'maxMessageBytes' is 8388608 bytes, the limit of stream"),
    ({"stream": "none"}, "none"),
]


@pytest.mark.parametrize(("more", "text"), WRONG_WRITES, ids=[text for _, text in WRONG_WRITES])
def test_a_write_with_wrong_options_is_refused(server: StreamServer, more: dict[str, str], text: str) -> None:
    with pytest.raises(AeronSparkError) as caught:
        save(
            server.options(more.get("stream") or server.create_stream()) | more,
            [make_numbered_batch(0, 1)],
            payload="framed",
        )
    assert text in str(caught.value)


def test_rows_with_a_column_for_the_stream_id_and_overwriting_are_refused(server: StreamServer) -> None:
    stream = server.create_stream()
    rows = make_batch(b"x", streamId=pa.array([7], pa.int32()))
    for payload in ("auto", "raw", "framed"):
        with pytest.raises(OptionError, match="the column 'streamId' selects a row's stream only on the direct route"):
            save(server.options(stream), [rows], payload=payload)
    with pytest.raises(AeronSparkError, match="overwrite"):
        save(server.options(stream), [make_numbered_batch(0, 1)], overwrite=True)
    assert stream.states()[0].end == 0


def test_a_wrong_server_key_and_an_unreachable_server_are_errors(server: StreamServer, tmp_path: Path) -> None:
    options = server.options(server.create_stream())
    other = public_text(ensure_identity(tmp_path / "other.key").public)
    with pytest.raises(ServerKeyChanged):
        read_table(options, serverKey=other)
    with pytest.raises(AeronSparkError, match=r"127\.0\.0\.1:9 to respond"):
        read_table(options, server="127.0.0.1:9", connectTimeout="2s", ipc="never")
