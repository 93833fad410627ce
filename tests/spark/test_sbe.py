"""``payload=sbe`` makes typed columns of SBE messages, in batch and streaming queries, on both routes."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from aeron_spark import from_sbe
from aeron_spark.errors import DataFormatError
from aeron_spark.node import NodeHandle
from tests.aeron.stream_store import rows as staging
from tests.aeron.streams import Stream
from tests.sbe_orders import SCHEMA, VERSION_1, encode_heartbeat, encode_order, encode_order_of_version_1
from tests.sbe_vectors import FOLDER, MISSING, OTHER_SCHEMAS, Vector, as_row, columns_of, read_set, same, schema_of
from tests.sbe_versions import MESSAGES, VERSION_GAP, encode_message, message_of, row_of, schema_text
from tests.spark.queries import run_to_end
from tests.spark.simulated_engine import make_source
from tests.spark.stream_server import StreamServer, write_frame

SETS: Final = ("car", "car-extension", "market", "market-be", "nested-groups")


def publish(node: NodeHandle, messages: list[bytes]) -> Stream:
    """Return a recorded stream of these messages."""
    stream = Stream(node, "aeron:ipc?term-length=2m").record()
    stream.publisher().send(messages)
    stream.close()
    return stream


def read_sbe(spark: SparkSession, options: dict[str, str], schema: str | Path, **more: str) -> DataFrame:
    """Return a batch DataFrame of a stream's SBE messages."""
    all_options = {**options, "payload": "sbe", "sbeSchema": str(schema), **more}
    return spark.read.format("aeron").options(**all_options).load()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame with Arrow's values, which have time zones."""
    return frame.toArrow().to_pylist()


needs_vectors = pytest.mark.skipif(not FOLDER.is_dir(), reason=MISSING)


@needs_vectors
@pytest.mark.parametrize("name", SETS)
def test_a_query_reads_the_public_messages_of_a_schema(spark: SparkSession, node: NodeHandle, name: str) -> None:
    vectors = [vector for vector in read_set(name) if vector.expected["status"] == "ok"]
    stream = publish(node, [vector.data for vector in vectors])
    schema = FOLDER / name / "schema.xml"
    by_message: dict[str, list[Vector]] = {}
    for vector in vectors:
        by_message.setdefault(vector.expected["message"], []).append(vector)
    everything = rows_of(read_sbe(spark, stream.options, schema, sbeMessage="*", minPartitions="1"))
    assert [row["message"] for row in everything] == [vector.expected["message"] for vector in vectors]
    for message, of_message in by_message.items():
        columns = columns_of(schema_of(name), message).columns
        wanted = [as_row(columns, vector.expected["body"]) for vector in of_message]
        structs = [row[message] for row in everything if row["message"] == message]
        assert all(map(same, structs, wanted)), message
        if columns:
            assert all(map(same, rows_of(read_sbe(spark, stream.options, schema, sbeMessage=message)), wanted))


@needs_vectors
def test_a_query_reads_messages_in_frames(spark: SparkSession, node: NodeHandle) -> None:
    vectors = [vector for vector in read_set("frames") if vector.expected["framing"].startswith("sofh")]
    stream = publish(node, [vector.data for vector in vectors])
    schema = FOLDER / OTHER_SCHEMAS["frames"] / "schema.xml"
    frame = read_sbe(spark, stream.options, schema, sbeMessage="*", sbeFraming="sofh", includeMetadata="true")
    wanted = [one for vector in vectors for one in vector.expected["messages"]]
    rows = rows_of(frame)
    assert [row["message"] for row in rows] == [one["message"] for one in wanted]
    assert [row["_aeron_row"] for row in rows] == [
        index for vector in vectors for index in range(len(vector.expected["messages"]))
    ]
    assert len({row["_aeron_position"] for row in rows}) == len(vectors)


