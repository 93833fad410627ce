"""A client machine with a runner that checks its effects, a network and a server, all in virtual time."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from aeron_spark.errors import AeronSparkError, ConnectError, SessionLost, TransportError, UsageError
from aeron_spark.options import ClientOptions
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_events import ClientEvent, ClientState, Effects
from aeron_spark.protocol.client_machine import ClientMachine
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_payloads import DoneAck
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.tickets import TicketStore
from tests.unit.protocol.handshakes import ADDRESS, CLIENT_KEYS, NOW, SERVER_KEYS, make_server

SERVER: Final = ServerName("10.0.0.9", 20000)
LOST: Final = TransportError("the link is gone")
OPTIONS: Final = ClientOptions(tag="t", first_pause=0.1, longest_pause=5.0, close_timeout=2.0)
REOPEN_SECONDS: Final = 0.5
AT_ONCE: Final = (e.OpenPath, e.MakeConnection, e.OpenLink, e.Attach)  # effects that may have a result at once
WITH_PATH: Final = (ClientState.HANDSHAKING, ClientState.OPENING_LINK)
ATTACHED: Final = (ClientState.CONNECTED, ClientState.CLOSING)


@dataclass
class Path:
    """An open path with its publications. ``is_ready``: the first one is connected."""

    number: int
    publications: list[int]
    is_ready: bool = False


@dataclass
class Link:
    """An open link with the client's encryptor and decryptor."""

    number: int
    session: int
    ack: DoneAck
    encryptor: FrameEncryptor
    decryptor: FrameDecryptor
    is_verified: bool = False


