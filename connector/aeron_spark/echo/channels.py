"""Channel URIs of Echo 1.0 and 2.0, and the guard of a server's channels.

Publications have small, sparse term buffers. IPv6 addresses are in brackets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.guard import GuardRules, Registration, guarded, register
from aeron_spark.aeron.polled_images import BytesPublication
from aeron_spark.echo import channels, texts
from aeron_spark.errors import TransportError
from aeron_spark.protocol.ids import Entropy
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.channel import ChannelUri

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
    streams=(texts.STREAM_ID,),
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


def register_owner(client: Client, duologue: texts.EchoAddress, address: str) -> list[Registration]:
    """Make the guard admit only the host ``address`` to a duologue's two channels, which ``client`` opens next."""
    session_id, stream_id = duologue.session_id, texts.STREAM_ID
    return [
        register(
            client, "received", port=duologue.data_port, session_id=session_id, stream_id=stream_id, address=address,
            wait=False,
        ),
        register(
            client, "published", port=duologue.control_port, session_id=session_id, stream_id=stream_id,
            address=address, wait=False,
        ),
    ]  # fmt: skip


ATTEMPTS: Final = 4  # an attempt fails with a probability of 2^-31 per existing publication

CLASH: Final = "clashing"  # part of the driver's error for a session id that is in use


def open_publication(client: Client, channel: Callable[[int], str], entropy: Entropy) -> BytesPublication:
    """Open a publication on ``channel(session_id)`` with a random session id; try another if the driver uses that id.

    Raises TransportError for another error, or after ``ATTEMPTS``.
    """
    for attempt in range(ATTEMPTS):
        try:
            return BytesPublication(client, channel(channels.random_session_id(entropy)), texts.STREAM_ID)
        except TransportError as error:
            if CLASH not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
