"""Data of a program as batches: rows, values, and data that cannot be written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.stream_client.row_input import BYTES, WriteBatch, check_payload, write_batches_of

BATCH = pa.record_batch({"value": [b"a", b"b"], "n": [1, 2]})


def test_batches_and_tables_are_arrow_rows() -> None:
    assert list(write_batches_of(BATCH, "auto")) == [WriteBatch("arrow", BATCH)]
    table = pa.Table.from_batches([BATCH, BATCH.slice(0, 0), BATCH])
    assert list(write_batches_of(table, "arrow", 3)) == [WriteBatch("arrow", BATCH, 3)] * 2
    assert list(write_batches_of(BATCH.slice(0, 0), "auto")) == []


def test_raw_and_framed_batches_send_the_column_value() -> None:
    (batch,) = write_batches_of(pa.record_batch({"value": ["a", "b"], "reservedValue": [7, None]}), "raw", 1)
    assert (batch.payload, batch.partition) == ("raw", 1)
    assert batch.values.to_pylist() == [b"a", b"b"]
    assert batch.reserved is not None
    assert batch.reserved.to_pylist() == [7, 0]
    for wrong, message in (
        (pa.record_batch({"n": [1]}), "needs a column 'value', and the batch has n"),
        (pa.record_batch({"value": [b"a", None]}), "1 of 2 values are null"),
        (pa.record_batch({"value": [[1]]}), "is list<item: int64> and not binary"),
    ):
        with pytest.raises(DataFormatError, match=message):
            list(write_batches_of(wrong, "framed"))


def test_bytes_are_values_of_the_streams_payload() -> None:
    for data in ([b"a", bytearray(b"b")], (b"a", memoryview(b"b"))):
        (batch,) = write_batches_of(data, "auto")  # type: ignore[arg-type]  # as good as bytes
        assert batch.payload == BYTES
        assert batch.values.to_pylist() == [b"a", b"b"]
        assert batch.reserved is None
    assert [batch.payload for batch in write_batches_of(b"a", "raw")] == ["raw"]
    assert list(write_batches_of([], "auto")) == []
    with pytest.raises(DataFormatError, match="bytes are not Arrow rows"):
        list(write_batches_of(b"a", "arrow"))


@pytest.mark.parametrize("wrong", ["text", 7, None, {"a": 1}, [b"a", None], [b"a", "b"], [[b"a"]]])
def test_other_data_is_refused(wrong: object) -> None:
    with pytest.raises(DataFormatError, match=r"cannot be written|is not bytes"):
        list(write_batches_of(wrong, "auto"))  # type: ignore[arg-type]


def test_an_unknown_payload_is_refused() -> None:
    assert check_payload("framed") == "framed"
    with pytest.raises(OptionError, match="invalid payload 'json'"):
        check_payload("json")
