"""A client's machine, a runner that checks what the machine wants, a network and a server, all in virtual time."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from aeron_spark.errors import AeronSparkError, ConnectError, SessionLost, TransportError, UsageError
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_attempt import ClientPolicy
from aeron_spark.protocol.client_events import ClientEvent, ClientState, Effects
from aeron_spark.protocol.client_handshake import ClientTiming
from aeron_spark.protocol.client_machine import ClientMachine
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor, KeyLimits
from aeron_spark.protocol.handshake_payloads import DoneAck
from aeron_spark.protocol.refusals import Refusal
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.tickets import TicketStore
from tests.unit.protocol.handshakes import ADDRESS, CLIENT_KEYS, NOW, SERVER_KEYS, make_server

SERVER: Final = ServerName("10.0.0.9", 20000)
LOST: Final = TransportError("the link is gone")
POLICY: Final = ClientPolicy(
    tag="t", reconnect=True, expects_retry=True, server_key=None, trust_first_use=True, validate=True, first_pause=0.1,
    longest_pause=5.0, setup_seconds=10.0, expiry_seconds=4.0, close_seconds=2.0, reopen_seconds=0.5,
    timing=ClientTiming(), key_limits=KeyLimits(),
)  # fmt: skip
AT_ONCE: Final = (e.OpenPath, e.MakeConnection, e.OpenLink, e.Attach)  # what may be answered at once
WITH_PATH: Final = (ClientState.HANDSHAKING, ClientState.OPENING_LINK)
ATTACHED: Final = (ClientState.CONNECTED, ClientState.CLOSING)


@dataclass
class Path:
    """A path that is open, with its publications, of which the first may be connected already."""

    number: int
    publications: list[int]
    is_ready: bool = False


@dataclass
class Link:
    """A link that is open, with the client's ends of its ciphers."""

    number: int
    session: int
    ack: DoneAck
    encryptor: FrameEncryptor
    decryptor: FrameDecryptor
    is_verified: bool = False


@dataclass
class Told:
    """One connection of the program, and what its listeners were told."""

    number: int
    news: list[str] = field(default_factory=list)
    is_attached: bool = False
    detached_at: float | None = None
    refusing: AeronSparkError | None = None
    ended: AeronSparkError | None = None

    @property
    def is_present(self) -> bool:
        """Whether the program was told last that the connection can be used."""
        return bool(self.news) and self.news[-1] in ("connect", "resume")


class Server:
    """Answers handshakes with the real machines. ``refusal`` is how it answers, ``at`` in which step."""

    def __init__(self) -> None:
        self.identity: ServerIdentity = make_server()
        self.entropy: Final = random.Random(7).randbytes
        self.images: dict[int, ServerHandshake] = {}  # by the client's publication
        self.links: dict[
            int, tuple[str, server_side.ClientAccepted, bytes]
        ] = {}  # by session_in: session, keys, ticket
        self.numbers: dict[str, int] = {}  # by session: how both ends call it
        self.confirmed: set[str] = set()  # sessions that a link has carried
        self.announced: set[str] = set()  # sessions whose beginning their client has heard of
        self.refusal: Refusal | None = None
        self.at = "admit"
        self._count = 100
        self.restart()

    def restart(self) -> None:
        """Forget all sessions."""
        self.tickets: TicketStore[str] = TicketStore(self.entropy, 120.0, max_sessions_per_key=1000)

    def packet(self, publication: int, data: bytes, now: float) -> list[object]:
        """Take a packet; return what to send: packets, or the reasons of rejections as text."""
        if publication not in self.images:
            self.images[publication] = ServerHandshake(self.identity, ADDRESS, now)
        image = self.images[publication]
        sent: list[object] = []
        actions = deque(image.packet(data, now))
        while actions:
            match actions.popleft():
                case server_side.Reject(reason):
                    sent.append(reason)
                case server_side.Admit():
                    refused = self.refusal is not None and self.at == "admit"
                    actions += image.refuse(self.refusal, now) if refused and self.refusal else image.admitted(now)
                case server_side.OpenPath():
                    actions += image.path_ready(now)
                case server_side.Send(packet):
                    sent.append(packet)
                case server_side.Authenticate(key, done):
                    actions += self._decide(image, key, done.ticket, now)
                case server_side.ClientAccepted() as connected:
                    session, ticket = self._session
                    self.links[self._count] = session, connected, ticket
                case _:
                    pass
        return sent

    def _decide(self, image: ServerHandshake, key: bytes, ticket: bytes | None, now: float) -> Any:
        if self.refusal is not None and self.at == "authenticate":
            return image.refuse(self.refusal, now)
        self._count += 1
        offer, resumed = (None if ticket is None else self.tickets.present(ticket, key, now)), True
        if offer is None:
            opened = self.tickets.open(key, f"session {self._count}", now, ticket)
            assert not isinstance(opened, Refusal)
            offer, resumed = opened[0], False
            self.numbers[offer.session] = self._count
        self._session = offer.session, offer.ticket
        ack = DoneAck(
            session_in=self._count,
            stream_in=2,
            session_out=3,
            stream_out=4,
            data_port=20_000,
            control_port=20_001,
            reply_channel="response",
            expiry_ms=4000,
            linger_ms=60_000,
            ticket=offer.ticket,
            resumed=resumed,
            received=0,
            max_message=1 << 17,
        )
        return image.accept(ack, now)


