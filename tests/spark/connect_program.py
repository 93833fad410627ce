"""A client of Spark Connect: writes a table to a stream, reads it, and copies it with a streaming query."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from aeron_spark.spark import register


def main(remote: str, options: dict[str, str], folder: str) -> None:
    """Print the number of rows that a batch read, and that two runs of a query copied."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    register(spark)
    found = []
    for _ in range(2):
        rows = spark.range(100).selectExpr("id", "id * id AS square")
        rows.write.format("aeron").mode("append").options(**options).option("record", "auto").save()
        frame = spark.readStream.format("aeron").options(**options).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{folder}/table")
        query.awaitTermination()
        found += [
            spark.read.format("aeron").options(**options).load().count(),
            spark.read.parquet(f"{folder}/table").count(),
        ]
    spark.stop()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
