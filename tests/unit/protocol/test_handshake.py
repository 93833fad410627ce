"""The handshake of client and server: its course, attacks on it, and its results."""

from __future__ import annotations

import pytest

from aeron_spark.errors import (
    IdentityError,
    OptionError,
    RefusedError,
    TamperedError,
    WaitTimeout,
)
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.handshake_packets import (
    DONE_PAYLOAD_BYTES,
    PACKET_BYTES,
    DonePacket,
    FailedPacket,
    HelloAckPacket,
    HelloPacket,
    RetryHint,
    decode,
    decode_hint,
    encode,
    encode_client_done,
)
from aeron_spark.protocol.handshake_payloads import CODES, ClientDone, DoneAck
from aeron_spark.protocol.noise import derive_psk
from aeron_spark.protocol.sources import Refusal
from tests.unit.protocol.handshakes import (
    ACK,
    ADDRESS,
    CLIENT_KEYS,
    DONE,
    NOW,
    SERVER_HELLO,
    SERVER_KEYS,
    Joined,
    error_of,
    make_client,
    make_server,
    one,
    refusal_of,
)

PSK = derive_psk(b"a secret of both sides")


@pytest.mark.parametrize("psk", [None, PSK], ids=["XX", "XXpsk3"])
@pytest.mark.parametrize("address", [ADDRESS, None], ids=["udp", "ipc"])
def test_row_01_the_whole_handshake(psk: bytes | None, address: str | None) -> None:
    verified: list[bytes] = []
    joined = Joined(make_server(psk=psk), make_client(psk=psk, verify=verified.append), address=address)
    client, server = joined.to_connected()
    assert joined.client.state is client_side.State.CONNECTED
    assert joined.image.state is server_side.State.CONNECTED
    assert verified == [SERVER_KEYS.public]
    assert client.server_key == SERVER_KEYS.public
    assert (client.hello, client.ack) == (SERVER_HELLO, ACK)
    assert (server.client_key, server.done) == (CLIENT_KEYS.public, DONE)
    assert client.handshake_hash == server.handshake_hash
    for number in range(3):
        assert bytes(server.decryptor.decrypt(client.encryptor.encrypt(b"up %d" % number))) == b"up %d" % number
        assert bytes(client.decryptor.decrypt(server.encryptor.encrypt(b"down %d" % number))) == b"down %d" % number
    # DONE_ACK was the server's first frame
    assert (client.encryptor.counter, server.encryptor.counter) == (3, 4)
    assert (joined.client.deadline, joined.image.deadline) == (None, None)


def test_a_handshake_passes_its_states_in_order() -> None:
    joined = Joined()
    joined.to_admitting()
    assert joined.image.state is server_side.State.ADMITTING
    joined.image.admitted(NOW)
    assert joined.image.state is server_side.State.OPENING_PATH
    assert joined.client.state is client_side.State.AWAIT_HELLO_ACK
    ack = one(joined.image.path_ready(NOW), server_side.Send).packet
    assert joined.image.state is server_side.State.AWAIT_DONE
    done = one(joined.client.packet(ack, NOW), client_side.Send).packet
    assert joined.client.state is client_side.State.AWAIT_DONE_ACK
    asked = one(joined.image.packet(done, NOW), server_side.Authenticate)
    assert joined.image.state is server_side.State.AUTHENTICATING
    assert asked == server_side.Authenticate(CLIENT_KEYS.public, DONE)


def test_row_03_connect_keys_are_never_zero_and_never_the_same() -> None:
    seen = set()
    for seed in range(2000):
        packet = decode(one(make_client(seed).start(NOW), client_side.Send).packet)
        assert isinstance(packet, HelloPacket)
        assert any(packet.connect_key)
        seen.add(packet.connect_key)
    assert len(seen) == 2000


def test_row_03_a_foreign_connect_key_is_ignored() -> None:
    joined, other = Joined(), Joined(client=make_client(seed=77))
    foreign = other.to_hello_ack()
    (ignored,) = joined.client.packet(foreign, NOW)
    assert ignored == client_side.Ignored("a packet for another connect key")
    foreign_done = one(other.client.packet(foreign, NOW), client_side.Send).packet
    joined.to_hello_ack()
    assert joined.image.packet(foreign_done, NOW) == (server_side.Ignored("a DONE for another connect key"),)
    assert joined.image.state is server_side.State.AWAIT_DONE
    assert joined.client.state is client_side.State.AWAIT_HELLO_ACK


@pytest.mark.parametrize("data", [b"\xde\xad\xbe\xef", b"", b"AS\x01\x01" + bytes(1096), b"x" * 5000])
def test_row_04_another_message_than_hello_is_refused_without_any_state(data: bytes) -> None:
    image = Joined().image
    assert refusal_of(image.packet(data, NOW)).code == "message"
    assert image.state is server_side.State.ENDED


