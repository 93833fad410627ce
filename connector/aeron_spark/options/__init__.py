"""All options: each is declared once, and parsed into immutable values before anything starts. Pure.

The options of an endpoint are loaded at their first use: Spark's processes on the direct route have none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from aeron_spark.options.declaration import has_batch_only_options
from aeron_spark.options.routes import DirectRoute, ServerEntry, ServerRoute, direct_route, parse_servers_file
from aeron_spark.options.stream_options import (
    BatchLimits,
    Bounds,
    ReadOptions,
    SbeFormatOptions,
    SbeOptions,
    WriteOptions,
)
from aeron_spark.options.values import Edge, Moment, TimestampFrom, WantedOffsets

if TYPE_CHECKING:
    from aeron_spark.options.endpoint_options import ClientOptions as ClientOptions
    from aeron_spark.options.endpoint_options import EndpointOptions as EndpointOptions
    from aeron_spark.options.server_options import LiveOptions as LiveOptions
    from aeron_spark.options.server_options import OptionChanges as OptionChanges
    from aeron_spark.options.server_options import ServerOptions as ServerOptions

_LAZY: Final = {
    "ClientOptions": "endpoint_options",
    "EndpointOptions": "endpoint_options",
    "LiveOptions": "server_options",
    "OptionChanges": "server_options",
    "ServerOptions": "server_options",
}

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


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
