"""The channels of Echo 1.0 and 2.0 as URIs: control-mode always written out, IPv6 in brackets, small sparse terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.guard import GuardRules, Ownership, guarded, register
from aeron_spark.aeron.polled_images import BytesPublication
from aeron_spark.echo import channels, texts
from aeron_spark.errors import TransportError
from aeron_spark.protocol.ids import Entropy
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.channel import ChannelUri

TERM_LENGTH: Final = 64 << 10  # bytes

MTU: Final = 1184  # bytes, a multiple of 32 that passes tunnels

LINGER_NS: Final = 500_000_000  # for what was lost on its way; Aeron's 5 s would keep the port

LARGEST_MESSAGE: Final = TERM_LENGTH // 8  # bytes, Aeron's limit: what is longer could not be sent back


def random_session(entropy: Entropy) -> int:
    """A session id of the caller's own choice: those that drivers choose for themselves meet at the server."""
    return 1 + int.from_bytes(entropy(4), "big") % (2**31 - 2)


def receiving(address: HostPort, session_id: int | None = None) -> str:
    """A subscription at an address of one's own."""
    return _uri(f"endpoint={address}", session_id)


def sending(address: HostPort, session_id: int) -> str:
    """A publication to ``address``."""
    return _uri(f"endpoint={address}", session_id, _publication())


def fanning_out(control: HostPort, session_id: int) -> str:
    """A publication to whoever joins at ``control``; the fastest sets the pace, so that a frozen one stalls nobody."""
    return _uri(f"control={control}|control-mode=dynamic|fc=max", session_id, _publication())


def joining(control: HostPort, session_id: int | None = None) -> str:
    """A subscription to what is published at ``control``, on a port of the system's choice: it passes NAT."""
    return _uri(f"control={control}|control-mode=dynamic", session_id)


def _publication() -> str:
    return f"|term-length={TERM_LENGTH}|mtu={MTU}|sparse=true|linger={LINGER_NS}"


def _uri(place: str, session_id: int | None, more: str = "") -> str:
    session = "" if session_id is None else f"|session-id={session_id}"
    return str(ChannelUri.parse(f"aeron:udp?{place}|reliable=true{session}{more}"))


RULES: Final = GuardRules(
    streams=(texts.STREAM_ID,),
    term_length=16 << 20,
    sessions=512,  # those that ended some seconds ago among them
    sessions_per_source=64,
    rate=50,
    burst=100,
    total_rate=400,
    destinations=1_024,
    destinations_per_source=128,
    joining=True,  # a client subscribes to what all clients hear before it knows a session
)


def watched(channel: str) -> str:
    """Return a server's channel, guarded."""
    return guarded(channel, RULES)


def own(client: Client, place: texts.EchoAddress, address: str) -> list[Ownership]:
    """Have only ``address`` use a duologue's two channels, which ``client`` opens next."""
    session_id, stream_id = place.session_id, texts.STREAM_ID
    return [
        register(
            client, "received", port=place.data_port, session_id=session_id, stream_id=stream_id, address=address,
            wait=False,
        ),
        register(
            client, "published", port=place.control_port, session_id=session_id, stream_id=stream_id,
            address=address, wait=False,
        ),
    ]  # fmt: skip


ATTEMPTS: Final = 4  # each fails by chance once in 2^31 for every publication there is

CLASH: Final = "clashing"  # the driver's word for it


def talking(client: Client, channel: Callable[[int], str], entropy: Entropy) -> BytesPublication:
    """Open a publication on ``channel(session id)``; a session id that the driver has in use is drawn anew."""
    for attempt in range(ATTEMPTS):
        try:
            return BytesPublication(client, channel(channels.random_session(entropy)), texts.STREAM_ID)
        except TransportError as error:
            if CLASH not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
