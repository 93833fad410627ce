"""The interface between the secure endpoint and a message transport: inbox, publications, client and server transport.

No call waits for the peer or for a driver: a new publication or subscription is returned immediately, and becomes
``ready`` or fails later. The runtimes of client and server use these protocols; the ``aeron`` package
implements them.

A *token* identifies a subscription, an *image* one of its senders. An inbox never reuses either number.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal, NamedTuple, NoReturn, Protocol

from aeron_spark.errors import TransportError

Part = bytes | bytearray | memoryview

IPC: Final = "aeron:ipc"  # the source of an image in shared memory

HANDSHAKE_STREAM_ID: Final = 0x41530001

HANDSHAKE_TERM_BYTES: Final = 64 * 1024  # Aeron's minimum, because the sender is not authenticated yet

HANDSHAKE_MAX_BYTES: Final = 1152  # one fragment of MTU_BYTES; longer or fragmented packets are dropped unread

LINK_TERM_BYTES: Final = 2 * 1024 * 1024  # twice the receive window of a node, which is at most half a term

MTU_BYTES: Final = 1184

MAX_MESSAGE_BYTES: Final = 128 * 1024  # a sixteenth of LINK_TERM_BYTES

BULK_TERM_BYTES: Final = 4 * 1024 * 1024  # of a bulk link in shared memory

MESSAGES_PER_TERM: Final = 8  # Aeron's longest message is an eighth of a term

BULK_MESSAGE_BYTES: Final = BULK_TERM_BYTES // MESSAGES_PER_TERM

MAX_REASON_BYTES: Final = 1000

SEE_DRIVER: Final = "Try again. If this repeats, see the media driver's errors: aeron-spark errors."


def ascii_reason(reason: str) -> str:
    """Return the reason as its receiver gets it: Aeron sends ASCII text of a limited length."""
    return reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode()


class SenderUnavailable(TransportError):
    """The image of the sender for which a channel was to be opened is unavailable; its event may be still to come."""


class MessageArrived(NamedTuple):
    """A complete message. ``payload`` is valid until the next poll of the inbox."""

    token: int
    image: int
    payload: memoryview


class ImageAvailable(NamedTuple):
    """An image became available. ``source`` is its sender's canonical ``host:port`` (IPv6 in brackets), or ``IPC``.

    ``late``: the sender had sent messages before, which this image does not have. Aeron replaces an image after a
    machine stood still for long.
    """

    token: int
    image: int
    session_id: int
    source: str
    late: bool = False


class ImageUnavailable(NamedTuple):
    """An image became unavailable: its sender closed the publication, or was silent for Aeron's timeout of 10 s."""

    token: int
    image: int


class PublicationRejected(NamedTuple):
    """A receiver rejected a publication's image, or has no subscription for it any more.

    Not authenticated: any host may have sent it that knows the publication's ids. ``token`` is the subscription of the
    publication's channel pair, ``session_id`` the publication's Aeron session id.
    """

    token: int
    session_id: int
    reason: str

    def error_of(self, label: str) -> TransportError:
        """Return the error of the link or bulk link that this label names."""
        return TransportError(f"the peer has left {label}: {self.reason}", remedy="The client opens another one.")


class SubscriptionFailed(NamedTuple):
    """The driver could not open a subscription, which is closed now."""

    token: int
    reason: str

    def error_of(self, label: str) -> TransportError:
        """Return the error of the link or bulk link that this label names."""
        return TransportError(f"{label} could not be opened: {self.reason}", remedy=SEE_DRIVER)


class DriverLost(NamedTuple):
    """The media driver has ended or was restarted, which closes the inbox and its publications. Delivered once."""

    reason: str

    @property
    def error(self) -> TransportError:
        """The error of everything that used the media driver."""
        return TransportError(
            f"the media driver was lost: {self.reason}", remedy="The endpoint connects again when a media driver runs."
        )


TransportEvent = (
    MessageArrived | ImageAvailable | ImageUnavailable | PublicationRejected | SubscriptionFailed | DriverLost
)


