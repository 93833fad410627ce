"""A client that does not follow the protocol: packets by hand over the handshake's real channels."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.protocol.client_handshake import Actions, ClientHandshake, ClientTiming, Reopen, Send
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.keypair import new_keypair
from aeron_spark.transport.api import MessageArrived, PublicationRejected, ServerAddress, TransportEvent
from aeron_spark.waiting import wait_for
from tests.ending import FOR_EVER

PATIENCE: Final = 20.0

T = TypeVar("T")


class Raw:
    """One way in and out of a handshake, and what came back."""

    def __init__(self, driver: Client, place: ServerAddress) -> None:
        self.dialing = AeronClientTransport(driver, place)
        self.pair = self.dialing.open_path()
        self.packets: list[bytes] = []
        self.hints: list[str] = []
        self.machine = ClientHandshake(
            identity=new_keypair(secrets.token_bytes),
            entropy=secrets.token_bytes,
            verify=lambda key: None,
            done=ClientDone(),
            server="the server",
            timing=ClientTiming(
                hello_ack_s=FOR_EVER, done_ack_s=FOR_EVER
            ),  # a test may take its time between two steps
        )

    def send(self, packet: bytes) -> None:
        """Send one packet, whatever it is."""
        wait_for(lambda: self.poll() or self.pair.publication.connected, PATIENCE, "the server's port to answer")
        wait_for(lambda: self.pair.publication.offer(packet) is None, PATIENCE, "room for a packet")

    def again(self) -> None:
        """Another session, for the one before was rejected."""
        before, self.pair = self.pair, self.dialing.reopen_path(self.pair)
        before.publication.close()

    def poll(self) -> None:
        """Take note of what has come."""
        for event in self.dialing.inbox.poll(0.001):
            self.take(event)

    def take(self, event: TransportEvent) -> None:
        """Take note of one thing."""
        if isinstance(event, MessageArrived):
            self.packets.append(bytes(event.payload))
        elif isinstance(event, PublicationRejected):
            self.hints.append(event.reason)

    def hint(self, seconds: float = PATIENCE) -> str:
        """The next reason with which the server refuses."""
        return self._next(self.hints, seconds, "the server to refuse")

    def answer(self) -> bytes:
        """The next packet of the server's."""
        return self._next(self.packets, PATIENCE, "the server to answer")

    def hello(self) -> bytes:
        """A HELLO without a cookie."""
        return sent(self.machine.start(time.monotonic()))

    def hello_with_cookie(self) -> bytes:
        """A HELLO that the server takes: it was asked for, and comes in a new session."""
        self.send(self.hello())
        hint = self.hint()
        actions = self.machine.hint(hint, time.monotonic())
        assert any(isinstance(action, Reopen) for action in actions), f"after the hint {hint!r}: {actions}"
        self.again()
        return sent(actions)

    def done(self) -> bytes:
        """The DONE that belongs to the server's HELLO_ACK."""
        return sent(self.machine.packet(self.answer(), time.monotonic()))

    def _next(self, came: list[T], seconds: float, what: str) -> T:
        def look() -> bool:
            self.poll()
            return bool(came)

        wait_for(look, seconds, what)
        return came.pop(0)

    def close(self) -> None:
        self.dialing.close()


def sent(actions: Actions) -> bytes:
    """The packet among what a machine wants."""
    return next(action.packet for action in actions if isinstance(action, Send))


@contextmanager
def raw(driver: Client, place: ServerAddress) -> Iterator[Raw]:
    one = Raw(driver, place)
    try:
        yield one
    finally:
        one.close()
