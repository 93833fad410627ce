"""Every option, declared once, parsed once into immutable values before anything starts. Pure."""

from __future__ import annotations

from aeron_spark.options.endpoint_options import ClientOptions, EndpointOptions, ServerOptions
from aeron_spark.options.reader import only_in_batches
from aeron_spark.options.routes import DirectRoute, ServerAt, ServerRoute, direct_route, listed
from aeron_spark.options.stream_options import Bounds, Limits, ReadOptions, WriteOptions
from aeron_spark.options.values import Edge, Moment, TimestampFrom, WantedOffsets

__all__ = [
    "Bounds",
    "ClientOptions",
    "DirectRoute",
    "Edge",
    "EndpointOptions",
    "Limits",
    "Moment",
    "ReadOptions",
    "ServerAt",
    "ServerOptions",
    "ServerRoute",
    "TimestampFrom",
    "WantedOffsets",
    "WriteOptions",
    "direct_route",
    "listed",
    "only_in_batches",
]
