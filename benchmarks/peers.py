"""What the connector is compared with inside Spark: Python data sources that do the least a data source can do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


class Prebuilt(DataSource):
    """Hands Spark one prebuilt batch of the columns of ``raw`` again and again.

    Options: ``rows`` in all, ``batch`` of rows, ``length`` of a value, ``partitions``.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return (
            "value BINARY, channel STRING, streamId INT, sessionId INT, recordingId BIGINT, position BIGINT, "
            "reservedValue BIGINT, timestamp TIMESTAMP"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader({name: int(value) for name, value in self.options.items()}, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PrebuiltStreamReader({name: int(value) for name, value in self.options.items()}, schema)


class Share(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class PrebuiltReader(DataSourceReader):
    def __init__(self, given: dict[str, int], schema: StructType) -> None:
        self.given = given
        self.wanted = schema

    def partitions(self) -> list[InputPartition]:
        shares = self.given.get("partitions", 1)
        return [Share(self.given["rows"] // shares) for _ in range(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return prebuilt(to_arrow_schema(self.wanted, timezone="UTC"), partition.rows, self.given)


class PrebuiltStreamReader(DataSourceStreamReader):
    """All rows in one micro-batch; or, with the option ``every``, ``rows`` more each time so many milliseconds pass."""

    def __init__(self, given: dict[str, int], schema: StructType) -> None:
        self.given = given
        self.wanted = schema
        self.begun = time.monotonic()

    def initialOffset(self) -> dict[str, int]:
        return {"tick": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # PySpark's older form: no limits here
        every = self.given.get("every")
        return {"tick": 1 if every is None else int((time.monotonic() - self.begun) * 1000) // every}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        shares = self.given.get("partitions", 1)
        rows = (end["tick"] - start["tick"]) * self.given["rows"]
        return [Share(rows // shares) for _ in range(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return prebuilt(to_arrow_schema(self.wanted, timezone="UTC"), partition.rows, self.given)

    def commit(self, end: dict[str, int]) -> None:
        pass


def prebuilt(schema: pa.Schema, rows: int, given: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` rows: slices of one batch, made once."""
    most, length = min(rows, given["batch"]), given["length"]
    columns: dict[str, Any] = {
        "value": pa.array([b"%0*d" % (length, row) for row in range(most)], pa.binary()),
        "channel": pa.repeat(pa.scalar("aeron:ipc"), most),
        "streamId": pa.repeat(pa.scalar(1001, pa.int32()), most),
        "sessionId": pa.repeat(pa.scalar(-12345678, pa.int32()), most),
        "recordingId": pa.repeat(pa.scalar(1, pa.int64()), most),
        "position": pa.array(range(0, most * 128, 128), pa.int64()),
        "reservedValue": pa.repeat(pa.scalar(0, pa.int64()), most),
        "timestamp": pa.nulls(most, schema.field("timestamp").type),
    }
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    while rows > 0:
        yield batch if rows >= most else batch.slice(0, rows)
        rows -= most


class Discard(DataSource):
    """Takes Arrow batches and throws them away."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DiscardingWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DiscardingStreamWriter()


class DiscardingStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        for batch in iterator:
            assert batch.num_rows >= 0
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        pass


class DiscardingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as PySpark's own
        for batch in iterator:
            assert batch.num_rows >= 0
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass
