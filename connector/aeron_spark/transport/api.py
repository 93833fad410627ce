"""What the secure endpoint needs of a transport: ways in gathered in one inbox, ways out, and who opens them.

Nothing here waits for the other side or for a driver: what is opened is there at once and becomes ``ready`` or fails
later. The server's and the client's runtimes are written against these Protocols; ``transport.memory`` and ``aeron``
implement them.

A *token* names a way in, an *image* one sender of it; both are numbers the inbox never gives twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal, NamedTuple, Protocol

from aeron_spark.errors import TransportError

Part = bytes | bytearray | memoryview

IPC: Final = "aeron:ipc"  # the source of an image that came through shared memory

HANDSHAKE_STREAM_ID: Final = 0x41530001

HANDSHAKE_TERM_BYTES: Final = 64 * 1024  # Aeron's smallest: nobody has proved anything yet

HANDSHAKE_MAX_BYTES: Final = 1152  # one fragment of MTU_BYTES; longer or fragmented packets are dropped unread

LINK_TERM_BYTES: Final = 2 * 1024 * 1024  # half a term is the widest window: what a node of ours opens

MTU_BYTES: Final = 1184

MAX_MESSAGE_BYTES: Final = 128 * 1024  # a sixteenth of LINK_TERM_BYTES

BULK_TERM_BYTES: Final = 4 * 1024 * 1024  # of a branch in shared memory

BULK_MESSAGE_BYTES: Final = 512 * 1024  # an eighth of BULK_TERM_BYTES

MAX_REASON_BYTES: Final = 1000


def ascii_reason(reason: str) -> str:
    """The reason as it arrives: Aeron sends ASCII, and room for it is limited."""
    return reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode()


class SenderUnavailable(TransportError):
    """Something was to be opened for the sender of an image that has left, which may not have been told yet."""


class MessageArrived(NamedTuple):
    """A whole message. ``payload`` is good until the inbox is polled again."""

    token: int
    image: int
    payload: memoryview


class ImageAvailable(NamedTuple):
    """A sender appeared. ``source`` is its canonical ``host:port`` (IPv6 in brackets), or ``IPC``.

    ``late``: it had said something before, which is lost to this image. Aeron gives an image up and makes another one
    where a machine stood still for long.
    """

    token: int
    image: int
    session_id: int
    source: str
    late: bool = False


class ImageUnavailable(NamedTuple):
    """A sender closed its publication, or nothing came from it for Aeron's own ten seconds."""

    token: int
    image: int


class PublicationRejected(NamedTuple):
    """The other side rejected what we publish; a hint by anybody, for nothing authenticates it.

    ``token`` is the way in that was opened together with the publication, ``session_id`` the publication's.
    """

    token: int
    session_id: int
    reason: str


class SubscriptionFailed(NamedTuple):
    """The driver could not open a way in; it is closed already."""

    token: int
    reason: str


class DriverLost(NamedTuple):
    """The media driver is gone, or was started anew: everything opened through this inbox is closed. Comes once."""

    reason: str


TransportEvent = (
    MessageArrived | ImageAvailable | ImageUnavailable | PublicationRejected | SubscriptionFailed | DriverLost
)


class Publication(Protocol):
    """One way out. Not thread-safe: who shares it has a lock. A closed one answers CLOSED."""

    @property
    def session_id(self) -> int:
        """Aeron's id of the publication."""

    @property
    def max_message(self) -> int:
        """Bytes of the longest message it takes; 0 before it is ready."""

    @property
    def ready(self) -> bool:
        """Whether the driver has opened it, so that a subscriber who comes now finds it."""

    @property
    def connected(self) -> bool:
        """Whether a subscriber is there."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be offered any more: closed here, failed to open, or its driver is gone."""

    @property
    def failure(self) -> str:
        """Why the driver did not open it, or an empty text."""

    @property
    def local_address(self) -> str:
        """The ``host:port`` it sends from, or an empty text where that is not known (yet), or for IPC."""

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        """Offer one message made of ``parts``. Return None on success, else the reason.

        Retries during back-pressure for ``timeout_s``. Raises UsageError for more than ``max_message`` bytes.
        """

    def close(self) -> None:
        """Close it; what was taken still goes out. Closing twice does nothing."""


class Inbox(Protocol):
    """All ways in of one endpoint. :meth:`poll` is for one thread, everything else for any."""

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return what has come, waiting at most ``timeout`` seconds for the first of it.

        Messages of one image come in their order, after its ImageAvailable and before its ImageUnavailable. It ends
        early, maybe with nothing, when a publication opened beside it becomes ready, fails, or is connected for the
        first time.
        """

    def wake(self) -> None:
        """End the poll that waits now, or the next one, at once."""

    def pause(self, token: int) -> None:
        """Take no more messages of this way in: Aeron's window fills, and the sender is held up."""

    def resume(self, token: int) -> None:
        """Take messages of it again."""

    def reject(self, image: int, reason: str) -> None:
        """Refuse a sender; an unknown image is ignored.

        ``reason`` goes to the packets' source alone: as ASCII, cut at MAX_REASON_BYTES.
        """

    def close_subscription(self, token: int) -> None:
        """Close a way in: no event of it comes any more. An unknown token is ignored."""

    def ready(self, token: int) -> bool:
        """Whether the driver has opened this way in, so that a sender who comes now is heard."""

    def local_address(self, token: int) -> str:
        """The ``host:port`` a way in is bound to, or an empty text where that is not known (yet), or for IPC."""

    @property
    def dropped(self) -> int:
        """Messages dropped unread: too long, or fragmented on a handshake stream."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its driver is gone."""

    def close(self) -> None:
        """Close every way in."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens, or where a client finds it. ``host`` is an address or a name, without brackets."""

    media: Literal["udp", "ipc"] = "udp"
    host: str = "127.0.0.1"
    data_port: int = 0
    control_port: int = 0


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """How a channel is tuned. Both sides take the publisher's term length and MTU."""

    term_bytes: int = LINK_TERM_BYTES
    mtu_bytes: int = MTU_BYTES
    reliable: bool = True
    max_message: int = MAX_MESSAGE_BYTES  # what a way in puts together at most; longer messages are dropped, counted

    def for_bulk_link(self, *, is_ipc: bool) -> ChannelSettings:
        """Return the same for a branch, which carries bulk.

        In shared memory it has longer terms and messages: what each message costs is then the limit, not the network.
        """
        if not is_ipc:
            return self
        return replace(
            self,
            term_bytes=max(self.term_bytes, BULK_TERM_BYTES),
            max_message=max(self.max_message, BULK_MESSAGE_BYTES),
        )


@dataclass(frozen=True, slots=True)
class LinkIds:
    """The ids of a duologue, as the server assigned them: ``in`` is client to server."""

    session_in: int
    stream_in: int
    session_out: int
    stream_out: int
    mdc_port: int | None = None  # the control port of its own, where the server sends by dynamic MDC


@dataclass(frozen=True, slots=True)
class ChannelPair:
    """A way in and a way out that belong together."""

    token: int
    publication: Publication


class ServerTransport(Protocol):
    """The server's side."""

    @property
    def inbox(self) -> Inbox:
        """Where everything arrives."""

    def listen(self, place: ServerAddress, channel_settings: ChannelSettings) -> int:
        """Open a handshake subscription and return its token. Raises TransportError where it cannot be bound."""

    def respond(self, image: int) -> Publication:
        """Open a publication that reaches the sender of a handshake image, and nobody else."""

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue with the sender of an image, of a handshake or a duologue, that still lives.

        Both must be ``ready`` before the client is told the ids.
        """

    def close(self) -> None:
        """Close the inbox and every way out."""


class ClientTransport(Protocol):
    """The client's side, of one server."""

    @property
    def inbox(self) -> Inbox:
        """Where everything arrives."""

    def open_path(self) -> ChannelPair:
        """Open the handshake pair, with a session id never used before."""

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new way out beside the same way in, for a pair that is rejected, or will be; its own stays open."""

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue. The handshake pair stays open until its image has joined."""

    def close(self) -> None:
        """Close the inbox and every way out."""


class OfferResult(IntEnum):
    """The negative results of ``Publication.offer``; a result of 0 or more is the new stream position instead."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5

    @property
    def sentence(self) -> str:
        """What the result means, as a sentence for an error or a log."""
        return _SENTENCES[self]

    @property
    def transient(self) -> bool:
        """Whether offering the same message again, on the same publication, can succeed."""
        return self in _TRANSIENT


_TRANSIENT: Final = frozenset({OfferResult.NOT_CONNECTED, OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION})

_SENTENCES: Final[dict[OfferResult, str]] = {
    OfferResult.NOT_CONNECTED: "no subscriber is connected to the publication",
    OfferResult.BACK_PRESSURED: "a subscriber is slower than the publisher, so its flow-control window is full",
    OfferResult.ADMIN_ACTION: "the publication is rotating to its next term; offering again at once succeeds",
    OfferResult.CLOSED: "the publication is closed, or its client has lost its media driver",
    OfferResult.MAX_POSITION_EXCEEDED: "the publication has used up its positions (term length times 2^31 bytes)"
    " and must be replaced by a new one",
}
