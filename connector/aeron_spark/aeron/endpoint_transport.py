"""Implements the secure endpoint's transport over Aeron: publications, and the transports of client and server."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import jpype
import pyarrow as pa

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.driver import DriverServer, IsLocked
from aeron_spark.aeron.guard import GuardRules, Registration, SessionOwner, guarded, register, require_cookies
from aeron_spark.aeron.inbox import CLIENT_EVENT_BYTES, AeronInbox, first_address
from aeron_spark.aeron.java_calls import describe, java_errors
from aeron_spark.aeron.jvm import enter_java, jclass
from aeron_spark.errors import AeronSparkError, TransportError, UsageError
from aeron_spark.process import bind_to_process
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
from aeron_spark.transport.packet_sizes import whole_packets
from aeron_spark.waiting import wait_for


class AeronPublication:
    """Implements ``transport.api.Publication``: an exclusive publication, usable after the driver has opened it.

    It is lost with the driver of ``inbox``.
    """

    def __init__(
        self, inbox: AeronInbox, channel: str, stream_id: int, session_id: int, opened: set[AeronPublication]
    ) -> None:
        """The publication is in ``opened`` until it is closed."""
        bind_to_process(self)
        self._opened = opened
        self.client = inbox.client
        self.inbox = inbox
        self.session_id = session_id
        self._failure = ""
        self._closed = False
        self._publication: Any = None
        self._offer: Any = None
        self._awaits_rejection = False
        self._max_message = 0
        self._owners: Sequence[Registration] = ()
        with java_errors(f"publishing on {channel} stream {stream_id}"):
            self._registration = int(self.client.aeron.asyncAddExclusivePublication(channel, stream_id))
            inbox.java.expect(self._registration)
        opened.add(self)

    def await_rejection(self, token: int) -> AeronPublication:
        """Let the inbox deliver the first rejection of this publication as an event of the subscription ``token``."""
        self._awaits_rejection = True
        self.client.rejections.expect(self._registration, self.inbox.java, token)
        return self

    def owned(self, owners: Sequence[Registration]) -> AeronPublication:
        """Close these registrations with the guard when the publication is closed."""
        self._owners = owners
        return self

    @property
    def max_message(self) -> int:
        """Maximum length of a message in bytes, in whole packets; 0 before the publication is ready."""
        return self._max_message if self.ready else 0

    @property
    def ready(self) -> bool:
        """Whether the driver has opened the publication."""
        enter_java()
        if self._publication is None and not self.closed:
            self._check_registration()
        return self._publication is not None and not self._closed and not self.inbox.lost

    @property
    def connected(self) -> bool:
        """Whether a subscriber is connected."""
        return self.ready and bool(self._publication.isConnected())

    @property
    def closed(self) -> bool:
        """Whether the publication was closed, failed to open, or lost its driver."""
        if self._closed or self._failure or self.inbox.lost:
            return True
        enter_java()
        if self._publication is not None and not bool(self._publication.isClosed()):
            return False
        return self._publication is not None or bool(self.client.aeron.isClosed())

    @property
    def failure(self) -> str:
        """The reason for which the driver did not open the publication, or an empty text."""
        return self._failure

    @property
    def local_address(self) -> str:
        """The ``host:port`` from which it sends, or an empty text."""
        return first_address(self._publication) if self.ready and not self.closed else ""

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        """Offer one message made of ``parts``. Return None on success. See the protocol."""
        if self._closed or self.inbox.lost:
            return OfferResult.CLOSED
        if not self.ready:
            return OfferResult.CLOSED if self._failure else OfferResult.NOT_CONNECTED
        head, body = _gathered(parts)
        if head.size + body.size > self._max_message:
            raise UsageError(
                f"message of {head.size + body.size} bytes, expected at most {self._max_message} for this channel",
                remedy="Send it in several messages, or use larger term buffers at both ends.",
            )
        if self._offer(head.address, head.size, body.address, body.size, 0, int(timeout_s * 1e9)):
            return None
        return OfferResult(int(self._helper.result()))

    def stop_waiting(self) -> None:
        """Let offers return without a wait. See the protocol."""
        if self._publication is not None:
            enter_java()
            self._helper.stopWaiting()

    def close(self) -> None:
        """Close the publication. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._opened.discard(self)
        self.inbox.java.forget(self._registration)
        if self._awaits_rejection:
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

    def _check_registration(self) -> None:
        try:
            publication = self.inbox.java.publication(self._registration)
        except jpype.JException as error:
            self._failure = describe(error)
            return
        if publication is not None:
            self._helper = jclass("io.aeronspark.writing.BatchOffer")(publication)
            self._offer = self._helper.offerGathered
            self._max_message = whole_packets(int(publication.maxMessageLength()), int(publication.maxPayloadLength()))
            self._publication = publication


