"""The texts and channels of the Echo protocols.

    1.0  client -> server      HELLO <port>                        decimal, the client's own receive port
         both directions       any other bytes                     echoed unchanged
    2.0  client -> all         HELLO <key>                         1 to 8 upper-case hex digits
         server -> all         <session> CONNECT <data port> <control port> <key xor duologue session>
         server -> all         <session> ERROR <text>
         client -> duologue    ECHO <bytes>
         server -> duologue    ECHO <bytes>, or ERROR <text>, after which the duologue is closed

``<session>`` is the signed Aeron session id of the client's publication to the channel of all clients ("all"). The
bytes after ``ECHO `` are echoed unchanged. The reference refuses or changes line breaks and bytes that are not UTF-8.

Publications have small, sparse term buffers. IPv6 addresses are in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.guard import GuardRules, Registration, SessionOwner, guarded, register
from aeron_spark.aeron.publications import BytesPublication
from aeron_spark.errors import TransportError
from aeron_spark.protocol.ids import Entropy
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.channel import ChannelUri

STREAM_ID: Final = 0x2044F002
LARGEST_PORT: Final = 65535
FIRST_SESSION: Final = 1
LAST_SESSION: Final = (1 << 31) - 2  # the reference draws below 2^31 - 1

BAD_MESSAGE: Final = "bad message"
SERVER_FULL: Final = "server full"
ADDRESS_FULL: Final = "too many connections for IP address"

_ECHO: Final = b"ECHO "
_HELLO_1: Final = re.compile(rb"HELLO ([0-9]{1,10})")
_HELLO_2: Final = re.compile(rb"HELLO ([0-9A-F]{1,8})")
_RESPONSE: Final = re.compile(rb"(-?[0-9]{1,10}) (CONNECT|ERROR) (.*)", re.DOTALL)
_DUOLOGUE: Final = re.compile(rb"([0-9]{1,5}) ([0-9]{1,5}) ([0-9A-F]{1,8})")


@dataclass(frozen=True, slots=True)
class EchoAddress:
    """The ports and the session id of a duologue, from a CONNECT message."""

    data_port: int
    control_port: int
    session_id: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An ERROR message with the server's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that does not belong to the protocol."""

    message: bytes

    def __str__(self) -> str:
        shown = self.message[:80].decode("utf-8", "backslashreplace")
        return f"{shown!r}{'...' if len(self.message) > 80 else ''}"


def encode_hello_1(port: int) -> bytes:
    """Return the HELLO of an Echo 1.0 client that receives at ``port``."""
    return b"HELLO %d" % port


def decode_hello_1(message: bytes) -> int | None:
    """Return the number in an Echo 1.0 HELLO, which may be no valid port; None for another message."""
    match = _HELLO_1.fullmatch(message)
    return int(match[1]) if match else None


def encode_hello_2(key: int) -> bytes:
    """Return the HELLO of an Echo 2.0 client. The server masks the duologue's session id with ``key`` (32 bits)."""
    return b"HELLO %X" % key


def decode_hello_2(message: bytes) -> int | None:
    """Return the key in an Echo 2.0 HELLO; None for another message."""
    match = _HELLO_2.fullmatch(message)
    return int(match[1], 16) if match else None


def encode_connect(session_id: int, key: int, address: EchoAddress) -> bytes:
    """Return the CONNECT for the client with ``session_id`` that sent ``key``: its duologue has ``address``."""
    return b"%d CONNECT %d %d %X" % (session_id, address.data_port, address.control_port, key ^ address.session_id)


def encode_refusal(session_id: int, text: str) -> bytes:
    """Return the refusal for the client with ``session_id``."""
    return b"%d ERROR %s" % (session_id, text.encode())


def decode_response(message: bytes, session_id: int, key: int) -> EchoAddress | Refused | Unreadable | None:
    """Decode a message on the channel of all clients. Return None if it is not for the client with ``session_id``."""
    match = _RESPONSE.fullmatch(message)
    if match is None or int(match[1]) != session_id:
        return None
    if match[2] == b"ERROR":
        return Refused(match[3].decode("utf-8", "replace"))
    fields = _DUOLOGUE.fullmatch(match[3])
    if fields is None:
        return Unreadable(message)
    address = EchoAddress(int(fields[1]), int(fields[2]), int(fields[3], 16) ^ key)
    ports = {address.data_port, address.control_port}
    if 0 in ports or max(ports) > LARGEST_PORT or not FIRST_SESSION <= address.session_id <= LAST_SESSION + 1:
        return Unreadable(message)
    return address


