"""Calls ``aeron-jvm`` inside the JVM of the shared Spark session, as the simulated engine calls the Python source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException

from aeron_spark import errors
from aeron_spark.spark.pyspark_api import ReadAllAvailable

T = TypeVar("T")


@dataclass(frozen=True)
class JvmRange:
    """The bytes of a range of a partition."""

    length: int


class JvmPartition:
    """A Spark partition of the source in Java."""

    def __init__(self, java: JavaObject) -> None:
        self.java = java
        self.ranges = [JvmRange(java.ranges().get(index).length()) for index in range(java.ranges().size())]


class JvmStreamReader:
    """The streaming reader in Java, with the methods of ``AeronStreamReader``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._jvm: Any = SparkContext._jvm
        assert self._jvm is not None, "no Spark session runs"
        texts = self._jvm.java.util.HashMap()
        for name, text in options.items():
            texts.put(name, text)
        provider = self._jvm.io.aeronspark.spark.read.AeronProvider()
        given = self._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(texts)
        table = provider.getTable(provider.inferSchema(given), None, texts)
        self._java: Any = _checked(lambda: table.newScanBuilder(given).build().toMicroBatchStream(""))

    def initialOffset(self) -> dict[str, Any]:
        """Return the first offset of a new query."""
        return _from_json(_checked(lambda: self._java.initialOffset()))

    def getDefaultReadLimit(self) -> JavaObject:
        """Return the limit of the options."""
        return self._java.getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """Return the end of the next batch."""
        if isinstance(limit, ReadAllAvailable):
            limit = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.allAvailable()
        return _from_json(_checked(lambda: self._java.latestOffset(self._offset(start), limit)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the recordings and the lag."""
        found = self._java.reportLatestOffset()
        return None if found is None else _from_json(found)

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the end of the query."""
        _checked(lambda: self._java.prepareForTriggerAvailableNow())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[JvmPartition]:
        """Plan the batch between two offsets."""
        found = _checked(lambda: self._java.planInputPartitions(self._offset(start), self._offset(end)))
        return [JvmPartition(one) for one in found]

    def read(self, partition: JvmPartition) -> Iterator[pa.RecordBatch]:
        """Yield the values of a partition."""
        reader = _checked(lambda: self._java.createReaderFactory().createColumnarReader(partition.java))
        try:
            while _checked(reader.next):
                batch = reader.get()
                values = batch.column(0)  # the column ``value``
                yield pa.record_batch({"value": [bytes(values.getBinary(row)) for row in range(batch.numRows())]})
        finally:
            reader.close()

    def _offset(self, value: dict[str, Any]) -> JavaObject:
        return self._java.deserializeOffset(json.dumps(value))


def _from_json(offset: JavaObject) -> dict[str, Any]:
    text = offset.json()
    value: dict[str, Any] = json.loads(text)
    assert json.dumps(value) == text, "Spark compares offsets as texts"
    return value


def _checked(call: Callable[[], T]) -> T:
    """Return the result of a call; raise its error in Java as the error of this name in Python."""
    try:
        return call()
    except (Py4JJavaError, CapturedException) as error:  # PySpark converts an IllegalArgumentException
        java: Any = error.java_exception if isinstance(error, Py4JJavaError) else error._origin
        kind = getattr(errors, java.getClass().getSimpleName(), None)
        if kind is None:
            raise
        raise kind(java.what(), remedy=java.remedy()) from error
