"""A client that sends any packets over the handshake's real channels."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.endpoint_transport import AeronClientTransport
from aeron_spark.protocol.client_handshake import Actions, ClientHandshake, ClientIdentity, ClientTiming, Reopen, Send
from aeron_spark.protocol.handshake_payloads import ClientDone
from aeron_spark.protocol.keypair import new_keypair
from aeron_spark.transport.api import MessageArrived, PublicationRejected, ServerAddress, TransportEvent
from aeron_spark.waiting import wait_for
from tests.ending import LONG_TIMEOUT_S

TIMEOUT_S: Final = 20.0

T = TypeVar("T")


class Raw:
    """The path of a handshake, with the received packets and hints."""

    def __init__(self, driver: AeronClient, address: ServerAddress) -> None:
        self.dialing = AeronClientTransport(driver, address)
        self.pair = self.dialing.open_path()
        self.packets: list[bytes] = []
        self.hints: list[str] = []
        identity = ClientIdentity(
            new_keypair(secrets.token_bytes), lambda key: None, "the server", secrets.token_bytes,
            timing=ClientTiming(hello_ack_s=LONG_TIMEOUT_S, done_ack_s=LONG_TIMEOUT_S),  # a test may wait between steps
        )  # fmt: skip
        self.machine = ClientHandshake(identity, ClientDone())

    def send(self, packet: bytes) -> None:
        wait_for(lambda: self.poll() or self.pair.publication.connected, TIMEOUT_S, "the server's port to respond")
        wait_for(lambda: self.pair.publication.offer(packet) is None, TIMEOUT_S, "room for a packet")

    def reopen(self) -> None:
        """Open another publication, after the server has rejected one."""
        rejected, self.pair = self.pair, self.dialing.reopen_path(self.pair)
        rejected.publication.close()

    def poll(self) -> None:
        """Record the events of one poll."""
        for event in self.dialing.inbox.poll(0.001):
            self.take(event)

    def take(self, event: TransportEvent) -> None:
        """Record an event."""
        if isinstance(event, MessageArrived):
            self.packets.append(bytes(event.payload))
        elif isinstance(event, PublicationRejected):
            self.hints.append(event.reason)

    def hint(self, seconds: float = TIMEOUT_S) -> str:
        """Return the next reason with which the server rejects."""
        return self._next(self.hints, seconds, "the server to refuse")

    def answer(self) -> bytes:
        """Return the server's next packet."""
        return self._next(self.packets, TIMEOUT_S, "the server to respond")

    def hello(self) -> bytes:
        """Return a HELLO without a cookie."""
        return sent(self.machine.start(time.monotonic()))

    def hello_with_cookie(self) -> bytes:
        """Return a HELLO that the server accepts: with a cookie, in a new session."""
        self.send(self.hello())
        hint = self.hint()
        actions = self.machine.hint(hint, time.monotonic())
        assert any(isinstance(action, Reopen) for action in actions), f"after the hint {hint!r}: {actions}"
        self.reopen()
        return sent(actions)

    def done(self) -> bytes:
        """Return the DONE for the server's HELLO_ACK."""
        return sent(self.machine.packet(self.answer(), time.monotonic()))

    def _next(self, queue: list[T], seconds: float, what: str) -> T:
        def poll_queue() -> bool:
            self.poll()
            return bool(queue)

        wait_for(poll_queue, seconds, what)
        return queue.pop(0)

    def close(self) -> None:
        self.dialing.close()


def sent(actions: Actions) -> bytes:
    """Return the packet among a machine's actions."""
    return next(action.packet for action in actions if isinstance(action, Send))


@contextmanager
def raw(driver: AeronClient, address: ServerAddress) -> Iterator[Raw]:
    one = Raw(driver, address)
    try:
        yield one
    finally:
        one.close()
