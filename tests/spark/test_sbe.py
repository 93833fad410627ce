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
from pyspark.sql.types import DecimalType, DoubleType, StructType

from aeron_spark import from_sbe
from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.node import NodeHandle
from tests.aeron.stream_store import rows as staging
from tests.aeron.streams import Stream
from tests.sbe_orders import SCHEMA, encode_heartbeat, encode_order, encode_order_of_version_1
from tests.sbe_vectors import FOLDER, MISSING, OTHER_SCHEMAS, Vector, as_row, columns_of, read_set, same, schema_of
from tests.sbe_versions import MESSAGES, VERSION_GAP, encode_message, message_of, row_of, schema_text
from tests.spark.queries import run_to_end
from tests.spark.simulated_engine import make_batch, make_source, read_table, save
from tests.spark.stream_server import StreamServer

PARTS: Final = (range(60), range(60, 120))  # of the messages that are published before a failed batch, and after it
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


def read_rows(options: dict[str, str], schema: str | Path, **more: str) -> list[dict[str, Any]]:
    """Return the rows of a stream's SBE messages, read by the simulated engine."""
    return read_table(options, payload="sbe", sbeSchema=str(schema), **more).to_pylist()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame with Arrow's values, which have time zones."""
    return frame.toArrow().to_pylist()


needs_vectors = pytest.mark.skipif(not FOLDER.is_dir(), reason=MISSING)


def publish_set(node: NodeHandle, name: str) -> tuple[Stream, dict[str, list[Vector]]]:
    """Return a stream of the valid messages of a set, and these by the name of their type."""
    vectors = [vector for vector in read_set(name) if vector.expected["status"] == "ok"]
    by_message: dict[str, list[Vector]] = {}
    for vector in vectors:
        by_message.setdefault(vector.expected["message"], []).append(vector)
    return publish(node, [vector.data for vector in vectors]), by_message


def assert_same(found: list[dict[str, Any] | None], name: str, message: str, vectors: list[Vector]) -> None:
    """Check that the values of messages of one type are as expected."""
    columns = columns_of(schema_of(name), message).columns
    wanted = [as_row(columns, vector.expected["body"]) for vector in vectors]
    assert len(found) == len(wanted), message
    assert all(map(same, found, wanted)), message


@needs_vectors
@pytest.mark.parametrize("name", SETS)
def test_a_query_reads_the_public_messages_of_a_schema(node: NodeHandle, name: str) -> None:
    stream, by_message = publish_set(node, name)
    schema = FOLDER / name / "schema.xml"
    everything = read_rows(stream.options, schema, sbeMessage="*", minPartitions="1")
    expected = [vector.expected["message"] for vector in read_set(name) if vector.expected["status"] == "ok"]
    assert [row["message"] for row in everything] == expected
    for message, vectors in by_message.items():
        assert_same([row[message] for row in everything if row["message"] == message], name, message, vectors)
        if columns_of(schema_of(name), message).columns:
            assert_same(read_rows(stream.options, schema, sbeMessage=message), name, message, vectors)


@needs_vectors
def test_spark_reads_the_public_messages_of_a_schema(spark: SparkSession, node: NodeHandle) -> None:
    stream, by_message = publish_set(node, "car")
    schema = FOLDER / "car" / "schema.xml"
    everything = rows_of(read_sbe(spark, stream.options, schema, sbeMessage="*", minPartitions="1"))
    for message, vectors in by_message.items():
        assert_same([row[message] for row in everything if row["message"] == message], "car", message, vectors)


@needs_vectors
def test_a_query_reads_messages_in_frames(node: NodeHandle) -> None:
    vectors = [vector for vector in read_set("frames") if vector.expected["framing"].startswith("sofh")]
    stream = publish(node, [vector.data for vector in vectors])
    schema = FOLDER / OTHER_SCHEMAS["frames"] / "schema.xml"
    rows = read_rows(stream.options, schema, sbeMessage="*", sbeFraming="sofh", includeMetadata="true")
    wanted = [one for vector in vectors for one in vector.expected["messages"]]
    assert [row["message"] for row in rows] == [one["message"] for one in wanted]
    assert [row["_aeron_row"] for row in rows] == [
        index for vector in vectors for index in range(len(vector.expected["messages"]))
    ]
    assert len({row["_aeron_position"] for row in rows}) == len(vectors)


