"""A server machine with clients, whose runner and network do only the steps that a test chooses.

The execution of each effect checks that it fits the earlier effects. The next steps of the runner and the network (the
result of an effect, a packet) wait in lists, from which a test chooses.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from aeron_spark.errors import TransportError
from aeron_spark.options import ServerOptions
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol.client_handshake import ClientHandshake
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.grants import EVERYTHING
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.server_machine import ServerMachine
from tests.invariants import check_invariants
from tests.unit.protocol.handshakes import NOW, SERVER_KEYS, agree

FIRST_FRAME: Final = b"first frame"
NOTICES: Final = {
    "": ["connect"],
    "connect": ["resume", "disconnect"],
    "resume": ["resume", "disconnect"],
    "disconnect": ["resume"],
}
"""The notices that may follow the last notice of a connection."""


@dataclass(eq=False)
class Session:
    """The connection object of a session."""

    notices: list[str] = field(default_factory=list)
    attached: int | None = None
    ended: effects.Ending | Exception | None = None


@dataclass(eq=False)
class Link:
    """An open link; with its decryptor after DONE_ACK was sent."""

    effect: effects.OpenLink
    decryptor: FrameDecryptor | None = None


class SimulatedServer:
    """The machine and the objects that its effects have made. ``results`` are events that it awaits."""

    def __init__(self, options: ServerOptions | None = None, seed: int = 7, **arguments: Any) -> None:
        self.now = NOW
        """The other arguments are those of the machine."""
        self.options = options or ServerOptions()
        self.machine = ServerMachine(
            SERVER_KEYS, lambda: self.options, Types(), random.Random(seed).randbytes, **arguments
        )
        self.results: list[events.ServerEvent] = []
        self.paths: dict[int, int] = {}  # image by path
        self.links: dict[int, Link] = {}
        self.sessions: dict[int, Session] = {}
        self.packets: list[tuple[int, bytes]] = []  # by image, to its sender
        self.hints: list[tuple[int, str]] = []  # by image
        self.reported: list[Exception] = []
        self.handshakes: list[effects.HandshakeEnded] = []
        self.seen: Counter[str] = Counter()  # effects by class, notices, and causes of ends
        self._used: set[tuple[str, int]] = set()

    def feed(self, event: events.ServerEvent) -> effects.ServerEffects:
        """Let the machine handle an event, and execute its effects."""
        if isinstance(event, events.ConnectionFailed):
            self.sessions.pop(event.session, None)  # its connection object does not exist
        return self.execute(self.machine.handle(event, self.now))

    def tick(self, now: float) -> effects.ServerEffects:
        """Advance to ``now``."""
        self.now = now
        return self.execute(self.machine.tick(now))

    def execute(self, returned: effects.ServerEffects) -> effects.ServerEffects:
        """Check the machine's invariants, and execute the effects of a call."""
        check_invariants(self.machine)
        for effect in returned:
            self._execute(effect)
        return returned

    def feed_result(self, index: int = 0) -> effects.ServerEffects:
        """Feed one of the results."""
        return self.feed(self.results.pop(index))

    def feed_results(self) -> None:
        """Feed all results, and the results that follow."""
        for _ in range(1000):
            if not self.results:
                return
            self.feed_result()
        raise AssertionError(f"no end of results: {self.results}")

    def let_time_pass(self) -> None:
        """Advance from deadline to deadline until the machine has none."""
        for _ in range(1000):
            self.feed_results()
            deadline = self.machine.deadline()
            if deadline is None:
                return
            self.tick(max(self.now, deadline))
        raise AssertionError("no end of deadlines")

    def close(self) -> None:
        """End the server, and check that nothing is left."""
        self.execute(self.machine.end_all(self.now))
        self.feed_results()
        assert not self.paths
        assert not self.links
        assert not self.sessions
        in_use = {name: n for name, n in self.machine.statistics().items() if n and not name.startswith("refused-")}
        assert not in_use, in_use
        assert self.machine.deadline() is None

    def _once(self, kind: str, number: int) -> None:
        assert (kind, number) not in self._used, f"{kind} {number} came before"
        self._used.add((kind, number))

    def _execute(self, effect: effects.ServerEffect) -> None:
        self.seen[type(effect).__name__] += 1
        match effect:
            case effects.RejectImage(image, reason):
                self.hints.append((image, reason))
            case effects.OpenPath(path, image):
                self._once("path", path)
                self.paths[path] = image
                self.results.append(events.PathReady(path))
            case effects.Transmit(path, packet):
                self.packets.append((self.paths[path], packet))
            case effects.DrainPath(path):
                assert path in self.paths
                self.results.append(events.PathDrained(path))
            case effects.ClosePath(path):
                del self.paths[path]
            case effects.Decide(path):
                self.results.append(events.Decided(path, EVERYTHING))
            case effects.OpenLink(link, session):
                self._once("link", link)
                assert session in self.sessions
                self.links[link] = Link(effect)
                self.results.append(events.LinkReady(link, 0))
            case effects.ExpectFirstFrame(link, session):
                assert self.links[link].effect.session == session
                assert self.links[link].decryptor is None
                self.links[link].decryptor = effect.decryptor
            case effects.CloseLink(link):
                del self.links[link]
            case effects.HandshakeEnded():
                self.handshakes.append(effect)
                if effect.refusal is not None and effect.refusal.cause is not None:
                    self.reported.append(effect.refusal.cause)
            case effects.Report(error):
                self.reported.append(error)
            case effects.ReopenTransport():
                pass
            case _:
                self._execute_on_session(effect)

    def _execute_on_session(
        self,
        effect: effects.MakeConnection | effects.Attach | effects.Detach | effects.DrainSession | effects.EndConnection
        | effects.Notify | effects.ForgetConnection,
    ) -> None:  # fmt: skip
        if isinstance(effect, effects.MakeConnection):
            self._once("session", effect.session)
            self.sessions[effect.session] = Session()
            self.results.append(events.ConnectionMade(effect.session))
            return
        session = self.sessions[effect.session]
        match effect:
            case effects.Attach(link):
                assert session.attached is None
                assert self.links[link].effect.session == effect.session
                session.attached = link
                self.results.insert(0, events.LinkAttached(link))  # the runner feeds it before all other events
            case effects.Detach():
                assert session.attached in self.links  # the link is closed later
                session.attached = None
            case effects.DrainSession():
                assert session.attached is not None
                self.results.append(events.SessionDrained(effect.session))
            case effects.EndConnection(_, cause):
                assert session.attached is None
                assert session.ended is None
                session.ended = cause
                self.seen[cause.name if isinstance(cause, effects.Ending) else type(cause).__name__] += 1
            case effects.Notify(_, notice):
                last = session.notices[-1] if session.notices else ""
                assert notice in NOTICES[last], f"{notice} after {session.notices}"
                session.notices.append(notice)
                self.seen[notice] += 1
            case effects.ForgetConnection():
                assert session.ended is not None
                assert not session.notices or session.notices[-1] == "disconnect"
                del self.sessions[effect.session]


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
        self.waiting: list[events.ServerEvent] = []  # to the server, in order
        self.sent: list[events.Packet] = []  # all packets that were delivered
        self.ack: DoneAck | None = None
        self.encryptor: FrameEncryptor | None = None
        self.ended: client_side.Abandoned | None = None
        self._entropy = random.Random(seed).randbytes

    def start(self) -> None:
        """Start an attempt, which replaces the previous one."""
        self.leave()
        self.ack = self.ended = None
        self.handshake = ClientHandshake(
            identity=self.keys,
            entropy=self._entropy,
            verify=agree,
            done=ClientDone(tag="t", ticket=self.ticket),
            server="10.0.0.9:20000",
        )
        self._open_image()
        self._do(self.handshake.start(self.server.now))

    def leave(self) -> None:
        """Close the publication of the attempt."""
        if self.image:
            self.waiting.append(events.ImageUnavailable(self.image))
        self.image = 0

    def deliver(self) -> None:
        """Deliver the next event to the server."""
        event = self.waiting.pop(0)
        if isinstance(event, events.Packet):
            self.sent.append(event)
        self.server.feed(event)

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

    def first_frame(self) -> bytes:
        """Return the first frame of the link in DONE_ACK."""
        assert self.encryptor is not None
        return bytes(self.encryptor.encrypt(FIRST_FRAME))

    def link(self) -> int | None:
        """Return the server's number of the link in DONE_ACK, if the link is open."""
        if self.ack is None:
            return None
        for number, link in self.server.links.items():
            if link.effect.ids.session_in == self.ack.session_in and link.decryptor is not None:
                return number
        return None

    def send_first_frame(self) -> effects.ServerEffects:
        """Send the first frame, which the server decrypts. Does nothing if the link is closed."""
        number = self.link()
        if number is None:
            return ()
        decryptor = self.server.links[number].decryptor
        assert decryptor is not None
        assert bytes(decryptor.decrypt(self.first_frame())) == FIRST_FRAME
        return self.server.feed(events.LinkVerified(number, 0))

    def connect(self) -> int:
        """Do a whole handshake with its first frame; return the session."""
        self.start()
        for _ in range(100):
            while self.waiting:
                self.deliver()
            self.server.feed_results()
            self.receive_all()
            assert self.ended is None, self.ended
            if self.ack is not None:
                break
        self.leave()
        number = self.link()
        assert number is not None
        self.send_first_frame()
        self.server.feed_results()
        return self.server.links[number].effect.session

    def _open_image(self) -> None:
        SimulatedClient.images += 1
        self.image = SimulatedClient.images
        self.waiting.append(events.ImageAvailable(self.image, self.source, 20_000, 20_001))

    def _do(self, taken: client_side.Actions) -> None:
        for action in taken:
            match action:
                case client_side.Reopen():
                    self.leave()
                    self._open_image()
                case client_side.Send(packet):
                    self.waiting.append(events.Packet(self.image, packet))
                case client_side.HandshakeAccepted():
                    self.ack, self.encryptor, self.ticket = action.ack, action.encryptor, action.ack.ticket
                case client_side.Abandoned():
                    self.ended = action
                    self.leave()
                case client_side.Ignored():
                    pass


def broken(event: events.ServerEvent) -> events.ServerEvent:
    """Return the event of a runner that failed, for the event of one that succeeded."""
    error = TransportError("it failed")
    match event:
        case events.PathReady(path):
            return events.PathFailed(path)
        case events.ConnectionMade(session):
            return events.ConnectionFailed(session, error)
        case events.LinkReady(link):
            return events.LinkFailed(link, error)
        case _:
            return event
