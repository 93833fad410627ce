"""The server as one pure state machine: events and time in, effects out.

Rules:
* The machine has no thread, no lock and no clock. One thread calls it; any thread may call ``statistics``.
* A call changes the whole state and returns effects. The runner executes the effects in order, and passes their results
  as further events. It never calls the machine while it executes an effect.
* Every permit, id, ticket, path and link has exactly one owner at any time (``tests.invariants``):

      PendingHandshake     its path, and a permit of the pending handshakes
      AcceptedHandshake    a link with its ids, a ticket, and a new permit for a session that has released its own
      AwaitingFirstFrame   the same, after DONE_ACK was sent
      ServerSession        its permit of the connections, its ticket, and the link that carries it

* An event about an object that has ended is ignored, because the object may end while the event is on its way.

A session is ACCEPTED, AWAITING_FIRST_FRAME, CONNECTED or DETACHED until it is ENDED. While a client resumes a session,
its handshake and its new link exist beside the session's present link. The first frame on the new link replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from aeron_spark.errors import AeronSparkError, DataFormatError, TransportError
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.handshake_packets import Cookies
from aeron_spark.protocol.handshake_payloads import ServerHello, schema_refusal, type_digests
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.limits import Permit
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.server_effects import AuthenticatedClient, Ending, ServerEffect, ServerEffects
from aeron_spark.protocol.server_events import Decision, ServerEvent
from aeron_spark.protocol.server_handshake import ServerHandshake, ServerIdentity
from aeron_spark.protocol.server_sessions import (
    AcceptedHandshake,
    AwaitingFirstFrame,
    Closing,
    OpenedLink,
    PendingHandshake,
    ServerMachineOptions,
    ServerResources,
    ServerSession,
    SessionState,
    build_done_ack,
)
from aeron_spark.protocol.sources import IpAddress, Refusal, UdpSource, parse_source, refusal_of, undecided
from aeron_spark.protocol.transitions import assert_never

BAD_SOURCE: Final = "aeron-spark/1 FAILED message Bad source address"
NO_LINK: Final = "Connection error! The link could not be opened"
DRIVER_LOST: Final = "driver-lost"  # reason of the error that reports it
SESSION_ENDED: Final = Refusal("server-error", "The session ended during the handshake")
DRAIN_SECONDS: Final = 2.0  # longest wait until Aeron has taken the last packet of a handshake


class ServerMachine:
    """One server with its handshakes and sessions; the module's docstring has the rules."""

    def __init__(
        self, keys: KeyPair, options: Callable[[], ServerMachineOptions], types: Types, entropy: Entropy,
        psk: bytes | None = None, address_refusal: Callable[[IpAddress], Refusal | None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Start without clients. Each handshake reads ``types``. Below, ``now`` is in monotonic seconds.

        ``options`` returns the present options. ``psk`` is the 32-byte key derived from the shared secret.
        ``address_refusal`` returns the refusal of an address that is banned now, or None.
        """
        at_start = options()
        self._options: Final = options
        self._address_refusal: Final = address_refusal
        self._types: Final = types
        self.identity: Final = ServerIdentity(
            keys, ServerHello(max_message=at_start.max_message), Cookies(entropy), entropy, psk, at_start.timing,
            at_start.key_limits,
        )  # fmt: skip
        self.resources: Final = ServerResources(options, entropy)
        self._numbers: Final = count(1)
        self._handshakes: Final[dict[int, PendingHandshake]] = {}  # by path
        self._by_image: Final[dict[int, PendingHandshake]] = {}
        self._awaiting_connection: Final[dict[int, PendingHandshake]] = {}  # by session whose connection is being made
        self._opening_links: Final[dict[int, PendingHandshake]] = {}  # by link that is being opened
        self._awaiting_first_frame: Final[dict[int, AwaitingFirstFrame]] = {}  # by link
        self._attached: Final[dict[int, ServerSession]] = {}  # by link
        self._sessions: Final[dict[int, ServerSession]] = {}
        self._is_closing = False
        self._emitted: list[ServerEffect] = []  # by the present call
        self._deadline: float | None = None
        self._has_deadline = False  # false after each call that may change it: the runner asks for it more often

    def handle(self, event: ServerEvent, now: float) -> ServerEffects:
        """Handle one event."""
        match event:
            case events.ImageAvailable():
                self._image_available(event, now)
            case events.ImageUnavailable(image):
                self._lose_path(self._by_image.get(image), now)
            case events.Packet(image, data):
                pending = self._by_image.get(image)
                if pending is not None:
                    self._advance(pending, pending.handshake.packet(data, now), now)
            case events.PathReady(path):
                pending = self._handshakes.get(path)
                if pending is not None and pending.handshake.state is actions.State.OPENING_PATH:
                    self._advance(pending, pending.handshake.path_ready(now), now)
            case events.PathFailed(path):
                self._lose_path(self._handshakes.get(path), now)
            case events.PathDrained(path):
                pending = self._handshakes.get(path)
                if pending is not None and pending.drain_until is not None:
                    self._close_path(pending)
            case events.Decided(path, decision):
                self._decided(self._handshakes.get(path), decision, now)
            case events.ConnectionMade(number):
                self._connection_made(number)
            case events.ConnectionFailed(number, error):
                self._refuse(self._awaiting_connection.get(number), undecided(error), now)
            case events.LinkReady(link, received):
                self._link_ready(link, received, now)
            case events.LinkFailed(link, failure):
                self._link_failed(link, failure, now)
            case events.LinkVerified(link, received):
                self._link_verified(link, received, now)
            case events.LinkAttached(link):
                self._link_attached(link)
            case events.LinkExpired(link):
                session = self._attached.get(link)
                if session is not None:
                    self._detach(session, now, notify=True)
            case events.SessionFailed() | events.SessionDrained() | events.PeerClosed():
                session = self._sessions.get(event.session)
                if session is not None:
                    self._session_event(session, event, now)
            case events.DriverLost(reason):
                remedy = "The server connects again when a media driver runs."
                lost = TransportError(f"the media driver was lost: {reason}", remedy=remedy, reason=DRIVER_LOST)
                self._emit(effects.Report(lost))
                self._close_paths_and_links(now)
                self._emit(effects.ReopenTransport())
            case _:
                assert_never(event)
        return self._take_effects()

    def tick(self, now: float) -> ServerEffects:
        """Handle all deadlines that have passed."""
        expiry = self._options().times.expiry_seconds
        for pending in list(self._handshakes.values()):
            if pending.drain_until is None:
                self._advance(pending, pending.handshake.tick(now), now)
            elif now >= pending.drain_until:
                self._close_path(pending)
        for awaiting in list(self._awaiting_first_frame.values()):
            if now >= awaiting.deadline:
                self._abandon_link(awaiting, now)
        for session in list(self._sessions.values()):
            if session.closing is not None and now >= session.closing.deadline:
                self._close_session(session, session.closing.keep_session, now)
            elif session.detached_at is not None and now >= session.detached_at + expiry:
                self._notify_disconnect(session)
        self._end_expired(self.resources.tickets.expire(now), now)
        return self._take_effects()

    def deadline(self) -> float | None:
        """Return the time of the next ``tick``; None if time changes nothing."""
        if not self._has_deadline:
            self._deadline, self._has_deadline = self._next_deadline(), True
        return self._deadline

    def _next_deadline(self) -> float | None:
        expiry = self._options().times.expiry_seconds
        times = [pending.deadline for pending in self._handshakes.values()]
        times += [awaiting.deadline for awaiting in self._awaiting_first_frame.values()]
        times += [session.deadline(expiry) for session in self._sessions.values()]
        times.append(self.resources.tickets.deadline())
        return min((time for time in times if time is not None), default=None)

    def close_connection(self, session: int, *, keep_session: bool, now: float) -> ServerEffects:
        """Close a session after its unsent messages were sent, or after the option ``closeTimeout``.

        Does nothing for an unknown session.
        """
        found = self._sessions.get(session)
        if found is not None and found.link is not None:
            if found.closing is None:
                found.closing = Closing(now + self._options().close_timeout, keep_session)
                self._emit(effects.DrainSession(session))
            elif not keep_session:
                found.closing = Closing(found.closing.deadline, keep_session)
        elif found is not None:
            self._close_session(found, keep_session, now)
        return self._take_effects()

    def shut_down(self, now: float) -> ServerEffects:
        """Refuse all handshakes from now on, and end every session that has no link."""
        self._is_closing = True
        for pending in list(self._handshakes.values()):
            self._advance(pending, pending.handshake.close(now), now)
        for awaiting in list(self._awaiting_first_frame.values()):
            self._abandon_link(awaiting, now)
        for session in [one for one in self._sessions.values() if one.link is None]:
            self._end(session, Ending.CLOSED_BY_SERVER, now)
        return self._take_effects()

    def end_all(self, now: float) -> ServerEffects:
        """Shut down, and close every path, link and session at once. Afterwards only ids of bulk links are taken."""
        returned = self.shut_down(now)
        self._close_paths_and_links(now)
        for session in list(self._sessions.values()):
            self._end(session, Ending.CLOSED_BY_SERVER, now)
        return returned + self._take_effects()

    @property
    def is_idle(self) -> bool:
        """Whether no handshake is under way, no link awaits its first frame, and no session detaches or closes."""
        if self._handshakes or self._awaiting_first_frame:
            return False
        return not any(one.detached_at is not None or one.closing for one in self._sessions.values())

    @property
    def handshakes(self) -> int:
        """The number of handshakes that are under way or have a last packet to send. Thread-safe."""
        return len(self._handshakes)

    def statistics(self) -> dict[str, int]:
        """Return counts of used resources, and of refusals by code. Thread-safe."""
        return {"sessions": len(self._sessions), "handshakes": len(self._handshakes), **self.resources.statistics()}

    def _emit(self, *emitted: ServerEffect) -> None:
        self._emitted += emitted

    def _take_effects(self) -> ServerEffects:
        returned, self._emitted = tuple(self._emitted), []
        self._has_deadline = False
        return returned

    # Handshakes

    def _image_available(self, event: events.ImageAvailable, now: float) -> None:
        try:
            source = parse_source(event.source)
        except DataFormatError as error:
            self._emit(effects.RejectImage(event.image, BAD_SOURCE), effects.Report(error))
            return
        address = source.address if isinstance(source, UdpSource) else None
        handshake = ServerHandshake(self.identity, None if address is None else str(address), now)
        pending = PendingHandshake(next(self._numbers), event, source, handshake, now)
        self._handshakes[pending.path] = self._by_image[event.image] = pending
        if self._is_closing:
            self._advance(pending, handshake.close(now), now)
        elif address is not None and (refusal := self._address_refusal(address)) is not None:
            self._advance(pending, handshake.refuse(refusal, now), now)
        elif event.late:
            self._advance(pending, handshake.hello_missed(now), now)

    def _lose_path(self, pending: PendingHandshake | None, now: float) -> None:
        if pending is not None:
            self._advance(pending, pending.handshake.path_lost(now), now)

    def _refuse(self, pending: PendingHandshake | None, refusal: Refusal, now: float) -> None:
        if pending is not None:
            self._advance(pending, pending.handshake.refuse(refusal, now), now)

    def _advance(self, pending: PendingHandshake, performed: actions.Actions, now: float) -> None:
        for action in performed:
            match action:
                case actions.Reject(reason):
                    self._emit(effects.RejectImage(pending.event.image, reason))
                case actions.Admit():
                    self._admit(pending, now)
                case actions.OpenPath():
                    pending.is_open = True
                    self._emit(effects.OpenPath(pending.path, pending.event.image))
                case actions.Send(packet):
                    self._emit(effects.Transmit(pending.path, packet))
                case actions.Authenticate(key, done):
                    pending.authenticate = action
                    self._emit(effects.Decide(pending.path, pending.source, key, done))
                case actions.ClientAccepted():
                    self._await_first_frame(pending, action, now)
                    self._finish(pending, now)
                case actions.Release(_, refusal):
                    self._finish(pending, now, refusal)
                case actions.Ignored():
                    pass
                case _:
                    assert_never(action)

    def _admit(self, pending: PendingHandshake, now: float) -> None:
        permit = self.resources.admission.begin_handshake(pending.source, now)
        if isinstance(permit, Refusal):
            self._refuse(pending, permit, now)
        else:
            pending.permit = permit
            self._advance(pending, pending.handshake.admitted(now), now)

    def _finish(self, pending: PendingHandshake, now: float, refusal: Refusal | None = None) -> None:
        """Release everything of a handshake except its path, which stays until Aeron has taken the last packet."""
        if refusal is not None:
            self.resources.refused[refusal.code] += 1
        self._emit(pending.ended(refusal, now))
        if pending.permit is not None:
            pending.permit.release()
        accepted, pending.accepted = pending.accepted, None
        if accepted is not None:
            self._awaiting_connection.pop(accepted.session.number, None)
            was_opening = self._opening_links.pop(accepted.link.number, None) is not None
            self._release_accepted(accepted, now, close_link=was_opening)
        if pending.is_open:
            pending.drain_until = now + DRAIN_SECONDS
            self._emit(effects.DrainPath(pending.path))
        else:
            self._forget_path(pending)

    def _close_path(self, pending: PendingHandshake) -> None:
        self._emit(effects.ClosePath(pending.path))
        self._forget_path(pending)

    def _forget_path(self, pending: PendingHandshake) -> None:
        del self._handshakes[pending.path]
        del self._by_image[pending.event.image]

    def _decided(self, pending: PendingHandshake | None, decision: Decision, now: float) -> None:
        is_awaited = pending is not None and pending.handshake.state is actions.State.AUTHENTICATING
        if pending is None or pending.accepted is not None or not is_awaited:
            return
        accepted = decision if isinstance(decision, Refusal) else self._accept(pending, decision, now)
        if isinstance(accepted, Refusal):
            self._refuse(pending, accepted, now)
            return
        pending.accepted = accepted
        session = accepted.session
        if session.has_connection:
            self._open_link(pending, accepted)
        else:
            self._awaiting_connection[session.number] = pending
            self._emit(effects.MakeConnection(session.number, accepted.link.ids.session_in, accepted.client))

    # Resources for a client that has proved its key

    def _accept(self, pending: PendingHandshake, grant: Grant, now: float) -> AcceptedHandshake | Refusal:
        """Take a session with its permit, a ticket, and ids for a link. Takes nothing if it returns a refusal."""
        assert pending.authenticate is not None  # set with Decide
        key, done = pending.authenticate.client_key, pending.authenticate.done
        refusal = schema_refusal(self._types, done.types)
        if refusal is not None:
            return refusal
        client = AuthenticatedClient(key, done.tag, pending.source, grant)
        resumed = None if done.ticket is None else self._resume(done.ticket, key, now)
        ids = self.resources.pools.take(now)
        if isinstance(ids, Refusal):
            return ids
        link = OpenedLink(next(self._numbers), ids)
        if resumed is None:
            begun = self._begin_session(client, done.ticket, now)
            if not isinstance(begun, Refusal):
                return AcceptedHandshake(begun, client, link, begun.ticket, None, is_resumed=False)
            refusal = begun
        else:
            session, ticket = resumed
            if session.permit.is_taken:
                return AcceptedHandshake(session, client, link, ticket, None, is_resumed=True)
            permit = self.resources.admission.connect(client.source, now)
            if isinstance(permit, Permit):
                return AcceptedHandshake(session, client, link, ticket, permit, is_resumed=True)
            refusal = permit
        self.resources.pools.release(ids, now)
        return refusal

    def _resume(self, ticket: bytes, key: bytes, now: float) -> tuple[ServerSession, bytes] | None:
        """Return the session of a ticket and its next ticket. Close links of its earlier, unfinished attempts.

        If the first frame of the session never arrived, end the session and return None, so that the client gets a new
        one: the client may not know the session, and no listener was notified of it.
        """
        offer = self.resources.tickets.present(ticket, key, now)
        if offer is None:
            return None
        session = offer.session
        if session.is_new:
            self._end(session, Ending.NEVER_CONNECTED, now)
            return None
        for awaiting in [one for one in self._awaiting_first_frame.values() if one.accepted.session is session]:
            self._abandon_link(awaiting, now)
        return session, offer.ticket

    def _begin_session(
        self, client: AuthenticatedClient, presented: bytes | None, now: float
    ) -> ServerSession | Refusal:
        permit = self.resources.admission.connect(client.source, now)
        if isinstance(permit, Refusal):
            return permit
        session = ServerSession(next(self._numbers), permit, ticket=b"")
        opened = self.resources.tickets.open(client.key, session, now, presented, client.grant.limits.connections)
        if isinstance(opened, Refusal):
            permit.release()
            return opened
        offer, expired = opened
        session.ticket = offer.ticket
        self._sessions[session.number] = session
        self._end_expired(expired, now)
        return session

    def _connection_made(self, number: int) -> None:
        pending = self._awaiting_connection.pop(number, None)
        if pending is None:  # the session has ended meanwhile
            self._emit(effects.EndConnection(number, Ending.NEVER_CONNECTED), effects.ForgetConnection(number))
            return
        assert pending.accepted is not None  # each handshake in this dictionary was accepted
        pending.accepted.session.has_connection = True
        self._open_link(pending, pending.accepted)

    def _open_link(self, pending: PendingHandshake, accepted: AcceptedHandshake) -> None:
        link = accepted.link
        self._opening_links[link.number] = pending
        self._emit(effects.OpenLink(link.number, accepted.session.number, pending.event.image, link.ids))

    def _link_ready(self, link: int, received: int, now: float) -> None:
        pending = self._opening_links.get(link)
        if pending is None or pending.accepted is None:
            return
        try:
            ack = build_done_ack(pending, pending.accepted, self._options(), type_digests(self._types), received)
            performed = pending.handshake.accept(ack, now)
        except AeronSparkError as error:
            self._refuse(pending, undecided(error, NO_LINK), now)
        else:
            self._advance(pending, performed, now)

    def _await_first_frame(self, pending: PendingHandshake, connected: actions.ClientAccepted, now: float) -> None:
        accepted, pending.accepted = pending.accepted, None
        assert accepted is not None  # set when the handshake accepted
        link, session = accepted.link.number, accepted.session
        del self._opening_links[link]
        self._awaiting_first_frame[link] = AwaitingFirstFrame(accepted, now + self._options().times.setup_seconds)
        if session.state is SessionState.ACCEPTED:
            session.state = SessionState.AWAITING_FIRST_FRAME
        self._emit(
            effects.ExpectFirstFrame(link, session.number, accepted.client, connected.encryptor, connected.decryptor)
        )

    def _abandon_link(self, awaiting: AwaitingFirstFrame, now: float) -> None:
        """Close a link whose first frame did not arrive, unless it is closed already."""
        if self._awaiting_first_frame.pop(awaiting.accepted.link.number, None) is not None:
            self._release_accepted(awaiting.accepted, now, close_link=True)

    def _release_accepted(self, accepted: AcceptedHandshake, now: float, *, close_link: bool) -> None:
        """Release the resources of a client that does not connect. Only a new session ends with them."""
        if close_link:
            self._emit(effects.CloseLink(accepted.link.number))
        self.resources.pools.release(accepted.link.ids, now)
        if accepted.permit is not None:
            accepted.permit.release()
        if accepted.session.is_new:
            self._end(accepted.session, Ending.NEVER_CONNECTED, now)

    # Sessions

    def _link_verified(self, link: int, received: int, now: float) -> None:
        awaiting = self._awaiting_first_frame.get(link)
        if awaiting is None:
            return
        accepted, session = awaiting.accepted, awaiting.accepted.session
        permit: Permit | Refusal = accepted.permit or session.permit
        if isinstance(permit, Permit) and not permit.is_taken:  # the session has released it since the handshake
            permit = self.resources.admission.connect(accepted.client.source, now)
        if isinstance(permit, Refusal):
            self._abandon_link(awaiting, now)
            return
        if not self.resources.tickets.confirm(accepted.ticket):  # newer tickets of this session have replaced it
            self._abandon_link(awaiting, now)
            if permit is not session.permit:
                permit.release()
            return
        del self._awaiting_first_frame[link]
        self._release_link(session, now)
        if permit is not session.permit:
            session.permit.release()
            session.permit = permit
        session.link, session.ticket, session.state = accepted.link, accepted.ticket, SessionState.CONNECTED
        session.detached_at = None
        self._attached[link] = session
        self._emit(effects.Attach(link, session.number, accepted.client, received))
        if session.closing is not None:
            self._emit(effects.DrainSession(session.number))

    def _link_attached(self, link: int) -> None:
        session = self._attached.get(link)
        if session is None:
            return
        self._emit(effects.Notify(session.number, "connect" if session.last_notice is None else "resume"))
        session.last_notice = "connect"

    def _link_failed(self, link: int, error: Exception, now: float) -> None:
        if link in self._opening_links:
            self._refuse(self._opening_links[link], refusal_of(error, NO_LINK), now)
        elif link in self._awaiting_first_frame:
            self._abandon_link(self._awaiting_first_frame[link], now)
        elif link in self._attached:
            self._detach(self._attached[link], now, notify=False)

    def _session_event(self, session: ServerSession, event: events.SessionEvent, now: float) -> None:
        match event:
            case events.SessionFailed(_, error):
                self._end(session, error, now)
            case events.SessionDrained():
                if session.closing is not None:
                    self._close_session(session, session.closing.keep_session, now)
            case events.PeerClosed(_, keep_session):
                if keep_session and not session.is_new:
                    self._detach(session, now, notify=True)
                else:
                    self._end(session, Ending.CLOSED_BY_CLIENT, now)
            case _:
                assert_never(event)

    def _detach(self, session: ServerSession, now: float, *, notify: bool) -> None:
        """Detach a session from its link. ``notify``: notify listeners now instead of after the expiry."""
        if session.closing is not None:
            self._close_session(session, session.closing.keep_session, now)
            return
        self._release_link(session, now)
        self.resources.tickets.detach(session.ticket, now)
        session.state = SessionState.DETACHED
        session.detached_at = now
        if notify:
            self._notify_disconnect(session)

    def _close_session(self, session: ServerSession, keep_session: bool, now: float) -> None:
        session.closing = None
        if keep_session and not session.is_new:  # the client of a new session may not have its ticket yet
            self._detach(session, now, notify=True)
        else:
            self._end(session, Ending.CLOSED_BY_SERVER, now)

    def _end_expired(self, sessions: list[ServerSession], now: float) -> None:
        for session in sessions:
            if session.state is not SessionState.ENDED:  # ending one session may end another of the list
                self._end(session, Ending.NOT_RESUMED, now)

    def _end(self, session: ServerSession, cause: Ending | AeronSparkError, now: float) -> None:
        """End a session permanently, and release its resources and those of its handshakes and links."""
        session.state, session.closing = SessionState.ENDED, None
        del self._sessions[session.number]
        self.resources.tickets.drop(session.ticket)
        for awaiting in [one for one in self._awaiting_first_frame.values() if one.accepted.session is session]:
            self._abandon_link(awaiting, now)
        for pending in list(self._handshakes.values()):
            if pending.accepted is not None and pending.accepted.session is session:
                self._refuse(pending, SESSION_ENDED, now)
        self._release_link(session, now)
        session.permit.release()
        if session.has_connection:
            self._emit(effects.EndConnection(session.number, cause))
            self._notify_disconnect(session)
            self._emit(effects.ForgetConnection(session.number))

    def _notify_disconnect(self, session: ServerSession) -> None:
        """Release the permit of a session without a link, and notify its listeners once."""
        session.detached_at = None
        session.permit.release()
        if session.last_notice == "connect":
            session.last_notice = "disconnect"
            self._emit(effects.Notify(session.number, "disconnect"))

    def _release_link(self, session: ServerSession, now: float) -> None:
        link, session.link = session.link, None
        if link is not None:
            del self._attached[link.number]
            self._emit(effects.Detach(session.number), effects.CloseLink(link.number))
            self.resources.pools.release(link.ids, now)

    def _close_paths_and_links(self, now: float) -> None:
        """Close every path and every link; their sessions are detached."""
        for pending in list(self._handshakes.values()):
            self._advance(pending, pending.handshake.path_lost(now), now)
            if pending.path in self._handshakes:
                self._close_path(pending)
        for awaiting in list(self._awaiting_first_frame.values()):
            self._abandon_link(awaiting, now)
        for session in list(self._attached.values()):
            self._detach(session, now, notify=False)
