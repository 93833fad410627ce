"""Arrow bytes of a hostile writer are refused with DataFormatError before a row of them could end the process."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.foreign_arrow import (
    MAX_DEPTH,
    SHORT_STREAM,
    count_fields,
    has_more_fields,
    read_schema,
    read_stream,
)
from tests import hostile_arrow
from tests.hostile_arrow import ints, texts


def stream_of(*columns: pa.Array[Any], compression: str | None = None, names: Sequence[str] = ()) -> bytes:
    """Return an IPC stream of one batch, whose columns are not checked."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=list(names or map(str, range(len(columns)))))
    return hostile_arrow.stream_of(batch, compression)


def padded(column: pa.Array[Any], size: int) -> bytes:
    """Return an IPC stream of the column and of one with values that have ``size`` bytes together."""
    return stream_of(column, pa.array([bytes(-(-size // max(1, len(column))))] * len(column)))


def rows_of(data: bytes) -> list[dict[str, Any]]:
    return [row for batch in read_stream(data)[1] for row in batch.to_pylist()]


def array(kind: pa.DataType, length: int, buffers: list[pa.Buffer | None], *children: pa.Array[Any]) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, length, buffers, children=list(children))


def view(length: int, offset: int) -> pa.Buffer:
    return pa.py_buffer(struct.pack("<i4sii", length, b"aaaa", 0, offset))


def dictionary(values: pa.Array[Any], *indices: int) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), values, safe=False)


ELEMENTS = pa.array([1, 2, 3, 4], pa.int64())
INVALID = {
    "an offset after the data": texts(0, 4, 0x7FFFFFF0, 12, 16),
    "an offset before the data": texts(0, 4, -0x7FFFFFF0, 12, 16),
    "offsets that fall": texts(0, 8, 4, 12, 16),
    "text that is not UTF-8": array(pa.string(), 1, [None, ints(0, 2), pa.py_buffer(b"\xff\xfe")]),
    "offsets of lists": array(pa.list_(pa.int64()), 2, [None, ints(0, 0x7FFFFFF0, 4)], ELEMENTS),
    "text in a list": array(pa.list_(pa.string()), 1, [None, ints(0, 4)], texts(0, 4, 0x7FFFFFF0, 12, 16)),
    "text in a struct": array(pa.struct([("a", pa.string())]), 4, [None], texts(0, 4, 0x7FFFFFF0, 12, 16)),
    "text in a dictionary": dictionary(texts(0, 4, 0x7FFFFFF0, 12, 16), 0, 1),
    "an index outside its dictionary": dictionary(pa.array(["a"]), 0, 7),
    "a negative index": dictionary(pa.array(["a"]), 0, -7),
    "a decimal with too many digits": array(pa.decimal128(3, 1), 1, [None, pa.py_buffer(b"\x7f" * 16)]),
    "a view after the data": array(pa.string_view(), 1, [None, view(20, 2**31 - 8), pa.py_buffer(b"a" * 20)]),
    "a list view after its elements": array(
        pa.list_view(pa.int64()), 1, [None, ints(2), ints(0x7FFFFFF0)], ELEMENTS
    ),
}  # fmt: skip


@pytest.mark.parametrize("column", INVALID.values(), ids=INVALID.keys())
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_invalid_values_are_refused_before_they_are_read(column: pa.Array[Any], compression: str | None) -> None:
    data = stream_of(ELEMENTS[: len(column)], column, compression=compression)
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        rows_of(data)


def test_the_reported_attack_has_328_bytes_and_is_refused() -> None:
    data = stream_of(texts(0, 4, 0x7FFFFFF0, 12, 16), names=["s"])
    assert len(data) < 400
    with pytest.raises(DataFormatError, match="offset"):
        rows_of(data)


def test_columns_that_are_not_wanted_are_not_read() -> None:
    data = stream_of(ELEMENTS, texts(0, 4, 0x7FFFFFF0, 12, 16))
    schema, batches = read_stream(data, lambda schema: [0])
    assert schema.names == ["0", "1"]
    assert [batch.to_pydict() for batch in batches] == [{"0": [1, 2, 3, 4]}]


# What bytes become


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_are_refused_by_their_announced_length(compression: str) -> None:
    honest = stream_of(pa.array(range(1000), pa.int64()), compression=compression)
    assert rows_of(honest)[999] == {"0": 999}
    announced = honest.replace(struct.pack("<q", 8000), struct.pack("<q", 8 << 40))
    assert announced != honest
    for data in (announced, honest.replace(struct.pack("<q", 8000), struct.pack("<q", -8000))):
        with pytest.raises(DataFormatError, match=r"become more than \d+ bytes in memory|in place of a count"):
            rows_of(data)


def test_compressed_zeros_are_refused() -> None:
    zeros = stream_of(array(pa.binary(), 1, [None, ints(0, 1 << 30), pa.py_buffer(bytes(1 << 30))]), compression="zstd")
    assert len(zeros) < 70_000
    before = pa.total_allocated_bytes()
    with pytest.raises(DataFormatError, match="become more than"):
        rows_of(zeros)
    assert pa.total_allocated_bytes() - before < 1 << 20


HUGE = 100_000_000
MANY = {
    "nulls": pa.nulls(HUGE),
    "binaries without bytes": array(pa.binary(0), HUGE, [None, pa.py_buffer(b"")]),
    "lists of nulls": array(pa.list_(pa.null(), HUGE), 1, [None], pa.nulls(HUGE)),
    "lists without elements": array(pa.list_(pa.int64(), 0), HUGE, [None], pa.array([], pa.int64())),
    "structs without fields": array(pa.struct([]), HUGE, [None]),
    "one list of nulls": array(pa.list_(pa.null()), 1, [None, ints(0, HUGE)], pa.nulls(HUGE)),
    "a dictionary of nulls": dictionary(pa.nulls(HUGE), 0),
}


@pytest.mark.parametrize("column", MANY.values(), ids=MANY.keys())
def test_cells_without_bytes_are_limited_by_the_bytes_of_the_stream(column: pa.Array[Any]) -> None:
    data = stream_of(column)
    assert len(data) < 1000
    with pytest.raises(DataFormatError, match="become more than"):
        rows_of(data)


def test_a_large_value_with_many_references_is_refused() -> None:
    many = 200_000
    value = "x" * 10_000
    views = struct.pack("<i4sii", 10_000, b"xxxx", 0, 0) * many
    shared = [
        dictionary(pa.array([value]), *[0] * many),
        pa.ListArray.from_arrays([0, many], dictionary(pa.array([value]), *[0] * many)),
        array(pa.string_view(), many, [None, pa.py_buffer(views), pa.py_buffer(value.encode())]),
        dictionary(pa.array([bytes(10_000)], pa.binary(10_000)), *[0] * many),
    ]
    for column in shared:
        data = stream_of(column)
        assert len(data) < 4_000_000
        with pytest.raises(DataFormatError, match="become more than"):
            rows_of(data)


def test_a_dictionary_that_each_batch_has_again_is_refused() -> None:
    words = dictionary(pa.array(["x" * 1_000_000]), 0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("a", words.type)])) as stream:
        for _ in range(1000):
            stream.write_batch(pa.record_batch({"a": words}))
    with pytest.raises(DataFormatError, match="become more than"):
        list(read_stream(sink.getvalue())[1])


