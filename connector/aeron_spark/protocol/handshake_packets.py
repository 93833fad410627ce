"""The packets of the handshake, version 1, and retry cookies. docs/endpoint-protocol.md is normative.

A retry cookie:

    cookie = number of the period modulo 256 (1 byte) | HMAC-SHA256(secret, message)[:16]
    message = number of the period (8 bytes) | address (16 bytes, IPv4 mapped into IPv6) | HELLO's core

A period has ``PERIOD_S`` seconds of the monotonic clock. A cookie is valid in its period and the next one. Each cookie
is accepted once: an attacker that repeats a captured HELLO gets a new RETRY, and the server keeps no state for that.
The number of remembered cookies is limited; beyond the limit a repeated HELLO counts as a new one.

The guard of a media driver makes and verifies the same cookies with the server's secret, before it makes an image
(``HelloCookies`` in Java).

    offset width name       every packet begins with
    0      2     magic      b"AS"
    2      1     version    1
    3      1     type       1 HELLO, 2 HELLO_ACK, 3 DONE, 4 DONE_ACK, 5 FAILED

    HELLO     4      16    connect key    128 random bits, never all 0
              20     1     length         of the Noise message: 32, or 48 with a shared secret
              21           message        Noise message 1
                     1     length         of the cookie: 0 or 17
                           cookie
                           padding        zeros up to 1100 bytes
    HELLO_ACK 4      16    key hash       SHA-256(connect key)[:16]
              20           message        Noise message 2 (ServerHello)
    DONE      4      16    key hash
              20           message        Noise message 3 (u16 length, ClientDone, zeros); 1100 bytes in all
    DONE_ACK  4      16    key hash
              20           frame          the first frame of the server's direction (DoneAck)
    FAILED    4      16    key hash
              20           frame          the first frame of the server's direction (Failed)

HELLO and DONE have the maximum size of a packet, so that no response is larger than its request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import DataFormatError, OptionError
from aeron_spark.protocol.handshake_payloads import (
    CODES,
    MAX_TEXT,
    ClientDone,
    decode_payload,
    encode_payload,
    known_code,
    printable,
)
from aeron_spark.protocol.keypair import KEY_BYTES
from aeron_spark.protocol.noise import TAG_BYTES, Entropy
from aeron_spark.protocol.sources import Refusal, mapped_address

COOKIE_BYTES: Final = 17

PERIOD_S: Final = 60.0  # much longer than a round trip, much shorter than the lease of an address; as in Java

MAX_SPENT_COOKIES: Final = 65_536  # remembered for one period; about 8 MB

SECRET_BYTES: Final = 32


class Cookies:
    """Makes cookies and accepts each once. For one thread, except ``secret``."""

    def __init__(self, entropy: Entropy, *, period_s: float = PERIOD_S, max_spent: int = MAX_SPENT_COOKIES) -> None:
        self.secret: Final = entropy(SECRET_BYTES)
        """The secret of all cookies, for the guard of the media driver."""
        self._period_s = period_s
        self._max_spent = max_spent
        self._spent: dict[int, dict[bytes, None]] = {}  # accepted cookies by period, oldest first

    @property
    def spent_count(self) -> int:
        """The number of remembered cookies."""
        return sum(len(spent) for spent in self._spent.values())

    def make(self, now: float, address: str, core: bytes) -> bytes:
        """Return the cookie for a HELLO with this ``core`` (``hello_core``) from a canonical IP ``address``."""
        return self._cookie(self._period(now), address, core)

    def accept(self, now: float, address: str, core: bytes, cookie: bytes) -> bool:
        """Accept a cookie once. Return False if it is repeated, expired, or not for this address and HELLO."""
        present = self._period(now)
        # the guard may have read the clock a moment later than ``now``
        for period in (present, present - 1, present + 1):
            if hmac.compare_digest(self._cookie(period, address, core), cookie):
                return self._spend(period, cookie)
        return False

    def _spend(self, period: int, cookie: bytes) -> bool:
        spent = self._spent.setdefault(period, {})
        if cookie in spent:
            return False
        if len(spent) >= self._max_spent:
            del spent[next(iter(spent))]
        spent[cookie] = None
        return True

    def _period(self, now: float) -> int:
        present = int(now // self._period_s)
        for period in [one for one in self._spent if one < present - 1]:
            del self._spent[period]
        return present

    def _cookie(self, period: int, address: str, core: bytes) -> bytes:
        message = period.to_bytes(8, "big", signed=True) + mapped_address(address) + core
        return bytes([period % 256]) + hmac.digest(self.secret, message, "sha256")[: COOKIE_BYTES - 1]


MAX_HINT_BYTES: Final = 1000  # Aeron's limit is 1023

HINT_PREFIX: Final = "aeron-spark/1 "

_RETRY: Final = "RETRY"

_FAILED: Final = "FAILED"


@dataclass(frozen=True, slots=True)
class RetryHint:
    """The client must send HELLO again, with this cookie."""

    cookie: bytes


@dataclass(frozen=True, slots=True)
class RefusalHint:
    """The server refuses; the hint is not authenticated."""

    refusal: Refusal


Hint = RetryHint | RefusalHint


def encode_hint(hint: Hint) -> str:
    """Return the reason for ``Image.reject``, in printable ASCII. Raises OptionError for an unknown code."""
    match hint:
        case RetryHint(cookie):
            return f"{HINT_PREFIX}{_RETRY} {base64.urlsafe_b64encode(cookie).rstrip(b'=').decode()}"
        case RefusalHint(Refusal(code, text)):
            return f"{HINT_PREFIX}{_FAILED} {known_code(code)} {printable(text)}"


def decode_hint(text: str) -> Hint:
    """Parse the reason of a rejection. Raises DataFormatError for other texts, such as Aeron's own."""
    if len(text) > MAX_HINT_BYTES or not text.startswith(HINT_PREFIX):
        raise _malformed_hint(text)
    kind, _, argument = text[len(HINT_PREFIX) :].partition(" ")
    if kind == _RETRY:
        return RetryHint(_cookie(argument, text))
    code, space, reason = argument.partition(" ")
    if kind != _FAILED or code not in CODES or not space or len(reason) > MAX_TEXT or printable(reason) != reason:
        raise _malformed_hint(text)
    return RefusalHint(Refusal(code, reason))


