"""Writes the SBE messages of a stream into one Delta table for each message type, exactly once, in one query.

One query for all types reads and decodes the stream once, and has one checkpoint. Spark calls the function of
``foreachBatch`` again for a batch in which the query was killed. Some tables then have the batch already: Delta leaves
out a write whose ``txnVersion``, here the batch's number, is not above the last one of the same ``txnAppId``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructType

UNKNOWN: Final = "unknown"  # the table of the messages whose type the query's schema does not have
POSITION: Final = ("_aeron_recordingId", "_aeron_position", "_aeron_templateId", "_aeron_version")


def read_messages(spark: SparkSession, options: dict[str, str], schema: str) -> DataFrame:
    """Return a streaming DataFrame of all messages of a stream, by the SBE schema in a file."""
    reader = spark.readStream.format("aeron").options(**options, payload="sbe", sbeSchema=schema, sbeMessage="*")
    return reader.options(includeMetadata="true", sbeOthers="keep").load()


def write_tables(query: str, folder: Path, label: int) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that appends each type's messages to a table in the folder.

    The column ``schema`` of the tables has the ``label``, by which a test knows which schema decoded a row.
    """

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        tables = {UNKNOWN: batch.where("message IS NULL").select(*POSITION)}
        for field in batch.schema:
            if isinstance(field.dataType, StructType):
                tables[field.name] = batch.where(col("message") == field.name).select(*POSITION, f"{field.name}.*")
        for name, rows in tables.items():
            writer = rows.withColumn("schema", lit(label)).write.format("delta").mode("append")
            # a newer schema adds columns
            writer = writer.option("mergeSchema", "true").option("txnAppId", query).option("txnVersion", number)
            writer.save(str(folder / name))
        batch.unpersist()

    return write


def export_table(spark: SparkSession, table: str, path: str) -> None:
    """Write the rows of a Delta table, as Spark reads them, into an Arrow file."""
    rows = spark.read.format("delta").load(table).toArrow()
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, rows.schema) as out:
        out.write_table(rows)
