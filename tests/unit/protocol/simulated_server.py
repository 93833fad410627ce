"""A server's machine with a runner that does nothing by itself, and clients beside it: no clock, no thread, no network.

Each effect is checked when it is executed: it must fit what was executed before. What the runner or the network may do
next (answer an effect, carry a packet) waits in lists, for a test to choose from.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from aeron_spark.errors import TransportError
from aeron_spark.protocol import client_handshake as client_side
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol.client_handshake import ClientHandshake
from aeron_spark.protocol.frame_cipher import FrameDecryptor, FrameEncryptor
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.server_machine import ServerMachine
from aeron_spark.protocol.server_sessions import ServerPolicy
from tests.unit.protocol.handshakes import NOW, SERVER_KEYS, agree

FIRST_FRAME: Final = b"first frame"
NOTICES: Final = {
    "": ["connect"],
    "connect": ["resume", "disconnect"],
    "resume": ["resume", "disconnect"],
    "disconnect": ["resume"],
}
"""What a connection's listeners may hear after what they heard last."""


@dataclass(eq=False)
class Session:
    """The connection object of a session, as far as a machine knows of it."""

    heard: list[str] = field(default_factory=list)
    attached: int | None = None
    ended: effects.Ending | Exception | None = None


@dataclass(eq=False)
class Link:
    """A link that was opened and not closed; with the keys once DONE_ACK was sent."""

    effect: effects.OpenLink
    decryptor: FrameDecryptor | None = None


class SimulatedServer:
    """The machine and all that its effects have made. ``answers`` are the events that it waits for."""

    def __init__(self, policy: ServerPolicy | None = None, seed: int = 7) -> None:
        self.now = NOW
        self.policy = policy or ServerPolicy()
        self.machine = ServerMachine(SERVER_KEYS, self.policy, Types(), random.Random(seed).randbytes, NOW)
        self.answers: list[events.ServerEvent] = []
        self.paths: dict[int, int] = {}  # image by path
        self.links: dict[int, Link] = {}
        self.sessions: dict[int, Session] = {}
        self.packets: list[tuple[int, bytes]] = []  # by image, to its sender
        self.hints: list[tuple[int, str]] = []  # likewise
        self.reported: list[Exception] = []
        self.seen: Counter[str] = Counter()  # effects by their class, notices, and causes of ends
        self._used: set[tuple[str, int]] = set()

    def feed(self, event: events.ServerEvent) -> effects.ServerEffects:
        """Have an event handled and its effects executed."""
        if isinstance(event, events.ConnectionFailed):
            self.sessions.pop(event.session, None)  # there is no connection object to end
        return self.execute(self.machine.handle(event, self.now))

    def tick(self, now: float) -> effects.ServerEffects:
        """Let time pass."""
        self.now = now
        return self.execute(self.machine.tick(now))

    def execute(self, returned: effects.ServerEffects) -> effects.ServerEffects:
        """Execute the effects of a call, and look at what the machine owns then."""
        self.machine.check_invariants()
        for effect in returned:
            self._execute(effect)
        return returned

    def answer(self, index: int = 0) -> effects.ServerEffects:
        """Feed one of the answers."""
        return self.feed(self.answers.pop(index))

    def answer_all(self) -> None:
        """Feed all answers, and those that come of them."""
        for _ in range(1000):
            if not self.answers:
                return
            self.answer()
        raise AssertionError(f"no end of answers: {self.answers}")

    def let_time_pass(self) -> None:
        """Go from deadline to deadline until there is none."""
        for _ in range(1000):
            self.answer_all()
            deadline = self.machine.deadline()
            if deadline is None:
                return
            self.tick(max(self.now, deadline))
        raise AssertionError("no end of deadlines")

    def close(self) -> None:
        """End it all, and look that nothing is left."""
        self.execute(self.machine.end_all(self.now))
        self.answer_all()
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
                self.answers.append(events.PathReady(path))
            case effects.Transmit(path, packet):
                self.packets.append((self.paths[path], packet))
            case effects.DrainPath(path):
                assert path in self.paths
                self.answers.append(events.PathDrained(path))
            case effects.ClosePath(path):
                del self.paths[path]
            case effects.Decide(path):
                self.answers.append(events.Decided(path, None))
            case effects.OpenLink(link, session):
                self._once("link", link)
                assert session in self.sessions
                self.links[link] = Link(effect)
                self.answers.append(events.LinkReady(link, 0))
            case effects.ExpectFirstFrame(link, session):
                assert self.links[link].effect.session == session
                assert self.links[link].decryptor is None
                self.links[link].decryptor = effect.decryptor
            case effects.CloseLink(link):
                del self.links[link]
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
            self.answers.append(events.ConnectionMade(effect.session))
            return
        session = self.sessions[effect.session]
        match effect:
            case effects.Attach(link):
                assert session.attached is None
                assert self.links[link].effect.session == effect.session
                session.attached = link
                self.answers.insert(0, events.LinkAttached(link))  # it comes before anything else happens
            case effects.Detach():
                assert session.attached in self.links  # it is closed after that
                session.attached = None
            case effects.DrainSession():
                assert session.attached is not None
                self.answers.append(events.SessionDrained(effect.session))
            case effects.EndConnection(_, cause):
                assert session.attached is None
                assert session.ended is None
                session.ended = cause
                self.seen[cause.name if isinstance(cause, effects.Ending) else type(cause).__name__] += 1
            case effects.Notify(_, notice):
                last = session.heard[-1] if session.heard else ""
                assert notice in NOTICES[last], f"{notice} after {session.heard}"
                session.heard.append(notice)
                self.seen[notice] += 1
            case effects.ForgetConnection():
                assert session.ended is not None
                assert not session.heard or session.heard[-1] == "disconnect"
                del self.sessions[effect.session]


