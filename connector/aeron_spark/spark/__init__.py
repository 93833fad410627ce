"""Spark's side: the only package that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aeron_spark.spark.listener import LagListener as LagListener
    from aeron_spark.spark.listener import QueryLag as QueryLag

__all__ = ["LagListener", "QueryLag", "register"]


def register(spark: SparkSession) -> None:
    """Register ``format("aeron")`` by hand, where Spark looked for sources before this package was installed."""
    from aeron_spark.spark.source import AeronDataSource

    spark.dataSource.register(AeronDataSource)


def __getattr__(name: str) -> Any:
    # What Spark imports in every worker must not import a listener's modules, too.
    if name in ("LagListener", "QueryLag"):
        from aeron_spark.spark import listener

        return getattr(listener, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
