"""Client and server of Echo 2.0.

A client requests a duologue on the channel of all clients. The duologue is a pair of channels for this client alone. It
passes NAT.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from aeron_spark.aeron.client import AeronClient
from aeron_spark.aeron.publications import BytesPublication, PolledImage, PolledSubscription
from aeron_spark.echo import conversation, texts
from aeron_spark.echo.conversation import (
    ClientJoined,
    Clock,
    EchoRefused,
    LimitedReport,
    Outbox,
    Report,
    SharedOutbox,
    check_size,
    refuse_echo,
    wait_for_step,
)
from aeron_spark.echo.texts import guarded_channel, open_publication, register_owner
from aeron_spark.errors import ConnectError, DataFormatError, OptionError, RefusedError, TransportError
from aeron_spark.protocol import sources
from aeron_spark.protocol.ids import Entropy, IdAllocator, PortAllocator
from aeron_spark.protocol.limits import Admission, Limits, Permit
from aeron_spark.protocol.sources import UdpSource, is_from_address, parse_source
from aeron_spark.transport.addresses import HostPort

T = TypeVar("T")

CLIENT_STEP_TIMEOUT_S: Final = 10.0  # for each step, as in the reference program

# Fragments per poll of the channel of all clients. With one per poll a client would fall behind a flood of responses.
RESPONSES_PER_POLL: Final = 256


class Client2:
    """A client of Echo 2.0. ``server`` receives the requests; the same host publishes responses at ``control_port``.

    The client chooses a random session id. Many media drivers would begin with the same one, and a client would take
    the response to another client with its session id for its own.
    """

    def __init__(
        self,
        client: AeronClient,
        server: HostPort,
        control_port: int,
        *,
        step_timeout_s: float = CLIENT_STEP_TIMEOUT_S,
        clock: Clock = time.monotonic,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.server = server
        self.control = HostPort(server.host, control_port)
        self._client = client
        self._step_timeout_s = step_timeout_s
        self._clock = clock
        self._entropy = entropy
        self._key = int.from_bytes(entropy(4), "big")
        self._publication: BytesPublication | None = None
        self._subscription: PolledSubscription | None = None

    def connect(self) -> Generator[None, None, conversation.ClientConnected]:
        """Request a duologue and join it; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        start = self._clock()
        subscription = self._listen(texts.join_channel(self.control))
        yield from self._wait(lambda: bool(subscription.images()), "initial subscription")
        publication = self._talk(self.server)
        session_id = publication.session_id
        yield from self._wait(lambda: publication.connected, "initial publication")
        yield from self._wait(lambda: publication.offer(texts.encode_hello_2(self._key)) is None, "HELLO")
        address = yield from self._wait(lambda: self._poll_response(subscription, session_id), "CONNECT response")
        self.close()
        subscription = self._listen(
            texts.join_channel(HostPort(self.server.host, address.control_port), address.session_id)
        )
        yield from self._wait(lambda: bool(subscription.images()), "duologue subscription")
        publication = self._publication = BytesPublication(
            self._client,
            texts.send_channel(HostPort(self.server.host, address.data_port), address.session_id),
            texts.STREAM_ID,
        )
        yield from self._wait(lambda: publication.connected, "duologue publication")
        return conversation.ClientConnected(str(self.server), session_id, self._clock() - start)

    def echo(self, payload: bytes) -> Generator[None, None, bytes]:
        """Send ``payload`` and receive its echo; see :class:`~aeron_spark.echo.conversation.EchoClient`."""
        publication = self._publication
        assert publication is not None  # connect() was called before
        message = texts.encode_echo(payload)
        check_size(len(payload), publication.max_message_bytes - (len(message) - len(payload)))
        yield from self._wait(lambda: self._offer(publication, message), "ECHO request")
        return (yield from self._wait(self._poll_reply, "ECHO response"))

    def check_connection(self) -> None:
        """Raise RefusedError if the server ended the duologue with an ERROR, ConnectError if it closed it."""
        refuse_echo(self._poll_reply())

    def close(self) -> None:
        """Close the publication and the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()

    def _offer(self, publication: BytesPublication, message: bytes) -> bool:
        self.check_connection()  # otherwise a client of a closed duologue would offer until its deadline
        return publication.offer(message) is None

    def _listen(self, channel: str) -> PolledSubscription:
        self._subscription = PolledSubscription(self._client, channel, texts.STREAM_ID, texts.LARGEST_MESSAGE)
        return self._subscription

    def _talk(self, server: HostPort) -> BytesPublication:
        self._publication = open_publication(
            self._client, lambda session_id: texts.send_channel(server, session_id), self._entropy
        )
        return self._publication

    def _wait(self, poll: Callable[[], T | None], step: str) -> Generator[None, None, T]:
        return wait_for_step(poll, self._step_timeout_s, step, self._clock)

    def _poll_response(self, subscription: PolledSubscription, session_id: int) -> texts.EchoAddress | None:
        for image in subscription.images():
            for message in image.poll(RESPONSES_PER_POLL):
                found = None if message is None else texts.decode_response(message, session_id, self._key)
                if isinstance(found, texts.Refused):
                    raise RefusedError(
                        f"the server at {self.server} refused the connection: {found.text}", remedy=_remedy(found.text)
                    )
                if isinstance(found, texts.Unreadable):
                    raise DataFormatError(
                        f"the server at {self.server} sent {found}, which is not Echo 2.0",
                        remedy="Check that an Echo 2.0 server runs at this address.",
                    )
                if found is not None:
                    return found
        return None

    def _poll_reply(self) -> bytes | None:
        subscription = self._subscription
        assert subscription is not None
        images = subscription.images()
        for image in images:
            for message in image.poll(1):
                found = texts.Unreadable(b"") if message is None else texts.decode_reply(message)
                if isinstance(found, texts.Refused):
                    raise RefusedError(
                        f"the server at {self.server} ended the duologue: {found.text}", remedy=_remedy(found.text)
                    )
                if isinstance(found, texts.Unreadable):
                    raise DataFormatError(
                        f"the server at {self.server} sent {found}, which is not Echo 2.0",
                        remedy="Check that an Echo 2.0 server runs at this address.",
                    )
                return found
        if not images:
            raise ConnectError(
                f"the duologue with {self.server} was closed, or the network failed",
                remedy="Check that the server runs, then start the client again.",
            )
        return None


def _remedy(text: str) -> str:
    if text in (texts.SERVER_FULL, texts.ADDRESS_FULL):
        return "Try again when other clients have left, or raise the server's limits."
    return "Ask the server's operator about this error text."


FRAGMENTS_PER_POLL: Final = 10  # from each client, as in the reference program

FOREIGN: Final = "this duologue belongs to another address"


class EchoDuologue:
    """The server's end of a duologue: a publication and a subscription for one client.

    ``expires`` is the time by which the client has to join. The server owns ports, session id and permit, and releases
    them.
    """

    def __init__(
        self,
        client: AeronClient,
        host: str,
        address: texts.EchoAddress,
        owner: UdpSource,
        report: Report,
        *,
        expires: float,
        timeout_s: float,
    ) -> None:
        self.address = address
        self.owner = owner
        self.joined = False
        self._report = report
        self._expires = expires
        self._failed = False
        self._refused: set[int] = set()
        control, data = HostPort(host, address.control_port), HostPort(host, address.data_port)
        with contextlib.ExitStack() as opened:
            for ownership in register_owner(client, address, str(owner.address)):
                opened.callback(ownership.close)
            outgoing = guarded_channel(texts.fan_out_channel(control, address.session_id))
            self._publication = BytesPublication(client, outgoing, texts.STREAM_ID)
            opened.callback(self._publication.close)
            incoming = guarded_channel(texts.receive_channel(data, address.session_id))
            self._subscription = PolledSubscription(
                client, incoming, texts.STREAM_ID, self._publication.max_message_bytes
            )
            opened.callback(self._subscription.close)
            self._opened = opened.pop_all()
        self._outbox = Outbox(self._publication.offer, timeout_s)

    @property
    def echoes(self) -> int:
        """The number of echoes sent."""
        return self._outbox.sent

    def poll(self, now: float) -> tuple[int, str]:
        """Handle the available messages.

        Return a number above 0 if there was work, and the reason if the duologue has ended, else an empty text.
        """
        images = [image for image in self._subscription.images() if self._is_owner(image)]
        work = self._outbox.flush(now)
        if self._outbox.is_overdue(now):
            return work, "its client does not read"
        if not self._outbox.is_empty:
            return work, ""  # the client reads slower than it sends: its messages wait in Aeron
        if self._failed:
            return work, texts.BAD_MESSAGE
        if not images:
            if self.joined:
                return work, "its client left"
            return work, "its client never came" if now >= self._expires else ""
        if not self.joined:
            self.joined = True
            self._report(ClientJoined(images[0].source, self.address.data_port))
        for image in images:
            for message in image.poll(FRAGMENTS_PER_POLL):
                work += 1
                self._answer(image, message, now)
        self._outbox.flush(now)
        return work, ""

    def close(self) -> None:
        """Close the channels. Messages that were published last still reach the client."""
        self._opened.close()

    def _is_owner(self, image: PolledImage) -> bool:
        if is_from_address(image.source, str(self.owner.address)):
            return True
        if image.id not in self._refused:
            self._refused.add(image.id)
            self._report(EchoRefused(image.source, image.session_id, FOREIGN))
        image.reject(FOREIGN)
        return False

    def _answer(self, image: PolledImage, message: bytes | None, now: float) -> None:
        if self._failed:
            return
        payload = None if message is None else texts.decode_echo(message)
        if payload is not None:
            self._outbox.put(texts.encode_echo(payload), now)
            return
        self._failed = True
        self._report(EchoRefused(image.source, image.session_id, texts.BAD_MESSAGE))
        self._outbox.put(texts.encode_error(texts.BAD_MESSAGE), now)


# Time in which a client has to join its duologue, and in which a reply has to be published; as in the reference
# program.
SERVER_STEP_TIMEOUT_S: Final = 10.0

PORT_REUSE_DELAY_S: Final = 1.0  # twice the time for which a closed publication lingers on its port

ATTEMPTS: Final = 3  # to find ports that no other program uses

REFUSAL_TEXTS: Final = {"full": texts.SERVER_FULL, "address-limit": texts.ADDRESS_FULL}


@dataclass(frozen=True, slots=True)
class Server2Settings:
    """``clients`` and ``per_address`` limit the duologues. Each needs two ports, counted from ``duologue_ports``."""

    listen: HostPort
    control_port: int
    duologue_ports: int
    clients: int = 8
    per_address: int = 3  # 0: no limit

    def __post_init__(self) -> None:
        if not 0 < self.clients <= texts.LARGEST_PORT // 2:
            raise OptionError(
                f"a server cannot have {self.clients} clients",
                remedy=f"Allow 1 to {texts.LARGEST_PORT // 2}: each client needs two ports.",
            )
        server_ports = {self.listen.port: "listen", self.control_port: "control"}
        if len(server_ports) == 1:
            raise OptionError(f"listen and control are both port {self.control_port}", remedy="Choose two ports.")
        PortAllocator(self.duologue_ports, 2 * self.clients, bytes)  # raises OptionError for an invalid range
        duologues = range(self.duologue_ports, self.duologue_ports + 2 * self.clients)
        for port, name in server_ports.items():
            if not 0 < port <= texts.LARGEST_PORT:
                raise OptionError(f"the {name} port is {port}, expected 1 to 65535", remedy="Choose another port.")
            if port in duologues:
                raise OptionError(
                    f"the {name} port {port} is in the range of the duologues, {duologues[0]} to {duologues[-1]}",
                    remedy="Choose another first port for the duologues.",
                )


@dataclass(frozen=True, slots=True)
class _OpenDuologue:
    """A duologue, and the permit to release at its end."""

    duologue: EchoDuologue
    permit: Permit


class Server2:
    """A server of Echo 2.0, for one thread. ``poll`` waits only for the media driver to open and close channels."""

    def __init__(
        self,
        client: AeronClient,
        settings: Server2Settings,
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
        limits = Limits(connections=settings.clients, connections_per_address=settings.per_address)
        self._admission = Admission(lambda: limits)
        self._ports = PortAllocator(settings.duologue_ports, 2 * settings.clients, entropy)
        self._sessions = IdAllocator(texts.FIRST_SESSION, texts.LAST_SESSION, entropy)
        self._open_duologues: list[_OpenDuologue] = []
        self._lingering_ports: deque[tuple[float, tuple[int, int]]] = deque()
        control = HostPort(settings.listen.host, settings.control_port)
        with contextlib.ExitStack() as opened:
            self._publication = open_publication(
                client, lambda session_id: guarded_channel(texts.fan_out_channel(control, session_id)), entropy
            )
            opened.callback(self._publication.close)
            self._subscription = PolledSubscription(
                client,
                guarded_channel(texts.receive_channel(settings.listen)),
                texts.STREAM_ID,
                texts.LARGEST_MESSAGE,
            )
            opened.pop_all()
        self._outbox = SharedOutbox(self._publication.offer, step_timeout_s)
        report(conversation.ListeningStarted(2, str(settings.listen), str(control)))

    @property
    def duologues(self) -> int:
        """The number of duologues, including those that their clients have not joined yet."""
        return len(self._open_duologues)

    @property
    def resources_in_use(self) -> int:
        """The number of ports, session ids, permits and addresses in use; 0 when the last client has left."""
        return self._ports.in_use + self._sessions.in_use + self._admission.connections + self._admission.addresses

    def poll(self) -> int:
        """Handle the available messages. Return a number above 0 if there was work.

        Raises TransportError if the media driver is lost.
        """
        now = self._clock()
        while self._lingering_ports and self._lingering_ports[0][0] <= now:
            self._ports.release(self._lingering_ports.popleft()[1])
        self._report.tick()
        work = 0
        for image in self._subscription.images():
            if self._outbox.has_refusal(image.id):
                continue  # the session sends faster than its refusals may be sent; Aeron gives it back-pressure
            for message in image.poll(FRAGMENTS_PER_POLL):
                work += 1
                self._answer(image, message, now)
        work += self._outbox.flush(now)
        for entry in list(self._open_duologues):
            duologue_work, reason = self._poll(entry.duologue, now)
            work += duologue_work
            if reason:
                self._end(entry, reason, now)
        return work

    def close(self) -> None:
        """Close everything. The media driver releases the ports when the linger time is over."""
        now = self._clock()
        for entry in list(self._open_duologues):
            self._end(entry, "the server stops", now)
        self._report.close()
        self._subscription.close()
        self._publication.close()

    def _poll(self, duologue: EchoDuologue, now: float) -> tuple[int, str]:
        try:
            return duologue.poll(now)
        except TransportError as error:
            if self._client.closed:
                raise
            return 1, str(error)  # ends this duologue only

    def _answer(self, image: PolledImage, message: bytes | None, now: float) -> None:
        key = None if message is None else texts.decode_hello_2(message)
        found = texts.BAD_MESSAGE if key is None else self._open(image, now)
        if isinstance(found, str) or key is None:
            text = found if isinstance(found, str) else texts.BAD_MESSAGE
            self._report(conversation.EchoRefused(image.source, image.session_id, text))
            self._outbox.refuse(image.id, texts.encode_refusal(image.session_id, text), now)
            return
        self._report(conversation.DuologueOpened(image.source, image.session_id, found.data_port, found.control_port))
        self._outbox.admit(texts.encode_connect(image.session_id, key, found), now)

    def _open(self, image: PolledImage, now: float) -> texts.EchoAddress | str:
        """Open a duologue for the sender of ``image``. Return its address, or the text of the refusal."""
        source = parse_source(image.source)
        assert isinstance(source, UdpSource)  # the subscription's channel is UDP
        permit = self._admission.connect(source, time.monotonic())
        if isinstance(permit, sources.Refusal):
            return REFUSAL_TEXTS[permit.code]
        with contextlib.ExitStack() as refused:
            refused.enter_context(permit)
            for _ in range(ATTEMPTS):
                duologue = self._try_to_open(source, now)
                if duologue is not None:
                    refused.pop_all()
                    self._open_duologues.append(_OpenDuologue(duologue, permit))
                    return duologue.address
        return texts.SERVER_FULL

    def _try_to_open(self, owner: UdpSource, now: float) -> EchoDuologue | None:
        ports = self._ports.take(2)
        if isinstance(ports, sources.Refusal):  # the last ones are lingering
            return None
        session_id = self._sessions.take(now)
        if isinstance(session_id, sources.Refusal):
            self._ports.release(ports)
            return None
        address = texts.EchoAddress(ports[0], ports[1], session_id)
        try:
            return EchoDuologue(
                self._client,
                self.settings.listen.host,
                address,
                owner,
                self._report,
                expires=now + self._step_timeout_s,
                timeout_s=self._step_timeout_s,
            )
        except BaseException as error:
            self._release(address, now)
            if not isinstance(error, TransportError) or self._client.closed:
                raise
            # For example, another program uses a port.
            self._report(conversation.EchoRefused(str(owner), session_id, str(error)))
            return None

    def _end(self, entry: _OpenDuologue, reason: str, now: float) -> None:
        self._open_duologues.remove(entry)
        entry.permit.release()
        self._release(entry.duologue.address, now)
        with contextlib.suppress(TransportError):  # a lost driver has closed everything
            entry.duologue.close()
        self._report(conversation.ClientEnded(str(entry.duologue.owner), entry.duologue.echoes, reason))

    def _release(self, address: texts.EchoAddress, now: float) -> None:
        self._sessions.release(address.session_id, now)
        self._lingering_ports.append((now + PORT_REUSE_DELAY_S, (address.data_port, address.control_port)))