def _gathered(parts: tuple[Part, ...]) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the parts as two buffers. The last part, usually the longest, is not copied."""
    if not parts:
        return _EMPTY, _EMPTY
    before = parts[:-1]
    head = _EMPTY if not before else pa.py_buffer(before[0] if len(before) == 1 else b"".join(before))
    return head, pa.py_buffer(parts[-1])


_EMPTY = pa.py_buffer(b"")


class AeronClientTransport:
    """Implements ``transport.api.ClientTransport`` for the server at ``address``.

    Each new path uses the driver's shared memory instead if ``shares_memory()``: the server may have begun or ended to
    listen there. ``ports`` are the client's local ports; the system chooses them if it is None.
    """

    def __init__(
        self,
        client: AeronClient,
        address: ServerAddress,
        *,
        channel_settings: ChannelSettings | None = None,
        ports: ClientPorts | None = None,
        idle: str = "backoff",
        max_message: int = BULK_MESSAGE_BYTES,
        shares_memory: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.address = endpoint_channels.check_address(address, own=False)
        """The address to which the newest path leads."""
        self._given_address = self.address
        self._shares_memory = shares_memory
        self.inbox = AeronInbox(client, idle=idle, max_message=max_message, event_bytes=CLIENT_EVENT_BYTES)
        self._channel_settings = ChannelSettings() if channel_settings is None else channel_settings
        self._ports = ports
        self._publications: set[AeronPublication] = set()

    @property
    def is_ipc(self) -> bool:
        """Whether the newest path uses shared memory, and so the links that follow it."""
        return self.address.media == "ipc"

    def open_path(self) -> ChannelPair:
        """Open the channel pair of a handshake, with a new Aeron session id."""
        self.address = ServerAddress("ipc") if self._shares_memory() else self._given_address
        channel = endpoint_channels.response_in(self.address, self._ports, self._channel_settings)
        token = self.inbox.add(
            channel, endpoint_channels.response_stream(self.address), HANDSHAKE_MAX_BYTES, drop_fragmented=True
        )
        return ChannelPair(token, self._open_path_publication(token))

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        """Open a new publication for the same subscription."""
        return ChannelPair(pair.token, self._open_path_publication(pair.token))

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link. The path stays open until the link's image is available."""
        incoming = endpoint_channels.client_link_in(self.address, self._ports, ids, channel_settings)
        # Over IPC the driver connects publication and subscription without a setup frame.
        is_udp = self.address.media == "udp"
        token = self.inbox.add(
            incoming, ids.stream_out, channel_settings.max_message, drop_fragmented=False, retry=is_udp
        )
        try:
            subscription = int(self.inbox.java.registrationId(token))
            channel = endpoint_channels.client_link_out(self.address, self._ports, ids, channel_settings, subscription)
            publication = self._publish(channel, ids.stream_in, ids.session_in)
        except BaseException:
            self.inbox.close_subscription(token)
            raise
        return ChannelPair(token, publication.await_rejection(token))

    def close(self) -> None:
        """Close the inbox and all publications."""
        for publication in list(self._publications):
            publication.close()
        self._publications.clear()
        self.inbox.close()

    def _open_path_publication(self, token: int) -> AeronPublication:
        # Random, because the server's driver remembers a rejected Aeron session id for some time.
        session_id = secrets.randbelow(2**31 - 1) + 1
        subscription = int(self.inbox.java.registrationId(token))
        channel = endpoint_channels.handshake_out(
            self.address, self._ports, subscription, session_id, self._channel_settings
        )
        return self._publish(channel, HANDSHAKE_STREAM_ID, session_id).await_rejection(token)

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronPublication:
        return AeronPublication(self.inbox, channel, stream_id, session_id, self._publications)


BIND_TIMEOUT_S: Final = 10.0  # a driver's conductor that maps large files answers after seconds

_BIND_ERROR: Final = re.compile(r"channel error - (.+?) \(at ")  # the system's error text in the driver's error

ADDRESS_IN_USE: Final = "Address already in use"

UNKNOWN_HOST: Final = "UnknownHostException"

