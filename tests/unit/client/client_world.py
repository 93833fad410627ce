"""A client's endpoint with a transport, a network, a server and a key store in virtual time. All check their calls."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from aeron_spark.endpoint.client_endpoint import ClientEndpoint
from aeron_spark.endpoint.client_states import ClientState
from aeron_spark.endpoint.connection import Connection
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import AeronSparkError, ConnectError, SessionLost, TransportError
from aeron_spark.options import ClientOptions
from aeron_spark.protocol import server_handshake as server_side
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.frames import PeerClose
from aeron_spark.protocol.handshake_payloads import DoneAck
from aeron_spark.protocol.liveness import Times
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.sources import Refusal
from aeron_spark.protocol.tickets import TicketStore
from aeron_spark.transport.api import (
    ChannelPair,
    ChannelSettings,
    DriverLost,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    OfferResult,
    Part,
    PublicationRejected,
    SubscriptionFailed,
)
from tests.unit.protocol.handshakes import ADDRESS, CLIENT_KEYS, NOW, SERVER_KEYS, make_server

T = TypeVar("T")

SERVER: Final = ServerName("10.0.0.9", 20000)
LOST: Final = TransportError("the link is gone")
OPTIONS: Final = ClientOptions(tag="t", first_pause=0.1, longest_pause=5.0, close_timeout=2.0)
REOPEN_SECONDS: Final = 0.5
RECEIVED: Final = 5  # records that each connection has received
WITH_PATH: Final = (ClientState.HANDSHAKING, ClientState.OPENING_LINK)
ATTACHED: Final = (ClientState.CONNECTED, ClientState.CLOSING)


class FakePublication:
    """A publication that takes every message; ``take`` gets them."""

    max_message = 1 << 17
    local_address = ""

    def __init__(self, session_id: int, take: Callable[[FakePublication, bytes], object]) -> None:
        self.session_id = session_id
        self.connected = self.closed = False
        self.failure = ""
        self._take = take

    def offer(self, *parts: Part, timeout_s: float = 0.0) -> OfferResult | None:
        assert self.connected
        assert not self.closed
        self._take(self, b"".join(parts))
        return None

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed, self.connected = True, False


@dataclass
class OpenPath:
    """An open path, with all its publications."""

    token: int
    opened: list[FakePublication]

    @property
    def publications(self) -> list[FakePublication]:
        """The open publications, in the order in which they were opened."""
        return [one for one in self.opened if not one.closed]

    @property
    def is_ready(self) -> bool:
        """Whether the first publication was connected."""
        return any(one.connected for one in self.opened) or len(self.publications) < len(self.opened)


@dataclass
class OpenLink:
    """An open link with its ids, and the connection that it is for."""

    link: Link
    ids: LinkIds
    connection: FakeConnection


@dataclass
class ServedLink:
    """The server's end of a link: its keys, its session with the ticket, and whether that was resumed."""

    accepted: server_side.ClientAccepted
    session: str
    ticket: bytes
    is_resumed: bool


class FakeConnection:
    """One connection of the program, with the notifications of its listeners. It is also its own sender."""

    def __init__(self, world: ClientWorld, peer: PeerInfo, number: int) -> None:
        self.id = number
        self.peer = peer
        self.for_program = self.sender = self
        self.session = SimpleNamespace(received=RECEIVED)
        self.notices: list[str] = []
        self.is_attached = self.is_idle = False
        self.detached_at: float | None = None
        self.send_error: AeronSparkError | None = None
        self.ended: AeronSparkError | None = None
        self._world = world

    @property
    def refuses_records(self) -> bool:
        """Whether calls that send raise an error."""
        return self.send_error is not None

    @property
    def is_usable(self) -> bool:
        """Whether the last notification was "connect" or "resume"."""
        return bool(self.notices) and self.notices[-1] in ("connect", "resume")

    def attach(self, link: Link, peer_received: int, now: float) -> None:
        opened = self._world.link
        assert opened is not None
        assert (opened.link, opened.connection) == (link, self)
        assert not self.is_attached
        if self._world.attach_fails:
            self._world.attach_fails = False
            raise lost_session()
        self._world.log.append("attach")
        self.is_attached, self.send_error, self.detached_at = True, None, None

    def detach(self, now: float) -> None:
        self.is_attached, self.detached_at = False, now

    def refuse(self, error: AeronSparkError | None) -> None:
        assert self.ended is None
        self.send_error = error

    def flush(self) -> None:
        assert self.is_attached

    def end(self, error: AeronSparkError) -> list[object]:
        assert self.ended is None
        self.ended = error
        self._world.log.append("end")
        return []

    def messages_of(self, records: Sequence[object]) -> tuple[object, ...]:
        return tuple(records)

    def take_notice(self, notice: str) -> None:
        match notice:
            case "init":
                assert self.notices == []
            case "connect":
                assert self.notices == ["init"]
            case "resume":
                assert "connect" in self.notices
            case "disconnect":
                assert self.is_usable
                assert not self.is_attached
        assert notice == "disconnect" or self.ended is None
        self.notices.append(notice)
        self._world.log.append(notice)


