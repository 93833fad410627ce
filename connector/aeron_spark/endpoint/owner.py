"""The services that connections of an endpoint share, and the description of a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aeron_spark.endpoint.fair_pool import FairPool
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.usage import ResponseMemory
from aeron_spark.options import EndpointOptions
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.rpc_objects import GlobalObjects


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The peer of a connection. Its key is proved; address and port are those that this endpoint sees."""

    key: bytes
    tag: str = ""
    address: str = ""
    port: int = 0
    is_ipc: bool = False
    key_changed: bool = False


class EndpointServices(Protocol):
    """The services that all connections of a client or a server share. Thread-safe; nothing here blocks."""

    @property
    def options(self) -> EndpointOptions:
        """The present options."""

    @property
    def response_memory(self) -> ResponseMemory:
        """The memory of the large responses to all peers."""

    @property
    def types(self) -> Types:
        """The registered message types."""

    @property
    def objects(self) -> GlobalObjects:
        """The objects and factories that every peer may call."""

    @property
    def error_codes(self) -> ErrorCodes:
        """The codes under which peers receive the program's exceptions."""

    @property
    def loop(self) -> Loop:
        """The event loop, with the pool that calls listeners."""

    @property
    def worker_pool(self) -> FairPool:
        """The threads that run remote calls; connections take turns."""