# An unauthenticated sender may use only the handshake stream, with the smallest terms. Every other Aeron session has an
# owner. A handshake needs one Aeron session, after its client has returned a cookie; the driver keeps it for up to 2 s.
# These limits allow one address, perhaps of an office behind a router, a hundred handshakes a second; all sessions
# together use about 50 MB of sparse buffers. The driver needs about 1 ms to create a session, and serves no others in
# that time. A flood from many addresses that return their cookies gets 200 sessions a second.
RULES: Final = GuardRules(
    streams=(HANDSHAKE_STREAM_ID,),
    term_length=HANDSHAKE_TERM_BYTES,
    sessions=4_000,
    sessions_per_source=1_500,
    rate=125,
    burst=500,
    total_rate=200,
    # Each client is a receiver on the control port, twice during its handshake, and for 5 s after its end.
    destinations=10_000,
    destinations_per_source=4_000,
    # For authenticated clients the limits of Aeron apply, and the server's options: ``_guarded`` adds the longest term.
    mtu_max=65_504,
)


class AeronServerTransport:
    """Implements ``transport.api.ServerTransport`` on the driver of ``client``."""

    def __init__(
        self,
        client: AeronClient,
        *,
        idle: str = "backoff",
        max_message: int = BULK_MESSAGE_BYTES,
        ipc_lock: Path | None = None,
        is_locked: IsLocked | None = None,
    ) -> None:
        """``ipc_lock`` and ``is_locked``: see :class:`DriverServer`."""
        self.client = client
        self.inbox = _ServerInbox(client, idle=idle, max_message=max_message)
        self._ipc_lock, self._is_locked = ipc_lock, is_locked
        self._channel_settings: dict[int, ChannelSettings] = {}
        self._publications: set[AeronPublication] = set()
        self._registrations: list[Registration] = []
        self._driver_server: DriverServer | None = None

    def listen(self, address: ServerAddress, channel_settings: ChannelSettings, cookie_secret: bytes = b"") -> int:
        """Open a handshake subscription and return its token.

        With a ``cookie_secret`` the driver's guard makes an image only for a HELLO with a cookie of this secret.
        Only one process per media driver can listen over shared memory. Raises InUseError if another program has the
        address, TransportError if it cannot be bound for another reason.
        """
        address = endpoint_channels.check_address(address, own=True)
        if address.media == "ipc":
            ports = [one.data_port for one in self.inbox.listeners.values() if one.media == "udp"]
            self._driver_server = DriverServer(self.client, ports, self._ipc_lock, self._is_locked)
        channel = _guarded(address, endpoint_channels.handshake_in(address, channel_settings), channel_settings)
        if cookie_secret and address.media == "udp":
            self._registrations.append(
                require_cookies(
                    self.client, port=address.data_port, stream_id=HANDSHAKE_STREAM_ID, secret=cookie_secret
                )
            )
        try:
            subscription = self.client.subscription(channel, HANDSHAKE_STREAM_ID)  # binds, or raises
        except TransportError as error:
            raise _cannot_listen(address, error) from error
        try:
            token = self.inbox.add(channel, HANDSHAKE_STREAM_ID, HANDSHAKE_MAX_BYTES, drop_fragmented=True)
            self.inbox.listeners[token] = address
            self._channel_settings[token] = channel_settings
            wait_for(lambda: self.inbox.ready(token), BIND_TIMEOUT_S, f"the driver to listen on {channel}")
        finally:
            subscription.close()
        return token

    def respond(self, image: int) -> AeronPublication:
        """Open a publication that only the sender of a handshake image receives."""
        token, address = self._find_sender(image)
        session_id = secrets.randbelow(2**31 - 1) + 1
        settings = self._channel_settings[token]
        channel = _guarded(address, endpoint_channels.response_out(address, image, session_id, settings), settings)
        owners = self._register_owner(image, address, published=(session_id, HANDSHAKE_STREAM_ID))
        return self._publish(channel, endpoint_channels.response_stream(address), session_id).owned(owners)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        """Open subscription and publication of a link with the sender of an available image, of a path or a link."""
        _, address = self._find_sender(image)
        received, published = (ids.session_in, ids.stream_in), (ids.session_out, ids.stream_out)
        owners = self._register_owner(image, address, received=received, published=published, control_port=ids.mdc_port)
        incoming = _guarded(address, endpoint_channels.link_in(address, ids, channel_settings), channel_settings)
        token = self.inbox.add(incoming, ids.stream_in, channel_settings.max_message, drop_fragmented=False)
        self.inbox.links[token] = address
        try:
            channel = _guarded(
                address, endpoint_channels.link_out(address, ids, image, channel_settings), channel_settings
            )
            publication = self._publish(channel, ids.stream_out, ids.session_out)
        except BaseException:
            self.inbox.close_subscription(token)
            for owner in owners:
                owner.close()
            raise
        publication.owned(owners)
        return ChannelPair(token, publication)

    def close(self) -> None:
        """Close the inbox and all publications."""
        for publication in list(self._publications):
            publication.close()
        self._publications.clear()
        self.inbox.close()
        if not self.client.closed:
            for registration in self._registrations:
                registration.close()
        self._registrations.clear()
        if self._driver_server is not None and not self.client.closed:
            self._driver_server.close()
            self._driver_server = None

    def _find_sender(self, image: int) -> tuple[int, ServerAddress]:
        sender = self.inbox.senders.get(image)
        address = sender and (self.inbox.listeners.get(sender.token) or self.inbox.links.get(sender.token))
        if sender is None or address is None:
            raise SenderUnavailable(
                "the sender of a handshake is not available any more", remedy="Wait until it connects again."
            )
        return sender.token, address

    def _register_owner(
        self,
        image: int,
        address: ServerAddress,
        *,
        received: tuple[int, int] | None = None,
        published: tuple[int, int] | None = None,
        control_port: int | None = None,
    ) -> list[Registration]:
        """Register the image's sender with the driver's guard as the owner of these Aeron sessions and streams.

        Does not wait: a driver executes commands in order, so the rules are in force when the publication or
        subscription that is opened next is ready.
        """
        sender = self.inbox.senders.get(image)
        if sender is None or sender.host is None:
            return []
        owners = []
        if received is not None:
            owners.append(SessionOwner("received", address.data_port, *received, sender.host))
        if published is not None:
            owners.append(SessionOwner("published", control_port or address.control_port, *published, sender.host))
        return [register(self.client, owner, wait=False) for owner in owners]

    def _publish(self, channel: str, stream_id: int, session_id: int) -> AeronPublication:
        return AeronPublication(self.inbox, channel, stream_id, session_id, self._publications)


