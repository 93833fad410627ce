"""Connects Apache Spark with Aeron. Importing this package loads only its errors: no Spark, no Java, no Arrow.

Other names are loaded at their first use: ``aeron_spark.connect`` and ``aeron_spark.Server`` (the secure endpoint),
``aeron_spark.aio`` (its client for programs of asyncio),
``aeron_spark.node`` (this machine's media driver and archive), ``aeron_spark.spark`` (``register``, for a Spark session
that listed its data sources before this package was installed), ``aeron_spark.from_sbe`` (a function of a Spark column)
and ``aeron_spark.__version__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    DataLossError,
    EndedError,
    IdentityError,
    InUseError,
    OptionError,
    RefusedError,
    RemoteError,
    ServerKeyChanged,
    SessionLost,
    SetupError,
    StillWorking,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from aeron_spark import aio as aio
    from aeron_spark import node as node
    from aeron_spark import spark as spark
    from aeron_spark.client.client import Client as Client
    from aeron_spark.client.client import connect as connect
    from aeron_spark.endpoint.connection import Connection as Connection
    from aeron_spark.endpoint.deliveries import UnconfirmedTransfer as UnconfirmedTransfer
    from aeron_spark.endpoint.spill import ReceivedFile as ReceivedFile
    from aeron_spark.options.keywords import ClientOptions as ClientOptions
    from aeron_spark.options.keywords import ServerOptions as ServerOptions
    from aeron_spark.server.server import Server as Server
    from aeron_spark.spark.sbe import from_sbe as from_sbe
    from aeron_spark.stream_client.buffered_writer import BufferedWriter as BufferedWriter
    from aeron_spark.stream_client.reader import Positions as Positions
    from aeron_spark.stream_client.reader import StreamReader as StreamReader
    from aeron_spark.stream_client.writer import StreamWriter as StreamWriter
    from aeron_spark.wire.stream_requests import StreamInfo as StreamInfo

    __version__: str

_LAZY = {
    "BufferedWriter": "stream_client.buffered_writer",
    "Client": "client.client",
    "ClientOptions": "options.keywords",
    "Connection": "endpoint.connection",
    "Positions": "stream_client.reader",
    "ReceivedFile": "endpoint.spill",
    "Server": "server.server",
    "ServerOptions": "options.keywords",
    "StreamInfo": "wire.stream_requests",
    "StreamReader": "stream_client.reader",
    "StreamWriter": "stream_client.writer",
    "UnconfirmedTransfer": "endpoint.deliveries",
    "connect": "client.client",
    "from_sbe": "spark.sbe",
}

__all__ = [
    "AeronSparkError",
    "BufferedWriter",
    "Client",
    "ClientOptions",
    "ConnectError",
    "Connection",
    "DataFormatError",
    "DataLossError",
    "EndedError",
    "IdentityError",
    "InUseError",
    "OptionError",
    "Positions",
    "ReceivedFile",
    "RefusedError",
    "RemoteError",
    "Server",
    "ServerKeyChanged",
    "ServerOptions",
    "SessionLost",
    "SetupError",
    "StillWorking",
    "StreamInfo",
    "StreamReader",
    "StreamWriter",
    "TamperedError",
    "TransportError",
    "UnconfirmedTransfer",
    "UsageError",
    "WaitTimeout",
    "__version__",
    "aio",
    "connect",
    "from_sbe",
    "node",
    "spark",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from aeron_spark.version import package_version

        return package_version()
    if name in ("aio", "node", "spark"):
        import importlib

        return importlib.import_module(f"aeron_spark.{name}")
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"aeron_spark.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
