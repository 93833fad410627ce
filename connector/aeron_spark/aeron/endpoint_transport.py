"""A way out: an exclusive publication that is there at once, and usable when the driver has made it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jpype
import pyarrow as pa

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.driver_server import DriverServer, IsLocked
from aeron_spark.aeron.exceptions import describe, java_errors
from aeron_spark.aeron.guard import GuardRules, Ownership, guarded, register
from aeron_spark.aeron.inbox import A_CLIENTS, AeronInbox, first_address
from aeron_spark.aeron.jvm import jclass
from aeron_spark.errors import AeronSparkError, TransportError, UsageError
from aeron_spark.transport import endpoint_channels
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import (
    BULK_MESSAGE_BYTES,
    HANDSHAKE_MAX_BYTES,
    HANDSHAKE_STREAM_ID,
    HANDSHAKE_TERM_BYTES,
    IPC,
    ChannelPair,
    ChannelSettings,
    ImageAvailable,
    ImageUnavailable,
    LinkIds,
    OfferResult,
    Part,
    SenderUnavailable,
    ServerAddress,
    TransportEvent,
)
from aeron_spark.transport.endpoint_channels import ClientPorts, address_in_use
from aeron_spark.waiting import wait_for


class AeronPublication:
    """Implements ``transport.port.Outgoing``; it ends with the driver that ``inbox`` uses."""

    def __init__(self, inbox: AeronInbox, channel: str, stream_id: int, session_id: int) -> None:
        self.client = inbox.client
        self.inbox = inbox
        self.session_id = session_id
        self._failure = ""
        self._closed = False
        self._publication: Any = None
        self._offer: Any = None
        self._awaited = False
        self._max_message = 0
        self._owners: Sequence[Ownership] = ()
        with java_errors(f"publishing on {channel} stream {stream_id}"):
            self._registration = int(self.client.aeron.asyncAddExclusivePublication(channel, stream_id))
            inbox.java.expect(self._registration)

    def await_rejection(self, token: int) -> AeronPublication:
        """Have the first rejection told by the inbox, of its way in ``token``."""
        self._awaited = True
        self.client.rejections.expect(self._registration, self.inbox.java, token)
        return self

    def owned(self, owners: Sequence[Ownership]) -> AeronPublication:
        """Take these registrations back when it is closed."""
        self._owners = owners
        return self

    @property
    def max_message(self) -> int:
        """Bytes of the longest message it takes; 0 before it is ready."""
        return self._max_message if self.ready else 0

    @property
    def ready(self) -> bool:
        """Whether the driver has opened it."""
        if self._publication is None and not self.closed:
            self._settle()
        return self._publication is not None and not self._closed and not self.inbox.lost

    @property
    def connected(self) -> bool:
        """Whether a subscriber is there."""
        return self.ready and bool(self._publication.isConnected())

    @property
    def closed(self) -> bool:
        """Whether nothing can be offered any more."""
        if self._closed or self._failure or self.inbox.lost:
            return True
        if self._publication is not None and not bool(self._publication.isClosed()):
            return False
        return self._publication is not None or bool(self.client.aeron.isClosed())

    @property
    def failure(self) -> str:
        """Why the driver did not open it, or an empty text."""
        return self._failure

    @property
    def local_address(self) -> str:
        """The ``host:port`` it sends from, or an empty text."""
        return first_address(self._publication) if self.ready and not self.closed else ""

    def offer(self, *parts: Part, patience: float = 0.0) -> OfferResult | None:
        """Offer one message made of ``parts``; None when it was taken. See the port."""
        if self._closed or self.inbox.lost:
            return OfferResult.CLOSED
        if not self.ready:
            return OfferResult.CLOSED if self._failure else OfferResult.NOT_CONNECTED
        head, body = _gathered(parts)
        if head.size + body.size > self._max_message:
            raise UsageError(
                f"a message of {head.size + body.size} bytes is longer than the {self._max_message} this channel takes",
                remedy="Send it in pieces, or use larger term buffers on both sides.",
            )
        wait_ns = int(patience * 1e9)
        if self._offer(head.address, head.size, body.address, body.size, 0, wait_ns):
            return None
        return OfferResult(int(self._helper.result()))

    def close(self) -> None:
        """Close it. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self.inbox.java.forget(self._registration)
        if self._awaited:
            self.client.rejections.forget(self._registration)
        if bool(self.client.aeron.isClosed()):
            return
        try:
            for owner in self._owners:
                owner.close()
            if self._publication is not None:
                self._publication.close()
            else:
                self.client.aeron.asyncRemovePublication(self._registration)
        except (jpype.JException, TransportError):
            if not self.client.closed:
                raise

    def _settle(self) -> None:
        try:
            publication = self.inbox.java.publication(self._registration)
        except jpype.JException as error:
            self._failure = describe(error)
            return
        if publication is not None:
            self._helper = jclass("io.aeronspark.writing.BatchOffer")(publication)
            self._offer = self._helper.offerGathered
            self._max_message = int(publication.maxMessageLength())
            self._publication = publication


