"""Every option, from one table, parsed once into immutable values before anything starts. Pure."""

from __future__ import annotations

from aeron_spark.options.given import only_in_batches
from aeron_spark.options.read import Bounds, Limits, ReadOptions
from aeron_spark.options.values import Edge, Moment, TimestampFrom, WantedOffsets
from aeron_spark.options.ways import Direct, ServerAt, Through, direct_way, listed
from aeron_spark.options.write import WriteOptions

__all__ = [
    "Bounds",
    "Direct",
    "Edge",
    "Limits",
    "Moment",
    "ReadOptions",
    "ServerAt",
    "Through",
    "TimestampFrom",
    "WantedOffsets",
    "WriteOptions",
    "direct_way",
    "listed",
    "only_in_batches",
]
