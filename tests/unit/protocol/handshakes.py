"""A client's and a server's handshake, joined without a network."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

from aeron_spark.errors import AeronSparkError
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.client_handshake import ClientHandshake, ClientIdentity, ClientTiming
from aeron_spark.protocol.handshake_packets import Cookies, RefusalHint, decode_hint
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck, ServerHello
from aeron_spark.protocol.keypair import keypair_from
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.sources import Refusal

NOW: Final = 1000.0
ADDRESS: Final = "10.0.0.1"
CLIENT_KEYS: Final = keypair_from(b"c" * 32)
SERVER_KEYS: Final = keypair_from(b"s" * 32)
SERVER_HELLO: Final = ServerHello(max_message=1 << 20)
DONE: Final = ClientDone(tag="t", types={1: b"digest-1"}, wants=("streams",), ticket=b"o" * 32, received=5)
ACK: Final = DoneAck(
    session_in=1,
    stream_in=2,
    session_out=3,
    stream_out=4,
    data_port=20_000,
    control_port=20_001,
    reply_channel="response",
    expiry_ms=4000,
    linger_ms=60_000,
    ticket=b"n" * 32,
    resumed=True,
    received=9,
    max_message=1 << 20,
    types={1: b"digest-1"},
)
A = TypeVar("A")


def agree(_key: bytes) -> None:
    """Accept every key."""


def make_server(seed: int = 2, psk: bytes | None = None) -> ServerIdentity:
    entropy = random.Random(seed).randbytes
    return ServerIdentity(SERVER_KEYS, SERVER_HELLO, Cookies(entropy), entropy, psk=psk)


def make_client(
    seed: int = 1, *, verify: Callable[[bytes], None] = agree, psk: bytes | None = None, done: ClientDone = DONE,
    timing: ClientTiming | None = None,
) -> ClientHandshake:  # fmt: skip
    entropy = random.Random(seed).randbytes
    identity = ClientIdentity(CLIENT_KEYS, verify, "10.0.0.9:20000", entropy, psk, timing or ClientTiming())
    return ClientHandshake(identity, done)


def one(actions: tuple[object, ...], kind: type[A]) -> A:
    """Return the only action of this kind."""
    found = [action for action in actions if isinstance(action, kind)]
    assert len(found) == 1, actions
    return found[0]


def error_of(actions: tuple[object, ...]) -> AeronSparkError:
    assert len(actions) == 1
    return one(actions, client_side.Abandoned).error


def refusal_of(actions: tuple[object, ...]) -> Refusal:
    """Return the refusal in a rejection, which must be the one in Release."""
    reject, release = actions
    assert isinstance(reject, server_side.Reject)
    assert isinstance(release, server_side.Release)
    hint = decode_hint(reject.reason)
    assert isinstance(hint, RefusalHint)
    assert release.refusal is not None
    assert (hint.refusal.code, hint.refusal.text) == (release.refusal.code, release.refusal.text)
    return hint.refusal


class Joined:
    """A client and its images on a server, in any state of the handshake."""

    def __init__(
        self,
        server: ServerIdentity | None = None,
        client: ClientHandshake | None = None,
        *,
        address: str | None = ADDRESS,
    ) -> None:
        self.identity = server or make_server()
        self.client = client or make_client()
        self.address = address
        self.hello = one(self.client.start(NOW), client_side.Send).packet
        self.image = self.new_image()

    def new_image(self) -> ServerHandshake:
        return ServerHandshake(self.identity, self.address, NOW)

    def to_admitting(self) -> server_side.Admit:
        actions = self.image.packet(self.hello, NOW)
        if self.address is not None:
            reject = one(actions, server_side.Reject)
            reopen, send = self.client.hint(reject.reason, NOW)
            assert isinstance(reopen, client_side.Reopen)
            assert isinstance(send, client_side.Send)
            self.hello = send.packet
            self.image = self.new_image()
            actions = self.image.packet(self.hello, NOW)
        return one(actions, server_side.Admit)

    def to_opening(self) -> None:
        self.to_admitting()
        assert self.image.admitted(NOW) == (server_side.OpenPath(),)

    def to_hello_ack(self) -> bytes:
        self.to_opening()
        return one(self.image.path_ready(NOW), server_side.Send).packet

    def to_done(self) -> bytes:
        return one(self.client.packet(self.to_hello_ack(), NOW), client_side.Send).packet

    def to_authenticating(self) -> server_side.Authenticate:
        done = self.to_done()  # it replaces the image
        return one(self.image.packet(done, NOW), server_side.Authenticate)

    def to_done_ack(self) -> tuple[bytes, server_side.ClientAccepted]:
        self.to_authenticating()
        send, connected = self.image.accept(ACK, NOW)
        assert isinstance(send, server_side.Send)
        assert isinstance(connected, server_side.ClientAccepted)
        return send.packet, connected

    def to_connected(self) -> tuple[client_side.HandshakeAccepted, server_side.ClientAccepted]:
        packet, accepted = self.to_done_ack()
        return one(self.client.packet(packet, NOW), client_side.HandshakeAccepted), accepted
