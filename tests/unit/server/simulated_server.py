"""A server's endpoint with clients, whose transport, connections and deciders do only the steps that a test chooses.

The objects that the endpoint calls check that each call fits the earlier ones, and note it in ``calls`` of the server.
A call of the endpoint returns the calls that it has made. Time is virtual.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

from aeron_spark.endpoint.access import Decision
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, Ending
from aeron_spark.endpoint.links import OPEN, Link
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.endpoint.server_endpoint import ServerEndpoint
from aeron_spark.endpoint.server_sessions import DriverBack, HandshakeEnded
from aeron_spark.errors import AeronSparkError, RefusedError, SessionLost
from aeron_spark.facts import Bus
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol.access import Candidate
from aeron_spark.protocol.client_handshake import ClientHandshake, ClientIdentity
from aeron_spark.protocol.frame_cipher import FrameEncryptor
from aeron_spark.protocol.frames import RecordKind, encode
from aeron_spark.protocol.grants import EVERYTHING, Grant
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.sources import IpAddress, Refusal
from aeron_spark.transport.api import (
    ChannelPair,
    ChannelSettings,
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    LinkIds,
    MessageArrived,
    OfferResult,
    ServerAddress,
    TransportEvent,
)
from tests.invariants import check_invariants
from tests.unit.protocol.handshakes import NOW, SERVER_KEYS, agree

ADDRESS: Final = ServerAddress("udp", "10.0.0.9", 20_000, 20_001)
TOKEN: Final = 1  # of the handshake subscription
NOTICES: Final = {
    "": ["connect"],
    "connect": ["resume", "disconnect"],
    "resume": ["resume", "disconnect"],
    "disconnect": ["resume"],
}
"""The notices that may follow the last notice of a connection."""

Calls = list[str]


class FakePublication:
    """A publication to the sender of an image. A test lets it become ready, connected, or fail."""

    max_message = 1152

    def __init__(self, server: SimulatedServer, name: str, image: int) -> None:
        self.server = server
        self.name = name
        self.image = image
        self.ready = self.connected = self.closed = False
        self.is_held = False  # Aeron takes nothing
        self.failure = ""
        self.is_released = False  # the endpoint has closed it

    def offer(self, *parts: bytes, timeout_s: float = 0.0) -> OfferResult | None:
        assert not self.is_released
        if self.is_held or not self.connected:
            return OfferResult.BACK_PRESSURED
        self.server.packets.append((self.image, b"".join(parts)))
        self.server.note("send")
        return None

    def fail(self) -> None:
        self.connected, self.closed, self.failure = False, True, "it failed"

    def close(self) -> None:
        assert not self.is_released, f"{self.name} is closed twice"
        self.is_released = self.closed = True
        self.connected = False
        self.server.note(f"close {self.name}")


class FakeConnection:
    """A connection that the endpoint has made, with its sender."""

    def __init__(self, server: SimulatedServer, peer: PeerInfo, number: int) -> None:
        self.server = server
        self.peer = peer
        self.id = number
        self.label = f"connection {number:08x}"
        self.grant: Grant | None = None  # set before a frame is received
        self.close_error: AeronSparkError | None = None
        self.session = SimpleNamespace(received=server.received)
        self.sender = self
        self.is_idle = False  # whether Aeron has taken its unsent messages
        self.attached: Link | None = None
        self.attached_with = -1  # the records that the client has
        self.notices: list[str] = []
        self.ended: AeronSparkError | None = None

    def attach(self, link: Link, received: int, now: float) -> None:
        assert self.attached is None
        assert self.ended is None
        assert self.server.links[link] is self
        assert self.grant is not None
        self.server.note("attach")
        if self.server.attach_fails:
            raise SessionLost("the two ends differ")
        self.attached, self.attached_with, self.is_idle = link, received, False

    def detach(self, now: float) -> None:
        assert self.ended is None
        assert self.attached is None or self.attached in self.server.links  # the link is closed later
        self.attached = None
        self.server.note("detach")

    def flush(self) -> None:
        assert self.notices[-1] in ("connect", "resume")

    def end(self, error: AeronSparkError) -> None:
        assert self.attached is None
        assert self.ended is None
        self.ended = error
        self.server.connections.remove(self)
        self.server.note("end")
        self.server.seen[type(error).__name__] += 1
        self.server.seen["not resumed"] += "was not resumed in time" in error.what
        self.server.seen["never connected"] += not self.notices

    def notify(self, notice: str) -> None:
        last = self.notices[-1] if self.notices else ""
        assert notice in NOTICES[last], f"{notice} after {self.notices}"
        assert (self.ended is None) or notice == "disconnect"
        self.notices.append(notice)


class EndpointOfServer(ServerEndpoint):
    """The endpoint, whose connections are those of the simulated server."""

    def __init__(self, server: SimulatedServer, seed: int) -> None:
        one: Any = server  # loop, access and transport
        super().__init__(one, lambda: one, one, server.live, server.facts, entropy=random.Random(seed).randbytes)
        self.log_space = one
        self.add_link, self.remove_link = server.add_link, server.remove_link  # type: ignore[method-assign]
        self.notify, self.report, self.make = server.notify, server.report, server.make  # type: ignore[method-assign]


class SimulatedServer:
    """The endpoint, and the objects that it calls: this one is its loop, transport, inbox, access and log space."""

    dropped = 0

    def __init__(
        self, options: ServerOptions | None = None, seed: int = 7,
        address_refusal: Callable[[IpAddress], Refusal | None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.now = NOW
        self.calls: Calls = []
        self.background: list[Callable[[], object]] = []  # steps of the endpoint after its work in the background
        self.seen: Counter[str] = Counter()  # calls, results of handshakes, and causes of ends
        self.packets: list[tuple[int, bytes]] = []  # by image, to its sender
        self.hints: list[tuple[int, str]] = []  # by image
        self.reported: list[BaseException] = []
        self.handshakes: list[HandshakeEnded] = []
        self.candidates: list[tuple[Candidate, Callable[[Decision], None]]] = []
        self.connections: list[FakeConnection] = []
        self.causes: list[Ending | AeronSparkError | None] = []  # of all notices
        self.links: dict[Link, FakeConnection] = {}
        self.publications: list[FakePublication] = []
        self.bulk: list[LinkIds] = []
        self.received = 0  # by the session of the next connection
        self.make_error: Exception | None = None
        self.open_error: Exception | None = None  # of a path or a link
        self.attach_fails = False
        self.keys = SERVER_KEYS
        self.address_refusal = address_refusal
        self.facts = Bus()
        self.facts.on(HandshakeEnded, self._handshake_ended)
        self.facts.on(DriverBack, lambda _: self.note("driver back"))
        self.inbox = self
        self.jobs: list[Callable[[], object]] = []  # for the event loop
        self.log_space_of: list[tuple[int, int]] = []  # what the endpoint has counted: opening links, and the key's own
        self.log_space_refusal: RefusedError | None = None
        self.live = LiveOptions(options or ServerOptions())
        self.name = "simulated"
        self.pool = self
        self.endpoint = EndpointOfServer(self, seed)
        self.endpoint.listen([ADDRESS])

    # The test's steps

    def call(self, step: Callable[[], object]) -> Calls:
        """Call the endpoint, check its invariants, and return the calls that it has made."""
        self.calls = []
        step()
        background, self.background = self.background, []
        for then in background:
            then()
        check_invariants(self.endpoint, self.bulk)
        return self.calls

    def feed(self, event: TransportEvent) -> Calls:
        return self.call(lambda: self.endpoint.handle_event(event, self.now))

    def work(self) -> Calls:
        return self.call(lambda: self.endpoint.work(self.now))

    def run_until(self, now: float) -> Calls:
        """Advance to ``now``."""
        self.now = now
        return self.call(lambda: self.endpoint.run_due(now))

    def close_connection(self, connection: FakeConnection, *, keep_session: bool) -> Calls:
        return self.call(lambda: self.endpoint.program_closes(connection, keep_session, self.now))  # type: ignore[arg-type]

    def lose_link(self, connection: FakeConnection, *, expired: bool = False) -> Calls:
        error = SessionLost("it is cut")
        return self.call(
            lambda: self.endpoint.interrupted(connection, error, self.now, expired=expired)  # type: ignore[arg-type]
        )

    def peer_closes(self, connection: FakeConnection, *, keep_session: bool) -> Calls:
        closed = SimpleNamespace(keep_session=keep_session)
        return self.call(lambda: self.endpoint.peer_closed(connection, closed, self.now))  # type: ignore[arg-type]

    def decide(self, decision: Decision = EVERYTHING, index: int = 0) -> Calls:
        """Decide on one of the candidates."""
        _, answer = self.candidates.pop(index)
        answer(decision)  # on another thread: the event loop gets it before its next turn
        (take,) = self.jobs
        self.jobs.clear()
        take()
        return self.work()

    def open_publications(self) -> Calls:
        """Let all publications become ready and connected."""
        for publication in self.publications:
            if not publication.closed:
                publication.ready = publication.connected = True
        return self.work()

    def progress(self) -> None:
        """Let the transport, the deciders and the connections do all that they can."""
        for _ in range(3):
            while self.candidates:
                self.decide()
            for connection in self.connections:
                connection.is_idle = True
            for publication in self.publications:
                publication.is_held = False
            self.open_publications()

    def let_time_pass(self) -> None:
        """Advance from deadline to deadline until the endpoint has none."""
        for _ in range(1000):
            self.progress()
            deadline = self.endpoint.deadline()
            if deadline is None:
                return
            self.run_until(max(self.now, deadline))
        raise AssertionError("no end of deadlines")

    def statistics(self) -> dict[str, int]:
        return self.endpoint.own_statistics

    def end(self) -> None:
        """End the server, and check that nothing is left."""
        self.call(lambda: self.endpoint.end_all(self.now))
        for ids in self.bulk:
            self.endpoint.pools.release(ids, self.now)
        self.bulk.clear()
        assert [one.name for one in self.publications if not one.is_released] == []
        assert not self.links
        assert not self.connections
        in_use = {name: n for name, n in self.statistics().items() if n and not name.startswith("refused-")}
        assert not in_use, in_use
        assert self.endpoint.deadline() is None

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.seen[call] += 1

    # Connections and links

    def add_link(self, connection: Any, link: Link) -> None:
        assert link not in self.links
        assert connection in self.connections
        self.links[link] = connection
        self.note("add link")

    def remove_link(self, link: Link) -> None:
        assert self.links.pop(link).attached is not link
        link.close()

    def notify(self, *changes: ConnectionChanged) -> None:
        for change in changes:
            if change.notice != "init":
                change.connection.notify(change.notice)  # type: ignore[attr-defined]
                self.causes.append(change.cause)
                if change.cause is not None:
                    self.seen[
                        change.cause.name if isinstance(change.cause, Ending) else type(change.cause).__name__
                    ] += 1
                self.note(change.notice)

    def run_soon(self, job: Callable[[], object]) -> None:
        self.jobs.append(job)

    def report(self, connection: object, error: BaseException) -> None:
        self.reported.append(error)
        self.note("report")

    # Loop

    def clock(self) -> float:
        return self.now

    def executor(self, threads: int, name: str) -> Any:
        return self

    def in_background(self, work: Callable[[], object], then: Callable[[Any], object]) -> Future[object]:
        done = self.submit(work)
        done.add_done_callback(lambda _: self.background.append(lambda: then(done)))
        return done

    def submit(self, work: Callable[[], object]) -> Future[object]:
        done: Future[object] = Future()
        done.set_result(work())
        return done

    def _handshake_ended(self, ended: HandshakeEnded) -> None:
        self.handshakes.append(ended)
        self.note(ended.result)

    # Transport, inbox

    def listen(self, address: ServerAddress, channel_settings: ChannelSettings, cookie_secret: bytes) -> int:
        return TOKEN

    def reject(self, image: int, reason: str) -> None:
        self.hints.append((image, reason))
        self.note("reject")

    def respond(self, image: int) -> FakePublication:
        self.note("open path")
        return self._publish("path", image)

    def open_link(self, image: int, ids: LinkIds, channel_settings: ChannelSettings) -> ChannelPair:
        self.note("open link")
        publication = self._publish("link", image)
        return ChannelPair(ids.session_in, publication)  # type: ignore[arg-type]

    def ready(self, token: int) -> bool:
        return True

    def close_subscription(self, token: int) -> None:
        pass

    def close(self) -> None:
        """Close the transport that was lost, or the access of clients."""

    def _publish(self, name: str, image: int) -> FakePublication:
        error, self.open_error = self.open_error, None
        if error is not None:
            raise error
        publication = FakePublication(self, name, image)
        self.publications.append(publication)
        return publication

    def paths(self) -> list[FakePublication]:
        """Return the open publications of paths."""
        return [one for one in self.publications if one.name == "path" and not one.is_released]

    # Clients, connections, and the room of the media driver's logs

    def take(self, needed: int, *, opening: int, own: int) -> RefusedError | None:
        self.log_space_of.append((opening, own))
        return self.log_space_refusal

    def decide_soon(self, candidate: Candidate, answer: Callable[[Decision], None]) -> None:
        self.candidates.append((candidate, answer))
        self.note("decide")

    def make(self, peer: PeerInfo, number: int) -> Any:
        error, self.make_error = self.make_error, None
        if error is not None:
            raise error
        connection = FakeConnection(self, peer, number)
        self.connections.append(connection)
        self.note("make")
        return connection


class SimulatedClient:
    """One client with its attempts and their images, on a network that a test controls."""

    images = 0  # of all clients

    def __init__(self, server: SimulatedServer, keys: KeyPair, source: str, seed: int = 1) -> None:
        self.server = server
        self.keys = keys
        self.source = source
        self.ticket: bytes | None = None
        self.handshake: ClientHandshake | None = None
        self.image = 0
        self.waiting: list[TransportEvent] = []  # to the server, in order
        self.sent: list[MessageArrived] = []  # all packets that were delivered
        self.ack: DoneAck | None = None
        self.encryptor: FrameEncryptor | None = None
        self.ended: client_side.Abandoned | None = None
        self._entropy = random.Random(seed).randbytes

    def start(self) -> None:
        """Start an attempt, which replaces the previous one."""
        self.leave()
        self.ack = self.ended = None
        identity = ClientIdentity(self.keys, agree, "10.0.0.9:20000", self._entropy)
        self.handshake = ClientHandshake(identity, ClientDone(tag="t", ticket=self.ticket))
        self._open_image()
        self._do(self.handshake.start(self.server.now))

    def leave(self) -> None:
        """Close the publication of the attempt."""
        if self.image:
            self.waiting.append(ImageUnavailable(TOKEN, self.image))
        self.image = 0

    def deliver(self) -> Calls:
        """Deliver the next event to the server."""
        event = self.waiting.pop(0)
        if isinstance(event, MessageArrived):
            self.sent.append(event)
        return self.server.feed(event)

    def deliver_all(self) -> None:
        while self.waiting:
            self.deliver()

    def receive(self, data: bytes | str) -> None:
        """Handle a packet, or the text of a hint."""
        if self.handshake is None:
            return
        now = self.server.now
        taken = self.handshake.hint(data, now) if isinstance(data, str) else self.handshake.packet(data, now)
        self._do(taken)

    def receive_all(self) -> None:
        """Handle all packets and hints that the server has sent to this client's image."""
        for box in (self.server.hints, self.server.packets):
            for one in [one for one in box if one[0] == self.image]:
                box.remove(one)  # type: ignore[arg-type]
                self.receive(one[1])

    def advance(self, *, decides: bool = True) -> None:
        """Do the handshake until the server awaits the first frame; without ``decides``, until it must decide."""
        for _ in range(6):
            self.deliver_all()
            if decides:
                self.server.progress()
            else:
                self.server.open_publications()
            self.receive_all()

    def link(self) -> Link | None:
        """Return the server's link of DONE_ACK, if it is open."""
        if self.ack is None:
            return None
        return next((link for link in self.server.links if link.token == self.ack.session_in), None)

    def send_first_frame(self, received: int = 0) -> Calls:
        """Send the first frame, which the server verifies. Does nothing if the link is closed."""
        link = self.link()
        if link is None or link.is_verified:
            return []
        assert self.encryptor is not None
        frame = encode(0, 0, [(RecordKind.OPEN, 0, OPEN.pack(received, 1 << 20))])
        verified = link.verify(memoryview(self.encryptor.encrypt(frame[0], frame[1:])))
        return self.server.call(lambda: self.server.endpoint.link_verified(link, verified, self.server.now))

    def connect(self) -> FakeConnection:
        """Do a whole handshake with its first frame; return the server's connection."""
        self.start()
        self.advance()
        assert self.ended is None, self.ended
        self.leave()
        link = self.link()
        assert link is not None
        connection = self.server.links[link]
        self.send_first_frame()
        assert connection.attached is link
        return connection

    def _open_image(self) -> None:
        SimulatedClient.images += 1
        self.image = SimulatedClient.images
        self.waiting.append(ImageAvailable(TOKEN, self.image, 0, self.source))

    def _do(self, taken: client_side.Actions) -> None:
        for action in taken:
            match action:
                case client_side.Reopen():
                    self.leave()
                    self._open_image()
                case client_side.Send(packet):
                    self.waiting.append(MessageArrived(TOKEN, self.image, memoryview(packet)))
                case client_side.HandshakeAccepted():
                    self.ack, self.encryptor, self.ticket = action.ack, action.encryptor, action.ack.ticket
                case client_side.Abandoned():
                    self.ended = action
                    self.leave()
                case client_side.Ignored():
                    pass


def lost_driver() -> DriverLost:
    return DriverLost("it was killed")
