"""The Spark configuration of the tests: Delta on the class path, no fixed ports, little processor time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# `make test-matrix` sets the variable, to the jars for another Spark, or to nothing where there are none
_DELTA: Final = os.environ.get("MATRIX_DELTA", str(Path(__file__).resolve().parents[1] / "jars" / "target" / "delta"))
DELTA: Final = Path(_DELTA)
# without the second compiler, such a short-lived JVM uses a quarter less processor time
JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def write_defaults(folder: Path) -> Path:
    """Write the defaults of a Spark that starts without arguments into ``folder``, for SPARK_CONF_DIR."""
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in spark_conf(folder).items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def spark_conf(folder: Path) -> dict[str, str]:
    """Return Spark's configuration, with its files below ``folder``."""
    delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    return (delta if _DELTA else {}) | {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{DELTA}/*",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {JAVA_OPTIONS}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        # compiling the plan of a query that runs once costs more than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # adaptive plans do not help these small queries
        "spark.sql.adaptive.enabled": "false",
        # interval at which an idle query calls its source in another process; Spark's default of 10 ms is costly
        "spark.sql.streaming.pollingDelay": "50ms",
        "spark.databricks.delta.snapshotPartitions": "1",  # Delta's default is 50
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