@needs_vectors
def test_a_query_reads_the_log_of_a_cluster(spark: SparkSession, node: NodeHandle) -> None:
    vectors = read_set("cluster-log")
    stream = publish(node, [vector.data for vector in vectors])
    events = rows_of(read_sbe(spark, stream.options, FOLDER / "aeron-cluster" / "schema.xml", sbeMessage="*"))
    assert [row["message"] for row in events] == [vector.expected["message"] for vector in vectors]
    cars = [vector for vector in vectors if "message" in vector.expected.get("payload", {})]
    frame = read_sbe(spark, stream.options, FOLDER / "car" / "schema.xml", sbeFraming="cluster", includeMetadata="true")
    rows = rows_of(frame)
    columns = columns_of(schema_of("car"), "Car").columns
    for row, vector in zip(rows, cars, strict=True):
        own = {column.name: row[column.name] for column in columns}
        assert same(own, as_row(columns, vector.expected["payload"]["body"]))
        assert row["_aeron_clusterSessionId"] == vector.expected["body"]["clusterSessionId"]


@pytest.fixture
def orders(node: NodeHandle) -> Stream:
    """A stream of two versions of an order, a heartbeat, and a malformed order."""
    messages = [encode_order(1), encode_heartbeat(), encode_order_of_version_1(2), encode_order(3)[:-1]]
    return publish(node, [*messages, encode_order(4)])


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return path


def test_an_older_version_has_null_in_later_fields(spark: SparkSession, orders: Stream, schema_file: Path) -> None:
    frame = read_sbe(spark, orders.options, schema_file, sbeMessage="Order", sbeMode="DROPMALFORMED")
    assert [(row.id, row.desk) for row in frame.collect()] == [(1, "EU"), (2, None), (4, "EU")]
    assert frame.schema.simpleString() == (
        "struct<id:bigint,price:decimal(19,4),side:string,symbol:string,desk:string,"
        "fills:array<struct<quantity:bigint>>,note:string>"
    )


def test_a_malformed_message_fails_the_query_with_its_place(
    spark: SparkSession, orders: Stream, schema_file: Path
) -> None:
    with pytest.raises(Exception, match=r"at position \d+: the message is malformed at byte \d+: 'note' has") as failed:
        read_sbe(spark, orders.options, schema_file, sbeMessage="Order").collect()
    assert f"recording embedded/{orders.open[0].recording_id}" in str(failed.value)
    assert "PERMISSIVE" in str(failed.value)


def test_a_malformed_message_becomes_a_row_with_its_bytes(
    spark: SparkSession, orders: Stream, schema_file: Path
) -> None:
    frame = read_sbe(
        spark, orders.options, schema_file, sbeMessage="Order", sbeMode="permissive", includeMetadata="true"
    )
    rows = frame.select("id", "_corrupt_record", "_aeron_templateId", "_aeron_position").collect()
    assert [row.id for row in rows] == [1, 2, None, 4]
    assert [row._corrupt_record for row in rows] == [None, None, encode_order(3)[:-1], None]
    assert [row._aeron_templateId for row in rows] == [1, 1, None, 1]
    assert sorted(row._aeron_position for row in rows) == [row._aeron_position for row in rows]


def test_other_messages_are_kept_or_fail_the_query(spark: SparkSession, orders: Stream, schema_file: Path) -> None:
    options = {"sbeMessage": "Order,Heartbeat", "sbeMode": "DROPMALFORMED"}
    rows = read_sbe(spark, orders.options, schema_file, **options).collect()
    assert [(row.message, row.Order is None) for row in rows] == [
        ("Order", False),
        ("Heartbeat", True),
        ("Order", False),
        ("Order", False),
    ]
    with pytest.raises(Exception, match="template 9 of schema 7, which is not wanted"):
        read_sbe(spark, orders.options, schema_file, sbeMessage="Order", sbeOthers="fail").collect()


