"""Every option, from one table, parsed once into immutable values before anything starts. Pure."""

from __future__ import annotations

from aeron_spark.options.given import only_in_batches
from aeron_spark.options.read import Bounds, Limits, ReadOptions
from aeron_spark.options.values import Edge, Moment, TimestampFrom, WantedOffsets
from aeron_spark.options.ways import DirectRoute, ServerAt, ServerRoute, direct_route, listed
from aeron_spark.options.write import WriteOptions

__all__ = [
    "Bounds",
    "DirectRoute",
    "Edge",
    "Limits",
    "Moment",
    "ReadOptions",
    "ServerAt",
    "ServerRoute",
    "TimestampFrom",
    "WantedOffsets",
    "WriteOptions",
    "direct_route",
    "listed",
    "only_in_batches",
]
