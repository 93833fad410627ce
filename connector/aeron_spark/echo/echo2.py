"""An Echo 2.0 client: asks on the channel of all, and goes on in its duologue."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from aeron_spark.aeron.client import Client
from aeron_spark.aeron.polled_images import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import channels, reports, texts
from aeron_spark.echo.channels import own, talking, watched
from aeron_spark.echo.conversation import Clock, awaiting
from aeron_spark.echo.outbox import Outbox, SharedOutbox
from aeron_spark.echo.reports import ClientJoined, LimitedReport, Refusal, Report
from aeron_spark.errors import ConnectError, DataFormatError, OptionError, RefusedError, TransportError
from aeron_spark.protocol import refusals
from aeron_spark.protocol.access import UdpSource, is_from_address, parse_source
from aeron_spark.protocol.ids import Entropy, IdAllocator, PortAllocator
from aeron_spark.protocol.limits import Admission, Limits, Permit
from aeron_spark.transport.addresses import HostPort

T = TypeVar("T")

CLIENT_STEP_SECONDS: Final = 10.0  # for each step; the reference's

ANSWERS: Final = 256  # fragments in one poll of what all clients are told: one message a poll falls behind a flood


class Client2:
    """``server`` is where all ask, ``control_port`` where the answers are published, at the same host.

    The session id is drawn at random and not left to the media driver: many drivers begin with the same one, and a
    second client of that id would take the first one's answer for its own.
    """

    def __init__(
        self,
        client: Client,
        server: HostPort,
        control_port: int,
        *,
        step_seconds: float = CLIENT_STEP_SECONDS,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.control = HostPort(server.host, control_port)
        self._client = client
        self._step_seconds = step_seconds
        self._clock = clock
        self._entropy = entropy
        self._key = int.from_bytes(entropy(4), "big")
        self._talking: BytesPublication | None = None
        self._listening: PolledSubscription | None = None

    def connecting(self) -> Generator[None, None, reports.ClientConnected]:
        """Get a duologue and join it; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        began = self._clock()
        listening = self._listen(channels.joining(self.control))
        yield from self._awaiting(lambda: bool(listening.images()), "initial subscription")
        out = self._talk(self.server)
        session_id = out.session_id
        yield from self._awaiting(lambda: out.connected, "initial publication")
        yield from self._awaiting(lambda: out.offer(texts.hello_2(self._key)) is None, "HELLO")
        place = yield from self._awaiting(lambda: self._answer(listening, session_id), "CONNECT response")
        self.close()
        listening = self._listen(channels.joining(HostPort(self.server.host, place.control_port), place.session_id))
        yield from self._awaiting(lambda: bool(listening.images()), "duologue subscription")
        out = self._talking = BytesPublication(
            self._client,
            channels.sending(HostPort(self.server.host, place.data_port), place.session_id),
            texts.STREAM_ID,
        )
        yield from self._awaiting(lambda: out.connected, "duologue publication")
        return reports.ClientConnected(str(self.server), session_id, self._clock() - began)

    def echoing(self, payload: bytes) -> Generator[None, None, bytes]:
        """Have ``payload`` echoed; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        out = self._talking
        assert out is not None  # connecting comes first
        message = texts.echo(payload)
        if len(message) > out.max_message_bytes:
            raise OptionError(
                f"a text of {len(payload)} bytes is too long", remedy=f"{out.max_message_bytes - 5} bytes are the most."
            )
        yield from self._awaiting(lambda: self._sends(out, message), "ECHO request")
        return (yield from self._awaiting(self._reply, "ECHO response"))

    def look(self) -> None:
        """Raise RefusedError where the server ended the duologue with an ERROR, ConnectError where it is gone."""
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

    def _sends(self, out: BytesPublication, message: bytes) -> bool:
        self.look()  # what was refused, or is gone, would else be tried in vain until the deadline
        return out.offer(message) is None

    def _listen(self, channel: str) -> PolledSubscription:
        self._listening = PolledSubscription(self._client, channel, texts.STREAM_ID, channels.LARGEST_MESSAGE)
        return self._listening

    def _talk(self, server: HostPort) -> BytesPublication:
        self._talking = talking(self._client, lambda session_id: channels.sending(server, session_id), self._entropy)
        return self._talking

    def _awaiting(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return awaiting(poll, self._step_seconds, step, self._clock)

    def _answer(self, listening: PolledSubscription, session_id: int) -> texts.EchoAddress | None:
        for image in listening.images():
            for message in image.poll(ANSWERS):
                found = None if message is None else texts.read_answer(message, session_id, self._key)
                if isinstance(found, texts.Refused):
                    raise RefusedError(f"the server at {self.server} refuses: {found.text}", remedy=_remedy(found.text))
                if isinstance(found, texts.Unreadable):
                    raise DataFormatError(
                        f"the server at {self.server} answers {found}, which is not Echo 2.0", remedy="Look at it."
                    )
                if found is not None:
                    return found
        return None

    def _reply(self) -> bytes | None:
        listening = self._listening
        assert listening is not None
        images = listening.images()
        for image in images:
            for message in image.poll(1):
                found = texts.Unreadable(b"") if message is None else texts.read_reply(message)
                if isinstance(found, texts.Refused):
                    raise RefusedError(
                        f"the server at {self.server} ended the duologue: {found.text}", remedy=_remedy(found.text)
                    )
                if isinstance(found, texts.Unreadable):
                    raise DataFormatError(f"the server at {self.server} says {found}", remedy="Look at it.")
                return found
        if not images:
            raise ConnectError(
                f"the duologue with {self.server} was closed", remedy="The server stopped, or the way to it broke."
            )
        return None


def _remedy(text: str) -> str:
    if text in (texts.SERVER_FULL, texts.ADDRESS_FULL):
        return "Try again when others have left, or raise its limits."
    return "The text is the server's."


FRAGMENTS: Final = 10  # of one client in one poll, as many as the reference takes

FOREIGN: Final = "this duologue belongs to another address"


class EchoDuologue:
    """The server's end. What it opens it closes; ports, session id and place are its server's to give back."""

    def __init__(
        self,
        client: Client,
        host: str,
        place: texts.EchoAddress,
        owner: UdpSource,
        report: Report,
        *,
        expires: float,
        patience: float,
    ) -> None:
        self.place = place
        self.owner = owner
        self.joined = False
        self._report = report
        self._expires = expires
        self._failed = False
        self._refused: set[int] = set()
        control, data = HostPort(host, place.control_port), HostPort(host, place.data_port)
        with contextlib.ExitStack() as opened:
            for ownership in own(client, place, str(owner.address)):
                opened.callback(ownership.close)
            outgoing = watched(channels.fanning_out(control, place.session_id))
            self._talking = BytesPublication(client, outgoing, texts.STREAM_ID)
            opened.callback(self._talking.close)
            incoming = watched(channels.receiving(data, place.session_id))
            self._listening = PolledSubscription(client, incoming, texts.STREAM_ID, self._talking.max_message_bytes)
            opened.callback(self._listening.close)
            self._opened = opened.pop_all()
        self._outbox = Outbox(self._talking, patience)

    @property
    def echoes(self) -> int:
        """How many messages were answered."""
        return self._outbox.sent

    def poll(self, now: float) -> tuple[int, str]:
        """Do what can be done now; return how much that was, and why the duologue is over, or an empty text."""
        images = [image for image in self._listening.images() if self._is_owner(image)]
        work = self._outbox.flush(now)
        if self._outbox.overdue(now):
            return work, "its client does not read"
        if not self._outbox.empty:
            return work, ""  # the client is slower than its own questions: no more of them before these are answered
        if self._failed:
            return work, texts.BAD_MESSAGE
        if not images:
            if self.joined:
                return work, "its client left"
            return work, "its client never came" if now >= self._expires else ""
        if not self.joined:
            self.joined = True
            self._report(ClientJoined(images[0].source, self.place.data_port))
        for image in images:
            for message in image.poll(FRAGMENTS):
                work += 1
                self._answer(image, message, now)
        self._outbox.flush(now)
        return work, ""

    def close(self) -> None:
        """Close both ways; what was said last still reaches the client."""
        self._opened.close()

    def _is_owner(self, image: PolledImage) -> bool:
        if is_from_address(image.source, str(self.owner.address)):
            return True
        if image.id not in self._refused:
            self._refused.add(image.id)
            self._report(Refusal(image.source, image.session_id, FOREIGN))
        image.reject(FOREIGN)
        return False

    def _answer(self, image: PolledImage, message: bytes | None, now: float) -> None:
        if self._failed:
            return
        payload = None if message is None else texts.read_echo(message)
        if payload is not None:
            self._outbox.put(texts.echo(payload), now)
            return
        self._failed = True
        self._report(Refusal(image.source, image.session_id, texts.BAD_MESSAGE))
        self._outbox.put(texts.failure(texts.BAD_MESSAGE), now)


SERVER_STEP_SECONDS: Final = 10.0  # that a client has to come, and a reply to be taken; the reference's

PORTS_REST: Final = 1.0  # seconds; twice as long as a closed publication lingers on its port

ATTEMPTS: Final = 3  # at ports that another program may have

TEXTS: Final = {"full": texts.SERVER_FULL, "address-limit": texts.ADDRESS_FULL}


@dataclass(frozen=True, slots=True)
class Server2Settings:
    """``clients`` and ``per_address`` bound the duologues; each has two ports, from ``duologue_ports`` on."""

    listen: HostPort
    control_port: int
    duologue_ports: int
    clients: int = 8
    per_address: int = 3  # 0: no limit

    def __post_init__(self) -> None:
        if not 0 < self.clients <= texts.LARGEST_PORT // 2:
            raise OptionError(f"a server cannot have {self.clients} clients", remedy="Each needs two ports.")
        own = {self.listen.port: "listen", self.control_port: "control"}
        if len(own) == 1:
            raise OptionError(f"listen and control are both port {self.control_port}", remedy="Choose two ports.")
        PortAllocator(self.duologue_ports, 2 * self.clients, bytes)  # raises where the range is none
        duologues = range(self.duologue_ports, self.duologue_ports + 2 * self.clients)
        for port, name in own.items():
            if not 0 < port <= texts.LARGEST_PORT:
                raise OptionError(f"{name} has the port {port}", remedy="Use one of 1 to 65535.")
            if port in duologues:
                raise OptionError(
                    f"the {name} port {port} is one of the duologues', {duologues[0]} to {duologues[-1]}",
                    remedy="Begin them elsewhere.",
                )


@dataclass(frozen=True, slots=True)
class _HeldDuologue:
    """A duologue and what is given back at its end."""

    duologue: EchoDuologue
    permit: Permit


class Server2:
    """Polled by one thread; ``poll`` never waits, except for the media driver to open and close channels."""

    def __init__(
        self,
        client: Client,
        settings: Server2Settings,
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
        self._admission = Admission(Limits(connections=settings.clients, connections_per_address=settings.per_address))
        self._ports = PortAllocator(settings.duologue_ports, 2 * settings.clients, entropy)
        self._sessions = IdAllocator(texts.FIRST_SESSION, texts.LAST_SESSION, entropy)
        self._held: list[_HeldDuologue] = []
        self._resting: deque[tuple[float, tuple[int, int]]] = deque()
        control = HostPort(settings.listen.host, settings.control_port)
        with contextlib.ExitStack() as opened:
            self._talking = talking(
                client, lambda session_id: watched(channels.fanning_out(control, session_id)), entropy
            )
            opened.callback(self._talking.close)
            self._listening = PolledSubscription(
                client, watched(channels.receiving(settings.listen)), texts.STREAM_ID, channels.LARGEST_MESSAGE
            )
            opened.pop_all()
        self._outbox = SharedOutbox(self._talking, step_seconds)
        report(reports.ListeningStarted(2, str(settings.listen), str(control)))

    @property
    def duologues(self) -> int:
        """How many there are, with those whose client has yet to come."""
        return len(self._held)

    @property
    def held(self) -> int:
        """Everything that is given back when the last client has gone: ports, session ids, places, addresses."""
        return self._ports.in_use + self._sessions.in_use + self._admission.connections + self._admission.addresses

    def poll(self) -> int:
        """Do what can be done now; return how much that was. Raises TransportError where the media driver is gone."""
        now = self._clock()
        while self._resting and self._resting[0][0] <= now:
            self._ports.release(self._resting.popleft()[1])
        self._report.tick()
        work = 0
        for image in self._listening.images():
            if self._outbox.waits_for(image.id):
                continue  # faster than its refusals may be sent: Aeron holds its sender back
            for message in image.poll(FRAGMENTS):
                work += 1
                self._answer(image, message, now)
        work += self._outbox.flush(now)
        for held in list(self._held):
            done, reason = self._poll(held.duologue, now)
            work += done
            if reason:
                self._end(held, reason, now)
        return work

    def close(self) -> None:
        """Close everything; nothing of it is left in the media driver once its lingering has passed."""
        now = self._clock()
        for held in list(self._held):
            self._end(held, "the server stops", now)
        self._report.close()
        self._listening.close()
        self._talking.close()

    def _poll(self, duologue: EchoDuologue, now: float) -> tuple[int, str]:
        try:
            return duologue.poll(now)
        except TransportError as error:
            if self._client.closed:
                raise
            return 1, str(error)  # of this one alone

    def _answer(self, image: PolledImage, message: bytes | None, now: float) -> None:
        key = None if message is None else texts.read_hello_2(message)
        found = texts.BAD_MESSAGE if key is None else self._open(image, now)
        if isinstance(found, str) or key is None:
            text = found if isinstance(found, str) else texts.BAD_MESSAGE
            self._report(reports.Refusal(image.source, image.session_id, text))
            self._outbox.refuse(image.id, texts.refuse(image.session_id, text), now)
            return
        self._report(reports.DuologueOpened(image.source, image.session_id, found.data_port, found.control_port))
        self._outbox.admit(texts.connect(image.session_id, key, found), now)

    def _open(self, image: PolledImage, now: float) -> texts.EchoAddress | str:
        """Open a duologue for who sends ``image``; return where, or the text of the refusal."""
        source = parse_source(image.source)
        assert isinstance(source, UdpSource)  # what is received by UDP
        permit = self._admission.connect(source)
        if isinstance(permit, refusals.Refusal):
            return TEXTS[permit.code]
        with contextlib.ExitStack() as refused:
            refused.enter_context(permit)
            for _ in range(ATTEMPTS):
                duologue = self._try_to_open(source, now)
                if duologue is not None:
                    refused.pop_all()
                    self._held.append(_HeldDuologue(duologue, permit))
                    return duologue.place
        return texts.SERVER_FULL

    def _try_to_open(self, owner: UdpSource, now: float) -> EchoDuologue | None:
        ports = self._ports.take(2)
        if isinstance(ports, refusals.Refusal):  # the last ones are resting
            return None
        session_id = self._sessions.take(now)
        if isinstance(session_id, refusals.Refusal):
            self._ports.release(ports)
            return None
        place = texts.EchoAddress(ports[0], ports[1], session_id)
        try:
            return EchoDuologue(
                self._client,
                self.settings.listen.host,
                place,
                owner,
                self._report,
                expires=now + self._step_seconds,
                patience=self._step_seconds,
            )
        except BaseException as error:
            self._give_back(place, now)
            if not isinstance(error, TransportError) or self._client.closed:
                raise
            self._report(reports.Refusal(str(owner), session_id, str(error)))  # another program has a port, say
            return None

    def _end(self, held: _HeldDuologue, reason: str, now: float) -> None:
        self._held.remove(held)
        held.permit.release()
        self._give_back(held.duologue.place, now)
        with contextlib.suppress(TransportError):  # a driver that is gone has closed everything
            held.duologue.close()
        self._report(reports.ClientEnded(str(held.duologue.owner), held.duologue.echoes, reason))

    def _give_back(self, place: texts.EchoAddress, now: float) -> None:
        self._sessions.release(place.session_id, now)
        self._resting.append((now + PORTS_REST, (place.data_port, place.control_port)))
