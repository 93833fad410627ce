"""The queries of the first act: flights from Aeron into Delta, and their counts per day into Delta and Aeron."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from demo.flights import SCHEMA, Day
from demo.queries import Queries, count_by_day

FLIGHTS, DAYS, RESULTS = "flights", "days", "results"


class DirectQueries(Queries):
    """Three queries on one stream: flights to Delta, days to Delta, days to Aeron."""

    def __init__(
        self, spark: SparkSession, folder: Path, flights: Mapping[str, str], results: Mapping[str, str]
    ) -> None:
        super().__init__(folder / "checkpoints", FLIGHTS)
        self._spark = spark
        self._tables = folder / "tables"
        self._flights = flights
        self._results = results

    def sinks(self) -> Mapping[str, tuple[DataStreamWriter, str]]:
        """See :meth:`Queries.sinks`."""
        rows = (
            self._spark.readStream.format("aeron")
            .schema(from_arrow_schema(SCHEMA))
            .options(startingOffsets="earliest", payload="arrow", maxBytesPerTrigger="16MiB", **self._flights)
            .load()
        )
        days = count_by_day(rows)
        message = days.select(F.to_json(F.struct("*")).alias("value"))
        return {
            FLIGHTS: (rows.writeStream.format("delta").option("path", self._table(FLIGHTS)), "0 seconds"),
            DAYS: (
                days.writeStream.format("delta").option("path", self._table(DAYS)).outputMode("complete"),
                "3 seconds",
            ),
            RESULTS: (
                message.writeStream.format("aeron").options(**self._results).outputMode("complete"),
                "3 seconds",
            ),
        }

    def flights(self) -> pa.Table:
        """Read the flights back from Delta."""
        return self._spark.read.format("delta").load(self._table(FLIGHTS)).toArrow()

    def days(self) -> dict[str, Day]:
        """Read the days back from Delta."""
        rows = self._spark.read.format("delta").load(self._table(DAYS)).collect()
        return {row.day: Day(row.flights, row.departed, row.delay) for row in rows}

    def _table(self, name: str) -> str:
        return str(self._tables / name)
