"""The handshake's packets and payloads: literal bytes, flipped bits, truncation and random input."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.handshake_packets import (
    DONE_PAYLOAD_BYTES,
    PACKET_BYTES,
    DoneAckPacket,
    DonePacket,
    FailedPacket,
    HelloAckPacket,
    HelloPacket,
    OtherVersion,
    Packet,
    decode,
    decode_client_done,
    encode,
    encode_client_done,
    hello_core,
    key_hash,
    prologue,
)
from aeron_spark.protocol.handshake_payloads import (
    MAX_TEXT,
    MAX_TYPES,
    MAX_WANTS,
    ClientDone,
    DoneAck,
    FailedPayload,
    Payload,
    ServerHello,
    check_tag,
    decode_payload,
    encode_payload,
)

CONNECT_KEY = bytes(range(1, 17))
HELLO = HelloPacket(CONNECT_KEY, b"e" * 32, b"c" * 17)
HELLO_BYTES = (b"AS\x01\x01" + CONNECT_KEY + b"\x20" + b"e" * 32 + b"\x11" + b"c" * 17).ljust(1100, b"\0")
PACKETS: tuple[tuple[Packet, bytes], ...] = (
    (HELLO, HELLO_BYTES),
    (HelloPacket(CONNECT_KEY, b"e" * 48), (b"AS\x01\x01" + CONNECT_KEY + b"\x30" + b"e" * 48).ljust(1100, b"\0")),
    (HelloAckPacket(b"h" * 16, b"m" * 120), b"AS\x01\x02" + b"h" * 16 + b"m" * 120),
    (DonePacket(b"h" * 16, b"m" * 1080), b"AS\x01\x03" + b"h" * 16 + b"m" * 1080),
    (DoneAckPacket(b"h" * 16, b"f" * 100), b"AS\x01\x04" + b"h" * 16 + b"f" * 100),
    (FailedPacket(b"h" * 16, b"f" * 40), b"AS\x01\x05" + b"h" * 16 + b"f" * 40),
)
ACK = DoneAck(
    session_in=-5,
    stream_in=7,
    session_out=2**31 - 1,
    stream_out=-(2**31),
    data_port=20_000,
    control_port=20_001,
    reply_channel="response",
    expiry_ms=4000,
    linger_ms=60_000,
    ticket=b"t" * 32,
    resumed=True,
    received=2**40,
    max_message=1 << 24,
    types={1: b"digest-1"},
)
LARGEST_TYPES = {65_535 - number: b"\xff" * 8 for number in range(MAX_TYPES)}
LARGEST: tuple[Payload, ...] = (
    ServerHello(max_message=2**63 - 1, max_types=2**63 - 1),
    ClientDone(
        tag="\U0001f600" * 32,
        types=LARGEST_TYPES,
        wants=("a" * 32,) * MAX_WANTS,
        ticket=b"\xff" * 32,
        received=2**63 - 1,
    ),
    DoneAck(
        session_in=-(2**31),
        stream_in=-(2**31),
        session_out=-(2**31),
        stream_out=-(2**31),
        data_port=65_535,
        control_port=65_535,
        reply_channel="response",
        expiry_ms=2**53,
        linger_ms=2**53,
        ticket=b"\xff" * 32,
        resumed=True,
        received=2**63 - 1,
        max_message=2**63 - 1,
        types=LARGEST_TYPES,
    ),
    FailedPayload(code="address-limit", text="x" * MAX_TEXT),
)
PAYLOADS: tuple[Payload, ...] = (
    ServerHello(max_message=1 << 24),
    ClientDone(tag="t", types={3: b"digest-3"}, wants=("streams",), ticket=b"t" * 32, received=9),
    ClientDone(),
    ACK,
    FailedPayload(code="full", text="Server is full"),
)


@pytest.mark.parametrize(("packet", "data"), PACKETS, ids=lambda value: type(value).__name__)
def test_packets_have_these_bytes(packet: Packet, data: bytes) -> None:
    assert encode(packet) == data
    assert decode(data) == packet
    assert decode(memoryview(bytearray(data))) == packet


@pytest.mark.parametrize(("packet", "data"), PACKETS, ids=lambda value: type(value).__name__)
def test_a_packet_with_a_flipped_bit_is_refused_or_a_different_packet(packet: Packet, data: bytes) -> None:
    assert decode(data) == packet
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            other = decode(changed)
        except DataFormatError:
            continue
        # Noise authenticates these bytes: test_handshake_changed.py flips the same bits of real messages
        assert other != packet
        assert isinstance(other, OtherVersion) or encode(other) == bytes(changed)


@pytest.mark.parametrize(("packet", "data"), PACKETS, ids=lambda value: type(value).__name__)
def test_a_shorter_or_longer_packet_is_refused_or_a_different_packet(packet: Packet, data: bytes) -> None:
    for length in range(len(data)):
        try:
            assert decode(data[:length]) != packet
        except DataFormatError:
            continue
        assert isinstance(packet, HelloAckPacket | DoneAckPacket | FailedPacket)
    with pytest.raises(DataFormatError):
        decode(data.ljust(PACKET_BYTES + 1, b"\0"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (bytes.fromhex("deadbeef"), "begins with dead"),
        (b"AS\x01", "3 bytes"),
        (b"AS\x01\x00" + bytes(200), "type is 0"),
        (b"AS\x01\x06" + bytes(200), "type is 6"),
        (b"AS\x01\x02" + bytes(16), "type is 2, its length 20 bytes"),
        (b"AS\x01\x03" + bytes(1095), "type is 3, its length 1099 bytes"),
        (HELLO_BYTES[:-1], "a HELLO of 1099 bytes, expected 1100"),
        (HELLO_BYTES + b"\0", "1101 bytes, more than 1100"),
        (HELLO_BYTES[:-1] + b"\1", "padding"),
        (b"AS\x01\x01" + bytes(16) + HELLO_BYTES[20:], "without a connect key"),
        (HELLO_BYTES[:20] + b"\x21" + HELLO_BYTES[21:], "33 bytes of Noise message"),
        (HELLO_BYTES[:53] + b"\x10" + HELLO_BYTES[54:], "cookie of 16 bytes"),
    ],
)
def test_row_04_bytes_that_are_not_a_packet_are_refused_with_the_fault(data: bytes, why: str) -> None:
    with pytest.raises(DataFormatError, match=why):
        decode(data)


def test_a_packet_of_another_version_is_recognised() -> None:
    assert decode(b"AS\x02whatever") == OtherVersion(2)
    assert decode(b"AS\x00\x01" + bytes(1096)) == OtherVersion(0)


def test_a_packet_that_would_be_refused_is_not_encoded() -> None:
    for packet in (
        HelloPacket(bytes(16), b"e" * 32),
        HelloPacket(CONNECT_KEY, b"e" * 31),
        HelloPacket(CONNECT_KEY, b"e" * 32, b"c"),
        DonePacket(b"h" * 16, b"m" * 100),
        DoneAckPacket(b"h" * 16, b"f" * 1081),
        FailedPacket(b"h" * 16, b""),
    ):
        with pytest.raises(OptionError, match="cannot be sent"):
            encode(packet)


def test_the_cookie_authenticates_all_of_hello_before_it() -> None:
    assert hello_core(HELLO) == HELLO_BYTES[:53]
    assert hello_core(HelloPacket(CONNECT_KEY, b"e" * 32)) == HELLO_BYTES[:53]


def test_connect_keys_have_different_hashes_and_prologues() -> None:
    assert key_hash(CONNECT_KEY).hex() == "5dfbabeedf318bf33c0927c43d7630f5"
    assert prologue(CONNECT_KEY).startswith(b"aeron-spark endpoint 1")
    other = CONNECT_KEY[:-1] + b"\0"
    assert prologue(CONNECT_KEY) != prologue(other)
    assert key_hash(CONNECT_KEY) != key_hash(other)


@pytest.mark.parametrize("payload", PAYLOADS + LARGEST, ids=lambda payload: type(payload).__name__)
def test_payloads_survive_encoding(payload: Payload) -> None:
    assert decode_payload(encode_payload(payload), type(payload)) == payload


def test_the_largest_payloads_fit_their_packets() -> None:
    hello, done, ack, failed = LARGEST
    assert isinstance(done, ClientDone)
    assert len(encode_client_done(done)) == DONE_PAYLOAD_BYTES
    assert decode_client_done(encode_client_done(done)) == done
    encode(HelloAckPacket(b"h" * 16, bytes(32 + 48 + 16) + encode_payload(hello)))
    for payload in (ack, failed):
        encode(DoneAckPacket(b"h" * 16, bytes(32) + encode_payload(payload)))


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_shorter_and_longer_payloads_are_refused(payload: Payload) -> None:
    data, kind = encode_payload(payload), type(payload)
    assert decode_payload(data, kind) == payload
    for length in range(len(data)):
        with pytest.raises(DataFormatError):
            decode_payload(data[:length], kind)
    with pytest.raises(DataFormatError):
        decode_payload(data + b"\0", kind)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_a_payload_with_a_flipped_bit_is_refused_or_a_different_payload(payload: Payload) -> None:
    data, kind = encode_payload(payload), type(payload)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            other = decode_payload(bytes(changed), kind)
        except DataFormatError:
            continue
        assert other != payload
        assert encode_payload(other) == bytes(changed)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x92\x02\x05", ServerHello),  # one field too few
        (b"\x94\x02\x05\x05\x05", ServerHello),  # one too many
        (b"\x93\x03\x05\x05", ServerHello),  # another packet's tag
        (b"\x93\x02\xcc\x05\x05", ServerHello),  # not the shortest encoding
        (b"\x93\x02\xff\x05", ServerHello),  # negative
        (b"\x93\x05\xa4full\xa1\n", FailedPayload),  # a line break
        (b"\x93\x05\xa4full\xa2x\n", FailedPayload),
        (b"\x93\x05\xa4fuul\xa1x", FailedPayload),  # an unknown code
        (b"\x93\x05\xa4full\xa1\xff", FailedPayload),  # not UTF-8
        (b"\x93\x05\xa4full\xdb\xff\xff\xff\xff", FailedPayload),  # 4 GB announced
        (b"\x96\x03\xa0\xdf\xff\xff\xff\xff\x90\xc0\x00", ClientDone),
        (b"\x96\x03\xa0\x80\xdd\xff\xff\xff\xff\xc0\x00", ClientDone),
        (b"\xdd\xff\xff\xff\xff\x03", ClientDone),
        (b"\x96\x03\xa0\x81\x01\xc4\x07digest-\x90\xc0\x00", ClientDone),  # a digest of 7 bytes
        (b"\x96\x03\xa0\x80\x90\xc4\x01t\x00", ClientDone),  # a ticket of one byte
        (b"\x96\x03\xa0\x80\x91\xa2UP\xc0\x00", ClientDone),  # not a name of a service
        (b"\x96\x03\xa0\x82\x01\xc4\x08digest-1\x01\xc4\x08digest-2\x90\xc0\x00", ClientDone),  # a type twice
        (b"\x91" * 500, ClientDone),
    ],
)
def test_payloads_beyond_their_bounds_are_refused(data: bytes, kind: type[ServerHello]) -> None:
    with pytest.raises(DataFormatError, match=kind.__name__):
        decode_payload(data, kind)


def test_no_decoder_allocates_announced_lengths() -> None:
    tracemalloc.start()
    try:
        for data in (
            b"\x96\x03\xa0\x80\xdd\x00\xff\xff\xff",
            b"\x96\x03\xa0\xdf\x00\xff\xff\xff",
            b"\xdd\x00\xff\xff\xff",
        ):
            with pytest.raises(DataFormatError):
                decode_payload(data, ClientDone)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    "payload",
    [
        ClientDone(types=dict.fromkeys(range(MAX_TYPES + 1), b"digest-1")),
        ClientDone(types={70_000: b"digest-1"}),
        ClientDone(wants=("No Name",)),
        ClientDone(received=-1),
        FailedPayload(code="full", text="a line\nbreak"),
        FailedPayload(code="fool", text=""),  # type: ignore[arg-type]
        msgspec.structs.replace(ACK, session_in=2**31),
        msgspec.structs.replace(ACK, ticket=b"short"),
    ],
)
def test_a_payload_that_would_be_refused_is_not_encoded(payload: Payload) -> None:
    with pytest.raises(OptionError, match="cannot be sent"):
        encode_payload(payload)


@pytest.mark.parametrize("padded", [b"", b"\0", bytes(DONE_PAYLOAD_BYTES - 1), b"\xff" * DONE_PAYLOAD_BYTES])
def test_padding_that_does_not_fit_is_refused(padded: bytes) -> None:
    with pytest.raises(DataFormatError):
        decode_client_done(padded)


def test_bytes_hidden_in_the_padding_are_refused() -> None:
    data = encode_client_done(ClientDone())
    assert decode_client_done(data) == ClientDone()
    with pytest.raises(DataFormatError, match="its payload of"):
        decode_client_done(data[:-1] + b"\1")


@pytest.mark.parametrize("tag", ["x" * 33, "line\nbreak", "\x00"])
def test_row_29_a_tag_too_long_or_unprintable_is_refused_locally(tag: str) -> None:
    check_tag("x" * 32)
    check_tag("")
    with pytest.raises(ValueError, match="the tag"):
        check_tag(tag)


@given(st.binary(max_size=1200) | st.binary(max_size=1096).map(lambda rest: b"AS\x01\x01" + rest))
def test_random_bytes_are_a_packet_or_refused(data: bytes) -> None:
    try:
        packet = decode(data)
    except DataFormatError:
        return
    assert isinstance(packet, OtherVersion) or encode(packet) == data


@given(st.binary(max_size=200), st.sampled_from([ServerHello, ClientDone, DoneAck, FailedPayload]))
def test_random_bytes_are_a_payload_or_refused(data: bytes, kind: type[ServerHello]) -> None:
    try:
        payload = decode_payload(data, kind)
    except DataFormatError:
        return
    assert encode_payload(payload) == data


@given(st.lists(st.integers() | st.text() | st.binary() | st.none() | st.dictionaries(st.integers(0, 9), st.binary())))
def test_random_values_are_a_payload_or_refused(values: list[object]) -> None:
    for kind, tag in ((ServerHello, 2), (ClientDone, 3), (DoneAck, 4), (FailedPayload, 5)):
        try:
            data = msgspec.msgpack.encode([tag, *values])
        except OverflowError:
            return
        try:
            payload = decode_payload(data, kind)  # type: ignore[type-var]
        except DataFormatError:
            continue
        assert encode_payload(payload) == data
