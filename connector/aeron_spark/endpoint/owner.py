"""The interface of an endpoint to its connections, and the description of a peer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aeron_spark.endpoint.deliveries import Listeners
from aeron_spark.endpoint.fair_pool import FairPool
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.usage import MemoryAccount, ResponseMemory
from aeron_spark.facts import Bus
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


class ConnectionOwner(ABC):
    """The endpoint, as its connections see it: what all of them share. Thread-safe; only its last method blocks."""

    def __init__(self, loop: Loop, options: Callable[[], EndpointOptions], facts: Bus) -> None:
        """``options`` returns the present options."""
        self.loop: Final = loop
        """The event loop, with the pool that calls listeners."""
        self.facts: Final = facts
        """The facts of the endpoint and its connections."""
        self._options: Final = options
        self.response_memory: Final = ResponseMemory(lambda: options().call_limits.response_bytes)
        """The memory of the large responses to all peers."""
        self.types: Final = Types()
        """The registered message types."""
        self.objects: Final = GlobalObjects()
        """The objects and factories that every peer may call."""
        self.error_codes: Final = ErrorCodes()
        """The codes under which peers receive the program's exceptions."""
        workers = loop.executor(options().workers, f"{loop.name}-worker")
        self.worker_pool: Final = FairPool(workers, lambda: options().workers_per_key, loop.clock)
        """The threads that run remote calls; connections take turns."""
        self.message_listeners: Final[Listeners[Callable[[Any, Any], object]]] = Listeners()
        """Listeners of a connection and its message, for the messages of all connections."""
        self.memory: Final[MemoryAccount[Any]] = MemoryAccount(lambda: options().memory_limit)
        """The memory that connections make the endpoint hold."""

    @property
    def options(self) -> EndpointOptions:
        """The present options."""
        return self._options()

    @abstractmethod
    def report(self, connection: Any, error: BaseException) -> None:
        """Report an error of a ``ConnectionCore``, or of none, to the error listeners."""

    @abstractmethod
    def close_connection(self, connection: Any, keep_session: bool) -> None:
        """Close a ``ConnectionCore``: send its unsent messages, for some seconds at most, then send CLOSE."""