class FakeTransport:
    """The client's transport and its inbox. It has one path and one link at a time."""

    def __init__(self, world: ClientWorld) -> None:
        self.is_ipc = False
        self.inbox = self
        self.lost = False
        self.ids: LinkIds | None = None  # of the newest link
        self._world = world

    def wake(self) -> None:
        pass

    def open_path(self) -> ChannelPair:
        world = self._world
        assert world.path is None, "two paths"
        if world.path_fails:
            raise ConnectError("no path")
        world.path = OpenPath(next(world.numbers), [])
        return self.reopen_path(ChannelPair(world.path.token, cast("Any", None)))

    def reopen_path(self, pair: ChannelPair) -> ChannelPair:
        world, path = self._world, self._world.path
        assert path is not None
        assert path.token == pair.token
        publication = FakePublication(next(world.numbers), world.send)
        publication.connected = path.is_ready
        path.opened.append(publication)
        assert len(path.publications) <= 2
        return ChannelPair(path.token, publication)

    def open_link(self, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        world = self._world
        assert world.link is None, "two links"
        served = world.server.links[ids.session_in]
        if not served.is_resumed:
            world.server.acknowledged.add(served.session)
        if world.link_fails:
            raise ConnectError("no link")
        self.ids = ids
        return ChannelPair(next(world.numbers), FakePublication(ids.session_in, lambda _, frame: None))

    def close_subscription(self, token: int) -> None:
        world, path = self._world, self._world.path
        assert path is not None
        assert path.token == token
        assert not path.publications
        world.path = None
        world.log.append("path closed")
        world.to_client = [one for one in world.to_client if one.token != token]

    def close(self) -> None:
        pass


class FakeLoop(Loop):
    """The loop of the client, which has no thread. The world runs the jobs, and ends the work in the background."""

    def __init__(self, world: ClientWorld) -> None:
        super().__init__("client", lambda: world.now)
        self._world = world

    @property
    def is_running(self) -> bool:
        return True

    def executor(self, threads: int, name: str) -> Any:
        return SimpleNamespace(submit=lambda work: work())

    def wake(self) -> None:
        pass

    def run_soon(self, job: Callable[[], object]) -> None:
        job()

    def wait(self, future: Future[T], timeout_s: float | None, what: str, *, remedy: str = "") -> T:
        self._run_jobs()
        return future.result(0.0)

    def in_background(self, work: Callable[[], Any], then: Callable[[Future[Any]], object] | None = None) -> Any:
        return self._world.in_background(work, then)


class ClientOfWorld(ClientEndpoint):
    """The client, whose connections are those of the world."""

    def __init__(self, world: ClientWorld) -> None:
        self._world = world
        super().__init__(
            cast("Any", None), SERVER, world.store, world.options, loop=FakeLoop(world),
            random=random.Random(1).randbytes,
        )  # fmt: skip

    def make(self, peer: PeerInfo, number: int) -> Any:
        return self._world.make(peer, number)

    def add_link(self, connection: Any, link: Link) -> None:
        ids = self._world.transport.ids
        assert self._world.link is None
        assert ids is not None
        self._world.link = OpenLink(link, ids, connection)

    def remove_link(self, link: Link) -> None:
        assert self._world.link is not None
        assert self._world.link.link is link
        link.close()
        self._world.link = None

    def report(self, connection: Any, error: BaseException) -> None:
        if connection is not None:
            assert isinstance(error, AeronSparkError)
            self._world.reports.append(error)
            self._world.log.append("report")

    def notify(self, *changes: ConnectionChanged) -> None:
        for change in changes:
            cast("FakeConnection", change.connection).take_notice(change.notice)


class Server:
    """A server with real handshake machines. It refuses with ``refusal``, if set, in the step ``at``."""

    def __init__(self) -> None:
        self.identity: ServerIdentity = make_server()
        self.entropy: Final = random.Random(7).randbytes
        self.images: dict[int, ServerHandshake] = {}  # by the Aeron session id of the client's publication
        self.links: dict[int, ServedLink] = {}  # by session_in
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
                    self.links[self._count] = ServedLink(connected, *self._session)
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
        self._session = offer.session, offer.ticket, resumed
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
    """A client's endpoint with all objects that it calls, which fail if its calls contradict each other."""

    def __init__(self, options: ClientOptions = OPTIONS, *, has_driver: bool = True) -> None:
        self.options = options
        self.now = NOW
        self.numbers = itertools.count(1)  # of tokens and Aeron sessions
        self.server = Server()
        self.path: OpenPath | None = None
        self.link: OpenLink | None = None
        self.all: list[FakeConnection] = []
        self.to_server: list[tuple[FakePublication, bytes]] = []
        self.to_client: list[MessageArrived | PublicationRejected] = []
        self.lookups = self.reopenings = 0  # that have no result yet
        self.has_driver = has_driver
        self.outcomes: list[FakeConnection | AeronSparkError] = []
        self.trusted: list[bytes] = []
        self.reports: list[AeronSparkError] = []
        self.reconnects: list[bool] = []  # whether the session was resumed
        self.lost: list[AeronSparkError] = []
        self.log: list[str] = []  # calls and notices, in order
        self.stops: list[AeronSparkError] = []
        self.has_given_up = False  # since the last connect
        self.class_fails = self.attach_fails = self.link_fails = self.path_fails = False
        self.is_in_use = True
        self.unused = 0  # reports that the client stopped without use
        self.transport = FakeTransport(self)
        self.store: Any = SimpleNamespace(identity=lambda: CLIENT_KEYS, server_key=self._found_key, trust=self._trust)
        self._found: bytes | AeronSparkError | None = None
        self._background: dict[str, tuple[Callable[[], Any], Any]] = {}
        self.client = ClientOfWorld(self)
        self.client.reconnect_while(lambda: self.is_in_use, self._report_unused)
        self._listen()
        if has_driver:
            self.client.open(lambda: cast("Any", self.transport))

    def _listen(self) -> None:
        listeners, self.failures = self.client.listeners, []
        listeners.add("reconnect", self._reconnected)
        listeners.add("stopped", self._stopped)
        listeners.add("lost", lambda _, error: self.lost.append(error))
        listeners.add("error", lambda _, error: self.failures.append(error))  # of these listeners

    def _reconnected(self, connection: FakeConnection, resumed: bool) -> None:
        assert connection.is_attached
        self.reconnects.append(resumed)

    def _stopped(self, error: AeronSparkError) -> None:
        assert self.client.state is ClientState.IDLE
        assert self.client.stopped is error
        assert not self.has_given_up, "stopped twice without a connect"
        self.has_given_up = True
        self.stops.append(error)

    def _report_unused(self) -> None:
        assert not self.is_in_use
        self.unused += 1

    def _trust(self, _server: ServerName, key: bytes) -> None:
        self.trusted.append(key)
        self.log.append("trust")

    def _found_key(self, _server: ServerName) -> bytes | None:
        if isinstance(self._found, AeronSparkError):
            raise self._found
        return self._found

    # The methods that the endpoint calls

    def make(self, peer: PeerInfo, number: int) -> FakeConnection:
        assert peer.key == SERVER_KEYS.public
        if self.class_fails:
            raise ValueError("the class fails")
        self.all.append(FakeConnection(self, peer, number))
        return self.all[-1]

    def send(self, publication: FakePublication, packet: bytes) -> None:
        self.to_server.append((publication, packet))

    def in_background(self, work: Callable[[], Any], then: Callable[[Future[Any]], object] | None) -> Future[Any]:
        match getattr(then, "__name__", ""):
            case "_looked_up":
                self.lookups += 1
                assert self.lookups == 1, "two look-ups at once"
                self._background["look-up"] = work, then
            case "_opened":
                assert self.is_in_use or self.pending_connects, "a client without use opened a transport"
                self.reopenings += 1
                assert self.reopenings == 1, "the transport is opened twice"
                self._background["opening"] = work, then
            case _:
                work()
        return Future()

    # Requests of the program and time

    @property
    def connections(self) -> list[FakeConnection]:
        """The connections of the session and of the candidate."""
        sessions = (self.client.session, self.client.candidate)
        return [cast("FakeConnection", one.connection) for one in sessions if one is not None]

    @property
    def connection(self) -> FakeConnection:
        """The connection of the session."""
        assert self.client.session is not None
        return cast("FakeConnection", self.client.session.connection)

    @property
    def pending_connects(self) -> int:
        """The number of connects that have no outcome yet."""
        return int(self.client.is_connect_pending)

    def connect(self, seconds: float | None = None, *, reconnecting: bool = False) -> None:
        self.has_given_up = False
        until = None if seconds is None else self.now + seconds
        connected, is_own = self.client.request_connect(until, reconnecting=reconnecting)
        assert is_own
        connected.add_done_callback(self._note_outcome)
        self.client.loop._run_jobs()
        self.check()

    def _note_outcome(self, connected: Future[Connection]) -> None:
        error = connected.exception()
        if error is None:
            connection = cast("FakeConnection", connected.result())
            assert connection.is_attached
            self.outcomes.append(connection)
        else:
            assert isinstance(error, AeronSparkError)
            self.outcomes.append(error)

    def close(self, *, keep_session: bool = False) -> None:
        self.client.program_closes(cast("Any", self.connection), keep_session, self.now)
        self.check()

    def stop(self) -> None:
        self.client.stop_reconnecting(KeyboardInterrupt())
        self.check()

    def shut_down(self) -> None:
        self.client.end_all(self.now)
        self.check()

    def work(self) -> None:
        self.client.work(self.now)
        self.check()

    def wait(self, seconds: float) -> None:
        """Let time pass, with the work that is due at each deadline."""
        end = self.now + seconds
        for _ in range(1000):
            deadline = self.client.deadline()
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now, deadline)
            self.client.run_due(self.now)
            self.check()
        raise AssertionError(f"the client does not rest in {self.client.state}")

    # Invariants after each event

    def check(self) -> None:
        state, client = self.client.state, self.client
        assert self.client.loop.failed is None, self.client.loop.failed
        assert not self.failures
        assert (self.path is not None) == (state in WITH_PATH), state
        assert self.path is None or self.path.publications, "a path without a publication"
        assert (self.link is not None) == (state in (*ATTACHED, ClientState.OPENING_LINK)), state
        assert client.is_connect_pending != client._waiting.done()
        assert not client.is_connect_pending or state not in (
            ClientState.IDLE,
            ClientState.CLOSED,
            ClientState.CONNECTED,
        )
        self._check_deadline()
        for connection in self.all:
            if connection not in self.connections:
                assert not connection.is_attached
                assert not connection.is_usable
            else:
                is_carried = client.session is not None and connection is client.session.connection
                assert connection.is_attached == (is_carried and state in ATTACHED), state
                assert connection.ended is None
        if client.session is not None:
            self._check_session(self.connection)

    def _check_deadline(self) -> None:
        deadline = self.client.deadline()
        match self.client.state:
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
        state = self.client.state
        if state is ClientState.IDLE and not self.client.is_reconnecting:
            assert connection.send_error is not None
            assert self.client.stopped is not None
        if state not in (ClientState.IDLE, ClientState.CLOSING):
            assert connection.send_error is None
            assert self.client.stopped is None
        if connection.detached_at is not None and self.now > connection.detached_at + self.options.expiry:
            assert not connection.is_usable

    # The network and the server

    def deliver_to_server(self, index: int = 0, *, again: bool = False) -> None:
        publication, packet = self.to_server[index]
        if not again:
            del self.to_server[index]
        if self.path is None or publication not in self.path.publications:
            return
        for sent in self.server.packet(publication.session_id, packet, self.now):
            if isinstance(sent, str):
                self.to_client.append(PublicationRejected(self.path.token, publication.session_id, sent))
            else:
                assert isinstance(sent, bytes)
                self.to_client.append(MessageArrived(self.path.token, 1, memoryview(sent)))

    def deliver_to_client(self, index: int = 0, *, again: bool = False) -> None:
        event = self.to_client[index]
        if not again:
            del self.to_client[index]
        if isinstance(event, PublicationRejected):
            open_ones = [] if self.path is None else [one.session_id for one in self.path.publications]
            if event.session_id not in open_ones:
                return
            self.server.images.pop(event.session_id, None)
        self.client.handle_event(event, self.now)
        self.check()

    def path_ready(self) -> None:
        assert self.path is not None
        self.path.publications[0].connected = True
        self.work()

    def path_lost(self) -> None:
        assert self.path is not None
        self.client.handle_event(ImageUnavailable(self.path.token, 1), self.now)
        self.check()

    def path_fails_late(self) -> None:
        assert self.path is not None
        self.client.handle_event(SubscriptionFailed(self.path.token, "no way"), self.now)
        self.check()

    def publication_fails(self, index: int) -> None:
        assert self.path is not None
        failed = self.path.publications[index]
        failed.failure, failed.connected = "no way", False
        self.work()

    def reject(self, publication: FakePublication, reason: str) -> None:
        assert self.path is not None
        self.client.handle_event(PublicationRejected(self.path.token, publication.session_id, reason), self.now)
        self.check()

    def verify_link(self, received: int = 0) -> bool:
        """Exchange the first frames of the link. Return False if the server has closed the link or its session differs.

        If DONE_ACK of a new session was lost, the server finds that session by the old session's ticket. The number of
        received records in OPEN shows the difference.
        """
        opened = self.link
        assert opened is not None
        served = self.server.links[opened.ids.session_in]
        if "connect" in opened.connection.notices and served.session not in self.server.confirmed:
            self.server.tickets.drop(served.ticket)
        if not self.server.tickets.confirm(served.ticket):
            return False
        self.server.confirmed.add(served.session)
        frames: list[bytes] = []
        pair = ChannelPair(0, FakePublication(0, lambda _, frame: frames.append(frame)))
        pair.publication.connected = True  # type: ignore[misc]
        keys = served.accepted
        Link(pair, keys.encryptor, keys.decryptor, Times(), 1 << 17, self.now).send_open(received, self.now)
        self.client.link_verified(opened.link, opened.link.verify(memoryview(frames[0])), self.now)
        self.check()
        if self.link is opened and served.session in self.server.acknowledged:
            assert opened.connection.id == self.server.numbers[served.session]
        return True

    def fail_link(self, error: AeronSparkError = LOST, *, silent: bool = False) -> None:
        """Lose the link at the client."""
        assert self.link is not None
        if self.link.link.is_verified:
            self.client.interrupted(cast("Any", self.link.connection), error, self.now, expired=silent)
        else:
            self.client.link_failed(self.link.link, error, self.now)
        self.check()

    def lose_link(self) -> None:
        """Let the server lose the link, too; its session is detached."""
        assert self.link is not None
        self.server.tickets.detach(self.server.links[self.link.ids.session_in].ticket, self.now)

    def server_closes(self, *, keep_session: bool, error: AeronSparkError | None = None) -> None:
        """Let the server's CLOSE arrive."""
        self.client.peer_closed(cast("Any", self.connection), PeerClose(keep_session, error), self.now)
        self.check()

    def fail_session(self, error: AeronSparkError) -> None:
        self.client.session_failed(cast("Any", self.connection), error, self.now)
        self.check()

    def drained(self) -> None:
        """Let Aeron take all messages of the connection that is being closed."""
        self.connection.is_idle = True
        self.work()

    def key_known(self, key: bytes | None = None) -> None:
        self._found = key
        self.lookups -= 1
        self._finish("look-up")

    def look_up_failed(self, error: AeronSparkError) -> None:
        self._found = error
        self.lookups -= 1
        self._finish("look-up")

    def lose_driver(self) -> None:
        if self.link is not None:
            self.lose_link()
        self.has_driver = False
        self.client.handle_event(DriverLost("the driver is gone"), self.now)
        self.check()

    def driver_back(self) -> None:
        self.reopenings -= 1
        self.has_driver = True
        self._finish("opening", self.transport)

    def driver_failed(self, error: AeronSparkError | None = None) -> None:
        self.reopenings -= 1
        self._finish("opening", error or ConnectError("no driver"))

    def _finish(self, what: str, outcome: object = None) -> None:
        """End work in the background: with this outcome, or that of the work itself."""
        work, then = self._background.pop(what)
        done: Future[Any] = Future()
        try:
            result = work() if outcome is None else outcome
        except AeronSparkError as error:
            result = error
        if isinstance(result, AeronSparkError):
            done.set_exception(result)
        else:
            done.set_result(result)
        then(done)
        self.check()

    def advance(self) -> None:
        """Do the next step of a network, server and key store without faults."""
        state = self.client.state
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
            self.drained()
        elif not (state is ClientState.OPENING_LINK and self.verify_link()):
            deadline = self.client.deadline()
            assert deadline is not None, f"nothing happens in {state}"
            self.wait(deadline - self.now)

    def advance_to(self, *states: ClientState) -> None:
        """Do steps without faults until the client is in one of these states."""
        for _ in range(200):
            if self.client.state in states:
                return
            self.advance()
        raise AssertionError(f"the client stays in {self.client.state}")


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
    world.lose_link()
    world.fail_link(silent=silent)