def encode_echo(payload: bytes) -> bytes:
    """Return the message that requests, or is, the echo of ``payload`` in a duologue."""
    return _ECHO + payload


def decode_echo(message: bytes) -> bytes | None:
    """Return the payload of an ECHO message; None for another message."""
    return message[len(_ECHO) :] if message.startswith(_ECHO) else None


def encode_error(text: str) -> bytes:
    """Return the ERROR message that ends a duologue."""
    return b"ERROR " + text.encode()


def decode_reply(message: bytes) -> bytes | Refused | Unreadable:
    """Decode a server's message in a duologue: the payload of an echo, or an ERROR."""
    payload = decode_echo(message)
    if payload is not None:
        return payload
    if message.startswith(b"ERROR "):
        return Refused(message[len(b"ERROR ") :].decode("utf-8", "replace"))
    return Unreadable(message)


TERM_LENGTH: Final = 64 << 10  # bytes

MTU: Final = 1184  # bytes, a multiple of 32 that passes tunnels

LINGER_NS: Final = (
    500_000_000  # time in which lost packets are sent again; Aeron's default of 5 s would occupy the port
)

LARGEST_MESSAGE: Final = TERM_LENGTH // 8  # bytes, Aeron's limit; the server could not return a longer message


def random_session_id(entropy: Entropy) -> int:
    """Return a random Aeron session id. Session ids that media drivers choose could be equal at the server."""
    return 1 + int.from_bytes(entropy(4), "big") % (2**31 - 2)


def receive_channel(address: HostPort, session_id: int | None = None) -> str:
    """Return the channel of a subscription at an address of this host."""
    return _uri(f"endpoint={address}", session_id)


def send_channel(address: HostPort, session_id: int) -> str:
    """Return the channel of a publication to ``address``."""
    return _uri(f"endpoint={address}", session_id, _publication())


def fan_out_channel(control: HostPort, session_id: int) -> str:
    """Return the channel of a publication to all subscribers that join at ``control``.

    The fastest subscriber sets the rate (``fc=max``), so that a stopped subscriber does not block the others.
    """
    return _uri(f"control={control}|control-mode=dynamic|fc=max", session_id, _publication())


def join_channel(control: HostPort, session_id: int | None = None) -> str:
    """Return the channel of a subscription that joins at ``control``, on an ephemeral port. It passes NAT."""
    return _uri(f"control={control}|control-mode=dynamic", session_id)


def _publication() -> str:
    return f"|term-length={TERM_LENGTH}|mtu={MTU}|sparse=true|linger={LINGER_NS}"


def _uri(address: str, session_id: int | None, parameters: str = "") -> str:
    session = "" if session_id is None else f"|session-id={session_id}"
    return str(ChannelUri.parse(f"aeron:udp?{address}|reliable=true{session}{parameters}"))


RULES: Final = GuardRules(
    streams=(STREAM_ID,),
    term_length=16 << 20,
    sessions=512,  # including sessions that ended a few seconds ago
    sessions_per_source=64,
    rate=50,
    burst=100,
    total_rate=400,
    destinations=1_024,
    destinations_per_source=128,
    joining=True,  # a client joins the channel of all clients before it knows a session id
)


def guarded_channel(channel: str) -> str:
    """Return a server's channel with the rules for the guard."""
    return guarded(channel, RULES)


def register_owner(client: AeronClient, duologue: EchoAddress, address: str) -> list[Registration]:
    """Make the guard admit only the host ``address`` to a duologue's two channels, which ``client`` opens next."""
    received = SessionOwner("received", duologue.data_port, duologue.session_id, STREAM_ID, address)
    published = SessionOwner("published", duologue.control_port, duologue.session_id, STREAM_ID, address)
    return [register(client, owner, wait=False) for owner in (received, published)]


ATTEMPTS: Final = 4  # an attempt fails with a probability of 2^-31 per existing publication

CLASH: Final = "clashing"  # part of the driver's error for a session id that is in use


def open_publication(client: AeronClient, channel: Callable[[int], str], entropy: Entropy) -> BytesPublication:
    """Open a publication on ``channel(session_id)`` with a random session id; try another if the driver uses that id.

    Raises TransportError for another error, or after ``ATTEMPTS``.
    """
    for attempt in range(ATTEMPTS):
        try:
            return BytesPublication(client, channel(random_session_id(entropy)), STREAM_ID)
        except TransportError as error:
            if CLASH not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