class ClientWorld:
    """Executes effects as a runner does, and fails where they contradict each other."""

    def __init__(self, policy: ClientPolicy = POLICY) -> None:
        self.policy = policy
        self.now = NOW
        self.machine = ClientMachine(SERVER, policy, CLIENT_KEYS, random.Random(1).randbytes)
        self.server = Server()
        self.path: Path | None = None
        self.link: Link | None = None
        self.connections: dict[int, Told] = {}  # that are not forgotten
        self.all: list[Told] = []
        self.to_server: list[tuple[int, bytes]] = []  # publication and packet
        self.to_client: list[ClientEvent] = []
        self.look_ups = self.reopenings = 0  # that have no answer yet
        self.has_driver = True
        self.wanted = 0  # connects that have no outcome yet
        self.outcomes: list[int | AeronSparkError] = []
        self.trusted: list[bytes] = []
        self.reports: list[AeronSparkError] = []
        self.class_fails = self.attach_fails = self.link_fails = self.path_fails = False
        self._used: set[int] = set()  # numbers of paths, publications, links and sessions

    # What a runner does.

    def do(self, effects: Effects) -> None:
        """Execute the effects of a step, and what their answers lead to; then look that all is consistent."""
        pending = deque([effects])
        while pending:
            step = pending.popleft()
            for effect in step:
                answer = self._perform(effect)
                if isinstance(effect, AT_ONCE):
                    assert effect is step[-1], step
                if answer is not None:
                    pending.append(self.machine.handle(answer, self.now))
        self.check()

    def feed(self, event: ClientEvent) -> None:
        self.do(self.machine.handle(event, self.now))

    def connect(self, seconds: float | None = None, *, reconnecting: bool = False) -> None:
        self.wanted += 1
        until = None if seconds is None else self.now + seconds
        self.do(self.machine.connect(until, self.now, reconnecting=reconnecting))

    def close(self, *, keep_session: bool = False) -> None:
        self.do(self.machine.close(keep_session=keep_session, now=self.now))

    def shut_down(self) -> None:
        self.do(self.machine.shut_down(self.now))

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick at each deadline."""
        end = self.now + seconds
        for _ in range(1000):
            deadline = self.machine.deadline()
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now, deadline)
            self.do(self.machine.tick(self.now))
        raise AssertionError(f"the machine does not rest in {self.machine.state}")

    def _perform(self, effect: Any) -> ClientEvent | None:
        match effect:
            case e.OpenPath() | e.OpenPublication() | e.ClosePublication() | e.ClosePath() | e.Transmit():
                return self._on_path(effect)
            case e.OpenLink() | e.CloseLink() | e.Attach() | e.Detach():
                return self._on_link(effect)
            case e.MakeConnection(session, number, key):
                assert key == SERVER_KEYS.public
                self._is_new(session)
                if self.class_fails:
                    return e.ConnectionFailed(session, UsageError("the class fails"))
                self.connections[session] = Told(number)
                self.all.append(self.connections[session])
                return e.ConnectionMade(session)
            case e.ForgetConnection(session):
                gone = self.connections.pop(session)
                assert not gone.is_attached
                assert not gone.is_present, gone
            case e.RefuseSending(session, error):
                self.connections[session].refusing = error
            case e.EndConnection(session, error):
                assert self.connections[session].ended is None
                self.connections[session].ended = error
            case e.Notify(session, about):
                self._notify(self.connections[session], about)
            case e.Report(session, error):
                assert session in self.connections
                self.reports.append(error)
            case e.Resolve(outcome):
                assert self.wanted == 1, "nobody waits"
                self.wanted = 0
                self.outcomes.append(outcome)
                assert isinstance(outcome, AeronSparkError) or self.connections[outcome].is_attached
            case e.LookUpKey():
                self.look_ups += 1
                assert self.look_ups == 1, "the store is asked twice"
            case e.RememberKey(session, key):
                assert session in self.connections
                self.trusted.append(key)
            case e.ReopenTransport():
                self.reopenings += 1
                assert self.reopenings == 1, "the transport is opened twice"
            case _:
                raise AssertionError(effect)
        return None

    def _on_path(self, effect: Any) -> ClientEvent | None:
        if isinstance(effect, e.OpenPath):
            assert self.path is None, "two paths"
            self._is_new(effect.path)
            self._is_new(effect.publication)
            self.path = Path(effect.path, [effect.publication])
            return e.PathFailed(effect.path, ConnectError("no path")) if self.path_fails else None
        path = self.path
        assert path is not None, effect
        assert path.number == effect.path
        match effect:
            case e.OpenPublication(_, publication):
                self._is_new(publication)
                path.publications.append(publication)
                assert len(path.publications) <= 2
            case e.ClosePublication(_, publication):
                path.publications.remove(publication)
                assert path.publications, "a path without a publication"
            case e.Transmit(_, publication, packet):
                assert publication in path.publications
                assert path.is_ready
                self.to_server.append((publication, packet))
            case e.ClosePath():
                self.path = None
                self.to_client = [one for one in self.to_client if getattr(one, "path", None) != path.number]
        return None

    def _on_link(self, effect: Any) -> ClientEvent | None:
        match effect:
            case e.OpenLink(number, session, ack, encryptor, decryptor):
                assert self.link is None, "two links"
                assert session in self.connections
                self._is_new(number)
                self.link = Link(number, session, ack, encryptor, decryptor)
                if not ack.resumed:
                    self.server.announced.add(self.server.links[ack.session_in][0])
                return e.LinkFailed(number, ConnectError("no link")) if self.link_fails else None
            case e.CloseLink(number):
                assert self.link is not None
                assert self.link.number == number
                self.link = None
            case e.Attach(session, number, _):
                assert self.link is not None
                assert (self.link.number, self.link.session) == (number, session)
                told = self.connections[session]
                assert not told.is_attached
                if self.attach_fails:
                    self.attach_fails = False
                    return e.SessionFailed(session, lost_session())
                told.is_attached, told.refusing, told.detached_at = True, None, None
                return e.Attached(session)
            case e.Detach(session):
                told = self.connections[session]
                told.is_attached, told.detached_at = False, self.now
        return None

    def _is_new(self, number: int) -> None:
        assert number not in self._used
        self._used.add(number)

    def _notify(self, told: Told, about: str) -> None:
        match about:
            case "init":
                assert told.news == []
            case "connect":
                assert told.news == ["init"]
            case "resume":
                assert "connect" in told.news
            case "disconnect":
                assert told.is_present
                assert not told.is_attached
        assert about == "disconnect" or told.ended is None
        told.news.append(about)

    # What must be true after each event.

    def check(self) -> None:
        state, machine = self.machine.state, self.machine
        assert (self.path is not None) == (state in WITH_PATH), state
        assert (self.link is not None) == (state in (*ATTACHED, ClientState.OPENING_LINK)), state
        assert machine.is_connect_pending == (self.wanted == 1)
        assert not machine.is_connect_pending or state not in (
            ClientState.IDLE,
            ClientState.CLOSED,
            ClientState.CONNECTED,
        )
        self._check_deadline()
        session = None if machine.session is None else machine.session.session
        candidate = None if machine.candidate is None else machine.candidate.session
        assert set(self.connections) == {session, candidate} - {None}
        for number, told in self.connections.items():
            assert told.is_attached == (number == session and state in ATTACHED), (number, state)
            assert told.ended is None
        if session is not None:
            self._check_session(self.connections[session])
        for told in self.all:
            assert not (told.ended and told.is_present)

    def _check_deadline(self) -> None:
        deadline = self.machine.deadline()
        match self.machine.state:
            case ClientState.LOOKING_UP:
                assert self.look_ups == 1
            case ClientState.WITHOUT_DRIVER:
                assert deadline is not None or self.reopenings == 1
            case ClientState.CLOSED:
                assert deadline is None
            case ClientState.HANDSHAKING | ClientState.OPENING_LINK | ClientState.PAUSED | ClientState.CLOSING:
                assert deadline is not None
            case _:
                pass

    def _check_session(self, told: Told) -> None:
        """What is sent on a session is taken only while the client tries to send it; its loss is told in time."""
        state = self.machine.state
        if state is ClientState.IDLE and not self.machine.is_reconnecting:
            assert told.refusing is not None
            assert self.machine.stopped is not None
        if state not in (ClientState.IDLE, ClientState.CLOSING):
            assert told.refusing is None
            assert self.machine.stopped is None
        if told.detached_at is not None and self.now > told.detached_at + self.policy.expiry_seconds:
            assert not told.is_present

    # What the network and the server do.

    def deliver_to_server(self, index: int = 0, *, again: bool = False) -> None:
        publication, packet = self.to_server[index]
        if not again:
            del self.to_server[index]
        if self.path is None or publication not in self.path.publications:
            return
        for sent in self.server.packet(publication, packet, self.now):
            if isinstance(sent, str):
                self.to_client.append(e.PublicationRejected(self.path.number, publication, sent))
            else:
                assert isinstance(sent, bytes)
                self.to_client.append(e.Packet(self.path.number, sent))

    def deliver_to_client(self, index: int = 0, *, again: bool = False) -> None:
        event = self.to_client[index]
        if not again:
            del self.to_client[index]
        if isinstance(event, e.PublicationRejected):
            if self.path is None or event.publication not in self.path.publications:
                return  # the runner has closed it
            self.server.images.pop(event.publication, None)
        self.feed(event)

    def path_ready(self) -> None:
        assert self.path is not None
        self.path.is_ready = True
        self.feed(e.PathReady(self.path.number, self.path.publications[0]))

    def verify_link(self, received: int = 0) -> bool:
        """Have the first frames of the link cross; whether the server still knows the link, and the session fits it.

        A server that has begun a new session, and whose answer was lost, finds that by the ticket of the session
        before. The number of received records in OPEN tells the two apart.
        """
        link = self.link
        assert link is not None
        session, there, ticket = self.server.links[link.ack.session_in]
        if "connect" in self.connections[link.session].news and session not in self.server.confirmed:
            self.server.tickets.drop(ticket)
        if not self.server.tickets.confirm(ticket):
            return False
        self.server.confirmed.add(session)
        assert bytes(link.decryptor.decrypt(bytes(there.encryptor.encrypt(b"first")))) == b"first"
        link.is_verified = True
        self.feed(e.LinkVerified(link.number, received))
        if self.link is link and session in self.server.announced:
            assert self.connections[link.session].number == self.server.numbers[session]
        return True

    def lose_link(self) -> None:
        """Have the server lose the link, too: its session waits."""
        assert self.link is not None
        _, _, ticket = self.server.links[self.link.ack.session_in]
        self.server.tickets.detach(ticket, self.now)

    def key_known(self, key: bytes | None = None) -> None:
        self.look_ups -= 1
        self.feed(e.KeyKnown(key, 5, {1: b"digest-1"}))

    def look_up_failed(self, error: AeronSparkError) -> None:
        self.look_ups -= 1
        self.feed(e.LookUpFailed(error))

    def lose_driver(self) -> None:
        if self.link is not None:
            self.lose_link()
        self.has_driver = False
        self.feed(e.DriverLost(TransportError("the driver is gone")))

    def driver_back(self) -> None:
        self.reopenings -= 1
        self.has_driver = True
        self.feed(e.TransportReopened())

    def driver_failed(self) -> None:
        self.reopenings -= 1
        self.feed(e.ReopenFailed(ConnectError("no driver")))

    def advance(self) -> None:
        """Have the next thing happen that a sound network, server and key store do."""
        state = self.machine.state
        if self.reopenings:
            self.driver_back()
        elif self.look_ups:
            self.key_known()
        elif self.to_client:
            self.deliver_to_client()
        elif self.to_server:
            self.deliver_to_server()
        elif state is ClientState.HANDSHAKING and self.path is not None and not self.path.is_ready:
            self.path_ready()
        elif state is ClientState.CLOSING and self.link is not None:
            self.feed(e.Drained(self.link.number))
        elif not (state is ClientState.OPENING_LINK and self.verify_link()):
            deadline = self.machine.deadline()
            assert deadline is not None, f"nothing happens in {state}"
            self.wait(deadline - self.now)

    def advance_to(self, *states: ClientState) -> None:
        """Let sound things happen until the machine is in one of these states."""
        for _ in range(200):
            if self.machine.state in states:
                return
            self.advance()
        raise AssertionError(f"the machine stays in {self.machine.state}")


def lost_session() -> AeronSparkError:
    """The error of two ends that differ in what they have received."""
    return SessionLost("the ends do not fit")


def in_state(state: ClientState, policy: ClientPolicy = POLICY) -> ClientWorld:
    """Return a client in a state; it has a session in those that a connected client comes to."""
    one = ClientWorld(policy)
    if state is ClientState.IDLE:
        return one
    one.connect()
    if state in (ClientState.LOOKING_UP, ClientState.HANDSHAKING, ClientState.OPENING_LINK):
        one.advance_to(state)
        return one
    one.advance_to(ClientState.CONNECTED)
    match state:
        case ClientState.PAUSED:
            lose(one)
        case ClientState.WITHOUT_DRIVER:
            one.lose_driver()
        case ClientState.CLOSING:
            one.close()
        case ClientState.CLOSED:
            one.shut_down()
    return one


def lose(one: ClientWorld, *, silent: bool = False) -> None:
    """End the link at both ends; the session waits."""
    assert one.link is not None
    one.lose_link()
    one.feed(e.LinkFailed(one.link.number, LOST, silent))
