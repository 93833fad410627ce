"""What Spark looks for: a top-level module ``pyspark_*`` with ``DefaultSource``, so that format("aeron") is known.

Spark imports every such module for the first format it does not know itself, whether or not that is ours. So importing
this one loads nothing; asking it for ``DefaultSource`` loads the source. An installation of ours that is broken costs a
warning, not everybody else's data sources.
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