class SimulatedClient:
    """One client with its attempts, each with the images of its own, on a network that a test runs by hand."""

    images = 0  # of all clients

    def __init__(self, server: SimulatedServer, keys: KeyPair, source: str, seed: int = 1) -> None:
        self.server = server
        self.keys = keys
        self.source = source
        self.ticket: bytes | None = None
        self.handshake: ClientHandshake | None = None
        self.image = 0
        self.waiting: list[events.ServerEvent] = []  # what goes to the server, in its order
        self.sent: list[events.Packet] = []  # all that ever went
        self.ack: DoneAck | None = None
        self.encryptor: FrameEncryptor | None = None
        self.ended: client_side.Abandoned | None = None
        self._entropy = random.Random(seed).randbytes

    def start(self) -> None:
        """Begin an attempt, which takes the place of the one before."""
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

    def carry(self) -> None:
        """Bring the server what comes next."""
        event = self.waiting.pop(0)
        if isinstance(event, events.Packet):
            self.sent.append(event)
        self.server.feed(event)

    def hear(self, data: bytes | str) -> None:
        """Take a packet, or the text of a hint."""
        if self.handshake is None:
            return
        now = self.server.now
        taken = self.handshake.hint(data, now) if isinstance(data, str) else self.handshake.packet(data, now)
        self._do(taken)

    def listen(self) -> None:
        """Take all that the server has sent to this client's image."""
        for box in (self.server.hints, self.server.packets):
            for one in [one for one in box if one[0] == self.image]:
                box.remove(one)  # type: ignore[arg-type]
                self.hear(one[1])

    def first_frame(self) -> bytes:
        """Return the first frame of the link that the server told of."""
        assert self.encryptor is not None
        return bytes(self.encryptor.encrypt(FIRST_FRAME))

    def link(self) -> int | None:
        """The number of that link at the server, if it is still there."""
        if self.ack is None:
            return None
        for number, link in self.server.links.items():
            if link.effect.ids.session_in == self.ack.session_in and link.decryptor is not None:
                return number
        return None

    def come(self) -> effects.ServerEffects:
        """Send the first frame, which the server decrypts; nothing where its link is gone."""
        number = self.link()
        if number is None:
            return ()
        decryptor = self.server.links[number].decryptor
        assert decryptor is not None
        assert bytes(decryptor.decrypt(self.first_frame())) == FIRST_FRAME
        return self.server.feed(events.LinkVerified(number, 0))

    def connect(self) -> int:
        """Do all of a handshake, and its first frame, without a fault; return the session."""
        self.start()
        for _ in range(100):
            while self.waiting:
                self.carry()
            self.server.answer_all()
            self.listen()
            assert self.ended is None, self.ended
            if self.ack is not None:
                break
        self.leave()
        number = self.link()
        assert number is not None
        self.come()
        self.server.answer_all()
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
    """Return the answer of a runner that failed, for one that did not."""
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
