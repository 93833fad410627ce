"""All options: each is declared once, and parsed into immutable values before anything starts. Pure."""

from __future__ import annotations

from aeron_spark.options.declaration import has_batch_only_options
from aeron_spark.options.endpoint_options import ClientOptions, EndpointOptions
from aeron_spark.options.routes import DirectRoute, ServerEntry, ServerRoute, direct_route, parse_servers_file
from aeron_spark.options.server_options import LiveOptions, OptionChanges, ServerOptions
from aeron_spark.options.stream_options import (
    BatchLimits,
    Bounds,
    ReadOptions,
    SbeFormatOptions,
    SbeOptions,
    WriteOptions,
)
from aeron_spark.options.values import Edge, Moment, TimestampFrom, WantedOffsets

__all__ = [
    "BatchLimits",
    "Bounds",
    "ClientOptions",
    "DirectRoute",
    "Edge",
    "EndpointOptions",
    "LiveOptions",
    "Moment",
    "OptionChanges",
    "ReadOptions",
    "SbeFormatOptions",
    "SbeOptions",
    "ServerEntry",
    "ServerOptions",
    "ServerRoute",
    "TimestampFrom",
    "WantedOffsets",
    "WriteOptions",
    "direct_route",
    "has_batch_only_options",
    "parse_servers_file",
]