@needs_vectors
def test_a_query_reads_the_log_of_a_cluster(node: NodeHandle) -> None:
    vectors = read_set("cluster-log")
    stream = publish(node, [vector.data for vector in vectors])
    events = read_rows(stream.options, FOLDER / "aeron-cluster" / "schema.xml", sbeMessage="*")
    assert [row["message"] for row in events] == [vector.expected["message"] for vector in vectors]
    cars = [vector for vector in vectors if "message" in vector.expected.get("payload", {})]
    schema = FOLDER / "car" / "schema.xml"
    rows = read_rows(stream.options, schema, sbeFraming="cluster", includeMetadata="true")
    columns = columns_of(schema_of("car"), "Car").columns
    for row, vector in zip(rows, cars, strict=True):
        own = {column.name: row[column.name] for column in columns}
        assert same(own, as_row(columns, vector.expected["payload"]["body"]))
        assert row["_aeron_clusterSessionId"] == vector.expected["body"]["clusterSessionId"]


@pytest.fixture(scope="module")
def orders(node: NodeHandle) -> Stream:
    """A stream of two versions of an order, a heartbeat, and a malformed order, which no test changes."""
    messages = [encode_order(1), encode_heartbeat(), encode_order_of_version_1(2), encode_order(3)[:-1]]
    return publish(node, [*messages, encode_order(4)])


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.xml"
    path.write_text(SCHEMA)
    return path


@pytest.mark.matrix("SBE")
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


def test_a_malformed_message_becomes_a_row_with_its_bytes(orders: Stream, schema_file: Path) -> None:
    rows = read_rows(orders.options, schema_file, sbeMessage="Order", sbeMode="permissive", includeMetadata="true")
    assert [row["id"] for row in rows] == [1, 2, None, 4]
    assert [row["_corrupt_record"] for row in rows] == [None, None, encode_order(3)[:-1], None]
    assert [row["_aeron_templateId"] for row in rows] == [1, 1, None, 1]
    assert sorted(row["_aeron_position"] for row in rows) == [row["_aeron_position"] for row in rows]


def test_other_messages_are_kept_or_fail_the_query(orders: Stream, schema_file: Path) -> None:
    rows = read_rows(orders.options, schema_file, sbeMessage="Order,Heartbeat", sbeMode="DROPMALFORMED")
    assert [(row["message"], row["Order"] is None) for row in rows] == [
        ("Order", False),
        ("Heartbeat", True),
        ("Order", False),
        ("Order", False),
    ]
    with pytest.raises(DataFormatError, match="template 9 of schema 7, which is not wanted"):
        read_rows(orders.options, schema_file, sbeMessage="Order", sbeOthers="fail")


def test_a_query_chooses_columns_and_decodes_no_others(spark: SparkSession, orders: Stream, schema_file: Path) -> None:
    reader = spark.read.format("aeron").options(**orders.options, payload="sbe", sbeSchema=str(schema_file))
    chosen = reader.options(sbeMessage="Order", sbeMode="DROPMALFORMED", includeMetadata="true")
    frame = chosen.schema("_aeron_position bigint, fills array<struct<quantity:bigint>>, price decimal(19,4)").load()
    assert frame.columns == ["_aeron_position", "fills", "price"]
    assert [[one.quantity for one in row.fills] for row in frame.collect()] == [[1, 2], [], [1, 2]]
    source = make_source(orders.options, payload="sbe", sbeSchema=schema_file, sbeMessage="Order")
    with pytest.raises(OptionError, match=r"'pricee', which the message does not have.*Did you mean 'price'"):
        source.reader(StructType().add("pricee", DecimalType(19, 4)))
    with pytest.raises(OptionError, match="'price' with the type double, and the message has it as decimal128"):
        source.reader(StructType().add("price", DoubleType()))


