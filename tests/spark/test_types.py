"""Spark's types: rows read through Aeron equal the written ones; schema changes and damaged messages are errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.node import NodeHandle
from aeron_spark.wire import Content, Header, encode, encode_batch
from tests.aeron.streams import Stream, open_stream
from tests.spark.simulated_engine import make_source, read_table, save

# For each column an ordinary and an extreme value; the tests add a row of nulls.
SCALARS: Final = {
    "boolean": ("true", "false"),
    "byte": ("cast(1 as tinyint)", "cast(-128 as tinyint)"),
    "short": ("cast(1 as smallint)", "cast(-32768 as smallint)"),
    "integer": ("1", "cast(-2147483648 as int)"),
    "long": ("1L", "-9223372036854775808"),
    "float": ("cast(1.5 as float)", "cast('-0.0' as float)"),
    "float_nan": ("cast('NaN' as float)", "cast('-Infinity' as float)"),
    "double": ("double('1.5')", "double('-0.0')"),
    "double_nan": ("double('NaN')", "double('Infinity')"),
    "double_small": ("double('4.9E-324')", "double('1.7976931348623157E308')"),
    "decimal_small": ("cast(1.50 as decimal(5, 2))", "cast(-999.99 as decimal(5, 2))"),
    "decimal_large": (
        "cast('1.5' as decimal(38, 18))",
        "cast('-99999999999999999999.999999999999999999' as decimal(38, 18))",
    ),
    "string": ("'Grüße, \\u4e16\\u754c'", "''"),
    "binary": ("X'00FF7F80'", "X''"),
    "date": ("date'2024-02-29'", "date'0001-01-01'"),
    "timestamp": ("timestamp'2024-02-29 12:34:56.123456'", "timestamp'1900-01-01 00:00:00.000001'"),
    "timestamp_ntz": ("timestamp_ntz'2024-02-29 12:34:56.123456'", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
    "time": ("time'12:34:56.123456'", "time'23:59:59.999999'"),
    "interval": ("interval '1 02:03:04.000005' day to second", "interval '-106751990 00:00:00' day to second"),
    "nothing": ("null", "null"),
    "variant": ('parse_json(\'{"a": [1, "x", null]}\')', "parse_json('null')"),
    "geometry": ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "null"),
}
NESTED: Final = {
    "array": ("array(1, null, 3)", "cast(array() as array<int>)"),
    "array_of_arrays": ("array(array('a', null), null)", "array(cast(array() as array<string>))"),
    "map": ("map('a', 1, 'b', null)", "cast(map() as map<string, int>)"),
    "map_of_arrays": ("map(1, array(1.5d, null))", "map(2, cast(null as array<double>))"),
    "struct": ("named_struct('x', 1, 'y', 'z')", "named_struct('x', cast(null as int), 'y', cast(null as string))"),
    "deep": (
        "named_struct('m', map('k', array(named_struct('t', timestamp'2024-01-01 00:00:00', 'b', X'01'))))",
        "named_struct('m', map('k', array(cast(null as struct<t: timestamp, b: binary>))))",
    ),
    "array_of_variants": ("array(parse_json('1'), null)", "array(parse_json('[true]'))"),
}


@pytest.fixture
def stream(node: NodeHandle) -> Iterator[Stream]:
    yield from open_stream(node)


def write(frame: DataFrame, stream: Stream, **options: str) -> None:
    written = {"record": "auto", "payload": "arrow", **stream.options, **options}
    frame.write.format("aeron").mode("append").options(**written).save()


def read(spark: SparkSession, stream: Stream, schema: StructType | str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("aeron").options(**{**stream.options, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def format_rows(frame: DataFrame) -> list[str]:
    """Return the rows as Python prints them, which shows NaN, -0.0 and variants; ``==`` cannot compare these."""
    return sorted(repr(row) for row in frame.collect())


def make_frame(spark: SparkSession, columns: dict[str, tuple[str, str]]) -> DataFrame:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    rows = [", ".join(f"{values[n]} as {name}" for name, values in columns.items()) for n in range(2)]
    nulls = ", ".join(f"null as {name}" for name in columns)
    return spark.sql(" union all ".join(f"select {n} as id, {row}" for n, row in enumerate([*rows, nulls])))


def test_values_and_nulls_of_each_supported_type_are_read_as_written(spark: SparkSession, stream: Stream) -> None:
    frame = make_frame(spark, SCALARS | NESTED)
    write(frame, stream)
    found = read(spark, stream)
    assert found.schema.simpleString() == frame.schema.simpleString()
    rows = format_rows(found)
    assert rows == format_rows(frame)
    assert len(rows) == 3


def test_a_schema_that_the_source_infers_is_nullable_at_all_levels(spark: SparkSession, stream: Stream) -> None:
    frame = spark.range(2).selectExpr(
        "id", "array(id) as a", "map('k', id) as m", "named_struct('x', id, 'y', array(named_struct('z', id))) as s"
    )
    assert '"nullable":false' in frame.schema.json()
    write(frame, stream)
    found = read(spark, stream)
    assert '"nullable":false' not in found.schema.json()
    assert "False" not in str(found.schema["a"].dataType.jsonValue()["containsNull"])
    assert found.schema["m"].dataType.jsonValue()["valueContainsNull"] is True
    rows = format_rows(frame)
    assert format_rows(found) == rows
    with_schema = read(spark, stream, frame.schema)  # a schema of the user is not changed
    assert with_schema.schema["id"].nullable is False
    assert format_rows(with_schema) == rows


@pytest.mark.matrix("read")
def test_many_rows_in_many_batches_and_partitions_are_read_once_each(spark: SparkSession, stream: Stream) -> None:
    frame = spark.range(0, 20_000, 1, 3).selectExpr("id", "if(id % 3 = 0, null, concat('row ', id)) as text")
    write(frame, stream)
    found = read(spark, stream).toArrow().sort_by("id")
    assert found["id"].to_pylist() == list(range(20_000))
    assert found["text"].to_pylist() == [f"row {number}" if number % 3 else None for number in range(20_000)]


def test_partitions_and_batches_without_rows_add_no_rows(spark: SparkSession, stream: Stream) -> None:
    write(spark.range(4).where("id < 0"), stream)
    write(spark.range(0, 4, 1, 4).where("id = 3").selectExpr("id", "cast(id as string) as text"), stream)
    assert [tuple(row) for row in read(spark, stream).collect()] == [(3, "3")]


def test_groups_without_rows_of_a_foreign_writer_add_no_rows(stream: Stream) -> None:
    stream.record()
    full = pa.record_batch({"id": pa.array([7], pa.int64())})
    messages = []
    for batch in (full.slice(0, 0), full, full.slice(0, 0)):
        payload = encode_batch(batch)
        messages.append(encode(Header(Content.ARROW, payload.size, rows=batch.num_rows), payload))
    stream.publisher().send(messages)
    source = make_source(stream.options, payload="auto")
    assert source.schema().simpleString() == "struct<id:bigint>"
    assert read_table(stream.options, payload="auto").to_pydict() == {"id": [7]}


def test_a_dataframe_without_columns_is_refused(stream: Stream) -> None:
    with pytest.raises(OptionError, match="has no columns"):
        save({**stream.options, "record": "auto"}, schema=StructType(), payload="arrow")


@pytest.mark.parametrize(
    ("name", "data_type", "sentence"),
    [
        ("wait", YearMonthIntervalType(), "the column 'wait' is INTERVAL YEAR TO MONTH, which Arrow batches"),
        (
            "waits",
            ArrayType(YearMonthIntervalType(1, 1)),
            "the column 'waits' is ARRAY<INTERVAL MONTH>, which Arrow batches",
        ),
        ("_aeron_position", IntegerType(), "the column '_aeron_position' begins with '_aeron_'"),
    ],
)
def test_a_column_that_could_not_be_read_again_is_refused_by_name(
    stream: Stream, name: str, data_type: DataType, sentence: str
) -> None:
    schema = StructType().add("id", LongType()).add(name, data_type)
    with pytest.raises(OptionError) as refused:
        save({**stream.options, "record": "auto"}, schema=schema, payload="arrow")
    assert sentence in str(refused.value)


def write_without_spark(stream: Stream, **columns: pa.Array) -> None:
    """Write the rows of a record batch as one task of the simulated engine."""
    save({**stream.options, "record": "auto"}, [pa.record_batch(columns)], payload="arrow")


def make_schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def test_columns_missing_in_older_rows_are_null_and_unselected_nullable_columns_are_dropped(stream: Stream) -> None:
    write_without_spark(stream, id=pa.array([0]), old=pa.array([0]))
    write_without_spark(stream, id=pa.array([1]), new=pa.array([[1]]), old=pa.array([1]))
    every = make_schema(id=LongType(), old=LongType(), new=ArrayType(LongType()))
    assert read_table(stream.options, every, payload="arrow").to_pylist() == [
        {"id": 0, "old": 0, "new": None},
        {"id": 1, "old": 1, "new": [1]},
    ]
    found = read_table(stream.options, make_schema(old=LongType(), id=LongType()), payload="arrow")
    assert found.schema.names == ["old", "id"]
    assert found.to_pydict() == {"old": [0, 1], "id": [0, 1]}


def test_the_error_for_an_incompatible_schema_shows_both_schemas_and_the_position(stream: Stream) -> None:
    not_nullable = StructType().add("id", LongType(), False).add("what", StringType(), False)
    rows = pa.record_batch({"id": [0], "what": ["0"]}, to_arrow_schema(not_nullable))
    save({**stream.options, "record": "auto"}, [rows], schema=not_nullable, payload="arrow")
    with pytest.raises(DataFormatError) as failed:
        read_table(stream.options, make_schema(id=LongType(), what=IntegerType()), payload="arrow")
    text = str(failed.value)
    assert "recording embedded/" in text
    assert "the group at position 0: the data's schema is incompatible with the wanted schema" in text
    assert "what: string" in text
    assert "what: int32" in text
    with pytest.raises(DataFormatError, match="column 'id' is not nullable and not in the wanted schema"):
        read_table(stream.options, make_schema(what=StringType()), payload="arrow")


@pytest.mark.parametrize("payload", ["framed", "arrow"])
def test_a_flipped_bit_in_a_message_is_an_error_with_recording_and_position(stream: Stream, payload: str) -> None:
    content, data = (Content.BYTES, b"value" * 20) if payload == "framed" else _encode_texts(["value" * 20])
    good = encode(Header(content, len(data)), data)
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 0x10
    publisher = stream.record().publisher()
    position = publisher.send([good, bytes(bad)])[1]
    with pytest.raises(DataFormatError) as failed:
        read_table(stream.options, payload=payload)
    text = str(failed.value)
    assert f"recording {publisher.key}: at position {position}: " in text
    assert "it was altered after the writer encoded it" in text
    assert "schema" not in text


def test_a_flipped_bit_in_the_first_message_is_an_error_of_schema_inference(stream: Stream) -> None:
    bad = bytearray(encode(Header(Content.BYTES, 8), b"12345678"))
    bad[-1] ^= 1
    publisher = stream.record().publisher()
    publisher.send([bytes(bad)])
    with pytest.raises(DataFormatError) as failed:
        make_source(stream.options, payload="auto").schema()
    assert f"recording {publisher.key} at position 0: " in str(failed.value)


def test_a_bit_flipped_in_the_archives_file_is_an_error_with_recording_and_position(
    spark: SparkSession, stream: Stream, node: NodeHandle
) -> None:
    publisher = stream.record().publisher()
    positions = publisher.send([bytes([n]) * 100 for n in range(10)])
    publisher.stop()
    segment = Path(node.archive_dir) / f"{publisher.recording_id}-0.rec"
    with segment.open("r+b") as file:
        file.seek(positions[6] + 32 + 50)
        file.write(b"\xff")
    frame = read(spark, stream, payload="raw", idleTimeout="10s")
    with pytest.raises(Exception, match="DataLossError") as failed:
        frame.collect()
    text = str(failed.value)
    assert f"recording {publisher.recording_id} " in text
    assert f"is damaged at position {positions[6]}" in text


def _encode_texts(texts: list[str]) -> tuple[Content, bytes]:
    return Content.ARROW, encode_batch(pa.record_batch({"text": pa.array(texts)})).to_pybytes()
