"""The Spark of the demo: one session for both acts, with Delta, and nothing of it left in the end."""

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
END_TIMEOUT: Final = 60.0  # seconds for Spark's JVM to end
PROGRESS_KEPT: Final = 10_000  # micro-batches


@contextmanager
def session(place: Path) -> Iterator[SparkSession]:
    """Run Spark with two task slots and Delta for as long as the block lasts; nothing of its process is left."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "spark")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("aeron-spark demo")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{DELTA_JARS}/*",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.python.worker.faulthandler.enabled": "false",  # it and a JVM in a worker fight over signals
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_KEPT),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
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
    """Have Spark's JVM end now, and not some time after this process, which is about to remove its folders."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT)
