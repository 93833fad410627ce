"""Client and server of Echo 1.0. The client sends its receive port, and the server echoes to it. It cannot pass NAT."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.publications import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import conversation, texts
from aeron_spark.echo.conversation import Clock, LimitedReport, Outbox, Report, check_size, refuse_echo, wait_for_step
from aeron_spark.echo.texts import guarded_channel, open_publication
from aeron_spark.errors import ConnectError, DataFormatError, OptionError, TransportError
from aeron_spark.protocol import sources
from aeron_spark.protocol.ids import Entropy
from aeron_spark.protocol.limits import Admission, Limits, Permit
from aeron_spark.protocol.sources import UdpSource, parse_source
from aeron_spark.transport.addresses import HostPort

T = TypeVar("T")

CLIENT_STEP_TIMEOUT_S: Final = 10.0  # for each step, as in Echo 2.0; the reference program waits without limit


class Client1:
    """A client of Echo 1.0. ``own`` is the address at which it receives; port 0 stands for an ephemeral port."""

    def __init__(
        self,
        client: AeronClient,
        server: HostPort,
        own: HostPort,
        *,
        step_timeout_s: float = CLIENT_STEP_TIMEOUT_S,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.own = own
        self._client = client
        self._step_timeout_s = step_timeout_s
        self._clock = clock
        self._entropy = entropy
        self._publication: BytesPublication | None = None
        self._subscription: PolledSubscription | None = None

    def connect(self) -> Generator[None, None, conversation.ClientConnected]:
        """Send HELLO and wait for the server's publication; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        start = self._clock()
        subscription = self._subscription = PolledSubscription(
            self._client, texts.receive_channel(self.own), texts.STREAM_ID, texts.LARGEST_MESSAGE
        )
        bound = yield from self._wait(lambda: subscription.address or None, "subscription")
        publication = self._publication = open_publication(
            self._client, lambda session_id: texts.send_channel(self.server, session_id), self._entropy
        )
        yield from self._wait(lambda: publication.connected, "publication")
        port = HostPort.parse(bound).port
        yield from self._wait(lambda: publication.offer(texts.encode_hello_1(port)) is None, "HELLO")
        yield from self._wait(lambda: bool(subscription.images()), "the server's publication back to this client")
        return conversation.ClientConnected(str(self.server), publication.session_id, self._clock() - start)

    def echo(self, payload: bytes) -> Generator[None, None, bytes]:
        """Send ``payload`` and receive its echo; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        publication = self._publication
        assert publication is not None  # connect() was called before
        check_size(len(payload), publication.max_message_bytes)
        yield from self._wait(lambda: self._offer(publication, payload), "echo request")
        return (yield from self._wait(self._poll_reply, "echo response"))

    def check_connection(self) -> None:
        """Raise ConnectError if the server's publication has ended."""
        refuse_echo(self._poll_reply())

    def close(self) -> None:
        """Close the publication and the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()

    def _wait(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return wait_for_step(poll, self._step_timeout_s, step, self._clock)

    def _offer(self, publication: BytesPublication, message: bytes) -> bool:
        self.check_connection()
        return publication.offer(message) is None

    def _poll_reply(self) -> bytes | None:
        subscription = self._subscription
        assert subscription is not None
        images = subscription.images()
        for image in images:
            for message in image.poll(1):
                if message is None:
                    raise DataFormatError(
                        f"an echo has more than {texts.LARGEST_MESSAGE} bytes", remedy="Check the server's program."
                    )
                return message
        if not images:
            raise ConnectError(
                f"the server at {self.server} closed its publication, or the network failed",
                remedy="Check that the server runs, then start the client again.",
            )
        return None


SERVER_STEP_TIMEOUT_S: Final = 10.0  # time in which a client has to receive a reply

FRAGMENTS_PER_POLL: Final = 10  # from each client, as in the reference program

NOT_READING: Final = "its client does not receive the replies"


@dataclass(frozen=True, slots=True)
class Server1Settings:
    """``clients``: largest number of clients at a time; ``per_address``: of one address, 0 for no limit."""

    listen: HostPort
    clients: int = 64
    per_address: int = 0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise OptionError(f"a server cannot have {self.clients} clients", remedy="Allow 1 client or more.")


@dataclass(slots=True)
class _Replies:
    """The publication to a client that sent HELLO, its waiting replies, and its place in the limit of clients."""

    publication: BytesPublication
    outbox: Outbox
    permit: Permit


class _Peer:
    """A client's image. ``replies`` is None until its HELLO arrives."""

    def __init__(self, image: PolledImage) -> None:
        self.image = image
        self.replies: _Replies | None = None


