"""Tests of schema changes: nullable columns may be added or left out; errors for other changes show both schemas."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.streams.schema_changes import merge, serialize
from aeron_spark.wire.arrow import conform
from aeron_spark.wire.foreign_arrow import read_schema

ID = pa.field("id", pa.int64(), nullable=False)
NAME = pa.field("name", pa.string())
AT = pa.field("at", pa.timestamp("us", "UTC"))
KNOWN = serialize(pa.schema([ID, NAME]))


def merged(*fields: pa.Field) -> pa.Schema:
    return read_schema(merge(KNOWN, serialize(pa.schema(fields))))


def test_the_first_schema_is_the_streams() -> None:
    described = pa.schema([ID, NAME], metadata={"pandas": "{}"})
    assert merge(None, serialize(described)) == KNOWN


def test_the_same_schema_changes_nothing() -> None:
    for same in ([ID, NAME], [NAME, ID], [ID]):
        assert merge(KNOWN, serialize(pa.schema(same))) is KNOWN
    assert merge(KNOWN, serialize(pa.schema([ID, NAME], metadata={"a": "b"}))) is KNOWN


def test_a_new_nullable_column_comes_last() -> None:
    assert merged(AT, ID, NAME) == pa.schema([ID, NAME, AT])
    assert merged(ID, AT) == pa.schema([ID, NAME, AT])


def test_a_nullable_column_may_be_not_nullable_in_the_data() -> None:
    assert merged(ID, pa.field("name", pa.string(), nullable=False)) == pa.schema([ID, NAME])


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=["large_string", "dictionary"]
)
def test_an_equivalent_type_changes_nothing(kind: pa.DataType) -> None:
    assert merged(ID, pa.field("name", kind)) == pa.schema([ID, NAME])


def test_the_unit_of_a_timestamp_may_not_change() -> None:
    known = serialize(pa.schema([AT]))
    assert merge(known, serialize(pa.schema([pa.field("at", pa.timestamp("us", "Europe/Berlin"))]))) is known
    for other in (pa.timestamp("ns", "UTC"), pa.timestamp("us")):
        with pytest.raises(DataFormatError, match="'at' is timestamp"):
            merge(known, serialize(pa.schema([pa.field("at", other)])))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([NAME], "the column 'id' is missing in the data and not nullable"),
        ([ID, NAME, pa.field("n", pa.int8(), nullable=False)], "the new column 'n' is not nullable"),
        ([pa.field("id", pa.int32(), nullable=False), NAME], "the column 'id' is int32, expected int64"),
        ([pa.field("id", pa.int64()), NAME], "the column 'id' is nullable in the data, but not"),
        ([pa.field("ID", pa.int64()), NAME], "the column 'id' is missing"),
    ],
)
def test_other_changes_are_refused_with_both_schemas(fields: list[pa.Field], why: str) -> None:
    with pytest.raises(DataFormatError) as raised:
        merged(*fields)
    text = str(raised.value)
    assert why in text
    for field in (*fields, ID, NAME):
        assert f"    {field}" in text
    assert text.index("the data has:") < text.index("the stream has:")
    assert "only nullable columns" in raised.value.remedy


def test_a_repeated_column_name_is_refused() -> None:
    twice = serialize(pa.schema([NAME, NAME]))
    for known in (None, KNOWN):
        with pytest.raises(DataFormatError, match="more than one column 'name'"):
            merge(known, twice)


@pytest.mark.parametrize("depth", ["columns", "fields of a struct", "fields in a list", "fields of a map"])
def test_names_that_differ_only_in_case_are_refused(depth: str) -> None:
    """Regression: a stream with the columns a and A could be written, and not be read by Spark or into Delta."""
    both = [pa.field("a", pa.int64()), pa.field("A", pa.int64())]
    nested = {
        "fields of a struct": pa.struct(both), "fields in a list": pa.list_(pa.struct(both)),
        "fields of a map": pa.map_(pa.string(), pa.struct(both)),
    }  # fmt: skip
    fields = both if depth == "columns" else [pa.field("x", nested[depth])]
    error = "the columns 'a' and 'A' differ only in upper and lower case, and Spark and Delta Lake take them for one"
    with pytest.raises(DataFormatError, match=error):
        merge(None, serialize(pa.schema(fields)))
    with pytest.raises(DataFormatError, match=error):
        merged(ID, *fields)


def test_a_new_column_with_the_name_of_another_one_in_other_letters_is_refused() -> None:
    with pytest.raises(DataFormatError, match=r"the columns 'name' and 'Name' differ only .* Rename one of them\."):
        merged(ID, pa.field("Name", pa.string()))


def test_a_stream_that_has_such_columns_keeps_them() -> None:
    known = serialize(pa.schema([pa.field("a", pa.int64()), pa.field("A", pa.int64())]))
    assert merge(known, known) is known
    assert merge(known, serialize(pa.schema([pa.field("A", pa.int64())]))) is known
    assert read_schema(merge(known, serialize(pa.schema([pa.field("b", pa.int64())])))).names == ["a", "A", "b"]
    with pytest.raises(DataFormatError, match="'b' and 'B'"):
        merge(known, serialize(pa.schema([pa.field("b", pa.int64()), pa.field("B", pa.int64())])))


@pytest.mark.parametrize("data", [b"", b"schema", KNOWN[:-9], KNOWN[:20]])
def test_bytes_that_are_not_a_schema_are_refused(data: bytes) -> None:
    with pytest.raises(DataFormatError, match=f"{len(data)} bytes are not an Arrow IPC schema"):
        merge(KNOWN, data)


def test_accepted_data_can_be_read_with_the_merged_schema() -> None:
    schemas = [
        pa.schema([ID]),
        pa.schema([ID, NAME]),
        pa.schema([AT, ID]),
        pa.schema([ID, pa.field("name", pa.large_string(), nullable=False)]),
        pa.schema([pa.field("list", pa.list_(pa.struct([("a", pa.int8())]))), ID]),
    ]
    known = None
    for schema in schemas:
        known = merge(known, serialize(schema))
    assert known is not None
    target = read_schema(known)
    assert target.names == ["id", "name", "at", "list"]
    for schema in schemas:
        arrays = [pa.array([1] if field.name == "id" else ["x"] if field.name == "name" else [None], field.type)
                  for field in schema]  # fmt: skip
        row = conform(pa.RecordBatch.from_arrays(arrays, schema=schema), target).to_pylist()[0]
        assert (row["id"], set(row)) == (1, set(target.names))
