"""Packets with flipped bits, truncated packets and random messages: no crash, and no client is connected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import (
    TamperedError,
)
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.protocol.sources import Refusal
from tests.unit.protocol.handshakes import ACK, NOW, Joined, error_of, make_client, make_server, one, refusal_of

PSK = derive_psk(b"a secret of both sides")


@pytest.mark.parametrize("psk", [None, PSK], ids=["XX", "XXpsk3"])
def test_row_36_every_flipped_bit_of_hello_ack_fails_at_once_or_is_ignored(psk: bytes | None) -> None:
    joined = Joined(make_server(psk=psk), make_client(psk=psk))
    ack = joined.to_hello_ack()
    for bit in range(len(ack) * 8):
        changed = bytearray(ack)
        changed[bit // 8] ^= 1 << bit % 8
        client = make_client(psk=psk)
        client.start(NOW)
        actions = client.packet(bytes(changed), NOW)
        if bit < 20 * 8:  # version, type and connect key: the packet is for another attempt
            assert isinstance(actions[0], client_side.Ignored)
            continue
        error = error_of(actions)
        assert isinstance(error, TamperedError)
        assert "HELLO_ACK of the server 10.0.0.9:20000 failed its authentication" in str(error)
        assert client.state is client_side.State.ENDED
    # the original is accepted
    assert one(joined.client.packet(ack, NOW), client_side.Send)


def test_every_truncation_of_every_packet_is_refused() -> None:
    joined = Joined()
    joined.to_hello_ack()
    for length in range(1100):
        assert refusal_of(joined.new_image().packet(joined.hello[:length], NOW)).code == "message"
    joined = Joined()
    ack = joined.to_hello_ack()
    for length in range(len(ack)):
        actions = Joined().client.packet(ack[:length], NOW)
        assert not any(isinstance(action, client_side.Send) for action in actions)
    done = one(joined.client.packet(ack, NOW), client_side.Send).packet
    for length in range(len(done)):
        assert all(isinstance(action, server_side.Ignored) for action in joined.image.packet(done[:length], NOW))
    assert one(joined.image.packet(done, NOW), server_side.Authenticate)


def test_every_flipped_bit_of_hello_is_refused_or_fails_at_hello_ack() -> None:
    joined = Joined()
    joined.to_admitting()
    hello = joined.hello
    for bit in range(len(hello) * 8):
        changed = bytearray(hello)
        changed[bit // 8] ^= 1 << bit % 8
        reject, _release = joined.new_image().packet(bytes(changed), NOW)
        assert isinstance(reject, server_side.Reject)


@pytest.mark.slow
def test_every_flipped_bit_of_hello_over_ipc_fails_at_the_client() -> None:
    hello = Joined(address=None).hello
    # in the padding, which must be 0, every seventh bit is enough
    for bit in [*range(60 * 8), *range(60 * 8, len(hello) * 8, 7)]:
        joined = Joined(address=None)
        changed = bytearray(hello)
        changed[bit // 8] ^= 1 << bit % 8
        actions = joined.image.packet(bytes(changed), NOW)
        if not isinstance(actions[0], server_side.Admit):
            assert refusal_of(actions)
            continue
        joined.image.admitted(NOW)
        ack = one(joined.image.path_ready(NOW), server_side.Send).packet
        (answer,) = joined.client.packet(ack, NOW)
        if bit < 20 * 8:
            assert isinstance(answer, client_side.Ignored)
        else:
            assert isinstance(answer, client_side.Abandoned)


@pytest.mark.slow
@pytest.mark.parametrize("psk", [None, PSK], ids=["XX", "XXpsk3"])
def test_every_flipped_bit_of_done_is_refused(psk: bytes | None) -> None:
    # one machine is enough, because an invalid message does not change its state
    joined = Joined(make_server(psk=psk), make_client(psk=psk))
    done = joined.to_done()
    for bit in range(0, len(done) * 8, 1 if psk is None else 13):
        changed = bytearray(done)
        changed[bit // 8] ^= 1 << bit % 8
        actions = joined.image.packet(bytes(changed), NOW)
        if bit < 20 * 8:
            assert all(isinstance(action, server_side.Ignored) for action in actions)
            continue
        assert refusal_of(actions).code == "proof"
        assert joined.image.state is server_side.State.ENDED
        joined.image.state = server_side.State.AWAIT_DONE
    assert one(joined.image.packet(done, NOW), server_side.Authenticate)


@pytest.mark.parametrize("answer", ["done-ack", "failed"])
def test_every_flipped_bit_of_the_last_packet_fails_at_once(answer: str) -> None:
    joined = Joined()
    joined.to_authenticating()
    actions = joined.image.accept(ACK, NOW) if answer == "done-ack" else joined.image.refuse(Refusal("ids", "x"), NOW)
    packet = one(actions, server_side.Send).packet
    for bit in range(len(packet) * 8):
        changed = bytearray(packet)
        changed[bit // 8] ^= 1 << bit % 8
        (action,) = joined.client.packet(bytes(changed), NOW)
        if isinstance(action, client_side.Ignored):
            assert bit < 20 * 8
            continue
        # a bit of the type turns DONE_ACK into FAILED: it decrypts, but its payload is invalid
        assert isinstance(action, client_side.Abandoned)
        assert bit < 4 * 8 or isinstance(action.error, TamperedError)
        joined.client.state = client_side.State.AWAIT_DONE_ACK
    (action,) = joined.client.packet(packet, NOW)
    assert isinstance(action, client_side.HandshakeAccepted if answer == "done-ack" else client_side.Abandoned)


@given(st.binary(max_size=1200), st.text(max_size=200), st.integers(0, 4))
def test_random_messages_crash_nothing_and_connect_no_client(data: bytes, text: str, steps: int) -> None:
    joined = Joined()
    for advance in (joined.to_admitting, joined.to_opening, joined.to_hello_ack, joined.to_done)[steps - 1 : steps]:
        advance()
    for kind in (b"", b"AS\x01\x02" + joined.client.key_hash, b"AS\x01\x03" + joined.client.key_hash, b"AS\x01\x04"):
        for action in joined.client.packet(kind + data, NOW):
            assert not isinstance(action, client_side.HandshakeAccepted | client_side.Send)
        for answer in joined.image.packet(kind + data, NOW):
            assert not isinstance(answer, server_side.ClientAccepted | server_side.Authenticate | server_side.Admit)
    for action in joined.client.hint(text, NOW):
        assert isinstance(action, client_side.Ignored)
