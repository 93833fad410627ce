"""What the connections of an endpoint share, and what a connection knows of its peer."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from aeron_spark.connection.settings import LinkSettings
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.rpc_objects import GlobalObjects


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The peer, as it proved or as it was seen."""

    key: bytes
    tag: str = ""
    address: str = ""
    port: int = 0
    is_ipc: bool = False
    key_changed: bool = False


class EndpointServices(Protocol):
    """What all connections of a client or a server share. Any thread may use it, and nothing here blocks."""

    @property
    def settings(self) -> LinkSettings:
        """What its connections are told."""

    @property
    def types(self) -> Types:
        """The message types of both sides."""

    @property
    def objects(self) -> GlobalObjects:
        """What every peer may call."""

    @property
    def errors(self) -> ErrorCodes:
        """What peers are told of exceptions."""

    @property
    def listening(self) -> Executor:
        """Where listeners run."""

    @property
    def working(self) -> Executor:
        """Where remote calls run."""
