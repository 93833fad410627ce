"""One handshake of a server: carries out what the machine wants, step by step, and never waits.

The machine (``endpoint.handshake_server``) decides; this opens, sends, asks and gives back. Functions of the user's
that look at the client run in the deciders' pool.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from aeron_spark.errors import AeronSparkError, TransportError
from aeron_spark.protocol.access import Grant, Source
from aeron_spark.protocol.handshake_payloads import ClientDone, DoneAck
from aeron_spark.protocol.limits import Permit
from aeron_spark.protocol.refusals import Refusal, undecided
from aeron_spark.protocol.server_handshake import (
    Actions,
    Admit,
    Authenticate,
    ClientAccepted,
    Ignored,
    OpenReply,
    Reject,
    Release,
    Send,
    ServerHandshake,
    ServerIdentity,
    State,
)
from aeron_spark.transport.api import (
    ChannelPair,
    LinkIds,
    Publication,
    SenderUnavailable,
    ServerAddress,
    ServerTransport,
)

LAST_WORD: Final = 2.0  # seconds for the last packet to go out
NO_WAY: Final = "Connection error! The duologue could not be opened"

Decision = Refusal | Grant | None


@dataclass(slots=True)
class Accepted:
    """What the server has made for an authenticated client."""

    ack: DoneAck
    pair: ChannelPair
    ids: LinkIds


class Host(Protocol):
    """What a handshake asks of its server; all of it on the agent's thread."""

    @property
    def listening(self) -> ServerTransport:
        """Where ways are opened."""

    def admit(self, source: Source, now: float) -> Permit | Refusal:
        """A place for one more handshake."""

    def decide(self, source: Source, key: bytes, done: ClientDone) -> Future[Decision]:
        """Begin to look at keys and filters, in another thread."""

    def accept(
        self, doorman: Doorman, key: bytes, done: ClientDone, grant: Grant | None, now: float
    ) -> Accepted | Refusal:
        """Take a place, ids and a session, and open the duologue; or nothing of it."""

    def established(self, doorman: Doorman, accepted: Accepted, connected: ClientAccepted, now: float) -> None:
        """DONE_ACK is on its way."""

    def abandon(self, accepted: Accepted, now: float) -> None:
        """Give back what ``accept`` made."""

    def ended(self, doorman: Doorman, why: str, refusal: Refusal | None) -> None:
        """For the log and the counters."""


class Doorman:
    """For the agent alone."""

    def __init__(
        self,
        host: Host,
        identity: ServerIdentity,
        image: int,
        place: ServerAddress,
        source: Source,
        address: str | None,
        now: float,
    ) -> None:
        self.image = image
        self.place = place  # where it knocks
        self.source = source
        self.done = False  # everything was given back
        self._host = host
        self._machine = ServerHandshake(identity, address, now)
        self._permit: Permit | None = None
        self._reply: Publication | None = None
        self._unsent: deque[bytes] = deque()
        self._key = b""
        self._client: ClientDone | None = None
        self._decision: Future[Decision] | None = None
        self._accepted: Accepted | None = None
        self._last_word: float | None = None

    @property
    def pending(self) -> bool:
        """Whether it counts as a handshake under way."""
        return self._permit is not None and self._permit.held

    def missed(self, now: float) -> None:
        """The image begins behind what its sender has said."""
        self._do(self._machine.missed(now), now)

    def packet(self, data: memoryview, now: float) -> None:
        """Something arrived from the image."""
        self._do(self._machine.packet(data, now), now)

    def image_left(self, now: float) -> None:
        """The image has gone."""
        self._do(self._machine.path_lost(now), now)

    def close(self, now: float) -> None:
        """The server shuts down."""
        self._do(self._machine.close(now), now)

    def step(self, now: float) -> bool:
        """Go on where something has become ready; whether it awaits what does not end a poll: room for a packet."""
        if self.done:
            return False
        if self._last_word is None:
            self._look(now)
            self._do(self._machine.tick(now), now)
        self._send()
        if self._last_word is not None and (not self._unsent or now >= self._last_word):
            self.give_back()
        return not self.done and bool(self._unsent) and self._reply is not None and self._reply.connected

    def _look(self, now: float) -> None:
        state, reply = self._machine.state, self._reply
        if state is State.OPENING and reply is not None:
            if reply.closed:
                self._do(self._machine.path_lost(now), now)
            elif reply.connected:
                self._do(self._machine.reply_opened(now), now)
        elif state is State.AUTHENTICATING and self._accepted is not None:
            pair = self._accepted.pair
            if pair.publication.closed:
                why = TransportError(
                    f"a duologue could not be opened: {pair.publication.failure or 'the driver closed it'}"
                )
                self._do(self._machine.refuse(undecided(why, NO_WAY), now), now)
            elif self._host.listening.inbox.ready(pair.token) and pair.publication.ready:
                self._do(self._machine.accept(self._accepted.ack, now), now)
        elif state is State.AUTHENTICATING and self._decision is not None and self._decision.done():
            self._decided(self._decision.result(), now)

    def _decided(self, decision: Decision, now: float) -> None:
        self._decision = None
        assert self._client is not None  # the machine asked with it
        if not isinstance(decision, Refusal):
            try:
                accepted = self._host.accept(self, self._key, self._client, decision, now)
            except SenderUnavailable:  # it gave up meanwhile: no error of the server's
                self._do(self._machine.path_lost(now), now)
                return
            except Exception as error:  # whatever it is, this client alone is refused
                accepted = undecided(error, NO_WAY)
            if not isinstance(accepted, Refusal):
                self._accepted = accepted
                return
            decision = accepted
        self._do(self._machine.refuse(decision, now), now)

    def _do(self, actions: Actions, now: float) -> None:
        for action in actions:
            match action:
                case Reject(reason):
                    self._host.listening.inbox.reject(self.image, reason)
                case Admit():
                    self._admit(now)
                case OpenReply():
                    try:
                        self._reply = self._host.listening.respond(self.image)
                    except AeronSparkError:
                        self._do(self._machine.path_lost(now), now)
                case Send(packet):
                    self._unsent.append(packet)
                    self._send()
                case Authenticate(client_key, done):
                    self._key, self._client = client_key, done
                    self._decision = self._host.decide(self.source, client_key, done)
                case ClientAccepted():
                    assert self._accepted is not None  # the machine was told to accept with it
                    accepted, self._accepted = self._accepted, None
                    self._host.established(self, accepted, action, now)
                    self._end(now)
                case Release(why, refusal):
                    self._host.ended(self, why, refusal)
                    self._end(now)
                case Ignored():
                    pass

    def _admit(self, now: float) -> None:
        permit = self._host.admit(self.source, now)
        if isinstance(permit, Refusal):
            self._do(self._machine.refuse(permit, now), now)
        else:
            self._permit = permit
            self._do(self._machine.admitted(now), now)

    def _send(self) -> None:
        while self._unsent and self._reply is not None and self._reply.connected:
            try:
                if self._reply.offer(self._unsent[0]) is not None:
                    return
            except AeronSparkError:  # it is too long for this way: the client hears nothing, and asks again
                pass
            self._unsent.popleft()

    def _end(self, now: float) -> None:
        if self._last_word is None:
            self._last_word = now + LAST_WORD
        if self._permit is not None:
            self._permit.release()
        if self._accepted is not None:
            accepted, self._accepted = self._accepted, None
            self._host.abandon(accepted, now)

    def give_back(self) -> None:
        """Close the way back; it is over."""
        self.done = True
        if self._reply is not None:
            self._reply.close()