def test_the_schema_can_be_given_as_its_text(orders: Stream) -> None:
    (row,) = read_rows(orders.options, SCHEMA, sbeMessage="Heartbeat", includeMetadata="true")
    assert (row["_aeron_templateId"], row["_aeron_version"], row["_aeron_streamId"]) == (9, 2, orders.id)


@pytest.mark.parametrize("payload", ["raw", "framed"])
def test_a_stream_of_a_server_has_the_same_columns(server: StreamServer, schema_file: Path, payload: str) -> None:
    stream = server.create_stream(2)
    messages = {0: [encode_order(1), encode_heartbeat()], 1: [encode_order(2), encode_order_of_version_1(3)]}
    if payload == "raw":
        staging.write(stream, 0, messages, writer=secrets.token_hex(4))
    else:
        save(server.options(stream), *([make_batch(*part)] for part in messages.values()), payload="framed")
    rows = read_rows(server.options(stream), schema_file, sbeMessage="Order", includeMetadata="true")
    assert sorted((row["id"], row["symbol"], row["_aeron_version"]) for row in rows) == [
        (1, "ÄBC", 2),
        (2, "ÄBC", 2),
        (3, "ÄBC", 1),
    ]
    assert all(row["_aeron_position"] is not None for row in rows)


def test_a_query_repeats_a_batch_and_goes_on_with_a_newer_schema_of_ten_types(
    spark: SparkSession, node: NodeHandle, tmp_path: Path
) -> None:
    """The batch fails when some types are written. ``tests/e2e/test_sbe_tables.py`` kills such a query at random."""
    numbers, later = ([version * VERSION_GAP + one for one in part for version in range(3)] for part in PARTS)
    stream = Stream(node, "aeron:ipc?term-length=2m").record()
    publisher = stream.publisher()
    publisher.send([encode_message(number) for number in numbers])
    schema, written = tmp_path / "schema.xml", dict[tuple[int, str], list[dict[str, Any]]]()

    def write(types: int) -> Callable[[DataFrame, int], None]:
        def write_batch(batch: DataFrame, number: int) -> None:
            rows = rows_of(batch)
            for message in MESSAGES[:types]:  # like Delta's txnVersion, setdefault leaves out what is there
                own = [row[message.name] for row in rows if row["message"] == message.name]
                written.setdefault((number, message.name), own)
            assert types == len(MESSAGES), "the batch fails on purpose"

        return write_batch

    def run(version: int, types: int) -> None:
        schema.write_text(schema_text(version))
        options = {**stream.options, "payload": "sbe", "sbeSchema": str(schema), "sbeMessage": "*"}
        frame = spark.readStream.format("aeron").options(**options, startingOffsets="earliest").load()
        run_to_end(frame, tmp_path / "checkpoint", write(types))

    with pytest.raises(Exception, match="the batch fails on purpose"):
        run(1, types=4)
    publisher.send([encode_message(number) for number in later])
    run(3, types=len(MESSAGES))
    for index, message in enumerate(MESSAGES):
        for batch, part in enumerate((numbers, later)):
            version = 1 if index < 4 and batch == 0 else 3
            wanted = [row_of(number, version) for number in part if message_of(number) == message]
            assert written.pop((batch, message.name)) == wanted, (batch, message.name)
    assert not written
    stream.close()


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


def test_a_query_without_a_chosen_message_lists_them(orders: Stream, schema_file: Path) -> None:
    with pytest.raises(OptionError, match=r"has 2 messages, and none is chosen: Order, Heartbeat"):
        read_rows(orders.options, schema_file)
    with pytest.raises(OptionError, match="'Heartbeat' has no fields"):
        read_rows(orders.options, schema_file, sbeMessage="Heartbeat")
    with pytest.raises(OptionError, match=r"the SBE schema '/missing\.xml' cannot be read"):
        read_rows(orders.options, "/missing.xml")


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