def _cookie(text: str, whole: str) -> bytes:
    try:
        cookie = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed_hint(whole) from None
    # the last character has unused bits, so only one encoding of a cookie is accepted
    if len(cookie) != COOKIE_BYTES or encode_hint(RetryHint(cookie)) != whole:
        raise _malformed_hint(whole)
    return cookie


def _malformed_hint(text: str) -> DataFormatError:
    return DataFormatError(
        f"the rejection {printable(text[:80])!r} is not one of aeron-spark's",
        remedy="Check which other program receives at that address.",
    )


MAGIC: Final = b"AS"
VERSION: Final = 1
PREFIX: Final = struct.Struct(
    ">"
    "2s"  # magic
    "B"  # version
    "B"  # type
)
CONNECT_KEY_BYTES: Final = 16
HASH_BYTES: Final = 16
PACKET_BYTES: Final = 1100  # with a header of 32 it fits a fragment at MTU 1184, with room for tunnels

HELLO, HELLO_ACK, DONE, DONE_ACK, FAILED = range(1, 6)

_BODY: Final = PREFIX.size
_AFTER_KEY: Final = _BODY + CONNECT_KEY_BYTES
_HELLO_MESSAGES: Final = {KEY_BYTES, KEY_BYTES + TAG_BYTES}
_DONE_MESSAGE_BYTES: Final = PACKET_BYTES - _AFTER_KEY
DONE_PAYLOAD_BYTES: Final = _DONE_MESSAGE_BYTES - KEY_BYTES - 2 * TAG_BYTES
_MIN_HELLO_ACK_MESSAGE: Final = 2 * KEY_BYTES + 2 * TAG_BYTES
_MIN_FRAME: Final = 2 * TAG_BYTES


@dataclass(frozen=True, slots=True)
class HelloPacket:
    """HELLO. ``cookie`` is empty or from ``retry_cookies.Cookies``."""

    connect_key: bytes
    message: bytes
    cookie: bytes = b""


@dataclass(frozen=True, slots=True)
class HelloAckPacket:
    """HELLO_ACK: the server's Noise message. ``key_hash`` is that of the connect key in HELLO."""

    key_hash: bytes
    message: bytes


@dataclass(frozen=True, slots=True)
class DonePacket:
    """DONE: the client's second Noise message. ``key_hash`` is that of the connect key in HELLO."""

    key_hash: bytes
    message: bytes


@dataclass(frozen=True, slots=True)
class DoneAckPacket:
    """DONE_ACK: an encrypted frame. ``key_hash`` is that of the connect key in HELLO."""

    key_hash: bytes
    frame: bytes


