"""A program for the Python of a virtual environment that is not activated, as cron, systemd or an IDE start it.

It sends a file to its workers, as ``configure_spark_with_delta_pip`` does with jars.
"""

from __future__ import annotations

import json
import sys
import zipfile

from pyspark.sql import SparkSession

from aeron_spark.spark import register


def main(options: dict[str, str]) -> None:
    """Print the values of a stream as JSON."""
    builder = SparkSession.builder.master("local[1]")
    for name in ("driver.host", "driver.bindAddress"):
        builder = builder.config(f"spark.{name}", "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        with zipfile.ZipFile("functions.zip", "w") as functions:
            functions.writestr("functions.py", "")
        spark.sparkContext.addPyFile("functions.zip")
        register(spark)
        rows = spark.read.format("aeron").options(**options).load().collect()
        print(json.dumps([bytes(row.value).decode() for row in rows]), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
