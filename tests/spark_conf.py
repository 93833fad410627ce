"""How the tests set Spark up: Delta on its class path, nothing on a fixed port, as little processor time as can be."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DELTA: Final = Path(__file__).resolve().parents[1] / "jars" / "target" / "delta"
# such a JVM ends before its second compiler pays: a quarter of the processor time
JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


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
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
