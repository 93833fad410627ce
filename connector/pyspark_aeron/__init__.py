"""Registers ``format("aeron")``: Spark looks for top-level modules ``pyspark_*`` with a class ``DefaultSource``.

Spark imports all such modules at the first format that it does not know, so an import of this module loads nothing.
The first use of ``DefaultSource`` loads the source. If aeron-spark is not installed completely, this module warns, and
other data sources still work.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aeron_spark.spark.source import AeronDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from aeron_spark.spark.source import AeronDataSource
    except ImportError as error:
        warnings.warn(f"format('aeron') is not available: {error}", RuntimeWarning, stacklevel=2)
        raise AttributeError(f"{__name__}.DefaultSource cannot be loaded: {error}") from error
    return AeronDataSource