class Server1:
    """A server of Echo 1.0, for one thread. ``poll`` waits only for the media driver to open and close channels."""

    def __init__(
        self,
        client: AeronClient,
        settings: Server1Settings,
        report: Report,
        *,
        step_timeout_s: float = SERVER_STEP_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.settings = settings
        self._client = client
        self._report = LimitedReport(report, clock)
        self._step_timeout_s = step_timeout_s
        self._clock = clock
        self._entropy = entropy
        limits = Limits(connections=settings.clients, connections_per_address=settings.per_address)
        self._admission = Admission(lambda: limits)
        self._peers: dict[int, _Peer] = {}
        self._subscription = PolledSubscription(
            client,
            guarded_channel(texts.receive_channel(settings.listen)),
            texts.STREAM_ID,
            texts.LARGEST_MESSAGE,
        )
        report(conversation.ListeningStarted(1, str(settings.listen), ""))

    @property
    def clients(self) -> int:
        """The number of clients with a publication."""
        return self._admission.connections

    def poll(self) -> int:
        """Handle the available messages. Return a number above 0 if there was work.

        Raises TransportError if the media driver is lost.
        """
        now = self._clock()
        self._report.tick()
        images = {image.id: image for image in self._subscription.images()}
        for image_id in self._peers.keys() - images.keys():
            self._end(self._peers.pop(image_id), "its client left")
        work = 0
        for image_id, image in images.items():
            peer = self._peers.setdefault(image_id, _Peer(image))
            try:
                work += self._poll(peer, now)
            except TransportError as error:
                if self._client.closed:
                    raise
                self._end(peer, str(error))
        return work

    def close(self) -> None:
        """End all clients and close the channels."""
        for peer in self._peers.values():
            self._end(peer, "the server stops")
        self._peers.clear()
        self._report.close()
        self._subscription.close()

    def _poll(self, peer: _Peer, now: float) -> int:
        replies = peer.replies
        work = 0
        if replies is not None:
            work = replies.outbox.flush(now)
            if replies.outbox.is_overdue(now):
                peer.image.reject(NOT_READING)
                self._end(peer, NOT_READING)
                return work
            if not replies.outbox.is_empty:
                return work  # the client reads slower than it sends: its messages wait in Aeron
        for message in peer.image.poll(FRAGMENTS_PER_POLL):
            work += 1
            if message is None:
                self._refuse(peer, f"a message of more than {texts.LARGEST_MESSAGE} bytes")
            elif peer.replies is not None:
                peer.replies.outbox.put(message, now)
            else:
                self._introduce(peer, message)
        if peer.replies is not None:
            peer.replies.outbox.flush(now)
        return work

    def _introduce(self, peer: _Peer, message: bytes) -> None:
        port = texts.decode_hello_1(message)
        if port is None:
            self._refuse(peer, f"{texts.Unreadable(message)} is not a HELLO")
        elif not 0 < port <= texts.LARGEST_PORT:
            self._refuse(peer, f"port is {port}, expected 1 to 65535")
        else:
            self._open_replies(peer, port)

    def _open_replies(self, peer: _Peer, port: int) -> None:
        source = parse_source(peer.image.source)
        assert isinstance(source, UdpSource)  # the subscription's channel is UDP
        permit = self._admission.connect(source, time.monotonic())
        if isinstance(permit, sources.Refusal):
            self._refuse(peer, permit.text)
            return
        client_address = HostPort(f"{source.address}{'%' if source.zone else ''}{source.zone}", port)
        try:
            publication = open_publication(
                self._client, lambda session_id: texts.send_channel(client_address, session_id), self._entropy
            )
        except BaseException as error:
            permit.release()
            if not isinstance(error, TransportError) or self._client.closed:
                raise
            self._refuse(peer, str(error))
            return
        peer.replies = _Replies(publication, Outbox(publication.offer, self._step_timeout_s), permit)
        self._report(conversation.ClientIntroduced(peer.image.source, peer.image.session_id, port))

    def _refuse(self, peer: _Peer, reason: str) -> None:
        self._report(conversation.EchoRefused(peer.image.source, peer.image.session_id, reason))

    def _end(self, peer: _Peer, reason: str) -> None:
        replies, peer.replies = peer.replies, None
        if replies is None:
            return
        replies.permit.release()
        with contextlib.suppress(TransportError):  # a lost driver has closed everything
            replies.publication.close()
        self._report(conversation.ClientEnded(peer.image.source, replies.outbox.sent, reason))