def _gathered(parts: tuple[Part, ...]) -> tuple[pa.Buffer, pa.Buffer]:
    """Two pieces of memory: the last part, usually the long one, is never copied."""
    if not parts:
        return _EMPTY, _EMPTY
    before = parts[:-1]
    head = _EMPTY if not before else pa.py_buffer(before[0] if len(before) == 1 else b"".join(before))
    return head, pa.py_buffer(parts[-1])


_EMPTY = pa.py_buffer(b"")


class AeronClientTransport:
    """Implements ``transport.port.Dialing`` for the server at ``place``, with ``ports`` of its own or the system's."""

    def __init__(
        self,
        client: Client,
        place: ServerAddress,
        *,
        channel_settings: ChannelSettings | None = None,
        ports: ClientPorts | None = None,
        idle: str = "backoff",
        max_message: int = BULK_MESSAGE_BYTES,
    ) -> None:
        self.client = client
        self.place = endpoint_channels.check_address(place, own=False)
        self.inbox = AeronInbox(client, idle=idle, max_message=max_message, beside=A_CLIENTS)
        self._channel_settings = ChannelSettings() if channel_settings is None else channel_settings
        self._ports = ports
        self._outgoing: set[AeronPublication] = set()

    def open_path(self) -> ChannelPair:
        """Open the handshake pair, with a session id never used before."""
        channel = endpoint_channels.response_in(self.place, self._ports, self._channel_settings)
        token = self.inbox.add(
            channel, endpoint_channels.response_stream(self.place), HANDSHAKE_MAX_BYTES, whole_only=True
        )
        return ChannelPair(token, self._path(token))

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new way out beside the same way in."""
        return ChannelPair(pair.token, self._path(pair.token))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue. The handshake pair stays open until its image has joined."""
        incoming = endpoint_channels.client_link_in(self.place, self._ports, ids, channel_settings)
        # Over IPC the driver itself brings the two together: there is nobody to ask.
        asking = self.place.media == "udp"
        token = self.inbox.add(
            incoming, ids.stream_out, channel_settings.max_message, whole_only=False, ask_again=asking
        )
        try:
            subscription = int(self.inbox.java.registrationId(token))
            channel = endpoint_channels.client_link_out(self.place, self._ports, ids, channel_settings, subscription)
            publication = self._publish(channel, ids.stream_in, ids.session_in)
        except BaseException:
            self.inbox.close_subscription(token)
            raise
        return ChannelPair(token, publication.await_rejection(token))

    def close(self) -> None:
        """Close the inbox and every way out."""
        for publication in list(self._outgoing):
            publication.close()
        self._outgoing.clear()
        self.inbox.close()

    def _path(self, token: int) -> AeronPublication:
        # Random, and never twice: a session that was rejected is remembered by the server's driver for some time.
        session_id = secrets.randbelow(2**31 - 1) + 1
        subscription = int(self.inbox.java.registrationId(token))
        channel = endpoint_channels.handshake_out(
            self.place, self._ports, subscription, session_id, self._channel_settings
        )
        return self._publish(channel, HANDSHAKE_STREAM_ID, session_id).await_rejection(token)

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronPublication:
        for gone in [one for one in self._outgoing if one.closed]:
            self._outgoing.discard(gone)
        publication = AeronPublication(self.inbox, channel, stream_id, session_id)
        self._outgoing.add(publication)
        return publication