def test_list_views_that_share_elements_are_refused() -> None:
    apart = array(pa.list_view(pa.int64()), 3, [None, ints(2, 0, 1), ints(2, 0, 1)], ELEMENTS)
    assert rows_of(stream_of(apart)) == [{"0": [3, 4]}, {"0": []}, {"0": [2]}]
    same = array(pa.list_view(pa.int64()), 2, [None, ints(0, 1), ints(2, 2)], ELEMENTS)
    with pytest.raises(DataFormatError, match="share elements"):
        rows_of(stream_of(same))


# Schemas

BAD_NAMES = {
    "a column": pa.schema([("name", pa.int8())]),
    "a field": pa.schema([("a", pa.struct([("name", pa.int8())]))]),
    "an element": pa.schema([("a", pa.list_(pa.struct([("b", pa.list_(pa.struct([("name", pa.int8())])))])))]),
}


@pytest.mark.parametrize("schema", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_names_that_are_not_utf_8_are_refused_at_any_depth(schema: pa.Schema) -> None:
    data = schema.serialize().to_pybytes().replace(b"name", b"\xff\xfeme")
    with pytest.raises(DataFormatError, match=r"the name or the time zone of .* is not UTF-8"):
        read_schema(data)
    with pytest.raises(DataFormatError, match=r"the name or the time zone of .* is not UTF-8"):
        rows_of(data)


def test_a_time_zone_that_is_not_utf_8_is_refused() -> None:
    data = pa.schema([("a", pa.timestamp("us", "Zone"))]).serialize().to_pybytes().replace(b"Zone", b"\xff\xfe\xfd\xfc")
    with pytest.raises(DataFormatError, match="time zone of column 0 is not UTF-8"):
        read_schema(data)


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int8()
    for _ in range(depth - 1):
        kind = pa.list_(kind)
    return kind


def test_the_depth_of_nesting_is_limited() -> None:
    deepest = pa.schema([("a", nested(MAX_DEPTH))])
    assert read_schema(deepest.serialize().to_pybytes()) == deepest
    for depth in (MAX_DEPTH + 1, 60, 120):
        with pytest.raises(DataFormatError):
            read_schema(pa.schema([("a", nested(depth))]).serialize().to_pybytes())


REFUSED = {
    "a union": pa.sparse_union([pa.field("a", pa.int8())]),
    "run-end encoding": pa.run_end_encoded(pa.int32(), pa.string()),
    "a dictionary of lists": pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    "a dictionary of views": pa.dictionary(pa.int8(), pa.string_view()),
    "a scale that Arrow cannot format": pa.decimal128(5, 1000),
}


@pytest.mark.parametrize("kind", REFUSED.values(), ids=REFUSED.keys())
def test_types_that_streams_do_not_have_are_refused(kind: pa.DataType) -> None:
    for schema in (pa.schema([("a", kind)]), pa.schema([("b", pa.list_(pa.struct([("c", kind)])))])):
        with pytest.raises(DataFormatError, match="which streams do not have"):
            read_schema(schema.serialize().to_pybytes())


def test_fields_are_counted_at_any_depth() -> None:
    assert count_fields(pa.schema([])) == 0
    assert count_fields(pa.schema([("a", pa.int8()), ("b", pa.list_(pa.int8()))])) == 3
    assert count_fields(pa.schema([("a", pa.struct([("b", pa.map_(pa.string(), pa.int8()))]))])) == 5


TEXTS = {
    "ascii": ["a", "", "bc" * 100],
    "none": [],
    "empty": ["", ""],
    "other letters": ["a", "ü", "b"],
    "nulls": ["a", None, "b"],
}


@pytest.mark.parametrize("padding", [0, SHORT_STREAM], ids=["short", "long"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_valid_texts_are_read(name: str, kind: pa.DataType, padding: int) -> None:
    column = pa.array(TEXTS[name], kind)
    for one in (column, column.slice(1)):
        (found,) = read_stream(padded(one, padding))[1]
        assert found.column(0).equals(one)


@pytest.mark.parametrize("padding", [0, SHORT_STREAM], ids=["short", "long"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    ("texts", "right", "wrong"),
    [
        (["a", "b", "c"], (0, 1, 2, 3), (0, 2, 1, 3)),
        (["a", "b", "c"], (0, 1, 2, 3), (-1, 1, 2, 3)),
        (["a", "b", "c"], (0, 1, 2, 3), (0, 1, 2, 4)),
        (["a", "b", "c"], (0, 1, 2, 3), (0, 1, 1 << 30, 3)),
        (["a", "b", "c"], (0, 1, 2, 3), (3, 2, 1, 0)),
        (["a", "b", "c"], (0, 1, 2, 3), (0, -1, 2, 3)),
        (["abü", "c"], (0, 4, 5), (0, 3, 5)),  # a character that two texts share
    ],
    ids=str,
)
def test_texts_with_wrong_offsets_are_refused(
    texts: list[str], right: tuple[int, ...], wrong: tuple[int, ...], kind: pa.DataType, padding: int
) -> None:
    width = "<i4" if kind == pa.string() else "<i8"
    data = padded(pa.array(texts, kind), padding)
    good, bad = np.array(right, width).tobytes(), np.array(wrong, width).tobytes()
    assert data.count(good) == 1
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        list(read_stream(data.replace(good, bad))[1])


@pytest.mark.parametrize("padding", [0, SHORT_STREAM], ids=["short", "long"])
def test_a_wrong_number_of_nulls_in_ascii_texts_is_refused(padding: int) -> None:
    data = padded(pa.array(["a", None, "b"]), padding)
    good, bad = struct.pack("<qq", 3, 1), struct.pack("<qq", 3, 2)
    assert data.count(good) == 1
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        list(read_stream(data.replace(good, bad))[1])


def test_two_fields_of_one_name_in_a_struct_are_refused() -> None:
    one = pa.array([1])
    pair = pa.StructArray.from_arrays([one, one], ["a", "a"])
    for column in (pair, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pair)):
        with pytest.raises(DataFormatError, match="a struct with two fields of one name"):
            rows_of(stream_of(column))


def test_an_empty_column_may_lack_its_offsets() -> None:
    empty: pa.Array[Any] = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    (found,) = read_stream(stream_of(empty))[1]
    assert found.num_rows == 0


def test_a_schema_with_too_many_fields_is_found_before_its_names_are_checked() -> None:
    nested = pa.struct([(f"c{number}", pa.int8()) for number in range(9)])
    for schema in (pa.schema([("a", pa.int8())] * 10), pa.schema([("a", nested)])):
        data = schema.serialize().to_pybytes().replace(b"c8", b"\xff8")
        assert has_more_fields(data, 9)
        assert not has_more_fields(data, 10)
    with pytest.raises(DataFormatError, match="not UTF-8"):
        read_schema(data)
    with pytest.raises(DataFormatError, match="3 bytes are not an Arrow IPC schema"):
        has_more_fields(b"abc", 9)


@pytest.mark.parametrize("data", [b"", b"no schema", bytes(64), b"\xff" * 64])
def test_other_bytes_are_neither_a_schema_nor_a_stream(data: bytes) -> None:
    with pytest.raises(DataFormatError, match=f"{len(data)} bytes are not an Arrow IPC schema"):
        read_schema(data)
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        rows_of(data)


def test_metadata_of_any_bytes_does_no_harm() -> None:
    field = pa.field("a", pa.int8(), metadata={b"\xff": b"\xfe", "ARROW:extension:name": "unknown"})
    schema = pa.schema([field], metadata={b"\xff\x00": b"\xfe" * 1000})
    assert read_schema(schema.serialize().to_pybytes()).names == ["a"]
    for name in ("arrow.fixed_shape_tensor", "arrow.opaque", "arrow.uuid", "arrow.json"):
        hostile = {"ARROW:extension:name": name, "ARROW:extension:metadata": b"[" * 100_000}
        data = pa.schema([pa.field("a", pa.list_(pa.int32(), 4), metadata=hostile)]).serialize().to_pybytes()
        with pytest.raises(DataFormatError):
            read_schema(data)


# Found by changes of bytes at random places: Arrow's reader or a use of its batches failed with these.


def test_metadata_with_impossible_numbers_is_refused() -> None:
    data = stream_of(pa.array([1, 2, 3], pa.int64()), pa.array(["x", "y", "z"]))
    begin = data.index(struct.pack("<q", 3), 300)
    for number in (-1, 2**40, 2**62, -(2**63)):
        for at in range(begin, len(data) - 8, 8):
            changed = data[:at] + struct.pack("<q", number) + data[at + 8 :]
            try:
                rows_of(changed)
            except DataFormatError:
                continue


# Nothing that a writer needs is refused

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
USUAL = {
    "bool": pa.array([True, None]),
    "int8": pa.array([1, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
    "float16": pa.array(np.array([0.5, 1], np.float16)),
    "double": pa.array([0.5, None]),
    "decimal128": pa.array([Decimal("1.25"), None], pa.decimal128(38, 18)),
    "decimal256": pa.array([Decimal("1.25"), None], pa.decimal256(76, 38)),
    "negative scale": pa.array([Decimal("1E+3"), None], pa.decimal128(5, -3)),
    "string": pa.array(["流", None]),
    "large string": pa.array(["流", None], pa.large_string()),
    "string view": pa.array(["longer than twelve bytes", None], pa.string_view()),
    "binary": pa.array([b"\xff", None]),
    "binary view": pa.array([b"\xff" * 20, None], pa.binary_view()),
    "fixed binary": pa.array([b"abc", None], pa.binary(3)),
    "date": pa.array([date(2026, 3, 1), None]),
    "time": pa.array([3, None], pa.time64("us")),
    "timestamp": pa.array([NOON, None], pa.timestamp("us", "America/New_York")),
    "no zone": pa.array([3, None], pa.timestamp("ns")),
    "duration": pa.array([timedelta(1), None], pa.duration("us")),
    "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "list": pa.array([["a", None], None]),
    "large list": pa.array([["a"], None], pa.large_list(pa.string())),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "list view": pa.array([["a", None], None], pa.list_view(pa.string())),
    "map": pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float64())),
    "struct": pa.array([{"a": {"b": [1]}}, None]),
    "dictionary": pa.array(["x", None]).dictionary_encode(),
    "dictionary of numbers": pa.array([7, None]).dictionary_encode(),
    "dictionary in a list": pa.ListArray.from_arrays([0, 2, 2], pa.array(["x", "y"]).dictionary_encode()),
    "null": pa.nulls(2),
    "empty structs": pa.array([{}, {}], pa.struct([])),
    "uuid": pa.array([b"0123456789abcdef", None], pa.uuid()),
}


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_all_usual_types_are_read_unchanged(compression: str | None) -> None:
    (batch,) = read_stream(stream_of(*USUAL.values(), compression=compression, names=list(USUAL)))[1]
    assert {name: batch.column(name) for name in USUAL} == USUAL
    (empty,) = read_stream(stream_of(*[one[:0] for one in USUAL.values()], compression=compression))[1]
    assert empty.num_rows == 0


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0] * 1_000_000),
        pa.array([True] * 4_000_000),
        dictionary(pa.array(["x" * 200, "y" * 200]), *[0, 1] * 200_000),
        pa.array([""] * 1_000_000),
        pa.nulls(1_000_000),
    ],
    ids=["zeros", "bits", "a dictionary", "empty texts", "nulls"],
)
def test_large_batches_of_small_values_are_read(column: pa.Array[Any]) -> None:
    (batch,) = read_stream(stream_of(column))[1]
    assert batch.column(0).equals(column)


def test_values_that_lz4_compresses_as_far_as_it_can_are_read() -> None:
    zeros = pa.array(np.zeros(10_000_000, np.int64))
    data = stream_of(zeros, compression="lz4")
    assert zeros.nbytes / len(data) > 200
    (batch,) = read_stream(data)[1]
    assert batch.column(0).equals(zeros)
