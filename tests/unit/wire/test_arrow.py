"""Arrow batches as payload: they are decoded without a copy, split by size, and adapted to a wanted schema."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError
from aeron_spark.wire.arrow import (
    BatchEncoder,
    conform,
    decode_batches,
    encode_batch,
    encode_parts,
    encoded_size,
    split_rows,
)

NESTED = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.float64()))])
ALL = pa.record_batch(
    {
        "bool": [True, None, False],
        "int": pa.array([1, -2, None], pa.int8()),
        "long": pa.array([2**62, None, -1], pa.int64()),
        "double": [0.5, None, float("inf")],
        "decimal": pa.array([Decimal("1.25"), None, Decimal("-9")], pa.decimal128(38, 18)),
        "string": ["流", "", None],
        "binary": [b"\0", None, b""],
        "time": pa.array([datetime(2024, 2, 29, tzinfo=timezone.utc), None, None], pa.timestamp("us", "UTC")),
        "date": pa.array([1, None, -1], pa.date32()),
        "nested": pa.array([{"a": [1, None], "b": [("k", 1.5)]}, None, {"a": None, "b": []}], NESTED),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "nothing": pa.nulls(3),
    }
)


def test_all_types_can_be_encoded_and_decoded() -> None:
    encoded = encode_batch(ALL)
    (batch,) = decode_batches(encoded, rows=3)
    assert batch.equals(ALL)
    assert encoded.size == encoded_size(ALL)


@pytest.mark.parametrize(
    "batch",
    [ALL.slice(1, 1), ALL.slice(0, 0), pa.record_batch({"a": pa.array([], pa.int32())})],
    ids=["slice", "no rows of a slice", "no rows"],
)
def test_slices_and_batches_without_rows_can_be_encoded_and_decoded(batch: pa.RecordBatch) -> None:
    (decoded,) = decode_batches(encode_batch(batch), rows=batch.num_rows)
    assert decoded.equals(batch)


@pytest.mark.parametrize("batch", [ALL, ALL.slice(1, 1), ALL.slice(0, 0)], ids=["all", "slice", "no rows"])
def test_the_parts_of_an_encoding_are_equal_to_the_encoding(batch: pa.RecordBatch) -> None:
    assert b"".join(part.to_pybytes() for part in encode_parts(batch)) == encode_batch(batch).to_pybytes()


def test_an_encoder_reuses_its_memory() -> None:
    encoder = BatchEncoder(64 << 10)
    first = encoder.encode(ALL)
    assert first == encode_batch(ALL)
    second = encoder.encode(ALL.slice(1, 1))
    assert second == encode_batch(ALL.slice(1, 1))
    assert second.address == first.address
    with pytest.raises(OSError, match="out of bounds"):
        BatchEncoder(encoded_size(ALL) - 1).encode(ALL)


def test_the_parts_of_an_encoding_do_not_copy_a_large_value() -> None:
    batch = pa.record_batch({"a": pa.array([b"x" * 100_000], pa.binary())})
    (large,) = (part for part in encode_parts(batch) if part.size > 1000)
    assert large.address == batch.column(0).buffers()[2].address


def test_a_slice_is_encoded_without_the_other_rows() -> None:
    batch = pa.record_batch({"a": pa.array(range(100_000), pa.int64())})
    assert encoded_size(batch.slice(7, 10)) < 1000


def test_aligned_streams_are_decoded_without_a_copy() -> None:
    encoded = encode_batch(pa.record_batch({"a": pa.array(range(1000), pa.int64())}))
    (batch,) = decode_batches(encoded)
    data = batch.column(0).buffers()[1]
    assert encoded.address <= data.address < encoded.address + encoded.size


@pytest.mark.parametrize("offset", range(8))
def test_a_stream_at_any_address_can_be_decoded(offset: int) -> None:
    encoded = pa.py_buffer(bytes(offset) + encode_batch(ALL).to_pybytes())
    for source in (encoded.slice(offset), memoryview(encoded)[offset:], encoded.to_pybytes()[offset:]):
        (batch,) = decode_batches(source)
        batch.validate(full=True)
        assert batch.equals(ALL)
        assert (batch.column("long").buffers()[1] or encoded).address % 8 == 0


def test_several_batches_of_one_stream_can_be_decoded() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ALL.schema) as stream:
        stream.write_batch(ALL)
        stream.write_batch(ALL.slice(2))
    assert [batch.num_rows for batch in decode_batches(sink.getvalue(), rows=4)] == [3, 1]


@pytest.mark.parametrize("data", [b"", b"no arrow at all", bytes(64), b"\xff" * 64])
def test_other_bytes_than_an_arrow_stream_are_an_error(data: bytes) -> None:
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        list(decode_batches(data))


def test_a_truncated_stream_is_an_error() -> None:
    encoded = encode_batch(pa.record_batch({"a": [1, 2, 3]})).to_pybytes()
    assert len(list(decode_batches(encoded, rows=3))) == 1
    for length in range(0, len(encoded) - 8):
        with pytest.raises(DataFormatError):
            list(decode_batches(encoded[:length], rows=3))


@pytest.mark.parametrize("rows", [0, 2, 4])
def test_another_number_of_rows_than_in_the_header_is_an_error(rows: int) -> None:
    with pytest.raises(DataFormatError, match=f"has 3 rows, but its header announces {rows}"):
        list(decode_batches(encode_batch(ALL), rows=rows))


def test_a_batch_that_fits_is_not_split() -> None:
    size = encoded_size(ALL)
    assert list(split_rows(ALL, size)) == [(0, ALL)]
    assert [row for row, _ in split_rows(ALL, size - 1)] != [0]


def test_a_row_that_is_too_large_is_a_slice_of_its_own() -> None:
    batch = pa.record_batch({"a": ["x", "y" * 10_000, "z"]})
    parts = list(split_rows(batch, 500))
    assert [(row, part.num_rows) for row, part in parts] == [(0, 1), (1, 1), (2, 1)]
    assert [encoded_size(part) > 500 for _, part in parts] == [False, True, False]


@pytest.mark.parametrize("at", [0, 1, 5_000, 9_999])
def test_one_huge_row_does_not_isolate_the_other_rows(at: int) -> None:
    batch = pa.record_batch({"a": ["x" * (1_000_000 if row == at else 10) for row in range(10_000)]})
    parts = list(split_rows(batch, 50_000))
    assert len(parts) < 40
    assert (at, 1) in [(row, part.num_rows) for row, part in parts]
    assert sum(part.num_rows for _, part in parts) == 10_000


def test_slices_of_equal_rows_use_most_of_the_limit() -> None:
    batch = pa.record_batch({"a": pa.array(range(100_000), pa.int64())})
    parts = list(split_rows(batch, 80_000))
    assert len(parts) <= 13


def test_a_limit_below_every_row_gives_single_rows() -> None:
    assert [row for row, _ in split_rows(ALL, 0)] == [0, 1, 2]
    assert [row for row, _ in split_rows(ALL.slice(0, 0), 0)] == [0]


@given(st.lists(st.binary(max_size=3000), max_size=40), st.integers(400, 4000))
def test_slices_fit_and_are_complete(values: list[bytes], limit: int) -> None:
    batch = pa.record_batch({"v": pa.array(values, pa.binary()), "n": pa.array(range(len(values)), pa.int64())})
    parts = list(split_rows(batch, limit))
    row = 0
    for first_row, part in parts:
        assert first_row == row
        assert encoded_size(part) <= limit or part.num_rows == 1
        row += part.num_rows
    assert pa.Table.from_batches([part for _, part in parts]).equals(pa.Table.from_batches([batch]))


def field(name: str, kind: Any, *, nullable: bool = True) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=nullable)


A = field("a", pa.int64())
B = field("b", pa.string())
ROWS = pa.record_batch({"a": pa.array([1, None], pa.int64()), "b": ["x", None]}, schema=pa.schema([A, B]))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (pa.schema([A, B]), {"a": [1, None], "b": ["x", None]}),
        (pa.schema([B, A]), {"b": ["x", None], "a": [1, None]}),
        (pa.schema([A]), {"a": [1, None]}),
        (pa.schema([A, field("c", NESTED), B]), {"a": [1, None], "c": [None, None], "b": ["x", None]}),
        (pa.schema([A, field("b", pa.large_string())]), {"a": [1, None], "b": ["x", None]}),
    ],
)
def test_older_and_newer_data_conform_to_the_wanted_schema(target: pa.Schema, expected: dict[str, list[Any]]) -> None:
    batch = conform(ROWS, target)
    assert batch.schema == target
    assert batch.to_pydict() == expected
    batch.validate(full=True)


def test_a_wanted_schema_without_columns_keeps_the_number_of_rows() -> None:
    batch = conform(ROWS, pa.schema([]))
    assert (batch.num_rows, batch.num_columns) == (2, 0)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ([A, field("c", pa.int8(), nullable=False)], "the column 'c' is missing in the data and not nullable"),
        ([field("a", pa.int32()), B], "the column 'a' is int64, wanted is int32"),
        ([field("a", pa.string()), B], "the column 'a' is int64, wanted is string"),
        ([field("a", pa.int64(), nullable=False), B], "the column 'a' has nulls and is not nullable"),
        ([A, A], "the wanted schema has two columns with one name"),
    ],
)
def test_incompatible_schemas_are_an_error_that_has_both(target: list[pa.Field[Any]], reason: str) -> None:
    with pytest.raises(DataFormatError) as raised:
        conform(ROWS, pa.schema(target))
    text = str(raised.value)
    assert reason in text
    assert "the data has:\n    pyarrow.Field<a: int64>\n    pyarrow.Field<b: string>" in text
    assert f"wanted is:\n    {target[0]}\n" in text
    assert "(no columns)" not in text


def test_data_with_two_columns_of_one_name_is_an_error() -> None:
    with pytest.raises(DataFormatError, match="the data has two columns with one name"):
        conform(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), pa.schema([A]))


def test_a_column_that_is_not_nullable_is_not_dropped() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([field("a", pa.int64(), nullable=False)]))
    with pytest.raises(DataFormatError, match="'a' is not nullable and not in the wanted schema") as raised:
        conform(batch, pa.schema([]))
    assert "(no columns)" in str(raised.value)


@pytest.mark.parametrize("names", [["long"], ["word", "int"], ["nested", "string", "bool"], ALL.schema.names], ids=str)
def test_a_stream_is_decoded_with_the_wanted_columns_alone(names: list[str]) -> None:
    wanted = pa.schema([ALL.schema.field(name) for name in names])
    (batch,) = decode_batches(encode_batch(ALL), 3, wanted)
    assert batch.equals(ALL.select(names))
    batch.validate(full=True)


@pytest.mark.parametrize(
    ("target", "expected"), [([], [{}, {}]), ([field("c", pa.int8())], [{"c": None}, {"c": None}])], ids=str
)
def test_a_stream_without_any_wanted_column_keeps_its_rows(
    target: list[pa.Field[Any]], expected: list[dict[str, None]]
) -> None:
    (batch,) = decode_batches(encode_batch(ROWS), 2, pa.schema(target))
    assert batch.num_rows == 2
    assert batch.to_pylist() == expected


def test_columns_that_are_not_wanted_are_not_decompressed() -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, ROWS.schema, options=options) as stream:
        stream.write_batch(pa.record_batch({"a": pa.array(range(10_000), pa.int64()), "b": ["x" * 100] * 10_000}))
    data = bytearray(sink.getvalue())
    frame = data.rindex(b"\x28\xb5\x2f\xfd")  # where a zstd frame begins, here that of the texts
    data[frame : frame + 4] = bytes(4)
    (batch,) = decode_batches(bytes(data), 10_000, pa.schema([A]))
    assert batch["a"].to_pylist() == list(range(10_000))
    with pytest.raises(DataFormatError, match="not an Arrow IPC stream"):
        list(decode_batches(bytes(data), 10_000, ROWS.schema))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ([field("b", pa.int32())], "the column 'b' is string, wanted is int32"),
        ([field("c", pa.int8(), nullable=False)], "the column 'c' is missing in the data and not nullable"),
        ([B, B], "the wanted schema has two columns with one name"),
    ],
)
def test_the_error_for_wanted_columns_has_all_columns_of_the_stream(target: list[pa.Field[Any]], reason: str) -> None:
    with pytest.raises(DataFormatError) as raised:
        list(decode_batches(encode_batch(ROWS), 2, pa.schema(target)))
    assert reason in str(raised.value)
    assert "the data has:\n    pyarrow.Field<a: int64>\n    pyarrow.Field<b: string>" in str(raised.value)


def test_a_column_of_a_stream_that_is_not_nullable_is_not_left_out() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([field("n", pa.int64(), nullable=False)]))
    with pytest.raises(DataFormatError, match="'n' is not nullable and not in the wanted schema"):
        list(decode_batches(encode_batch(batch), 1, pa.schema([A])))


@pytest.mark.parametrize(
    ("given_type", "wanted", "same"),
    [
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("us"), pa.int64(), False),
        (pa.string(), pa.binary(), False),
        (pa.large_binary(), pa.binary(), True),
        (pa.list_(pa.string()), pa.large_list(pa.large_string()), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), False),
        (pa.list_(pa.int32()), pa.int32(), False),
        (pa.list_(field("e", pa.int8(), nullable=False)), pa.list_(field("e", pa.int8())), True),
        (pa.list_(field("e", pa.int8())), pa.list_(field("e", pa.int8(), nullable=False)), False),
        (pa.struct([field("a", pa.string())]), pa.struct([field("a", pa.large_string())]), True),
        (pa.struct([field("a", pa.string())]), pa.struct([field("b", pa.large_string())]), False),
        (pa.struct([field("a", pa.string())]), pa.struct([A, B]), False),
        (pa.struct([field("a", pa.string())]), pa.string(), False),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.large_string()), True),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.int8(), pa.string()), False),
        (pa.map_(pa.string(), pa.string()), pa.string(), False),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.int8(), False),
    ],
    ids=str,
)
def test_types_with_the_same_rows_conform(given_type: pa.DataType, wanted: pa.DataType, same: bool) -> None:
    batch = pa.record_batch({"c": pa.array([None, None], given_type)})
    if same:
        assert conform(batch, pa.schema([("c", wanted)])).schema.field("c").type == wanted
    else:
        with pytest.raises(DataFormatError, match="the column 'c' is"):
            conform(batch, pa.schema([("c", wanted)]))


def test_rows_that_do_not_fit_the_wanted_type_are_an_error() -> None:
    offsets = pa.py_buffer((0).to_bytes(8, "little") + (2**31).to_bytes(8, "little"))
    # the announced length exceeds the buffer; the length is checked before the value is read
    values = pa.foreign_buffer(pa.py_buffer(b"x").address, 2**31)
    column = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, values])
    batch = pa.RecordBatch.from_arrays([column], ["c"])
    with pytest.raises(DataFormatError, match="the column 'c' does not fit binary"):
        conform(batch, pa.schema([("c", pa.binary())]))