BIND_TIMEOUT: Final = 10.0  # seconds for the driver to open a listener

_BIND_ERROR: Final = re.compile(r"channel error - (.+?) \(at ")  # the system's words in the driver's error

ADDRESS_IN_USE: Final = "Address already in use"

UNKNOWN_HOST: Final = "UnknownHostException"

# Strangers may only knock, with the smallest terms there are; every other session belongs to somebody.
# A handshake is two sessions that the driver keeps for up to 2 s: these let one address, which may be an office
# behind a router, make a hundred handshakes a second, and all together hold some 50 MB of sparse buffers. The driver
# takes about a millisecond to make one, in which nobody else is served: a flood of many addresses gets 400 of them.
RULES: Final = GuardRules(
    streams=(HANDSHAKE_STREAM_ID,),
    term_length=HANDSHAKE_TERM_BYTES,
    sessions=4_000,
    sessions_per_source=1_500,
    rate=250,
    burst=1_000,
    total_rate=400,
    # A client is a receiver on the control port, twice while it shakes hands, and remembered for 5 s when it has left.
    destinations=10_000,
    destinations_per_source=4_000,
    # Who has proved a key may use what Aeron can do; the server's own options say how much that is.
    mtu_max=65_504,
    owned_term_length=1 << 30,
)


