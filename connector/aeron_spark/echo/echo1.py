"""An Echo 1.0 client: tells the server a port of its own, and is answered there. It cannot pass NAT; Echo 2.0 can."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.polled_images import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import channels, reports, texts
from aeron_spark.echo.channels import talking, watched
from aeron_spark.echo.conversation import Clock, awaiting
from aeron_spark.echo.outbox import Outbox
from aeron_spark.echo.reports import LimitedReport, Report
from aeron_spark.errors import ConnectError, DataFormatError, OptionError, TransportError
from aeron_spark.protocol import refusals
from aeron_spark.protocol.access import UdpSource, parse_source
from aeron_spark.protocol.ids import Entropy
from aeron_spark.protocol.limits import Admission, Limits, Permit
from aeron_spark.transport.addresses import HostPort

T = TypeVar("T")

CLIENT_STEP_SECONDS: Final = 10.0  # for each step, as in Echo 2.0: the reference waits for ever


class Client1:
    """``own`` is where the answers shall come to; its port may be 0, for one of the system's choice."""

    def __init__(
        self,
        client: Client,
        server: HostPort,
        own: HostPort,
        *,
        step_seconds: float = CLIENT_STEP_SECONDS,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.own = own
        self._client = client
        self._step_seconds = step_seconds
        self._clock = clock
        self._entropy = entropy
        self._talking: BytesPublication | None = None
        self._listening: PolledSubscription | None = None

    def connecting(self) -> Generator[None, None, reports.ClientConnected]:
        """Introduce this client and wait to be published to; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        began = self._clock()
        listening = self._listening = PolledSubscription(
            self._client, channels.receiving(self.own), texts.STREAM_ID, channels.LARGEST_MESSAGE
        )
        bound = yield from self._awaiting(lambda: listening.address or None, "subscription")
        out = self._talking = talking(
            self._client, lambda session_id: channels.sending(self.server, session_id), self._entropy
        )
        yield from self._awaiting(lambda: out.connected, "publication")
        port = HostPort.parse(bound).port
        yield from self._awaiting(lambda: out.offer(texts.hello_1(port)) is None, "HELLO")
        yield from self._awaiting(lambda: bool(listening.images()), "the server's publication back to this client")
        return reports.ClientConnected(str(self.server), out.session_id, self._clock() - began)

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        """Have ``payload`` echoed; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        out = self._talking
        assert out is not None  # connecting comes first
        if len(payload) > out.max_message_bytes:
            raise OptionError(
                f"a text of {len(payload)} bytes is too long", remedy=f"{out.max_message_bytes} bytes are the most."
            )
        yield from self._awaiting(lambda: self._sends(out, payload), "echo request")
        return (yield from self._awaiting(self._reply, "echo response"))

    def look(self) -> None:
        """Raise ConnectError where the server has gone."""
        unasked = self._reply()
        if unasked is not None:
            raise DataFormatError(f"an echo that nobody asked for came: {unasked[:80]!r}", remedy="Look at the server.")

    def close(self) -> None:
        """Close what is open."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        out, self._talking = self._talking, None
        if out is not None:
            out.close()

    def _awaiting(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return awaiting(poll, self._step_seconds, step, self._clock)

    def _sends(self, out: BytesPublication, message: bytes) -> bool:
        self.look()
        return out.offer(message) is None

    def _reply(self) -> bytes | None:
        listening = self._listening
        assert listening is not None
        images = listening.images()
        for image in images:
            for message in image.poll(1):
                if message is None:
                    raise DataFormatError("an echo came that is too long", remedy="Look at the server.")
                return message
        if not images:
            raise ConnectError(f"the server at {self.server} has gone", remedy="It stopped, or the way to it broke.")
        return None


SERVER_STEP_SECONDS: Final = 10.0  # that a client has to take a reply

FRAGMENTS: Final = 10  # of one client in one poll, as many as the reference takes

NOT_READING: Final = "its client does not take the replies"


@dataclass(frozen=True, slots=True)
class Server1Settings:
    """``clients`` bounds those that are answered at a time, ``per_address`` those of one address (0: no limit)."""

    listen: HostPort
    clients: int = 64
    per_address: int = 0

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise OptionError(f"a server cannot have {self.clients} clients", remedy="Allow one at least.")


@dataclass(slots=True)
class _Answering:
    """The way back to a client that introduced itself."""

    talking: BytesPublication
    outbox: Outbox
    permit: Permit


class _Peer:
    """One image: INITIAL until a HELLO (``answering`` is None), then CONNECTED."""

    def __init__(self, image: PolledImage) -> None:
        self.image = image
        self.answering: _Answering | None = None


class Server1:
    """Polled by one thread; ``poll`` never waits, except for the media driver to open and close channels."""

    def __init__(
        self,
        client: Client,
        settings: Server1Settings,
        report: Report,
        *,
        step_seconds: float = SERVER_STEP_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.settings = settings
        self._client = client
        self._report = LimitedReport(report, clock)
        self._step_seconds = step_seconds
        self._clock = clock
        self._entropy = entropy
        self._admission = Admission(Limits(connections=settings.clients, connections_per_address=settings.per_address))
        self._peers: dict[int, _Peer] = {}
        self._listening = PolledSubscription(
            client, watched(channels.receiving(settings.listen)), texts.STREAM_ID, channels.LARGEST_MESSAGE
        )
        report(reports.ListeningStarted(1, str(settings.listen), ""))

    @property
    def clients(self) -> int:
        """How many are answered."""
        return self._admission.connections

    def poll(self) -> int:
        """Do what can be done now; return how much that was. Raises TransportError where the media driver is gone."""
        now = self._clock()
        self._report.tick()
        images = {image.id: image for image in self._listening.images()}
        for gone in self._peers.keys() - images.keys():
            self._give_up(self._peers.pop(gone), "its client left")
        work = 0
        for number, image in images.items():
            peer = self._peers.setdefault(number, _Peer(image))
            try:
                work += self._poll(peer, now)
            except TransportError as error:
                if self._client.closed:
                    raise
                self._give_up(peer, str(error))
        return work

    def close(self) -> None:
        """Close everything."""
        for peer in self._peers.values():
            self._give_up(peer, "the server stops")
        self._peers.clear()
        self._report.close()
        self._listening.close()

    def _poll(self, peer: _Peer, now: float) -> int:
        answering = peer.answering
        work = 0
        if answering is not None:
            work = answering.outbox.flush(now)
            if answering.outbox.overdue(now):
                peer.image.reject(NOT_READING)
                self._give_up(peer, NOT_READING)
                return work
            if not answering.outbox.empty:
                return work  # slower than its own questions: no more of them before these are answered
        for message in peer.image.poll(FRAGMENTS):
            work += 1
            if message is None:
                self._refuse(peer, f"a message of more than {channels.LARGEST_MESSAGE} bytes")
            elif peer.answering is not None:
                peer.answering.outbox.put(message, now)
            else:
                self._introduce(peer, message)
        if peer.answering is not None:
            peer.answering.outbox.flush(now)
        return work

    def _introduce(self, peer: _Peer, message: bytes) -> None:
        port = texts.read_hello_1(message)
        if port is None:
            self._refuse(peer, f"{texts.Unreadable(message)} is no HELLO")
        elif not 0 < port <= texts.LARGEST_PORT:
            self._refuse(peer, f"port {port} is none of 1 to 65535")
        else:
            self._answer_at(peer, port)

    def _answer_at(self, peer: _Peer, port: int) -> None:
        source = parse_source(peer.image.source)
        assert isinstance(source, UdpSource)  # what is received by UDP
        permit = self._admission.connect(source)
        if isinstance(permit, refusals.Refusal):
            self._refuse(peer, permit.text)
            return
        back = HostPort(f"{source.address}{'%' if source.zone else ''}{source.zone}", port)
        try:
            out = talking(self._client, lambda session_id: channels.sending(back, session_id), self._entropy)
        except BaseException as error:
            permit.release()
            if not isinstance(error, TransportError) or self._client.closed:
                raise
            self._refuse(peer, str(error))
            return
        peer.answering = _Answering(out, Outbox(out, self._step_seconds), permit)
        self._report(reports.ClientIntroduced(peer.image.source, peer.image.session_id, port))

    def _refuse(self, peer: _Peer, reason: str) -> None:
        self._report(reports.Refusal(peer.image.source, peer.image.session_id, reason))

    def _give_up(self, peer: _Peer, reason: str) -> None:
        answering, peer.answering = peer.answering, None
        if answering is None:
            return
        answering.permit.release()
        with contextlib.suppress(TransportError):  # a driver that is gone has closed everything
            answering.talking.close()
        self._report(reports.ClientEnded(peer.image.source, answering.outbox.sent, reason))