def test_row_05_the_servers_text_reaches_the_caller() -> None:
    joined = Joined()
    joined.to_authenticating()
    packet, release = joined.image.refuse(Refusal("not-permitted", "Connection was not permitted!"), NOW)
    assert isinstance(packet, server_side.Send)
    assert isinstance(release, server_side.Release)
    assert isinstance(decode(packet.packet), FailedPacket)
    error = error_of(joined.client.packet(packet.packet, NOW))
    assert isinstance(error, RefusedError)
    assert "Connection was not permitted!" in str(error)


def test_row_06_a_repeated_hello_makes_no_second_pending_handshake() -> None:
    joined = Joined()
    joined.to_admitting()
    hello = joined.hello
    for advance in (lambda: None, lambda: joined.image.admitted(NOW), lambda: joined.image.path_ready(NOW)):
        advance()
        (ignored,) = joined.image.packet(hello, NOW)
        assert isinstance(ignored, server_side.Ignored)
    # another image with the same HELLO is refused, too: the cookie is spent
    reject, _ = joined.new_image().packet(hello, NOW)
    assert isinstance(reject, server_side.Reject)
    assert isinstance(decode_hint(reject.reason), RetryHint)


def test_row_07_done_without_hello_is_refused() -> None:
    joined = Joined()
    done = joined.to_done()
    image = joined.new_image()
    assert refusal_of(image.packet(done, NOW)) == Refusal("timeout", "No pending handshake")
    assert image.state is server_side.State.ENDED


def test_row_40_a_repeated_hello_gets_a_retry_from_any_sender() -> None:
    joined = Joined()
    joined.to_connected()
    for address in (ADDRESS, "10.0.0.66"):
        joined.address = address
        reject, release = joined.new_image().packet(joined.hello, NOW)
        assert isinstance(reject, server_side.Reject)
        assert isinstance(decode_hint(reject.reason), RetryHint)
        assert release == server_side.Release("HELLO without a valid cookie")


def test_a_repeated_done_of_another_handshake_proves_nothing() -> None:
    first = Joined()
    done = first.to_done()
    second = Joined(make_server(seed=9))
    second.to_hello_ack()
    assert refusal_of(second.image.packet(done, NOW)).code == "proof"


def test_row_38_two_connections_of_one_client_have_different_keys() -> None:
    server = make_server()
    frames = set()
    for seed in (1, 2):
        client, _ = Joined(server, make_client(seed)).to_connected()
        frames.add(bytes(client.encryptor.encrypt(b"the same")))
    assert len(frames) == 2


def test_row_41_a_changed_server_key_is_refused_before_the_client_sends_its_identity() -> None:
    def changed(_key: bytes) -> None:
        raise IdentityError("another key than before")

    joined = Joined(client=make_client(verify=changed))
    error = error_of(joined.client.packet(joined.to_hello_ack(), NOW))
    assert isinstance(error, IdentityError)
    assert joined.client.state is client_side.State.ENDED


def test_row_46_a_client_is_not_authenticated_by_a_key_that_it_only_names() -> None:
    # the attacker knows the client's public key and all packets of its handshake, but not its private key
    victim = Joined()
    stolen = decode(victim.to_done())
    assert isinstance(stolen, DonePacket)
    thief = Joined(make_server(seed=5), make_client(seed=66))
    own = decode(thief.to_done())
    assert isinstance(own, DonePacket)
    for message in (stolen.message, stolen.message[:48] + own.message[48:], own.message[:48] + stolen.message[48:]):
        attempt = Joined(make_server(seed=5), make_client(seed=66))
        attempt.to_done()
        assert refusal_of(attempt.image.packet(encode(DonePacket(own.key_hash, message)), NOW)).code == "proof"


@pytest.mark.parametrize(("ours", "theirs"), [(PSK, None), (None, PSK), (PSK, derive_psk(b"another shared secret"))])
def test_a_shared_secret_of_only_one_endpoint_is_refused(ours: bytes | None, theirs: bytes | None) -> None:
    """The remedy is to use one secret, not to authorise a public key."""
    joined = Joined(make_server(psk=theirs), make_client(psk=ours), address=None)
    if ours is not None and theirs is not None:
        done = joined.to_done()
        refusal = refusal_of(joined.image.packet(done, NOW))
        assert refusal == Refusal("proof", "The handshake failed its authentication")
    else:
        refusal = refusal_of(joined.image.packet(joined.hello, NOW))
        assert "shared secret" in refusal.text
        assert refusal.code == "proof"
    assert "sharedSecretFile" in refusal.advice.remedy
    assert "public key" not in refusal.advice.remedy