@dataclass
class FakeConnection:
    """One connection of the program, with the notifications of its listeners."""

    number: int
    notices: list[str] = field(default_factory=list)
    is_attached: bool = False
    detached_at: float | None = None
    send_error: AeronSparkError | None = None
    ended: AeronSparkError | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the last notification was "connect" or "resume"."""
        return bool(self.notices) and self.notices[-1] in ("connect", "resume")


class Server:
    """A server with real handshake machines. It refuses with ``refusal``, if set, in the step ``at``."""

    def __init__(self) -> None:
        self.identity: ServerIdentity = make_server()
        self.entropy: Final = random.Random(7).randbytes
        self.images: dict[int, ServerHandshake] = {}  # by the client's publication
        self.links: dict[
            int, tuple[str, server_side.ClientAccepted, bytes]
        ] = {}  # by session_in: session, keys, ticket
        self.numbers: dict[str, int] = {}  # by session: the number that both endpoints show
        self.confirmed: set[str] = set()  # sessions that a link has carried
        self.acknowledged: set[str] = set()  # new sessions whose DONE_ACK their client has received
        self.refusal: Refusal | None = None
        self.at = "admit"
        self._count = 100
        self.restart()

    def restart(self) -> None:
        """Lose all sessions."""
        self.tickets: TicketStore[str] = TicketStore(self.entropy, 120.0, max_connections_per_key=lambda: 1000)

    def packet(self, publication: int, data: bytes, now: float) -> list[object]:
        """Handle a packet; return packets to send, and reasons of rejections as text."""
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
    """Executes effects as a runner does, and fails if they contradict each other."""

    def __init__(self, options: ClientOptions = OPTIONS, *, has_driver: bool = True) -> None:
        self.options = options
        self.now = NOW
        self.machine = ClientMachine(
            SERVER, options, CLIENT_KEYS, random.Random(1).randbytes, reopen_seconds=REOPEN_SECONDS
        )
        self.is_in_use = True
        self.unused = 0  # reports that the client stopped without use
        self.machine.reconnect_while(lambda: self.is_in_use)
        if has_driver:
            self.machine.handle(e.TransportOpened(), self.now)
        self.server = Server()
        self.over_ipc = False
        self.path: Path | None = None
        self.link: Link | None = None
        self.connections: dict[int, FakeConnection] = {}  # without those of ForgetConnection
        self.all: list[FakeConnection] = []
        self.to_server: list[tuple[int, bytes]] = []  # publication and packet
        self.to_client: list[ClientEvent] = []
        self.lookups = self.reopenings = 0  # that have no result yet
        self.has_driver = has_driver
        self.pending_connects = 0  # connects that have no outcome yet
        self.outcomes: list[int | AeronSparkError] = []
        self.trusted: list[bytes] = []
        self.reports: list[AeronSparkError] = []
        self.reconnects: list[bool] = []  # whether the session was resumed
        self.stops: list[AeronSparkError] = []
        self.has_given_up = False  # since the last connect
        self.class_fails = self.attach_fails = self.link_fails = self.path_fails = False
        self._used: set[int] = set()  # numbers of paths, publications, links and sessions

    # The runner

    def do(self, effects: Effects) -> None:
        """Execute the effects of a step and of their results, then check all invariants."""
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
        self.pending_connects += 1
        self.has_given_up = False
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
                self.connections[session] = FakeConnection(number)
                self.all.append(self.connections[session])
                return e.ConnectionMade(session)
            case e.ForgetConnection(session):
                forgotten = self.connections.pop(session)
                assert not forgotten.is_attached
                assert not forgotten.is_usable, forgotten
            case e.RefuseSending(session, error):
                self.connections[session].send_error = error
            case e.EndConnection(session, error):
                assert self.connections[session].ended is None
                self.connections[session].ended = error
            case e.Notify(session, about):
                self._notify(self.connections[session], about)
            case e.NotifyReconnect(session, resumed):
                assert self.connections[session].is_attached
                self.reconnects.append(resumed)
            case e.NotifyStopped(error):
                assert self.machine.state is ClientState.IDLE
                assert self.machine.stopped is error
                assert not self.has_given_up, "stopped twice without a connect"
                self.has_given_up = True
                self.stops.append(error)
            case e.Report(session, error):
                assert session in self.connections
                self.reports.append(error)
            case e.Resolve(outcome):
                assert self.pending_connects == 1, "no connect is pending"
                self.pending_connects = 0
                self.outcomes.append(outcome)
                assert isinstance(outcome, AeronSparkError) or self.connections[outcome].is_attached
            case e.LookUpKey():
                self.lookups += 1
                assert self.lookups == 1, "two look-ups at once"
            case e.RememberKey(session, key):
                assert session in self.connections
                self.trusted.append(key)
            case e.ReportUnused():
                assert not self.is_in_use
                self.unused += 1
            case e.OpenTransport():
                assert self.is_in_use or self.pending_connects, "a client without use opened a transport"
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
                    self.server.acknowledged.add(self.server.links[ack.session_in][0])
                return e.LinkFailed(number, ConnectError("no link")) if self.link_fails else None
            case e.CloseLink(number):
                assert self.link is not None
                assert self.link.number == number
                self.link = None
            case e.Attach(session, number, _):
                assert self.link is not None
                assert (self.link.number, self.link.session) == (number, session)
                connection = self.connections[session]
                assert not connection.is_attached
                if self.attach_fails:
                    self.attach_fails = False
                    return e.SessionFailed(session, lost_session())
                connection.is_attached, connection.send_error, connection.detached_at = True, None, None
                return e.Attached(session)
            case e.Detach(session):
                connection = self.connections[session]
                connection.is_attached, connection.detached_at = False, self.now
        return None

    def _is_new(self, number: int) -> None:
        assert number not in self._used
        self._used.add(number)

    def _notify(self, connection: FakeConnection, about: str) -> None:
        match about:
            case "init":
                assert connection.notices == []
            case "connect":
                assert connection.notices == ["init"]
            case "resume":
                assert "connect" in connection.notices
            case "disconnect":
                assert connection.is_usable
                assert not connection.is_attached
        assert about == "disconnect" or connection.ended is None
        connection.notices.append(about)

    # Invariants after each event

    def check(self) -> None:
        state, machine = self.machine.state, self.machine
        assert (self.path is not None) == (state in WITH_PATH), state
        assert (self.link is not None) == (state in (*ATTACHED, ClientState.OPENING_LINK)), state
        assert machine.is_connect_pending == (self.pending_connects == 1)
        assert not machine.is_connect_pending or state not in (
            ClientState.IDLE,
            ClientState.CLOSED,
            ClientState.CONNECTED,
        )
        self._check_deadline()
        session = None if machine.session is None else machine.session.session
        candidate = None if machine.candidate is None else machine.candidate.session
        assert set(self.connections) == {session, candidate} - {None}
        for number, connection in self.connections.items():
            assert connection.is_attached == (number == session and state in ATTACHED), (number, state)
            assert connection.ended is None
        if session is not None:
            self._check_session(self.connections[session])
        for connection in self.all:
            assert not (connection.ended and connection.is_usable)

    def _check_deadline(self) -> None:
        deadline = self.machine.deadline()
        match self.machine.state:
            case ClientState.LOOKING_UP:
                assert self.lookups == 1
            case ClientState.WITHOUT_DRIVER:
                assert deadline is not None or self.reopenings == 1
            case ClientState.CLOSED:
                assert deadline is None
            case ClientState.HANDSHAKING | ClientState.OPENING_LINK | ClientState.PAUSED | ClientState.CLOSING:
                assert deadline is not None
            case _:
                pass

    def _check_session(self, connection: FakeConnection) -> None:
        """Check that sending raises while the client makes no attempts, and that a loss is notified in time."""
        state = self.machine.state
        if state is ClientState.IDLE and not self.machine.is_reconnecting:
            assert connection.send_error is not None
            assert self.machine.stopped is not None
        if state not in (ClientState.IDLE, ClientState.CLOSING):
            assert connection.send_error is None
            assert self.machine.stopped is None
        if connection.detached_at is not None and self.now > connection.detached_at + self.options.expiry:
            assert not connection.is_usable

    # The network and the server

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
        self.feed(e.PathReady(self.path.number, self.path.publications[0], expects_retry=not self.over_ipc))

    def verify_link(self, received: int = 0) -> bool:
        """Exchange the first frames of the link. Return False if the server has closed the link or its session differs.

        If DONE_ACK of a new session was lost, the server finds that session by the old session's ticket. The number of
        received records in OPEN shows the difference.
        """
        link = self.link
        assert link is not None
        session, accepted, ticket = self.server.links[link.ack.session_in]
        if "connect" in self.connections[link.session].notices and session not in self.server.confirmed:
            self.server.tickets.drop(ticket)
        if not self.server.tickets.confirm(ticket):
            return False
        self.server.confirmed.add(session)
        assert bytes(link.decryptor.decrypt(bytes(accepted.encryptor.encrypt(b"first")))) == b"first"
        link.is_verified = True
        self.feed(e.LinkVerified(link.number, received))
        if self.link is link and session in self.server.acknowledged:
            assert self.connections[link.session].number == self.server.numbers[session]
        return True

    def lose_link(self) -> None:
        """Let the server lose the link, too; its session is detached."""
        assert self.link is not None
        _, _, ticket = self.server.links[self.link.ack.session_in]
        self.server.tickets.detach(ticket, self.now)

    def key_known(self, key: bytes | None = None) -> None:
        self.lookups -= 1
        self.feed(e.KeyKnown(key, 5, {1: b"digest-1"}))

    def look_up_failed(self, error: AeronSparkError) -> None:
        self.lookups -= 1
        self.feed(e.LookUpFailed(error))

    def lose_driver(self) -> None:
        if self.link is not None:
            self.lose_link()
        self.has_driver = False
        self.feed(e.DriverLost(TransportError("the driver is gone")))

    def driver_back(self) -> None:
        self.reopenings -= 1
        self.has_driver = True
        self.feed(e.TransportOpened())

    def driver_failed(self, error: AeronSparkError | None = None) -> None:
        self.reopenings -= 1
        self.feed(e.OpenFailed(error or ConnectError("no driver")))

    def advance(self) -> None:
        """Do the next step of a network, server and key store without faults."""
        state = self.machine.state
        if self.reopenings:
            self.driver_back()
        elif self.lookups:
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
        """Do steps without faults until the machine is in one of these states."""
        for _ in range(200):
            if self.machine.state in states:
                return
            self.advance()
        raise AssertionError(f"the machine stays in {self.machine.state}")


def lost_session() -> AeronSparkError:
    """Return the error for endpoints that disagree on the received messages."""
    return SessionLost("the endpoints disagree on the session")


def in_state(state: ClientState, options: ClientOptions = OPTIONS) -> ClientWorld:
    """Return a client in a state. In states after CONNECTED it has a session."""
    world = ClientWorld(options)
    if state is ClientState.IDLE:
        return world
    world.connect()
    if state in (ClientState.LOOKING_UP, ClientState.HANDSHAKING, ClientState.OPENING_LINK):
        world.advance_to(state)
        return world
    world.advance_to(ClientState.CONNECTED)
    match state:
        case ClientState.PAUSED:
            end_link(world)
        case ClientState.WITHOUT_DRIVER:
            world.lose_driver()
        case ClientState.CLOSING:
            world.close()
        case ClientState.CLOSED:
            world.shut_down()
    return world


def end_link(world: ClientWorld, *, silent: bool = False) -> None:
    """End the link at both endpoints; the session is detached."""
    assert world.link is not None
    world.lose_link()
    world.feed(e.LinkFailed(world.link.number, LOST, silent))
