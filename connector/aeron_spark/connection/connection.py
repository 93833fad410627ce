"""The connection that a program uses: messages, listeners, calls, pings. It lasts over several links."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Protocol

from aeron_spark.connection.deliveries import Listeners
from aeron_spark.connection.loop import Loop
from aeron_spark.connection.owner import PeerInfo
from aeron_spark.connection.rpc import GRACE_S, STUCK_REMEDY, Rpc
from aeron_spark.connection.sender import Sender
from aeron_spark.connection.transfers import Transfers
from aeron_spark.process import bind_to_process
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.message_types import TYPE_ID
from aeron_spark.protocol.rpc_objects import Proxy
from aeron_spark.protocol.session import Session
from aeron_spark.transport.api import OfferResult


class ConnectionParts(Protocol):
    """The runner of a connection, as the object of the program uses it. Thread-safe."""

    id: int
    peer: PeerInfo
    connected_at: float
    loop: Loop
    state_lock: threading.RLock
    """Guards the session, the listeners and the objects of the connection."""
    session: Session
    sender: Sender
    transfers: Transfers
    rpc: Rpc
    listeners: Listeners[Callable[[Any], object]]
    disconnect_listeners: list[Callable[[Connection], object]]

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""

    @property
    def grant(self) -> Grant:
        """What the peer may do now. Raises EndedError if it is closed."""

    @property
    def id_text(self) -> str:
        """The id as logs, lists and commands have it: eight hexadecimal digits."""

    @property
    def label(self) -> str:
        """The name of the connection in the logs of both ends."""

    def send_seconds(self, timeout: float | None) -> float:
        """Return the seconds that a program waits for room: its own timeout, or else the endpoint's."""

    def ping_seconds(self, timeout: float | None) -> float:
        """Return the seconds that a program waits for the response to a ping: its own, or else the endpoint's."""

    def send(self, message: object, seconds: float, *, acknowledge: bool) -> None:
        """Send a message. Each of its records may wait ``seconds`` for room."""

    def send_many(self, messages: Sequence[object], seconds: float) -> None:
        """Send messages with many in a frame."""

    def begin_ping(self, seconds: float) -> Future[float]:
        """Send a ping that ends after ``seconds``; return the future of its round-trip time."""

    def close(self, *, keep_session: bool) -> None:
        """Close: send the unsent messages, for some seconds at most, then CLOSE."""


