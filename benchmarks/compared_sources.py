"""Minimal Python data sources, with which the connector is compared inside Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

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

from benchmarks.corpora import Corpus
from benchmarks.flight_client import flight_batches
from benchmarks.raw_batches import repeated_batch, repeated_file

RAW_COLUMNS: Final = (
    "value BINARY, channel STRING, streamId INT, sessionId INT, recordingId BIGINT, position BIGINT, "
    "reservedValue BIGINT, timestamp TIMESTAMP"
)


class Prebuilt(DataSource):
    """Gives Spark one prebuilt batch of the columns of ``raw`` again and again.

    Options: ``rows`` in total, ``batch`` (rows of a batch), ``length`` of a value (with ``longest``: of the shortest),
    ``partitions``.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return RAW_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader({name: int(value) for name, value in self.options.items()}, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PrebuiltStreamReader({name: int(value) for name, value in self.options.items()}, schema)


class PrebuiltPartition(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


def split_rows(rows: int, partitions: int) -> list[InputPartition]:
    return [PrebuiltPartition(rows // partitions) for _ in range(partitions)]


class PrebuiltReader(DataSourceReader):
    def __init__(self, options: dict[str, int], schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return split_rows(self.options["rows"], self.options.get("partitions", 1))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PrebuiltPartition)
        return prebuilt_batches(to_arrow_schema(self.schema, timezone="UTC"), partition.rows, self.options)


class PrebuiltStreamReader(DataSourceStreamReader):
    """Gives all rows in one micro-batch; with the option ``interval_ms``, ``rows`` more in each such interval."""

    def __init__(self, options: dict[str, int], schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.started = time.monotonic()

    def initialOffset(self) -> dict[str, int]:
        return {"tick": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # PySpark's older form: no limits here
        interval_ms = self.options.get("interval_ms")
        return {"tick": 1 if interval_ms is None else int((time.monotonic() - self.started) * 1000) // interval_ms}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows = (end["tick"] - start["tick"]) * self.options["rows"]
        return split_rows(rows, self.options.get("partitions", 1))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PrebuiltPartition)
        return prebuilt_batches(to_arrow_schema(self.schema, timezone="UTC"), partition.rows, self.options)

    def commit(self, end: dict[str, int]) -> None:
        pass


def prebuilt_batches(schema: pa.Schema, rows: int, options: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` rows: slices of one batch, which is built once."""
    corpus = Corpus("", options["length"], options.get("longest", options["length"]), rows)
    return repeated_batch(corpus, options["batch"], schema)


class PrebuiltFile(DataSource):
    """Gives Spark the batch of an Arrow file again and again; needs a schema. Options: ``file``, ``rows`` in total."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt_file"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltFileReader(self.options["file"], int(self.options["rows"]), schema)


class PrebuiltFileReader(DataSourceReader):
    def __init__(self, file: str, rows: int, schema: StructType) -> None:
        self.file = file
        self.rows = rows
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return split_rows(self.rows, 1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PrebuiltPartition)
        return repeated_file(self.file, partition.rows, to_arrow_schema(self.schema, timezone="UTC"))


class Flight(DataSource):
    """Reads all rows of a Flight server (:mod:`benchmarks.flight_server`) in one task. Option: ``port``."""

    @classmethod
    def name(cls) -> str:
        return "flight"

    def schema(self) -> str:
        return RAW_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return FlightReader(int(self.options["port"]), schema)


class FlightReader(DataSourceReader):
    def __init__(self, port: int, schema: StructType) -> None:
        self.port = port
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return [PrebuiltPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return flight_batches(self.port, self.schema.names, to_arrow_schema(self.schema, timezone="UTC"))


class Discard(DataSource):
    """Takes Arrow batches and discards them."""

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


ALL: Final = (Prebuilt, PrebuiltFile, Flight, Discard)
