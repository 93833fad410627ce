"""Tests of schema changes: nullable columns may be added or left out; errors for other changes show both schemas."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pytest

from aeron_spark.errors import AeronSparkError, DataFormatError, RefusedError
from aeron_spark.streams.definition import STRICT
from aeron_spark.streams.schema_changes import Evolution, check_fields, evolve, merge, serialize
from aeron_spark.wire import foreign_arrow
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


@pytest.mark.parametrize("depth", ["column", "element"])
def test_two_fields_of_a_struct_with_one_name_are_refused(depth: str) -> None:
    kind: pa.DataType = pa.struct([("b", pa.int8()), ("b", pa.int8())])
    field = pa.field("a", kind if depth == "column" else pa.list_(kind))
    with pytest.raises(DataFormatError, match="is a struct with two fields of one name"):
        merge(None, serialize(pa.schema([field])))


def wide(count: int, first: int = 0) -> pa.Schema:
    return pa.schema([(f"column{number}", pa.int8()) for number in range(first, first + count)])


def test_the_number_of_columns_is_limited_with_the_fields_in_them() -> None:
    nested = serialize(pa.schema([("a", pa.struct([("b", pa.int8()), ("c", pa.list_(pa.int8()))]))]))
    check_fields(None, nested, 4)
    with pytest.raises(RefusedError, match=r"more columns, with the fields in them, than the limit of 3 \(max"):
        check_fields(None, nested, 3)
    check_fields(None, nested, 0)
    check_fields(None, None, 3)


def test_a_stream_with_more_columns_than_the_limit_keeps_them_and_gets_no_others() -> None:
    known = serialize(wide(10))
    for same in (known, serialize(wide(10).with_metadata({"a": "b"})), serialize(wide(4))):
        check_fields(known, same, 8)
    with pytest.raises(RefusedError, match="than the limit of 8 ") as error:
        check_fields(known, serialize(wide(11)), 8)
    assert (error.value.reason, error.value.retriable) == ("limit", False)


def renamed(count: int) -> bytes:
    """A schema whose first and last columns have one name."""
    return serialize(pa.schema([*wide(count), pa.field("column0", pa.int8())]))


def reversed_columns(count: int) -> bytes:
    return serialize(pa.schema([*wide(count)][::-1]))


OPERATIONS: dict[str, Callable[[int], Callable[[], object]]] = {
    "the first schema": lambda count: partial(merge, None, serialize(wide(count))),
    "the same columns": lambda count: partial(merge, serialize(wide(count)), reversed_columns(count)),
    "other columns": lambda count: partial(merge, serialize(wide(count)), serialize(wide(count, count))),
    "an evolution": lambda count: partial(
        suppressed, evolve, serialize(wide(count)), serialize(wide(count, 1)), STRICT, Evolution.NOT_REQUESTED
    ),
    "one name twice": lambda count: partial(suppressed, merge, None, renamed(count)),
    "the limit": lambda count: partial(check_fields, None, serialize(wide(count)), count),
    "a batch": lambda count: partial(
        conform, pa.RecordBatch.from_pylist([], wide(count)), read_schema(reversed_columns(count))
    ),
}  # fmt: skip


def suppressed(operation: Callable[..., object], *given: object) -> None:
    with pytest.raises(AeronSparkError):
        operation(*given)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_cost_of_an_operation_rises_linearly_with_the_columns(name: str) -> None:
    def seconds(count: int) -> float:
        """Return the least processor time of three runs."""
        times = []
        for _ in range(3):
            operation = OPERATIONS[name](count)
            foreign_arrow._known_schema.cache_clear()
            begun = time.thread_time()
            operation()
            times.append(time.thread_time() - begun)
        return min(times)

    assert seconds(4_000) < 24 * seconds(500)  # 8 times, if it is linear; 64 times, if it is quadratic
