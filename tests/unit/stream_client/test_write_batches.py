"""What a program writes, as pieces: rows, values, and what is neither."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.stream_client.write_batches import BYTES, WriteBatch, check_payload, write_batches_of

BATCH = pa.record_batch({"value": [b"a", b"b"], "n": [1, 2]})


def test_batches_and_tables_are_arrow_rows() -> None:
    assert list(write_batches_of(BATCH, "auto")) == [WriteBatch("arrow", BATCH)]
    table = pa.Table.from_batches([BATCH, BATCH.slice(0, 0), BATCH])
    assert list(write_batches_of(table, "arrow", 3)) == [WriteBatch("arrow", BATCH, 3)] * 2
    assert list(write_batches_of(BATCH.slice(0, 0), "auto")) == []


def test_of_batches_written_as_messages_the_column_value_is_sent() -> None:
    (piece,) = write_batches_of(pa.record_batch({"value": ["a", "b"], "reservedValue": [7, None]}), "raw", 1)
    assert (piece.payload, piece.partition) == ("raw", 1)
    assert piece.values.to_pylist() == [b"a", b"b"]
    assert piece.reserved is not None
    assert piece.reserved.to_pylist() == [7, 0]
    for wrong, said in (
        (pa.record_batch({"n": [1]}), "needs a column 'value', and the batch has n"),
        (pa.record_batch({"value": [b"a", None]}), "1 of 2 values are null"),
        (pa.record_batch({"value": [[1]]}), "is list<item: int64> and not binary"),
    ):
        with pytest.raises(DataFormatError, match=said):
            list(write_batches_of(wrong, "framed"))


def test_bytes_are_values_of_the_payload_that_the_stream_takes() -> None:
    for data in ([b"a", bytearray(b"b")], (b"a", memoryview(b"b"))):
        (piece,) = write_batches_of(data, "auto")  # type: ignore[arg-type]  # as good as bytes
        assert piece.payload == BYTES
        assert piece.values.to_pylist() == [b"a", b"b"]
        assert piece.reserved is None
    assert [piece.payload for piece in write_batches_of(b"a", "raw")] == ["raw"]
    assert list(write_batches_of([], "auto")) == []
    with pytest.raises(DataFormatError, match="bytes are not Arrow rows"):
        list(write_batches_of(b"a", "arrow"))


@pytest.mark.parametrize("wrong", ["text", 7, None, {"a": 1}, [b"a", None], [b"a", "b"], [[b"a"]]])
def test_what_is_neither_is_refused(wrong: object) -> None:
    with pytest.raises(DataFormatError, match=r"cannot be written|is not bytes"):
        list(write_batches_of(wrong, "auto"))  # type: ignore[arg-type]


def test_an_unknown_payload_is_refused() -> None:
    assert check_payload("framed") == "framed"
    with pytest.raises(OptionError, match="invalid payload 'json'"):
        check_payload("json")