@dataclass(frozen=True, slots=True)
class FailedPacket:
    """FAILED, which is authenticated; the hint of the same name is not."""

    key_hash: bytes
    frame: bytes


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A packet of a version that this release does not support."""

    version: int


Packet = HelloPacket | HelloAckPacket | DonePacket | DoneAckPacket | FailedPacket


def key_hash(connect_key: bytes) -> bytes:
    """Return the hash that replaces the connect key in all packets after HELLO."""
    return hashlib.sha256(connect_key).digest()[:HASH_BYTES]


def prologue(connect_key: bytes) -> bytes:
    """Return the Noise prologue, which both endpoints hash first: protocol, version, connect key.

    It does not contain the first Noise message, because Noise hashes that message itself. With a shared secret the
    message also depends on the prologue.
    """
    hello = PREFIX.pack(MAGIC, VERSION, HELLO) + connect_key
    return b"aeron-spark endpoint 1" + hashlib.sha256(hello).digest()


def hello_core(packet: HelloPacket) -> bytes:
    """Return the part of HELLO that a cookie authenticates: everything before the cookie."""
    return PREFIX.pack(MAGIC, VERSION, HELLO) + packet.connect_key + bytes([len(packet.message)]) + packet.message


def encode(packet: Packet) -> bytes:
    """Encode a packet. Raises OptionError if ``decode`` would refuse the bytes."""
    match packet:
        case HelloPacket(cookie=cookie):
            data = (hello_core(packet) + bytes([len(cookie)]) + cookie).ljust(PACKET_BYTES, b"\0")
        case HelloAckPacket(key_hash=name, message=body):
            data = _encode(HELLO_ACK, name, body)
        case DonePacket(key_hash=name, message=body):
            data = _encode(DONE, name, body)
        case DoneAckPacket(key_hash=name, frame=body):
            data = _encode(DONE_ACK, name, body)
        case FailedPacket(key_hash=name, frame=body):
            data = _encode(FAILED, name, body)
    try:
        decode(data)
    except DataFormatError as error:
        raise OptionError(
            f"a {type(packet).__name__} of {len(data)} bytes cannot be sent: {error.what}",
            remedy="Register fewer message types.",
        ) from None
    return data


def decode(data: bytes | bytearray | memoryview) -> Packet | OtherVersion:
    """Decode a packet. Raises DataFormatError, which names the fault.

    PACKET_BYTES limits the work and the memory for any input.
    """
    if len(data) > PACKET_BYTES:
        raise _malformed(f"it has {len(data)} bytes, more than {PACKET_BYTES}")
    packet = bytes(data)
    if len(packet) < PREFIX.size:
        raise _malformed(f"it has {len(packet)} bytes")
    magic, version, kind = PREFIX.unpack_from(packet)
    if magic != MAGIC:
        raise _malformed(f"it begins with {magic.hex()}")
    if version != VERSION:
        return OtherVersion(version)
    if kind == HELLO:
        return _hello(packet)
    name, body = packet[_BODY:_AFTER_KEY], packet[_AFTER_KEY:]
    if kind == HELLO_ACK and len(body) >= _MIN_HELLO_ACK_MESSAGE:
        return HelloAckPacket(name, body)
    if kind == DONE and len(body) == _DONE_MESSAGE_BYTES:
        return DonePacket(name, body)
    if kind == DONE_ACK and len(body) >= _MIN_FRAME:
        return DoneAckPacket(name, body)
    if kind == FAILED and len(body) >= _MIN_FRAME:
        return FailedPacket(name, body)
    raise _malformed(f"its type is {kind}, its length {len(packet)} bytes")


def encode_client_done(done: ClientDone) -> bytes:
    """Encode ClientDone for Noise message 3; padding hides its length. Raises OptionError if it is too long."""
    data = encode_payload(done)
    if len(data) + 2 > DONE_PAYLOAD_BYTES:
        raise OptionError(
            f"the client's data in DONE has {len(data)} bytes, more than {DONE_PAYLOAD_BYTES - 2}",
            remedy="Register fewer message types.",
        )
    return (len(data).to_bytes(2, "big") + data).ljust(DONE_PAYLOAD_BYTES, b"\0")


def decode_client_done(data: bytes) -> ClientDone:
    """Decode the result of ``encode_client_done``. Raises DataFormatError."""
    length = int.from_bytes(data[:2], "big")
    if len(data) != DONE_PAYLOAD_BYTES or 2 + length > len(data) or any(data[2 + length :]):
        raise _malformed(f"its payload of {len(data)} bytes contains the length {length}")
    return decode_payload(data[2 : 2 + length], ClientDone)


def _encode(kind: int, name: bytes, body: bytes) -> bytes:
    return PREFIX.pack(MAGIC, VERSION, kind) + name + body


def _hello(packet: bytes) -> HelloPacket:
    if len(packet) != PACKET_BYTES:
        raise _malformed(f"a HELLO of {len(packet)} bytes, expected {PACKET_BYTES}")
    connect_key = packet[_BODY:_AFTER_KEY]
    if not any(connect_key):
        raise _malformed("a HELLO without a connect key")
    message_bytes = packet[_AFTER_KEY]
    if message_bytes not in _HELLO_MESSAGES:
        raise _malformed(f"a HELLO with {message_bytes} bytes of Noise message")
    begin = _AFTER_KEY + 1
    end = begin + message_bytes
    cookie_bytes = packet[end]
    if cookie_bytes not in {0, COOKIE_BYTES}:
        raise _malformed(f"a HELLO with a cookie of {cookie_bytes} bytes")
    cookie_end = end + 1 + cookie_bytes
    if any(packet[cookie_end:]):
        raise _malformed("a HELLO with padding that is not all 0")
    return HelloPacket(connect_key, packet[begin:end], packet[end + 1 : cookie_end])


def _malformed(fault: str) -> DataFormatError:
    return DataFormatError(
        f"a packet is not one of aeron-spark's handshake: {fault}",
        remedy="Check which other programs send to the server's port.",
    )