def test_a_query_chooses_columns_and_decodes_no_others(spark: SparkSession, orders: Stream, schema_file: Path) -> None:
    reader = spark.read.format("aeron").options(**orders.options, payload="sbe", sbeSchema=str(schema_file))
    chosen = reader.options(sbeMessage="Order", sbeMode="DROPMALFORMED", includeMetadata="true")
    frame = chosen.schema("_aeron_position bigint, fills array<struct<quantity:bigint>>, price decimal(19,4)").load()
    assert frame.columns == ["_aeron_position", "fills", "price"]
    assert [[one.quantity for one in row.fills] for row in frame.collect()] == [[1, 2], [], [1, 2]]
    with pytest.raises(Exception, match=r"'pricee', which the message does not have.*Did you mean 'price'"):
        chosen.schema("pricee decimal(19,4)").load().collect()
    with pytest.raises(Exception, match="'price' with the type double, and the message has it as decimal128"):
        chosen.schema("price double").load().collect()


def test_the_schema_can_be_given_as_its_text(spark: SparkSession, orders: Stream) -> None:
    frame = read_sbe(spark, orders.options, SCHEMA, sbeMessage="Heartbeat", includeMetadata="true")
    (row,) = frame.select("_aeron_templateId", "_aeron_version", "_aeron_streamId").collect()
    assert tuple(row) == (9, 2, orders.id)


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_a_stream_of_a_server_has_the_same_columns(
    spark: SparkSession, server: StreamServer, schema_file: Path, payload: str
) -> None:
    stream = server.create_stream(2)
    messages = {0: [encode_order(1), encode_heartbeat()], 1: [encode_order(2), encode_order_of_version_1(3)]}
    if payload == "raw":
        staging.write(stream, 0, messages, writer=secrets.token_hex(4))
    else:
        for part in messages.values():
            rows = spark.createDataFrame([(one,) for one in part], "value binary").coalesce(1)
            write_frame(rows, server.options(stream), payload="framed")
    frame = read_sbe(spark, server.options(stream), schema_file, sbeMessage="Order", includeMetadata="true")
    rows = sorted(frame.select("id", "symbol", "_aeron_version", "_aeron_position").collect())
    assert [tuple(row)[:3] for row in rows] == [(1, "ÄBC", 2), (2, "ÄBC", 2), (3, "ÄBC", 1)]
    assert all(row._aeron_position is not None for row in rows)


def test_a_streaming_query_goes_on_with_a_newer_schema(
    spark: SparkSession, node: NodeHandle, tmp_path: Path, schema_file: Path
) -> None:
    stream = Stream(node).record()
    publisher = stream.publisher()
    publisher.send([encode_order_of_version_1(1), encode_order(2)])
    old = tmp_path / "old.xml"
    old.write_text(VERSION_1)
    found: list[tuple[Any, ...]] = []

    def collect(*names: str) -> Callable[[DataFrame, int], None]:
        return lambda frame, batch: found.extend(tuple(row) for row in frame.select(*names).collect())

    def query(schema: Path) -> DataFrame:
        options = {**stream.options, "payload": "sbe", "sbeSchema": str(schema), "sbeMessage": "Order"}
        return spark.readStream.format("aeron").options(**options, startingOffsets="earliest").load()

    run_to_end(query(old), tmp_path / "checkpoint", collect("id", "symbol"))
    publisher.send([encode_order(3), encode_order_of_version_1(4)])
    run_to_end(query(schema_file), tmp_path / "checkpoint", collect("id", "symbol", "desk"))
    assert found == [(1, "ÄBC"), (2, "ÄBC"), (3, "ÄBC", "EU"), (4, "ÄBC", None)]
    stream.close()


