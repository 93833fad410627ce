"""What each row of a client's table does; see ``client_machine``.

A ``candidate`` is a new session whose first frame is awaited; it becomes the session then. Where that frame does not
come, the client cannot know whether the server had its own first frame, and has told its program of the session: the
next attempt presents the ticket of the candidate, and the server's answer decides. A client without a ticket makes one
up, by which the server finds a session of which its client never heard.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from aeron_spark.errors import (
    AeronSparkError,
    EndedError,
    IdentityError,
    RefusedError,
    Retry,
    SessionLost,
    TamperedError,
    TransportError,
    WaitTimeout,
)
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.access import ServerName
from aeron_spark.protocol.client_attempt import Attempt, ClientPolicy, Pauses
from aeron_spark.protocol.client_events import ClientEvent, ClientState, Effects, SessionRecord
from aeron_spark.protocol.client_handshake import Abandoned, Actions, ClientHandshake, HandshakeAccepted
from aeron_spark.protocol.handshake_payloads import TICKET_BYTES, ClientDone
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.refusals import may_retry
from aeron_spark.protocol.server_key_verifier import ServerKeyVerifier

CONNECT_AGAIN: Final = "client.connect() tries again"

_Step = tuple[ClientState, Effects]
S = ClientState


@dataclass(slots=True)
class _Wait:
    """A connect that has no outcome yet. ``stops_when_late``: with a session, too, no attempt is made after it."""

    until: float | None
    begun: float
    stops_when_late: bool


class ClientSteps:
    """The facts of one client, and the steps from state to state. A step returns the next state with the effects.

    ``state`` is the one before a step; the machine sets it. Everything public but the steps is described there.
    """

    def __init__(self, server: ServerName, policy: ClientPolicy, keys: KeyPair, entropy: Entropy) -> None:
        self.state = S.IDLE
        self.session: SessionRecord | None = None
        self.candidate: SessionRecord | None = None
        self.ticket = entropy(TICKET_BYTES)  # the last one; of the candidate if there is one
        self.stopped: AeronSparkError | None = None
        self.failure: AeronSparkError | None = None
        self.reconnecting = False
        self._server: Final = server
        self._policy: Final = policy
        self._keys: Final = keys
        self._entropy: Final = entropy
        self._numbers: Final = itertools.count(1)
        self._verifier: Final = ServerKeyVerifier(
            server, pinned=policy.server_key, first_use=policy.trust_first_use, validate=policy.validate
        )
        self._wait: _Wait | None = None
        self._attempt: Attempt | None = None
        self._link: int | None = None  # that carries the session
        self._closing = (False, 0.0)  # whether the session is kept, and until when what was sent may go out
        self._pauses: Final = Pauses(policy)
        self._looking_up = False  # whether the key store owes an answer
        self._has_driver = True
        self._reopening = False  # whether the transport is being opened again
        self._reopen_at = 0.0

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before."""
        return self._verifier.key

    @property
    def waiting(self) -> bool:
        """Whether a connect has no outcome yet."""
        return self._wait is not None

    def connect_ends(self) -> float | None:
        """When the time for a connect is over."""
        return None if self._wait is None else self._wait.until

    def step_ends(self) -> float | None:
        """When the state has something to do."""
        attempt = self._attempt
        match self.state:
            case S.HANDSHAKING | S.OPENING_LINK if attempt is not None:
                return attempt.deadline()
            case S.PAUSED:
                return self._pauses.next_attempt
            case S.WITHOUT_DRIVER:
                return None if self._reopening else self._reopen_at
            case S.CLOSING:
                return self._closing[1]
            case _:
                return None

    def expires_at(self) -> float | None:
        """When the program is told that the connection is gone, unless the session is resumed before."""
        session = self.session
        if session is None or session.away_since is None:
            return None
        return session.away_since + self._policy.expiry_seconds

    def report_expired(self) -> Effects:
        """Tell the program that the connection is gone."""
        return () if self.session is None else self._report_gone(self.session)

    # What the program wants.

    def on_connect(self, event: e.Connect, now: float) -> _Step:
        self.stopped, self.failure, self.reconnecting = None, None, False
        self._wait = _Wait(event.until, now, event.reconnecting)
        self._pauses.reset()
        sends: Effects = () if self.session is None else (e.RefuseSending(self.session.session, None),)
        if self.state is S.CONNECTED and self.session is not None:
            return S.CONNECTED, (*sends, *self._resolve(self.session.session))
        if self.state in (S.IDLE, S.PAUSED):
            state, effects = self._begin(now)
            return state, sends + effects
        return self.state, sends

    def on_close(self, event: e.Close, now: float) -> _Step:
        if self.state is S.CONNECTED:
            self._closing = (event.keep_session, now + self._policy.close_seconds)
            return S.CLOSING, ()
        return S.IDLE, self._leave(closed_error(), keep_session=event.keep_session)

    def on_close_again(self, event: e.Close, _now: float) -> _Step:
        self._closing = (self._closing[0] and event.keep_session, self._closing[1])
        return S.CLOSING, ()

    def on_stop(self, event: e.Stop, _now: float) -> _Step:
        self.reconnecting = False
        if self.stopped is not None:
            return S.IDLE, ()
        return S.IDLE, self._give_up_attempt() + self._stop(event.error) + self._resolve(event.error)

    def on_stop_of_connected(self, _event: e.Stop, _now: float) -> _Step:
        self.reconnecting = False
        return S.CONNECTED, ()

    def on_stop_of_closing(self, event: e.Stop, _now: float) -> _Step:
        self.reconnecting = False
        return S.CLOSING, self._resolve(event.error)

    def on_shut_down(self, _event: e.ShutDown, _now: float) -> _Step:
        effects = self._give_up_attempt() + self._forget_candidate()
        if self.session is not None:
            effects += self._end_session(self.session, closed_error())
        return S.CLOSED, effects + self._resolve(closed_error())

    # Time.

    def on_connect_due(self, _event: e.ConnectDue, now: float) -> _Step:
        attempt = self._attempt
        if attempt is not None:
            return self._attempt_failed(self._late_attempt(attempt), now)
        return self._settle(self.failure or self._late(_LATE[self.state]), now, self.state)

    def on_connect_due_while_closing(self, _event: e.ConnectDue, _now: float) -> _Step:
        return S.CLOSING, self._resolve(self._late(_LATE[S.CLOSING]))

    def on_handshake_due(self, _event: e.StepDue, now: float) -> _Step:
        attempt = self._under_way
        if attempt.is_begun:
            return self._after(attempt.handshake.tick(now), now)
        error = WaitTimeout(
            f"waited {self._policy.setup_seconds:g} s for {self._server} to answer at all",
            remedy="Is it running, and is its data port open for UDP?",
        )
        return self._attempt_failed(error, now)

    def on_link_due(self, _event: e.StepDue, now: float) -> _Step:
        error = WaitTimeout(
            f"waited {self._policy.setup_seconds:g} s for the link with {self._server} to open",
            remedy="Are its ports open for UDP?",
        )
        return self._attempt_failed(error, now)

    def on_pause_over(self, _event: e.StepDue, now: float) -> _Step:
        return self._begin(now)

    def on_reopen_due(self, _event: e.StepDue, now: float) -> _Step:
        return S.WITHOUT_DRIVER, self._reopen(now)

    # The key store, and the handshake.

    def on_key_known(self, event: e.KeyKnown, now: float) -> _Step:
        self._looking_up, self._verifier.known = False, event.key
        self._pauses.begun(now)
        policy = self._policy
        done = ClientDone(
            tag=policy.tag,
            types=dict(event.types),
            ticket=self.ticket,
            received=event.received if self.candidate is None and self.session is not None else 0,
        )
        try:
            handshake = ClientHandshake(
                identity=self._keys, entropy=self._entropy, verify=self._verifier.verify, done=done,
                server=str(self._server), psk=policy.psk, timing=policy.timing, limits=policy.key_limits,
            )  # fmt: skip
        except AeronSparkError as error:
            return self._attempt_failed(error, now)
        self._attempt = Attempt(handshake, self._numbers, now + policy.setup_seconds)
        return S.HANDSHAKING, self._attempt.open()

    def on_look_up_failed(self, event: e.LookUpFailed, now: float) -> _Step:
        self._looking_up = False
        return self._attempt_failed(event.error, now, final=not self._may_retry(event.error))

    def on_late_look_up(self, _event: e.KeyKnown | e.LookUpFailed, _now: float) -> _Step:
        self._looking_up = False  # the next attempt asks again: what is known may have changed
        return self.state, ()

    def on_path_ready(self, _event: e.PathReady, now: float) -> _Step:
        attempt = self._under_way
        state, effects = self._after(attempt.handshake.start(now), now)
        return state, effects + (attempt.open_spare() if self._policy.expects_retry else ())

    def on_packet(self, event: e.Packet, now: float) -> _Step:
        return self._after(self._under_way.handshake.packet(event.data, now), now)

    def on_path_lost(self, _event: e.PathLost, now: float) -> _Step:
        return self._after(self._under_way.handshake.path_lost(now), now)

    def on_path_failed(self, event: e.PathFailed, now: float) -> _Step:
        return self._attempt_failed(event.error, now)

    def on_publication_failed(self, event: e.PublicationFailed, now: float) -> _Step:
        attempt = self._under_way
        if attempt.speaks_on(event.publication):
            return self._attempt_failed(event.error, now)
        return S.HANDSHAKING, attempt.close_spare()

    def on_rejected(self, event: e.PublicationRejected, now: float) -> _Step:
        attempt = self._under_way
        if attempt.speaks_on(event.publication):
            return self._after(attempt.handshake.hint(event.reason, now), now)
        return S.HANDSHAKING, attempt.close_spare()  # the server did not wait for the cookie

    def on_word_after_acceptance(self, _event: ClientEvent, _now: float) -> _Step:
        return S.OPENING_LINK, ()

    def _after(self, actions: Actions, now: float) -> _Step:
        """Execute what the handshake wants, and see whether it has ended."""
        attempt = self._under_way
        effects, end = attempt.effects(actions)
        match end:
            case HandshakeAccepted():
                return self._accepted(attempt, end, now)
            case Abandoned(error, _, is_authenticated):
                return self._attempt_failed(
                    error, now, final=not self._may_retry(error, is_authenticated=is_authenticated)
                )
            case _:
                return S.HANDSHAKING, effects

    # From the server's acceptance to the first frame.

    def _accepted(self, attempt: Attempt, connected: HandshakeAccepted, now: float) -> _Step:
        attempt.accepted, attempt.step_ends = connected, now + self._policy.setup_seconds
        ack, awaited = connected.ack, self.candidate
        if ack.resumed and awaited is None and self.session is not None:
            return S.OPENING_LINK, self._open_link(attempt, self.session)
        # the server may have told of a session whose first frame we missed: both ends call it by one number
        number = awaited.number if ack.resumed and awaited is not None else ack.session_in
        attempt.owner = SessionRecord(next(self._numbers), number)
        changed = self._verifier.trust.remote_key_changed
        return S.OPENING_LINK, (e.MakeConnection(attempt.owner.session, number, connected.server_key, changed),)

    def on_connection_made(self, _event: e.ConnectionMade, _now: float) -> _Step:
        attempt = self._under_way
        assert attempt.owner is not None  # MakeConnection was for it
        effects, self.candidate = self._forget_candidate(), attempt.owner
        return S.OPENING_LINK, effects + self._open_link(attempt, attempt.owner)

    def on_connection_failed(self, event: e.ConnectionFailed, now: float) -> _Step:
        if self.session is None and self.candidate is None:
            self._renew_ticket()  # the server finds its session by this one; the next attempt wants another session
        return self._attempt_failed(event.error, now, final=True)

    def _open_link(self, attempt: Attempt, owner: SessionRecord) -> Effects:
        connected = attempt.accepted
        assert connected is not None  # it leads here alone
        self.ticket = connected.ack.ticket
        attempt.owner, attempt.link = owner, next(self._numbers)
        return (e.OpenLink(attempt.link, owner.session, connected.ack, connected.encryptor, connected.decryptor),)

    def on_link_verified(self, event: e.LinkVerified, _now: float) -> _Step:
        attempt, self._attempt = self._under_way, None
        owner = attempt.owner
        assert owner is not None  # the link is for it
        effects: Effects = (e.ClosePath(attempt.path),)
        if self._verifier.trust.remember:
            effects = (e.RememberKey(owner.session, self._verifier.key), *effects)
        if owner is self.candidate:
            if self.session is not None:
                lost = SessionLost(
                    f"{self._server} no longer knows the session", remedy="What was not acknowledged is lost"
                )
                effects += self._end_session(self.session, lost)
            self.session, self.candidate = owner, None
        self._pauses.reset()
        self._link, self.failure = event.link, None
        return S.CONNECTED, (*effects, e.Attach(owner.session, event.link, event.received))

    def on_attached(self, _event: e.Attached, _now: float) -> _Step:
        session = self.session
        assert session is not None  # Attach was for it
        first, session.confirmed = not session.confirmed, True
        session.away_since, session.gone_reported = None, False
        number = session.session
        news: Effects = (
            (e.Notify(number, "init"), e.Notify(number, "connect")) if first else (e.Notify(number, "resume"),)
        )
        return S.CONNECTED, news + self._resolve(number)

    def on_link_failed(self, event: e.LinkFailed, now: float) -> _Step:
        return self._attempt_failed(event.error, now)

    # The end of a link, and of a session.

    def on_link_lost(self, event: e.LinkFailed, now: float) -> _Step:
        return self._interrupted(event.error, now, S.PAUSED, silent=event.silent)

    def _interrupted(self, error: AeronSparkError, now: float, next_state: ClientState, *, silent: bool) -> _Step:
        session = self.session
        assert session is not None  # a link carried it
        effects = self._let_go(session)
        session.away_since = now
        self._pauses.lost(now)
        if silent:
            effects += self._report_gone(session)
        if self._policy.reconnect:
            return next_state, effects
        self._renew_ticket()
        return S.IDLE, effects + self._end_session(session, error) + self._stop(error)

    def on_peer_closed(self, event: e.PeerClosed, _now: float) -> _Step:
        error = TransportError("the server closed the connection", remedy="Connect again")
        return S.IDLE, self._leave(error, keep_session=event.keep_session)

    def on_peer_closed_first(self, event: e.PeerClosed, now: float) -> _Step:
        self._closing = (self._closing[0] and event.keep_session, self._closing[1])
        return self._closed(now)

    def on_left(self, _event: e.Drained | e.StepDue | e.LinkFailed, now: float) -> _Step:
        return self._closed(now)

    def _closed(self, now: float) -> _Step:
        """End CLOSING; a connect that came meanwhile begins."""
        wait, self._wait = self._wait, None
        effects = self._leave(closed_error(), keep_session=self._closing[0], stops=wait is None)
        if wait is None:
            return S.IDLE, effects
        self._wait = wait
        state, begun = self._begin(now)
        return state, effects + begun

    def on_session_failed(self, event: e.SessionFailed, now: float) -> _Step:
        session, before = self.session, self.state
        if session is None or session.session != event.session:
            return before, ()
        effects = self._end_session(session, event.error)
        if self.candidate is None:
            effects += self._give_up_attempt()
            self._renew_ticket()
        if isinstance(event.error, TamperedError) or not (self._policy.reconnect or self.waiting):
            effects += self._give_up_attempt() + self._stop(event.error) + self._resolve(event.error)
            return S.IDLE, effects
        if before in (S.HANDSHAKING, S.OPENING_LINK, S.CONNECTED) and self._attempt is None:
            self._pauses.lost(now)
            return S.PAUSED, effects
        return before, effects

    def on_session_failed_while_closing(self, event: e.SessionFailed, now: float) -> _Step:
        if self.session is None or self.session.session != event.session:
            return S.CLOSING, ()
        effects = self._end_session(self.session, event.error)
        self._closing = (False, now)
        state, more = self._closed(now)
        return state, effects + more

    # The media driver.

    def on_driver_lost(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        return S.WITHOUT_DRIVER, self._give_up_attempt() + self._reopen(now)

    def on_driver_lost_while_idle(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        return S.IDLE, ()  # the next connect opens the transport

    def on_driver_lost_while_connected(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        state, effects = self._interrupted(event.error, now, S.WITHOUT_DRIVER, silent=False)
        return state, effects + (self._reopen(now) if state is S.WITHOUT_DRIVER else ())

    def on_driver_lost_while_closing(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        return self._closed(now)

    def _lose_driver(self, event: e.DriverLost, now: float) -> None:
        self._has_driver, self._reopen_at, self.failure = False, now, event.error

    def on_transport_reopened(self, _event: e.TransportReopened, now: float) -> _Step:
        self._has_driver, self._reopening = True, False
        return self._begin(now) if self.state is S.WITHOUT_DRIVER else (self.state, ())

    def on_reopen_failed(self, event: e.ReopenFailed, now: float) -> _Step:
        self._reopening, self.failure = False, event.error
        if self.state is not S.WITHOUT_DRIVER:
            return self.state, ()
        return self._settle(event.error, now, S.WITHOUT_DRIVER, next_at=self._reopen_at)

    def _reopen(self, now: float) -> Effects:
        if self._reopening or now < self._reopen_at:
            return ()
        self._reopening, self._reopen_at = True, now + self._policy.reopen_seconds
        return (e.ReopenTransport(),)

    # Parts of these.

    @property
    def _under_way(self) -> Attempt:
        assert self._attempt is not None  # the states that lead here have one
        return self._attempt

    def _begin(self, now: float) -> _Step:
        if not self._has_driver:
            return S.WITHOUT_DRIVER, self._reopen(now)
        if self._looking_up:
            return S.LOOKING_UP, ()  # the store is slow, and was asked by the attempt before
        self._looking_up = True
        return S.LOOKING_UP, (e.LookUpKey(),)

    def _may_retry(self, error: AeronSparkError, *, is_authenticated: bool = False) -> bool:
        return may_retry(error, is_awaited=self.waiting, is_authenticated=is_authenticated)

    def _attempt_failed(self, error: AeronSparkError, now: float, *, final: bool = False) -> _Step:
        effects = self._give_up_attempt()
        self.failure = error
        self._pauses.failed(now)
        state, more = self._settle(error, now, S.PAUSED, final=final, next_at=self._pauses.next_attempt)
        return state, effects + more

    def _settle(
        self, error: AeronSparkError, now: float, otherwise: ClientState, *, final: bool = False, next_at: float = 0.0
    ) -> _Step:
        """Stop after ``error`` if it is final, or the next attempt at ``next_at`` comes too late for the connect."""
        wait, state = self._wait, otherwise
        effects: Effects = ()
        late = wait is not None and wait.until is not None and max(now, next_at) >= wait.until
        if final or (late and (self.session is None or (wait is not None and wait.stops_when_late))):
            state, effects = S.IDLE, self._stop(error)
            if self.session is not None and isinstance(error, IdentityError):
                effects += self._end_session(self.session, error)
                if self.candidate is None:
                    self._renew_ticket()
        # last: the thread that waits for it finds the client stopped
        return state, effects + (self._resolve(error) if final or late else ())

    def _stop(self, error: AeronSparkError) -> Effects:
        """Connect no more until the program asks for it; what it wants to send meanwhile fails with ``error``."""
        self.stopped = error.with_what(error.what)
        self.stopped.remedy = f"{error.remedy.rstrip('.')}. {CONNECT_AGAIN}" if error.remedy else CONNECT_AGAIN
        return () if self.session is None else (e.RefuseSending(self.session.session, self.stopped),)

    def _resolve(self, outcome: int | AeronSparkError) -> Effects:
        wait, self._wait = self._wait, None
        return () if wait is None else (e.Resolve(outcome),)

    def _give_up_attempt(self) -> Effects:
        attempt, self._attempt = self._attempt, None
        return () if attempt is None else attempt.close()

    def _forget_candidate(self) -> Effects:
        candidate, self.candidate = self.candidate, None
        return () if candidate is None else (e.ForgetConnection(candidate.session),)

    def _leave(self, why: AeronSparkError, *, keep_session: bool, stops: bool = True) -> Effects:
        """Leave the session for now, or for good."""
        effects, session = self._give_up_attempt(), self.session
        if not keep_session:
            effects += self._forget_candidate()
            self._renew_ticket()
        if session is not None and keep_session:
            effects += self._let_go(session) + self._report_gone(session)
        elif session is not None:
            effects += self._end_session(session, why)
        if stops and not self.reconnecting:
            effects += self._stop(why)
        return effects + self._resolve(why)

    def _let_go(self, session: SessionRecord) -> Effects:
        link, self._link = self._link, None
        return () if link is None else (e.Detach(session.session), e.CloseLink(link))

    def _end_session(self, session: SessionRecord, error: AeronSparkError) -> Effects:
        effects = (*self._let_go(session), e.EndConnection(session.session, error), *self._report_gone(session))
        if isinstance(error, SessionLost):
            effects += (e.Report(session.session, error),)
        self.session = None
        return (*effects, e.ForgetConnection(session.session))

    def _report_gone(self, session: SessionRecord) -> Effects:
        session.away_since = None
        if session.gone_reported:
            return ()
        session.gone_reported = True
        return (e.Notify(session.session, "disconnect"),)

    def _renew_ticket(self) -> None:
        self.ticket = self._entropy(TICKET_BYTES)

    def _late_attempt(self, attempt: Attempt) -> AeronSparkError:
        """Why there is no connection when its time is over before the attempt's own."""
        said = attempt.handshake.hinted
        if said is not None:
            return said
        if attempt.link is None and isinstance(self.failure, RefusedError) and self.failure.retry is Retry.SOON:
            return self.failure  # it says more than that this attempt waits
        return self._late(f"it waited for {attempt.awaits(str(self._server))}", "Is the server there, and reachable?")

    def _late(self, why: str, remedy: str = "") -> WaitTimeout:
        wait = self._wait
        assert wait is not None  # who waits is told
        assert wait.until is not None  # there is an end to that
        return WaitTimeout(
            f"could not connect to {self._server} within {wait.until - wait.begun:.3g} s: {why}", remedy=remedy
        )


def closed_error() -> EndedError:
    """The error of a connection that its own program closed."""
    return EndedError("the connection is closed", remedy="Connect again")


_LATE: Final = {
    S.LOOKING_UP: "the store of keys has not answered",
    S.PAUSED: "the next attempt was not due yet",
    S.WITHOUT_DRIVER: "there is no media driver",
    S.CLOSING: "the connection before it was not closed yet",
}
