"""What a connection needs of the endpoint it belongs to, and what is known of its peer."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from aeron_spark.connection.settings import LinkSettings
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.rpc_messages import Target
from aeron_spark.protocol.rpc_objects import GlobalObjects

if TYPE_CHECKING:
    from aeron_spark.connection.connection import Connection


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """The peer, as it proved or as it was seen."""

    key: bytes
    tag: str = ""
    address: str = ""
    port: int = 0
    is_ipc: bool = False
    key_changed: bool = False


class ConnectionOwner(Protocol):
    """A client or a server. Everything here may be called from any thread, and none of it blocks."""

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

    def permitted(self, connection: Connection, target: Target, method: str) -> bool:
        """Whether this peer may call this."""

    def deliver(self, connection: Connection, message: object) -> bool:
        """Hand a message to the endpoint's own listeners; whether there was any."""

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Tell whoever listens for errors."""

    def request_flush(self, connection: Connection) -> None:
        """Have the agent look at the connection soon: Aeron did not take a frame."""

    def pause(self, token: int) -> None:
        """Hold the peer up: its messages are not taken as fast as they come."""

    def resume(self, token: int) -> None:
        """Take its messages again."""

    def leave(self, connection: Connection, keep_session: bool) -> None:
        """Close the connection, and tell the peer; return when that is done or has taken too long."""