class Publication(Protocol):
    """An exclusive publication. Not thread-safe. After its close, ``offer`` returns CLOSED."""

    @property
    def session_id(self) -> int:
        """Aeron session id of the publication."""

    @property
    def max_message(self) -> int:
        """Maximum length of a message in bytes; 0 before the publication is ready."""

    @property
    def ready(self) -> bool:
        """Whether the driver has opened the publication, so that subscribers can connect."""

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""

    @property
    def closed(self) -> bool:
        """Whether the publication was closed, failed to open, or lost its driver."""

    @property
    def failure(self) -> str:
        """The reason for which the driver did not open the publication, or an empty text."""

    @property
    def local_address(self) -> str:
        """The ``host:port`` from which it sends; an empty text if it is not known (yet), or for IPC."""

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        """Offer one message made of ``parts``. Return None on success, else the reason.

        Retries during back-pressure for ``timeout_s``. Raises UsageError for more than ``max_message`` bytes.
        """

    def stop_waiting(self) -> None:
        """Let an offer that waits return now, and later ones without a wait. From any thread."""

    def close(self) -> None:
        """Close the publication; accepted messages are still sent. A second call does nothing."""


class Inbox(Protocol):
    """All subscriptions of one endpoint. Only one thread may call :meth:`poll`; all other methods are thread-safe.

    No two subscriptions of a process have the same token, also not those of different inboxes.
    """

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Return the events that have arrived; wait up to ``timeout`` seconds for the first one.

        Messages of one image are in their order, after its ImageAvailable and before its ImageUnavailable. The poll
        ends early, perhaps without events, when a publication of the same endpoint becomes ready, fails, or is
        connected for the first time.
        """

    def wake(self) -> None:
        """End the current poll, or the next one, immediately."""

    def pause(self, token: int) -> None:
        """Stop reading messages of this subscription: Aeron's window fills, and the sender gets back-pressure."""

    def resume(self, token: int) -> None:
        """Continue reading messages of this subscription."""

    def reject(self, image: int, reason: str) -> None:
        """Reject an image; an unknown image is ignored.

        Only the image's source gets the ``reason``: in ASCII, truncated at MAX_REASON_BYTES.
        """

    def close_subscription(self, token: int) -> None:
        """Close a subscription; it delivers no further events. An unknown token is ignored."""

    def ready(self, token: int) -> bool:
        """Whether the driver has opened this subscription, so that senders can connect."""

    @property
    def dropped(self) -> int:
        """Number of messages dropped unread: too long, or fragmented on a handshake stream."""

    @property
    def closed(self) -> bool:
        """Whether the inbox was closed, or its driver has ended."""

    @property
    def lost(self) -> bool:
        """Whether its driver has ended, and a poll has reported that or is about to."""

    def close(self) -> None:
        """Close all subscriptions."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address on which a server listens. ``host`` is an IP address or a name, without brackets."""

    media: Literal["udp", "ipc"] = "udp"
    host: str = "127.0.0.1"
    data_port: int = 0
    control_port: int = 0


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Parameters of a channel. Both ends use the publisher's term length and MTU.

    ``finds_mtu``: ``mtu_bytes`` is that of links, and a bulk link over UDP uses the largest one that the network
    carries. ``own_socket``: a client without fixed ports receives on a separate socket.
    """

    term_bytes: int = LINK_TERM_BYTES
    mtu_bytes: int = MTU_BYTES
    reliable: bool = True
    max_message: int = MAX_MESSAGE_BYTES  # a subscription drops and counts longer messages
    finds_mtu: bool = True
    own_socket: bool = False

    @property
    def longest_peer_term(self) -> int:
        """Bytes of the longest term that a server takes from the peer of a link with these settings."""
        return max(self.term_bytes, LINK_TERM_BYTES)

    def for_link(self, max_message: int) -> ChannelSettings:
        """Return the settings of a client's link with a server that takes messages of ``max_message`` bytes.

        A client does not know the longest term that a server takes from it, except for a bulk link: but the server's
        terms are long enough for its messages.
        """
        message_term = 1 << (MESSAGES_PER_TERM * min(max_message, self.max_message) - 1).bit_length()
        return replace(self, term_bytes=min(self.term_bytes, max(LINK_TERM_BYTES, message_term)))

    def for_bulk_link(self, *, is_ipc: bool) -> ChannelSettings:
        """Return the settings of a bulk link.

        Its messages are long, because Python's work for each message is much of the cost: as long as the terms allow.
        In shared memory, terms are longer, too: they have no receive window to fit. Over UDP a client receives each
        bulk link on a separate socket. The buffer of one socket is smaller than the windows of many readers together:
        the kernel drops packets, and the packets that are sent again fill the buffer again.
        """
        term_bytes = max(self.term_bytes, BULK_TERM_BYTES) if is_ipc else self.term_bytes
        longest = min(BULK_MESSAGE_BYTES, term_bytes // MESSAGES_PER_TERM)
        max_message = max(self.max_message, longest)
        return replace(self, term_bytes=term_bytes, max_message=max_message, own_socket=not is_ipc)


@dataclass(frozen=True, slots=True)
class LinkIds:
    """The ids of a link, which the server assigns; ``in`` is from client to server."""

    session_in: int
    stream_in: int
    session_out: int
    stream_out: int
    mdc_port: int | None = None  # the link's separate control port if the server sends by dynamic MDC


@dataclass(frozen=True, slots=True)
class ChannelPair:
    """A subscription, by its token, and a publication of one path or link."""

    token: int
    publication: Publication


class ServerTransport(Protocol):
    """Listens on a server's addresses, and opens paths and links to its clients."""

    @property
    def inbox(self) -> Inbox:
        """The inbox with all subscriptions of the server."""

    def listen(self, address: ServerAddress, channel_settings: ChannelSettings, cookie_secret: bytes) -> int:
        """Open a handshake subscription and return its token. Raises TransportError if it cannot be bound.

        A transport that makes images of network senders may require cookies of ``cookie_secret`` before it does.
        """

    def respond(self, image: int) -> Publication:
        """Open a publication that only the sender of a handshake image receives."""

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link with the sender of an available image, of a path or a link.

        Both must be ``ready`` before the server sends the ids to the client. Raises SenderUnavailable.
        """

    def close(self) -> None:
        """Close the inbox and all publications."""


class ClientTransport(Protocol):
    """The transport of a client, for one server."""

    @property
    def inbox(self) -> Inbox:
        """The inbox with all subscriptions of the client."""

    @property
    def is_ipc(self) -> bool:
        """Whether the newest path uses shared memory, and so the links that follow it."""

    def open_path(self) -> ChannelPair:
        """Open the channel pair of a handshake, with a new Aeron session id."""

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new publication for the subscription of a rejected pair; the old publication stays open."""

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link. The path stays open until the link's image is available."""

    def close(self) -> None:
        """Close the inbox and all publications."""


