"""The queries of the second act: flights from one stream of the server to two others, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter

from demo.flights import SCHEMA
from demo.queries import Queries, count_by_day

FLIGHTS: Final = "flights"  # the stream to read
COPIES, DAYS = "copies", "days"  # the streams to write, and the names of their queries


class SecureQueries(Queries):
    """Two queries on one stream: they write each flight to ``copies`` and the days to ``days``."""

    def __init__(self, spark: SparkSession, folder: Path, server: Mapping[str, str]) -> None:
        super().__init__(folder / "checkpoints-two", COPIES)
        self._spark = spark
        self._server = server

    def sinks(self) -> Mapping[str, tuple[DataStreamWriter, str]]:
        """See :meth:`Queries.sinks`."""
        rows = (
            self._spark.readStream.format("aeron")
            .schema(from_arrow_schema(SCHEMA))
            .options(stream=FLIGHTS, startingOffsets="earliest", maxBytesPerTrigger="16MiB", **self._server)
            .load()
        )
        days = count_by_day(rows)
        return {
            COPIES: (rows.writeStream.format("aeron").options(stream=COPIES, **self._server), "0 seconds"),
            DAYS: (
                days.writeStream.format("aeron").options(stream=DAYS, **self._server).outputMode("complete"),
                "3 seconds",
            ),
        }
