"""The Spark data source ``format("aeron")``; the only package, besides the jobs, that imports pyspark."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aeron_spark.spark.lag_listener import LagListener as LagListener
    from aeron_spark.spark.lag_listener import QueryLag as QueryLag
    from aeron_spark.spark.lag_listener import StreamLag as StreamLag
    from aeron_spark.spark.shown_errors import error_text as error_text

__all__ = ["LagListener", "QueryLag", "StreamLag", "configure", "error_text", "register"]

JARS: Final = "spark.jars"
PYTHON: Final = "spark.aeron.python"


def register(spark: SparkSession) -> None:
    """Register ``format("aeron")``, and make Spark's workers on this machine use a Python with this package.

    Needed by a program that runs without an activated environment (``venv/bin/python job.py``), and in a session that
    listed its data sources before this package was installed. A PYSPARK_PYTHON with this package, its requirements and
    the version of this process is not changed. Raises SetupError if the workers may run on other machines, and their
    Python cannot run this package, and for a Spark before 4.0; warns about one that is newer than the tested ones.
    """
    import pyspark

    for release in dict.fromkeys([pyspark.__version__, spark.version]):  # a client of Spark Connect, and its server
        check_spark(release)
    from pyspark.errors import AnalysisException

    from aeron_spark.spark.source import AeronDataSource, context_of, use_python_of_this_process

    context = context_of(spark)
    if context is not None:
        use_python_of_this_process(context)
    try:
        spark.dataSource.register(AeronDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it found itself, in an installed package
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the jars of ``format("aeron-jvm")`` to a session's builder, and return it.

    Appends them to the builder's ``spark.jars``, and sets ``spark.aeron.python`` to this Python, with which the source
    starts this machine's node. Raises UsageError if Spark's JVM runs already without the jars: it loads jars only at
    its start. Raises SetupError if the package has no jars, and for a Spark before 4.0.
    """
    import pyspark

    check_spark(pyspark.__version__)
    from aeron_spark.aeron.jvm import spark_classpath
    from aeron_spark.errors import UsageError

    paths = spark_classpath()
    loaded = _loaded_jars()
    if loaded is not None and not set(paths) <= set(loaded):
        raise UsageError(
            "Spark's JVM runs already, without the jars of format('aeron-jvm')",
            remedy="Call configure(builder) before the first session of the process; for spark-submit give "
            "--jars $(aeron-spark jars).",
        )
    given = str(getattr(builder, "_options", {}).get(JARS, ""))
    known = [path for path in given.split(",") if path]
    return builder.config(JARS, ",".join([*known, *(path for path in paths if path not in known)])).config(
        PYTHON, sys.executable
    )


def check_spark(release: str) -> None:
    """Raise SetupError for a Spark that is too old, and warn about one with which the tests did not run."""
    from aeron_spark.errors import SetupError
    from aeron_spark.version import NEWEST_SPARK, OLDEST_SPARK, dotted, numbers_of

    found = numbers_of(release)[:2]
    if found < OLDEST_SPARK:
        raise SetupError(
            f"Spark {release} is too old: aeron-spark needs Spark {dotted(OLDEST_SPARK)} or newer",
            remedy=f"Install a newer one: pip install 'pyspark>={dotted(OLDEST_SPARK)}'",
        )
    if found > NEWEST_SPARK:
        warnings.warn(
            f"Spark {release} is newer than {dotted(NEWEST_SPARK)}, the newest one with which aeron-spark was tested. "
            f"If a query fails, use Spark {dotted(NEWEST_SPARK)}",
            RuntimeWarning,
            stacklevel=3,
        )


def _loaded_jars() -> list[str] | None:
    """Return the paths in ``spark.jars`` of the running JVM, or None if none runs."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    active = SparkContext._active_spark_context
    conf = SparkConf() if active is None else active.getConf()
    # Spark writes a path as file:/path or file:///path
    return [path.removeprefix("file:").replace("///", "/", 1) for path in (conf.get(JARS) or "").split(",")]


def __getattr__(name: str) -> Any:
    # Loaded on demand, because Spark imports this package in each worker.
    if name in ("LagListener", "QueryLag", "StreamLag"):
        from aeron_spark.spark import lag_listener

        return getattr(lag_listener, name)
    if name == "error_text":
        from aeron_spark.spark import shown_errors

        return shown_errors.error_text
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
