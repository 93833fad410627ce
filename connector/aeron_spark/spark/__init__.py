"""The Spark data source ``format("aeron")``; the only package, besides the jobs, that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aeron_spark.spark.lag_listener import LagListener as LagListener
    from aeron_spark.spark.lag_listener import QueryLag as QueryLag
    from aeron_spark.spark.lag_listener import StreamLag as StreamLag

__all__ = ["LagListener", "QueryLag", "StreamLag", "register"]


def register(spark: SparkSession) -> None:
    """Register ``format("aeron")``, and make Spark's workers on this machine use a Python with this package.

    Needed by a program that runs without an activated environment (``venv/bin/python job.py``), and in a session that
    listed its data sources before this package was installed. A PYSPARK_PYTHON with this package, its requirements and
    the version of this process is not changed. Raises SetupError if the workers may run on other machines, and their
    Python cannot run this package.
    """
    from aeron_spark.spark.source import AeronDataSource, context_of, use_python_of_this_process

    context = context_of(spark)
    if context is not None:
        use_python_of_this_process(context)
    spark.dataSource.register(AeronDataSource)


def __getattr__(name: str) -> Any:
    # Loaded on demand, because Spark imports this package in each worker.
    if name in ("LagListener", "QueryLag", "StreamLag"):
        from aeron_spark.spark import lag_listener

        return getattr(lag_listener, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
