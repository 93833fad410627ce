"""A query whose column of times is NULL logs a warning, because a watermark on it lets no row through."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.types import StructType

from aeron_spark.options import ReadOptions
from aeron_spark.spark.reader import AeronStreamReader, Task
from aeron_spark.spark.row_values import FRAMED, RAW


def warnings_of(caplog: pytest.LogCaptureFixture, payload: str, schema: StructType, **more: str) -> list[str]:
    given = {"channel": "aeron:ipc", "streamId": "1001", "aeronDir": "/nowhere", "payload": payload, **more}
    task = Task(ReadOptions.parse(given, streaming=True), payload, schema, "this host")
    reader = AeronStreamReader(task)
    with caplog.at_level(logging.WARNING, "aeron_spark.spark"):
        reader._stream()
        reader._stream()
    return [record.getMessage() for record in caplog.records]


def test_a_raw_stream_without_times_gives_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = warnings_of(caplog, "raw", RAW)
    assert found.startswith("the column timestamp of stream 1001 of aeron:ipc is NULL")
    assert "'timestampFrom'" in found


@pytest.mark.parametrize(
    ("payload", "schema", "more"),
    [("raw", RAW, {"timestampFrom": "reserved-ns"}), ("raw", StructType(RAW.fields[:1]), {}), ("framed", FRAMED, {})],
)
def test_other_streams_give_none(
    caplog: pytest.LogCaptureFixture, payload: str, schema: StructType, more: dict[str, str]
) -> None:
    assert warnings_of(caplog, payload, schema, **more) == []
