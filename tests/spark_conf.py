"""How the tests set Spark up: Delta on its class path, nothing on a fixed port, as little processor time as can be."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DELTA: Final = Path(__file__).resolve().parents[1] / "jars" / "target" / "delta"
# such a JVM ends before its second compiler pays: a quarter of the processor time
JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def write_defaults(folder: Path) -> Path:
    """Write into ``folder`` what a Spark takes that starts without arguments; it finds the file by SPARK_CONF_DIR."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in spark_conf(folder).items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def spark_conf(place: Path) -> dict[str, str]:
    """Return Spark's configuration; what it keeps is below the folder ``place``."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{DELTA}/*",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place} {JAVA_OPTIONS}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        # plans of these queries have nothing to adapt
        "spark.sql.adaptive.enabled": "false",
        # a query that has nothing to read asks its source so often, in another process; Spark's own 10 ms are 100 calls
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.databricks.delta.snapshotPartitions": "1",  # of 50 that Delta would take
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