def test_no_response_is_larger_than_its_request() -> None:
    joined = Joined()
    first, _ = joined.image.packet(joined.hello, NOW)
    assert isinstance(first, server_side.Reject)
    assert len(first.reason.encode()) < len(joined.hello) == PACKET_BYTES
    joined = Joined()
    ack = joined.to_hello_ack()
    assert len(ack) <= len(joined.hello)
    joined = Joined()
    done = joined.to_done()
    joined.image.packet(done, NOW)
    last = one(joined.image.accept(ACK, NOW), server_side.Send).packet
    assert len(last) <= len(done) == PACKET_BYTES
    for code in CODES:
        joined = Joined()
        joined.to_authenticating()
        failed = one(joined.image.refuse(Refusal(code, "x" * 5000), NOW), server_side.Send).packet
        assert len(failed) <= PACKET_BYTES
        joined = Joined()
        joined.to_admitting()
        reject = one(joined.image.refuse(Refusal(code, "x" * 5000), NOW), server_side.Reject)
        assert len(reject.reason.encode()) <= 1000


def test_done_hides_the_length_of_its_payload() -> None:
    assert {len(Joined(client=make_client(done=done)).to_done()) for done in (DONE, ClientDone())} == {PACKET_BYTES}


def test_row_29_a_tag_of_33_characters_is_refused_by_the_client_and_by_the_server() -> None:
    with pytest.raises(OptionError, match="longer than 32"):
        make_client(done=ClientDone(tag="x" * 33))
    client = make_client()
    client._done = encode_client_done(ClientDone(tag="x" * 33))  # type: ignore[misc]  # a client that does not look
    joined = Joined(client=client)
    done = joined.to_done()
    send, release = joined.image.packet(done, NOW)
    assert isinstance(send, server_side.Send)
    assert isinstance(release, server_side.Release)
    error = error_of(joined.client.packet(send.packet, NOW))
    assert isinstance(error, RefusedError)
    assert "(tag)" in str(error)


def test_an_authenticated_client_with_an_invalid_payload_gets_failed() -> None:
    client = make_client()
    client._done = b"\xff" * DONE_PAYLOAD_BYTES  # type: ignore[misc]
    joined = Joined(client=client)
    done = joined.to_done()
    send, release = joined.image.packet(done, NOW)
    assert isinstance(send, server_side.Send)
    assert isinstance(release, server_side.Release)
    assert release.refusal is not None
    assert release.refusal.code == "message"
    assert isinstance(error_of(joined.client.packet(send.packet, NOW)), RefusedError)


def test_a_client_key_of_low_order_is_refused_by_the_server() -> None:
    joined = Joined(address=None)
    hello = decode(joined.hello)
    assert isinstance(hello, HelloPacket)
    joined.hello = encode(HelloPacket(hello.connect_key, bytes(32)))
    joined.to_opening()
    assert refusal_of(joined.image.path_ready(NOW)).code == "proof"


def test_a_server_key_of_low_order_is_refused_by_the_client() -> None:
    joined = Joined()
    ack = decode(joined.to_hello_ack())
    assert isinstance(ack, HelloAckPacket)
    forged = encode(HelloAckPacket(ack.key_hash, bytes(32) + ack.message[32:]))
    assert isinstance(error_of(joined.client.packet(forged, NOW)), TamperedError)


def test_after_an_ack_that_cannot_be_sent_the_server_can_refuse() -> None:
    joined = Joined()
    joined.to_authenticating()
    with pytest.raises(OptionError):
        joined.image.accept(
            DoneAck(**{**{name: getattr(ACK, name) for name in ACK.__struct_fields__}, "ticket": b""}), NOW
        )
    assert joined.image.state is server_side.State.AUTHENTICATING
    assert one(joined.image.refuse(Refusal("ids", "Connection error!"), NOW), server_side.Send)


def test_a_hint_is_used_only_without_a_better_response() -> None:
    joined = Joined()
    ack = joined.to_hello_ack()
    forged = "aeron-spark/1 FAILED full Server is full"
    assert joined.client.hint(forged, NOW) == ()
    done = one(joined.client.packet(ack, NOW), client_side.Send).packet
    joined.image.packet(done, NOW)
    packet = one(joined.image.accept(ACK, NOW), server_side.Send).packet
    assert one(joined.client.packet(packet, NOW), client_side.HandshakeAccepted)


def test_a_hint_is_used_at_the_deadline() -> None:
    joined = Joined()
    joined.client.hint("aeron-spark/1 FAILED full Server is full", NOW)
    assert joined.client.tick(NOW + 9.9) == ()
    error = error_of(joined.client.tick(NOW + 10))
    assert isinstance(error, RefusedError)
    assert "Server is full (full)" in str(error)
    assert not isinstance(error, WaitTimeout)
