"""The Spark session with Delta that both acts use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

DELTA_JARS: Final = Path(__file__).resolve().parents[1] / "jars" / "target" / "delta"
LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")
END_TIMEOUT_S: Final = 60.0  # for Spark's JVM to end
KEPT_MICRO_BATCHES: Final = 10_000  # micro-batches


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Run Spark with two task slots and Delta during the block. At the end its JVM is stopped."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark demo")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{DELTA_JARS}/*",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.python.worker.faulthandler.enabled": "false",  # it conflicts with the signal handlers of a worker's JVM
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": str(KEPT_MICRO_BATCHES),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        yield spark
        spark.stop()
    finally:
        _end_jvm()


def _end_jvm() -> None:
    """End Spark's JVM now, before this process removes its folders."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)