class AeronServerTransport:
    """Implements ``transport.port.Listening`` on ``client``'s driver."""

    def __init__(
        self, client: Client, *, idle: str = "backoff", max_message: int = BULK_MESSAGE_BYTES,
        ipc_lock: Path | None = None, is_held: IsLocked | None = None,
    ) -> None:  # fmt: skip
        """``ipc_lock`` and ``is_held``: see :class:`DriverServer`."""
        self.client = client
        self.inbox = _ServerInbox(client, idle=idle, max_message=max_message)
        self._ipc_lock, self._is_held = ipc_lock, is_held
        self._channel_settings: dict[int, ChannelSettings] = {}
        self._outgoing: set[AeronPublication] = set()
        self._sole: DriverServer | None = None

    def listen(self, place: ServerAddress, channel_settings: ChannelSettings) -> int:
        """Open a handshake subscription and return its token.

        Over shared memory there can be one of a media driver, whichever process it is in. Raises InUseError where
        another program has the address, TransportError where it cannot be bound for another reason.
        """
        place = endpoint_channels.check_address(place, own=True)
        if place.media == "ipc":
            ports = [one.data_port for one in self.inbox.places.values() if one.media == "udp"]
            self._sole = DriverServer(self.client, ports, self._ipc_lock, self._is_held)
        channel = _watched(place, endpoint_channels.handshake_in(place, channel_settings))
        try:
            subscription = self.client.subscription(channel, HANDSHAKE_STREAM_ID)  # binds, or raises
        except TransportError as error:
            raise _cannot_listen(place, error) from error
        try:
            token = self.inbox.add(channel, HANDSHAKE_STREAM_ID, HANDSHAKE_MAX_BYTES, whole_only=True)
            self.inbox.places[token] = place
            self._channel_settings[token] = channel_settings
            wait_for(lambda: self.inbox.ready(token), BIND_TIMEOUT, f"the driver to listen on {channel}")
        finally:
            subscription.close()
        return token

    def respond(self, image: int) -> AeronPublication:
        """Open a publication that reaches the sender of a handshake image, and nobody else."""
        token, place = self._known(image)
        session_id = secrets.randbelow(2**31 - 1) + 1
        channel = _watched(
            place, endpoint_channels.response_out(place, image, session_id, self._channel_settings[token])
        )
        owners = self._owners(image, place, published=(session_id, HANDSHAKE_STREAM_ID))
        return self._publish(channel, endpoint_channels.response_stream(place), session_id).owned(owners)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open both ways of a duologue with the sender of an image, of a handshake or a duologue, that still lives."""
        _, place = self._known(image)
        owners = self._owners(
            image, place, received=(ids.session_in, ids.stream_in),
            published=(ids.session_out, ids.stream_out), control_port=ids.mdc_port,
        )  # fmt: skip
        incoming = _watched(place, endpoint_channels.link_in(place, ids, channel_settings))
        token = self.inbox.add(incoming, ids.stream_in, channel_settings.max_message, whole_only=False)
        self.inbox.duologues[token] = place
        try:
            channel = _watched(place, endpoint_channels.link_out(place, ids, image, channel_settings))
            publication = self._publish(channel, ids.stream_out, ids.session_out)
        except BaseException:
            self.inbox.close_subscription(token)
            for owner in owners:
                owner.close()
            raise
        publication.owned(owners)
        return ChannelPair(token, publication)

    def close(self) -> None:
        """Close the inbox and every way out."""
        for publication in list(self._outgoing):
            publication.close()
        self._outgoing.clear()
        self.inbox.close()
        if self._sole is not None and not self.client.closed:
            self._sole.close()
            self._sole = None

    def _known(self, image: int) -> tuple[int, ServerAddress]:
        token = self.inbox.strangers.get(image)
        if token is None:
            raise SenderUnavailable("the sender of a handshake has gone", remedy="It may come again.")
        return token, self.inbox.places.get(token) or self.inbox.duologues[token]

    def _owners(
        self, image: int, place: ServerAddress, *, received: tuple[int, int] | None = None,
        published: tuple[int, int] | None = None, control_port: int | None = None,
    ) -> list[Ownership]:  # fmt: skip
        """Tell the guard, where the driver has one, that these sessions are this stranger's and nobody else's.

        The driver takes commands in order: they are in force when what is opened next is ready, and nothing waits here.
        """
        address = self.inbox.addresses.get(image)
        if place.media == "ipc" or address is None:
            return []
        found = []
        if received is not None:
            found.append(
                register(
                    self.client, "received", port=place.data_port, session_id=received[0], stream_id=received[1],
                    address=address, wait=False,
                )
            )  # fmt: skip
        if published is not None:
            found.append(
                register(
                    self.client, "published", port=control_port or place.control_port, session_id=published[0],
                    stream_id=published[1], address=address, wait=False,
                )
            )  # fmt: skip
        return found

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronPublication:
        for gone in [one for one in self._outgoing if one.closed]:
            self._outgoing.discard(gone)
        publication = AeronPublication(self.inbox, channel, stream_id, session_id)
        self._outgoing.add(publication)
        return publication


class _ServerInbox(AeronInbox):
    """Remembers through which listener each stranger came."""

    places: dict[int, ServerAddress]
    duologues: dict[int, ServerAddress]
    strangers: dict[int, int]
    addresses: dict[int, str]

    def __init__(self, client: Client, *, idle: str, max_message: int) -> None:
        super().__init__(client, idle=idle, max_message=max_message)
        self.places = {}
        self.duologues = {}
        self.strangers = {}
        self.addresses = {}

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Poll, and take note of who came and went."""
        events = super().poll(timeout)
        for event in events:
            if isinstance(event, ImageAvailable) and (event.token in self.places or event.token in self.duologues):
                self.strangers[event.image] = event.token
                if event.source != IPC:
                    self.addresses[event.image] = HostPort.parse(event.source).host
            elif isinstance(event, ImageUnavailable):
                self.strangers.pop(event.image, None)
                self.addresses.pop(event.image, None)
        return events

    def close_subscription(self, token: int) -> None:
        """Close a way in, and forget where it led."""
        super().close_subscription(token)
        self.duologues.pop(token, None)


def _cannot_listen(place: ServerAddress, error: TransportError) -> AeronSparkError:
    """Return the error of a listener in its server's words: the driver's are about a channel with all its settings."""
    if place.media == "ipc":
        return error
    bind = _BIND_ERROR.search(error.what)
    if bind is not None and bind[1] == ADDRESS_IN_USE:
        return address_in_use(place.host, place.data_port)
    why = bind[1] if bind is not None else "its host is not known" if UNKNOWN_HOST in error.what else error.what
    return TransportError(
        f"cannot listen on {HostPort(place.host, place.data_port)}: {why}",
        remedy="Give an address of this machine, such as 0.0.0.0 for all that it has",
    )


def _watched(place: ServerAddress, channel: str) -> str:
    return channel if place.media == "ipc" else guarded(channel, RULES)