class _Sender(NamedTuple):
    """The sender of an available image: the token of the image's subscription, and its host, or None over IPC."""

    token: int
    host: str | None


class _ServerInbox(AeronInbox):
    """An inbox that also stores the listener or link, and the sender, of each available image. Thread-safe."""

    listeners: dict[int, ServerAddress]  # by token
    links: dict[int, ServerAddress]  # by token
    senders: dict[int, _Sender]  # by image

    def __init__(self, client: AeronClient, *, idle: str, max_message: int) -> None:
        super().__init__(client, idle=idle, max_message=max_message)
        self.listeners = {}
        self.links = {}
        self.senders = {}
        self._lock = threading.Lock()

    def poll(self, timeout: float) -> list[TransportEvent]:
        """Poll, and store the images that became available or unavailable."""
        events = super().poll(timeout)
        for event in events:
            if isinstance(event, ImageAvailable):
                self._add_sender(event)
            elif isinstance(event, ImageUnavailable):
                with self._lock:
                    self.senders.pop(event.image, None)
        return events

    def close_subscription(self, token: int) -> None:
        """Close a subscription, and remove its link and its images, which no further event names."""
        super().close_subscription(token)
        with self._lock:
            self.links.pop(token, None)
            for image in [image for image, sender in self.senders.items() if sender.token == token]:
                del self.senders[image]

    def _add_sender(self, event: ImageAvailable) -> None:
        host = None if event.source == IPC else HostPort.parse(event.source).host
        with self._lock:
            if event.token in self.listeners or event.token in self.links:
                self.senders[event.image] = _Sender(event.token, host)


def _cannot_listen(address: ServerAddress, error: TransportError) -> AeronSparkError:
    """Return the error of a listener by its address; the driver's text names a channel with all its parameters."""
    if address.media == "ipc":
        return error
    bind = _BIND_ERROR.search(error.what)
    if bind is not None and bind[1] == ADDRESS_IN_USE:
        return address_in_use(address.host, address.data_port)
    cause = bind[1] if bind is not None else "unknown host" if UNKNOWN_HOST in error.what else error.what
    return TransportError(
        f"cannot listen on {HostPort(address.host, address.data_port)}: {cause}",
        remedy="Give an address of this machine, such as 0.0.0.0 for all of its addresses",
    )


def _guarded(address: ServerAddress, channel: str, channel_settings: ChannelSettings) -> str:
    rules = replace(RULES, owned_term_length=channel_settings.longest_peer_term)
    return channel if address.media == "ipc" else guarded(channel, rules)
