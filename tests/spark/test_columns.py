"""``.schema(...)`` selects columns of ``raw`` and ``framed``; an error for others lists them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from aeron_spark.errors import OptionError
from aeron_spark.node import NodeHandle
from aeron_spark.spark.row_values import FRAMED, RAW
from tests.aeron.streams import Stream, numbered
from tests.spark.simulated_engine import make_source, read_table

VALUE, POSITION = ("value", BinaryType()), ("position", LongType())


def make_schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in columns])


@pytest.fixture
def raw(node: NodeHandle) -> Stream:
    stream = Stream(node).record()
    stream.publisher().send(numbered(0, 3))
    stream.close()
    return stream


@pytest.fixture
def framed(node: NodeHandle) -> Stream:
    stream = Stream(node)
    stream.append("framed", pa.array([b"one", b"x" * 5_000], pa.binary()), 1_000)
    return stream


@pytest.mark.parametrize("payload", ["raw", "auto"])
def test_a_query_selects_columns_of_a_raw_stream_in_any_order(raw: Stream, payload: str) -> None:
    """Regression: a query could not leave out the column ``channel``."""
    found = read_table(raw.options, make_schema(POSITION, VALUE), payload=payload)
    assert found.schema.names == ["position", "value"]
    assert found["value"].to_pylist() == numbered(0, 3)
    assert found["position"].to_pylist() == [0, 160, 320]
    assert read_table(raw.options, make_schema(VALUE), payload=payload).to_pydict() == {"value": numbered(0, 3)}
    assert read_table(raw.options, make_schema(POSITION), payload=payload).to_pydict() == {"position": [0, 160, 320]}


@pytest.mark.parametrize("payload", ["raw", "auto"])
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("postion", LongType()), r"'postion' is not one of them\. Did you mean 'position'\?"),
        (("value", StringType()), r"'value' is BINARY there"),
        (("streamId", LongType()), r"'streamId' is INT there"),
        (("offset", LongType()), r"For Kafka's column 'offset', this source has 'position'"),
    ],
)
def test_a_wrong_column_of_a_raw_stream_is_refused_and_the_error_shows_both_schemas(
    raw: Stream, payload: str, wrong: tuple[str, DataType], reason: str
) -> None:
    """Regression: the error said that the columns were fixed, and suggested payload=arrow."""
    schema = make_schema(POSITION, wrong)
    with pytest.raises(OptionError, match=reason) as refused:
        make_source(raw.options, payload=payload).reader(schema)
    assert f"position BIGINT, {wrong[0]} {wrong[1].simpleString().upper()}" in str(refused.value)
    assert "value BINARY, channel STRING, streamId INT" in str(refused.value)
    assert "Choose some of its columns" in str(refused.value)


def test_a_schema_without_any_column_of_a_raw_stream_is_refused_and_the_error_shows_both_schemas(raw: Stream) -> None:
    """Regression: the source took it for the schema of an arrow stream, and the task failed at the first message."""
    with pytest.raises(OptionError, match=r"'vlaue' is not one of them\. Did you mean 'value'\?") as refused:
        make_source(raw.options, payload="auto").reader(make_schema(("vlaue", BinaryType())))
    assert "payload=raw has the columns" in refused.value.what


def test_the_error_for_a_metadata_column_names_the_option_that_adds_it(framed: Stream) -> None:
    with pytest.raises(OptionError, match="includeMetadata=true adds the metadata columns"):
        make_source(framed.options, payload="framed").reader(make_schema(VALUE, ("_aeron_position", LongType())))


@pytest.fixture
def arrow(node: NodeHandle) -> Stream:
    stream = Stream(node)
    stream.append("arrow", pa.record_batch({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]}), 1_000)
    return stream


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [("framed", VALUE, [b"one", b"x" * 5_000]), ("arrow", ("name", StringType()), ["a", None])],
)
def test_a_query_selects_columns_of_the_rows_and_of_their_metadata(
    kind: str, column: tuple[str, DataType], values: list[object], request: pytest.FixtureRequest
) -> None:
    stream: Stream = request.getfixturevalue(kind)
    row = ("_aeron_row", LongType())
    for payload in (kind, "auto"):
        options = {"payload": payload, "includeMetadata": True}
        found = read_table(stream.options, make_schema(row, column), **options)
        assert found.to_pydict() == {"_aeron_row": [0, 1], column[0]: values}
        assert read_table(stream.options, make_schema(row), **options).to_pydict() == {"_aeron_row": [0, 1]}
        assert read_table(stream.options, make_schema(column), payload=payload).to_pydict() == {column[0]: values}


@pytest.mark.parametrize(
    ("wrong", "more", "reason"),
    [
        (("_aeron_postion", LongType()), True, r"'_aeron_postion' is not one of them\. Did you mean '_aeron_position'"),
        (("_aeron_position", StringType()), True, r"'_aeron_position' is BIGINT there"),
        (("_aeron_position", LongType()), False, r"has no metadata columns.* includeMetadata=true adds the metadata"),
    ],
)
def test_a_wrong_metadata_column_of_an_arrow_stream_is_refused(
    arrow: Stream, wrong: tuple[str, DataType], more: bool, reason: str
) -> None:
    """Regression: the task failed with the error of a dict, or of Arrow."""
    with pytest.raises(OptionError, match=reason):
        make_source(arrow.options, payload="arrow", includeMetadata=more).reader(make_schema(("id", LongType()), wrong))


def test_the_schema_decides_the_payload_of_a_stream_that_is_not_recorded_yet(node: NodeHandle) -> None:
    reader = make_source(Stream(node).options, payload="auto").streamReader(make_schema(("value", IntegerType())))
    assert reader._task.payload == "arrow"
    for schema, payload in ((RAW, "raw"), (FRAMED, "framed"), (make_schema(VALUE, POSITION), "raw")):
        reader = make_source(Stream(node).options, payload="auto").streamReader(schema)
        assert reader._task.payload == payload