class Connection:
    """The connection with one peer. Thread-safe.

    ``data`` is for the program. A program can give a subclass to its endpoint as ``connection_class``. An endpoint
    makes the object; its methods delegate to the runner of the connection.
    """

    def __init__(self, runner: ConnectionParts) -> None:
        self.data: dict[str, Any] = {}
        self._runner: Final = runner
        bind_to_process(self)

    @property
    def id(self) -> int:
        """The number of the connection, which is the same at both ends."""
        return self._runner.id

    @property
    def key(self) -> bytes:
        """The peer's public key, 32 bytes, which the peer has proved to own."""
        return self._runner.peer.key

    @property
    def tag(self) -> str:
        """The name that the client gave itself."""
        return self._runner.peer.tag

    @property
    def remote_address(self) -> str:
        """The peer's IP address as this endpoint sees it; empty over IPC."""
        return self._runner.peer.address

    @property
    def remote_port(self) -> int:
        """The peer's UDP port as this endpoint sees it; 0 over IPC."""
        return self._runner.peer.port

    @property
    def is_ipc(self) -> bool:
        """Whether the peer shares this endpoint's media driver."""
        return self._runner.peer.is_ipc

    @property
    def remote_key_changed(self) -> bool:
        """Whether the peer was known by another key, and was accepted because validation is off."""
        return self._runner.peer.key_changed

    @property
    def connected_at(self) -> float:
        """When the connection was made, in seconds since 1970."""
        return self._runner.connected_at

    @property
    def max_message(self) -> int:
        """Bytes of the longest message that is sent in one record. A longer one is sent as a transfer."""
        return self._runner.session.limits.max_record_bytes - TYPE_ID.size

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""
        return self._runner.connected

    @property
    def closed(self) -> bool:
        """Whether it is closed, and cannot resume."""
        return self._runner.closed

    @property
    def last_result(self) -> OfferResult | None:
        """Why Aeron did not take the last frame that was offered; None if it did."""
        return self._runner.sender.last_result

    @property
    def id_text(self) -> str:
        """The id as logs, lists and commands have it: eight hexadecimal digits."""
        return self._runner.id_text

    @property
    def label(self) -> str:
        """The name of the connection in the logs of both ends."""
        return self._runner.label

    def __repr__(self) -> str:
        return f"<{self.label}, {'closed' if self.closed else 'connected' if self.connected else 'not connected'}>"

    def send(self, message: object, *, timeout: float | None = None, acknowledge: bool = False) -> None:
        """Send a message. It arrives once and in order, unless the session is lost.

        Returns when the message is accepted, and with ``acknowledge`` when the peer's listeners have returned. The call
        waits for that for ``timeout`` seconds, by default the endpoint's; 0 tries once. Raises WaitTimeout with Aeron's
        last result, OptionError for a value that cannot be sent, SessionLost or EndedError for a closed connection, and
        RefusedError with ``acknowledge`` if a listener of the peer raised, or if none takes the message.
        """
        self._runner.send(message, self._runner.send_seconds(timeout), acknowledge=acknowledge)

    def send_many(self, messages: Sequence[object], *, timeout: float | None = None) -> None:
        """Send messages with many in a frame, which is faster for small ones. Raises as ``send`` does."""
        self._runner.send_many(messages, self._runner.send_seconds(timeout))

    def send_file(self, path: str | Path, *, name: str | None = None, timeout: float | None = None) -> None:
        """Send a file to the peer's listeners of ReceivedFile, reading it meanwhile. Raises as ``send`` does."""
        self._runner.transfers.send_file(Path(path), name, self._runner.send_seconds(timeout))

    def on_message(self, kind: type, listener: Callable[[Any], object]) -> None:
        """Call ``listener(message)`` for each message of this class or a subclass; ``object`` stands for all."""
        with self._runner.state_lock:
            self._runner.listeners.add(kind, listener)

    def on_disconnect(self, listener: Callable[[Connection], object]) -> Callable[[Connection], object]:
        """Call ``listener(connection)`` when the connection is lost or closed."""
        self._runner.disconnect_listeners.append(listener)
        return listener

    def register(self, value: object, methods: Iterable[str], number: int | None = None) -> int:
        """Let this peer call the listed methods of ``value``; return the number of the object."""
        return self._runner.rpc.objects.register(value, methods, number)

    def unregister(self, value: object) -> bool:
        """End a registered object for this peer, and notify the peer; return whether it was registered."""
        return self._runner.rpc.end(value)

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of the peer's object of this name or number. A wrong name fails at the first call."""
        return self._runner.rpc.objects.proxy(target)

    def create(self, factory: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Proxy:
        """Have the peer's factory of this name create an object, and return its proxy."""
        return self._runner.rpc.create(factory, args, kwargs, timeout)

    def delete(self, proxy: Proxy, *, timeout: float | None = None) -> None:
        """Delete an object that the peer created for this endpoint."""
        self._runner.rpc.delete(proxy, timeout)

    def ping(self, timeout: float | None = None) -> float:
        """Return the round-trip time to the peer's endpoint in seconds.

        Raises WaitTimeout without a response within ``timeout`` seconds, ConnectError while no link is connected.
        """
        seconds = self._runner.ping_seconds(timeout)
        # The event loop ends the ping at its deadline, and ``end`` after the end of the event loop.
        what = f"the response of {self.label} to a ping"
        return self._runner.loop.wait(self._runner.begin_ping(seconds), seconds + GRACE_S, what, remedy=STUCK_REMEDY)

    def close(self, *, keep_session: bool = False) -> None:
        """Close: send the unsent messages, for some seconds at most, then CLOSE.

        With ``keep_session`` both ends keep the session with its unacknowledged messages, and the client can resume it.
        """
        self._runner.close(keep_session=keep_session)


def grant_of(connection: Connection) -> Grant:
    """Return what the peer of a connection may do now. Raises EndedError if it is closed."""
    return connection._runner.grant


def rpc_of(connection: Connection) -> Rpc:
    """Return the remote calls of a connection, for the modules of an endpoint."""
    return connection._runner.rpc