class OfferResult(IntEnum):
    """The negative results of ``Publication.offer``; a result of 0 or more is the new position."""

    NOT_CONNECTED = -1
    BACK_PRESSURED = -2
    ADMIN_ACTION = -3
    CLOSED = -4
    MAX_POSITION_EXCEEDED = -5

    @property
    def sentence(self) -> str:
        """The meaning of the result, for an error or the log."""
        return _SENTENCES[self]

    @property
    def transient(self) -> bool:
        """Whether another offer of the same message to the same publication can succeed."""
        return self in _TRANSIENT


_TRANSIENT: Final = frozenset({OfferResult.NOT_CONNECTED, OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION})

_SENTENCES: Final[dict[OfferResult, str]] = {
    OfferResult.NOT_CONNECTED: "no subscriber is connected to the publication",
    OfferResult.BACK_PRESSURED: "a subscriber is slower than the publisher, so its flow-control window is full",
    OfferResult.ADMIN_ACTION: "the publication is rotating to its next term; another offer succeeds",
    OfferResult.CLOSED: "the publication is closed, or its client has lost its media driver",
    OfferResult.MAX_POSITION_EXCEEDED: "the publication has used up its positions (term length times 2^31 bytes)"
    " and must be replaced by a new one",
}


class UnopenedInbox:
    """Implements ``Inbox`` without subscriptions."""

    dropped = 0
    closed = lost = False

    def __init__(self) -> None:
        self._woken = threading.Event()

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Wait up to ``timeout`` seconds for :meth:`wake`."""
        if self._woken.wait(timeout):
            self._woken.clear()
        return []

    def wake(self) -> None:
        """End the current poll, or the next one, immediately."""
        self._woken.set()

    def pause(self, token: int) -> None:
        """Do nothing: no subscription exists."""

    resume = close_subscription = pause

    def reject(self, image: int, reason: str) -> None:
        """Do nothing: no image exists."""

    def ready(self, token: int) -> bool:
        """Return False: no subscription exists."""
        return False

    def close(self) -> None:
        """Do nothing: no subscription exists."""


class UnopenedTransport:
    """Implements ``ClientTransport`` until the client has opened a transport."""

    is_ipc = False

    def __init__(self) -> None:
        self.inbox = UnopenedInbox()

    def open_path(self) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Raise TransportError."""
        self._refuse()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @staticmethod
    def _refuse() -> NoReturn:
        raise TransportError("the transport is not open yet", remedy="Wait for the connection.")