def test_a_batch_repeated_with_a_newer_schema_has_the_same_messages_of_ten_types(
    spark: SparkSession, node: NodeHandle, tmp_path: Path
) -> None:
    """The batch fails when some types are written. ``tests/e2e/test_sbe_tables.py`` kills such a query at random."""
    numbers = [version * VERSION_GAP + one for one in range(60) for version in range(3)]
    stream = publish(node, [encode_message(number) for number in numbers])
    schema, written = tmp_path / "schema.xml", dict[str, list[dict[str, Any]]]()

    def write(types: int) -> Callable[[DataFrame, int], None]:
        def write_batch(batch: DataFrame, number: int) -> None:
            assert number == 0
            rows = rows_of(batch)
            for message in MESSAGES[:types]:  # like Delta's txnVersion, setdefault leaves out what is there
                own = [row[message.name] for row in rows if row["message"] == message.name]
                written.setdefault(message.name, own)
            assert types == len(MESSAGES), "the batch fails on purpose"

        return write_batch

    def run(version: int, types: int) -> None:
        schema.write_text(schema_text(version))
        options = {**stream.options, "payload": "sbe", "sbeSchema": str(schema), "sbeMessage": "*"}
        frame = spark.readStream.format("aeron").options(**options, startingOffsets="earliest").load()
        run_to_end(frame, tmp_path / "checkpoint", write(types))

    with pytest.raises(Exception, match="the batch fails on purpose"):
        run(1, types=4)
    run(3, types=len(MESSAGES))
    for index, message in enumerate(MESSAGES):
        wanted = [row_of(number, 1 if index < 4 else 3) for number in numbers if message_of(number) == message]
        assert written[message.name] == wanted, message.name


def test_the_columns_are_known_without_a_jvm(schema_file: Path) -> None:
    program = f"""
from aeron_spark.aeron import jvm
from aeron_spark.spark.source import AeronDataSource
source = AeronDataSource({{"channel": "aeron:ipc", "streamId": "1", "payload": "sbe", "sbeMessage": "Order",
                          "sbeSchema": {str(schema_file)!r}}})
assert len(source.schema().fields) == 7
assert not jvm.started()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_query_without_a_chosen_message_lists_them(spark: SparkSession, orders: Stream, schema_file: Path) -> None:
    with pytest.raises(Exception, match=r"has 2 messages, and none is chosen: Order, Heartbeat"):
        read_sbe(spark, orders.options, schema_file)
    with pytest.raises(Exception, match="'Heartbeat' has no fields"):
        read_sbe(spark, orders.options, schema_file, sbeMessage="Heartbeat")
    with pytest.raises(Exception, match=r"the SBE schema '/missing\.xml' cannot be read"):
        read_sbe(spark, orders.options, "/missing.xml")


def test_a_function_decodes_a_column_without_aeron(spark: SparkSession, schema_file: Path) -> None:
    messages = [encode_order(1), None, encode_heartbeat(), encode_order(2)[:-1], encode_order_of_version_1(3)]
    frame = spark.createDataFrame([(one,) for one in messages], "value binary").coalesce(1)
    decoded = frame.select(from_sbe("value", str(schema_file), "Order", {"mode": "PERMISSIVE"}).alias("order"))
    found = [row.order for row in decoded.collect()]
    assert [None if one is None else one.id for one in found] == [1, None, None, None, 3]
    assert [None if one is None else one._corrupt_record for one in found] == [None, None, None, messages[3], None]
    with pytest.raises(Exception, match=r"value 3 of a batch: the message is malformed at byte \d+"):
        frame.select(from_sbe("value", SCHEMA, "Order")).collect()


def test_values_that_became_framed_later_have_an_error_of_their_own(node: NodeHandle, schema_file: Path) -> None:
    stream = Stream(node).record()
    source = make_source(stream.options, payload="sbe", sbeSchema=schema_file, sbeMessage="Order")
    reader = source.reader(source.schema())
    stream.append("framed", pa.array([encode_order(1)], pa.binary()), 1_000)
    with pytest.raises(DataFormatError, match=r"values in the wire format.*Start the query again"):
        [list(reader.read(partition)) for partition in reader.partitions()]
    again = make_source(stream.options, payload="sbe", sbeSchema=schema_file, sbeMessage="Order").reader(
        source.schema()
    )
    (batch,) = (batch for partition in again.partitions() for batch in again.read(partition))
    assert batch["id"].to_pylist() == [1]
