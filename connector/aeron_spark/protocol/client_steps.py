"""The steps of the client machine: one handler for each row of the table in ``client_machine``.

A ``candidate`` is a new session whose link is not verified yet; the server's first frame makes it the session. If that
frame does not arrive, the client cannot know whether the server received the client's first frame, and so notified its
program of the session. The next attempt therefore presents the candidate's ticket, and the server's response decides.
A client without a ticket sends a random one. By it the server finds a session whose DONE_ACK the client never received.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
from aeron_spark.protocol.client_attempt import Attempt, ClientMachineOptions, RetrySchedule
from aeron_spark.protocol.client_events import ClientEvent, ClientState, Effects, PendingConnect, SessionRecord
from aeron_spark.protocol.client_handshake import Abandoned, Actions, ClientHandshake, HandshakeAccepted
from aeron_spark.protocol.handshake_payloads import TICKET_BYTES, ClientDone
from aeron_spark.protocol.keypair import KeyPair
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.server_key_verifier import ServerKeyVerifier
from aeron_spark.protocol.session import closed_error
from aeron_spark.protocol.sources import may_retry

CONNECT_AGAIN: Final = "client.connect() tries again"

_Step = tuple[ClientState, Effects]
S = ClientState


class ClientSteps:
    """The data of one client machine, and its steps. A step returns the next state and the effects.

    ``state`` is the state before a step; the machine sets it. ``ClientMachine`` describes the public attributes.
    """

    def __init__(
        self, server: ServerName, options: ClientMachineOptions, keys: KeyPair, entropy: Entropy, psk: bytes | None,
        reopen_seconds: float,
    ) -> None:  # fmt: skip
        self.state = S.IDLE
        self.session: SessionRecord | None = None
        self.candidate: SessionRecord | None = None
        self.ticket = entropy(TICKET_BYTES)  # the latest; the candidate's if the client has a candidate
        self.stopped: AeronSparkError | None = None
        self.failure: AeronSparkError | None = None
        self.is_reconnecting = False
        self._has_lost_session = False  # without the program's close, and no other session has followed
        self.is_in_use: Callable[[], bool] = lambda: True
        self._server: Final = server
        self._options: Final = options
        self._psk: Final = psk
        self._reopen_seconds: Final = reopen_seconds
        self._keys: Final = keys
        self._entropy: Final = entropy
        self._numbers: Final = itertools.count(1)
        self._verifier: Final = ServerKeyVerifier(
            server, pinned=options.server_key, first_use=options.trust_first_use, validate=options.validate
        )
        self._connect: PendingConnect | None = None
        self._attempt: Attempt | None = None
        self._link: int | None = None  # carries the session
        self._closing = (False, 0.0)  # whether the session is kept, and the deadline for unsent messages
        self._schedule: Final = RetrySchedule(options.first_pause, options.longest_pause)
        self._is_looking_up = False  # a LookUpKey has no result yet
        self._has_driver = False  # the first connect opens the transport
        self._is_opening = False  # an OpenTransport has no result yet
        self._open_at = 0.0

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before its first proof."""
        return self._verifier.key

    @property
    def is_connect_pending(self) -> bool:
        """Whether a connect of the program has no outcome yet."""
        return self._connect is not None

    def connect_deadline(self) -> float | None:
        """Return the deadline of the pending connect."""
        return None if self._connect is None else self._connect.deadline

    def step_deadline(self) -> float | None:
        """Return the deadline of the present state."""
        attempt = self._attempt
        match self.state:
            case S.HANDSHAKING | S.OPENING_LINK if attempt is not None:
                return attempt.deadline()
            case S.PAUSED:
                return self._schedule.next_attempt
            case S.WITHOUT_DRIVER:
                return None if self._is_opening else self._open_at
            case S.CLOSING:
                return self._closing[1]
            case _:
                return None

    def expiry_deadline(self) -> float | None:
        """Return when to notify the program of "disconnect", unless the session is resumed before."""
        session = self.session
        if session is None or session.detached_at is None:
            return None
        return session.detached_at + self._options.times.expiry_seconds

    def notify_expired(self) -> Effects:
        """Notify the program of "disconnect"."""
        return () if self.session is None else self._notify_disconnect(self.session)

    # Requests of the program

    def on_connect(self, event: e.Connect, now: float) -> _Step:
        self.stopped, self.failure, self.is_reconnecting = None, None, False
        self._connect = PendingConnect(event.until, now, event.reconnecting)
        self._schedule.reset()
        resume_sending: Effects = () if self.session is None else (e.RefuseSending(self.session.session, None),)
        if self.state is S.CONNECTED and self.session is not None:
            return S.CONNECTED, (*resume_sending, *self._resolve(self.session.session))
        if self.state in (S.IDLE, S.PAUSED):
            state, effects = self._start_attempt(now)
            return state, resume_sending + effects
        return self.state, resume_sending

    def on_close(self, event: e.Close, now: float) -> _Step:
        if self.state is S.CONNECTED:
            self._closing = (event.keep_session, now + self._options.close_timeout)
            return S.CLOSING, ()
        return S.IDLE, self._leave(closed_error(), keep_session=event.keep_session)

    def on_close_again(self, event: e.Close, _now: float) -> _Step:
        self._closing = (self._closing[0] and event.keep_session, self._closing[1])
        return S.CLOSING, ()

    def on_stop(self, event: e.Stop, _now: float) -> _Step:
        self.is_reconnecting = False
        if self.stopped is not None:
            return S.IDLE, ()
        return S.IDLE, self._close_attempt() + self._stop_attempts(event.error) + self._resolve(event.error)

    def on_stop_of_connected(self, _event: e.Stop, _now: float) -> _Step:
        self.is_reconnecting = False
        return S.CONNECTED, ()

    def on_stop_of_closing(self, event: e.Stop, _now: float) -> _Step:
        self.is_reconnecting = False
        return S.CLOSING, self._resolve(event.error)

    def on_shut_down(self, _event: e.ShutDown, _now: float) -> _Step:
        effects = self._close_attempt() + self._forget_candidate()
        if self.session is not None:
            effects += self._end_session(self.session, closed_error())
        return S.CLOSED, effects + self._resolve(closed_error())

    # Deadlines

    def on_connect_due(self, _event: e.ConnectDue, now: float) -> _Step:
        attempt = self._attempt
        if attempt is not None:
            return self._fail_attempt(self._attempt_timeout(attempt), now)
        return self._retry_or_stop(self.failure or self._connect_timeout(_TIMEOUTS[self.state]), now, self.state)

    def on_connect_due_while_closing(self, _event: e.ConnectDue, _now: float) -> _Step:
        return S.CLOSING, self._resolve(self._connect_timeout(_TIMEOUTS[S.CLOSING]))

    def on_handshake_due(self, _event: e.StepDue, now: float) -> _Step:
        attempt = self._current_attempt
        if attempt.is_hello_sent:
            return self._apply(attempt.handshake.tick(now), now)
        error = WaitTimeout(
            f"waited {self._options.times.setup_seconds:g} s for {self._server} to respond",
            remedy="Check that the server runs, and that its data port is open for UDP.",
        )
        return self._fail_attempt(error, now)

    def on_link_due(self, _event: e.StepDue, now: float) -> _Step:
        error = WaitTimeout(
            f"waited {self._options.times.setup_seconds:g} s for the link with {self._server} to open",
            remedy="Check that the server's ports are open for UDP.",
        )
        return self._fail_attempt(error, now)

    def on_pause_over(self, _event: e.StepDue, now: float) -> _Step:
        return self._start_attempt(now) if self._is_wanted else self._end_unused()

    def on_open_due(self, _event: e.StepDue, now: float) -> _Step:
        return (S.WITHOUT_DRIVER, self._open_transport(now)) if self._is_wanted else self._end_unused()

    # The key store and the handshake

    def on_key_known(self, event: e.KeyKnown, now: float) -> _Step:
        self._is_looking_up, self._verifier.known = False, event.key
        options = self._options
        received = event.received if self.candidate is None and self.session is not None else 0
        done = ClientDone(tag=options.tag or "", types=dict(event.types), ticket=self.ticket, received=received)
        try:
            handshake = ClientHandshake(
                identity=self._keys, entropy=self._entropy, verify=self._verifier.verify, done=done,
                server=str(self._server), psk=self._psk, timing=options.timing, limits=options.key_limits,
            )  # fmt: skip
        except AeronSparkError as error:
            return self._fail_attempt(error, now)
        self._attempt = Attempt(handshake, self._numbers, now + options.times.setup_seconds)
        return S.HANDSHAKING, self._attempt.open()

    def on_lookup_failed(self, event: e.LookUpFailed, now: float) -> _Step:
        self._is_looking_up = False
        # Only its user can correct a key file. A program that waits for the connection learns of it at once.
        is_final = self.is_connect_pending and not event.error.retriable
        return self._fail_attempt(event.error, now, final=is_final or not self._may_retry(event.error))

    def on_late_lookup(self, _event: e.KeyKnown | e.LookUpFailed, _now: float) -> _Step:
        self._is_looking_up = False  # the next attempt looks the key up again, because the store may change
        return self.state, ()

    def on_path_ready(self, event: e.PathReady, now: float) -> _Step:
        attempt = self._current_attempt
        state, effects = self._apply(attempt.handshake.start(now), now)
        return state, effects + (attempt.open_cookie_publication() if event.expects_retry else ())

    def on_packet(self, event: e.Packet, now: float) -> _Step:
        return self._apply(self._current_attempt.handshake.packet(event.data, now), now)

    def on_path_lost(self, _event: e.PathLost, now: float) -> _Step:
        return self._apply(self._current_attempt.handshake.path_lost(now), now)

    def on_path_failed(self, event: e.PathFailed, now: float) -> _Step:
        return self._fail_attempt(event.error, now)

    def on_publication_failed(self, event: e.PublicationFailed, now: float) -> _Step:
        attempt = self._current_attempt
        if attempt.sends_on(event.publication):
            return self._fail_attempt(event.error, now)
        return S.HANDSHAKING, attempt.close_cookie_publication()

    def on_rejected(self, event: e.PublicationRejected, now: float) -> _Step:
        attempt = self._current_attempt
        if attempt.sends_on(event.publication):
            return self._apply(attempt.handshake.hint(event.reason, now), now)
        return S.HANDSHAKING, attempt.close_cookie_publication()  # it timed out at the server before the cookie arrived

    def on_path_event_after_acceptance(self, _event: ClientEvent, _now: float) -> _Step:
        return S.OPENING_LINK, ()

    def _apply(self, actions: Actions, now: float) -> _Step:
        """Return the step for actions of the handshake, which may have ended."""
        attempt = self._current_attempt
        effects, result = attempt.effects(actions)
        match result:
            case HandshakeAccepted():
                return self._accepted(attempt, result, now)
            case Abandoned(error, _, is_authenticated):
                return self._fail_attempt(
                    error, now, final=not self._may_retry(error, is_authenticated=is_authenticated)
                )
            case _:
                return S.HANDSHAKING, effects

    # From the server's acceptance to its first frame

    def _accepted(self, attempt: Attempt, accepted: HandshakeAccepted, now: float) -> _Step:
        attempt.accepted, attempt.setup_deadline = accepted, now + self._options.times.setup_seconds
        ack, candidate = accepted.ack, self.candidate
        if ack.resumed and candidate is None and self.session is not None:
            return S.OPENING_LINK, self._open_link(attempt, self.session)
        # a resumed candidate keeps its number, because the server may have shown it to its program
        number = candidate.number if ack.resumed and candidate is not None else ack.session_in
        attempt.owner = SessionRecord(next(self._numbers), number)
        changed = self._verifier.trust.remote_key_changed
        return S.OPENING_LINK, (e.MakeConnection(attempt.owner.session, number, accepted.server_key, changed),)

    def on_connection_made(self, _event: e.ConnectionMade, _now: float) -> _Step:
        attempt = self._current_attempt
        assert attempt.owner is not None  # set with MakeConnection
        effects, self.candidate = self._forget_candidate(), attempt.owner
        return S.OPENING_LINK, effects + self._open_link(attempt, attempt.owner)

    def on_connection_failed(self, event: e.ConnectionFailed, now: float) -> _Step:
        if self.session is None and self.candidate is None:
            self._renew_ticket()  # by the present one, the next attempt would get the same session at the server
        return self._fail_attempt(event.error, now, final=True)

    def _open_link(self, attempt: Attempt, owner: SessionRecord) -> Effects:
        accepted = attempt.accepted
        assert accepted is not None  # set when the server accepted
        self.ticket = accepted.ack.ticket
        attempt.owner, attempt.link = owner, next(self._numbers)
        return (e.OpenLink(attempt.link, owner.session, accepted.ack, accepted.encryptor, accepted.decryptor),)

    def on_link_verified(self, event: e.LinkVerified, _now: float) -> _Step:
        attempt, self._attempt = self._current_attempt, None
        owner = attempt.owner
        assert owner is not None  # set before the link was opened
        effects: Effects = (e.ClosePath(attempt.path),)
        if self._verifier.trust.remember:
            effects = (e.RememberKey(owner.session, self._verifier.key), *effects)
        if owner is self.candidate:
            if self.session is not None:
                lost = SessionLost(
                    f"{self._server} no longer has the session",
                    remedy="Messages that it had not acknowledged are lost.",
                )
                effects += self._end_session(self.session, lost)
            self.session, self.candidate = owner, None
        self._schedule.reset()
        self._link, self.failure = event.link, None
        return S.CONNECTED, (*effects, e.Attach(owner.session, event.link, event.received))

    def on_attached(self, _event: e.Attached, _now: float) -> _Step:
        session = self.session
        assert session is not None  # set before Attach
        is_first, session.is_confirmed = not session.is_confirmed, True
        session.detached_at, session.is_reported_connected = None, True
        number = session.session
        notices: Effects = (
            (e.Notify(number, "init"), e.Notify(number, "connect")) if is_first else (e.Notify(number, "resume"),)
        )
        if self._has_lost_session or not is_first:
            notices += (e.NotifyReconnect(number, resumed=not is_first),)
        self._has_lost_session = False
        return S.CONNECTED, notices + self._resolve(number)

    def on_link_failed(self, event: e.LinkFailed, now: float) -> _Step:
        return self._fail_attempt(event.error, now)

    # The end of a link or a session

    def on_link_lost(self, event: e.LinkFailed, now: float) -> _Step:
        return self._interrupted(event.error, now, S.PAUSED, silent=event.silent)

    def _interrupted(self, error: AeronSparkError, now: float, next_state: ClientState, *, silent: bool) -> _Step:
        session = self.session
        assert session is not None  # the link carried it
        effects = self._detach(session)
        session.detached_at = now
        self._schedule.note_loss(now)
        if silent:
            effects += self._notify_disconnect(session)
        if self._reconnects:
            return next_state, effects
        self._renew_ticket()
        return S.IDLE, effects + self._end_session(session, error) + self._stop_attempts(error)

    def on_peer_closed(self, event: e.PeerClosed, now: float) -> _Step:
        error, session = event.error, self.session
        if error is None:
            error = TransportError("the server closed the connection", remedy="Connect again.")
        is_soon = isinstance(error, RefusedError) and error.retry is Retry.SOON
        if is_soon and not self.is_in_use():
            return self._end_unused(error)
        if session is None or not is_soon or not self._options.reconnect:
            return S.IDLE, self._leave(error, keep_session=event.keep_session)
        self._renew_ticket()
        self._schedule.note_restart(now, int.from_bytes(self._entropy(2), "big") / 0xFFFF)
        return S.PAUSED, self._end_session(session, error)

    def on_peer_closed_while_closing(self, event: e.PeerClosed, now: float) -> _Step:
        self._closing = (self._closing[0] and event.keep_session, self._closing[1])
        return self._end_closing(now)

    def on_closing_done(self, _event: e.Drained | e.StepDue | e.LinkFailed, now: float) -> _Step:
        return self._end_closing(now)

    def _end_closing(self, now: float) -> _Step:
        """Leave the session; start an attempt if the program called connect meanwhile."""
        connect, self._connect = self._connect, None
        effects = self._leave(closed_error(), keep_session=self._closing[0], stops=connect is None)
        if connect is None:
            return S.IDLE, effects
        self._connect = connect
        state, started = self._start_attempt(now)
        return state, effects + started

    def on_session_failed(self, event: e.SessionFailed, now: float) -> _Step:
        session, before = self.session, self.state
        if session is None or session.session != event.session:
            return before, ()
        effects = self._end_session(session, event.error)
        if self.candidate is None:
            effects += self._close_attempt()
            self._renew_ticket()
        if isinstance(event.error, TamperedError) or not self._is_wanted:
            effects += self._close_attempt() + self._stop_attempts(event.error) + self._resolve(event.error)
            return S.IDLE, effects
        if before in (S.HANDSHAKING, S.OPENING_LINK, S.CONNECTED) and self._attempt is None:
            self._schedule.note_loss(now)
            return S.PAUSED, effects
        return before, effects

    def on_session_failed_while_closing(self, event: e.SessionFailed, now: float) -> _Step:
        if self.session is None or self.session.session != event.session:
            return S.CLOSING, ()
        effects = self._end_session(self.session, event.error)
        self._closing = (False, now)
        state, more = self._end_closing(now)
        return state, effects + more

    # The media driver

    def on_driver_lost(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        if not self._is_wanted:
            return self._end_unused()
        return S.WITHOUT_DRIVER, self._close_attempt() + self._open_transport(now)

    def on_driver_lost_while_idle(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        return S.IDLE, ()  # the next connect opens the transport

    def on_driver_lost_while_connected(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        state, effects = self._interrupted(event.error, now, S.WITHOUT_DRIVER, silent=False)
        return state, effects + (self._open_transport(now) if state is S.WITHOUT_DRIVER else ())

    def on_driver_lost_while_closing(self, event: e.DriverLost, now: float) -> _Step:
        self._lose_driver(event, now)
        return self._end_closing(now)

    def _lose_driver(self, event: e.DriverLost, now: float) -> None:
        self._has_driver, self._open_at, self.failure = False, now, event.error

    def on_transport_opened(self, _event: e.TransportOpened, now: float) -> _Step:
        self._has_driver, self._is_opening = True, False
        if self.state is not S.WITHOUT_DRIVER:
            return self.state, ()
        return self._start_attempt(now) if self._is_wanted else self._end_unused()

    def on_open_failed(self, event: e.OpenFailed, now: float) -> _Step:
        self._is_opening, self.failure = False, event.error
        if self.state is not S.WITHOUT_DRIVER:
            return self.state, ()
        # A program that waits for the connection learns at once of an error that only its user can correct.
        is_final = self.is_connect_pending and not event.error.retriable
        return self._retry_or_stop(event.error, now, S.WITHOUT_DRIVER, final=is_final, next_at=self._open_at)

    def _open_transport(self, now: float) -> Effects:
        if self._is_opening or now < self._open_at:
            return ()
        self._is_opening, self._open_at = True, now + self._reopen_seconds
        return (e.OpenTransport(),)

    # Parts of the steps

    @property
    def _reconnects(self) -> bool:
        return self._options.reconnect and self.is_in_use()

    @property
    def _is_wanted(self) -> bool:
        """Whether the client may connect: the program waits for that, or uses the client."""
        return self.is_connect_pending or self._reconnects

    def _end_unused(self, cause: AeronSparkError | None = None) -> _Step:
        """Stop a client that has lost its link without use, and end its session."""
        reason = cause or self.failure
        # Not the server's refusal: a call that begins now can be repeated over another connection.
        if reason is None:
            error = TransportError(f"the link with {self._server} was lost")
        else:
            error = TransportError(reason.what, remedy=reason.remedy)
        effects = self._close_attempt() + self._forget_candidate()
        if self.session is not None:
            effects += self._end_session(self.session, error)
        self._renew_ticket()
        return S.IDLE, effects + self._stop_attempts(error)

    @property
    def _current_attempt(self) -> Attempt:
        assert self._attempt is not None  # HANDSHAKING and OPENING_LINK have one
        return self._attempt

    def _start_attempt(self, now: float) -> _Step:
        if not self._has_driver:
            return S.WITHOUT_DRIVER, self._open_transport(now)
        self._schedule.note_start(now)
        if self._is_looking_up:
            return S.LOOKING_UP, ()  # the look-up of an earlier attempt is still under way
        self._is_looking_up = True
        return S.LOOKING_UP, (e.LookUpKey(),)

    def _may_retry(self, error: AeronSparkError, *, is_authenticated: bool = False) -> bool:
        return may_retry(error, is_awaited=self.is_connect_pending, is_authenticated=is_authenticated)

    def _fail_attempt(self, error: AeronSparkError, now: float, *, final: bool = False) -> _Step:
        effects = self._close_attempt()
        self.failure = error
        self._schedule.note_failure(now)
        state, more = self._retry_or_stop(error, now, S.PAUSED, final=final, next_at=self._schedule.next_attempt)
        return state, effects + more

    def _retry_or_stop(
        self, error: AeronSparkError, now: float, retry_state: ClientState, *, final: bool = False, next_at: float = 0.0
    ) -> _Step:
        """Go to ``retry_state``, or stop if ``error`` is final or ``next_at`` is after the connect's deadline."""
        connect, state = self._connect, retry_state
        effects: Effects = ()
        is_late = connect is not None and connect.deadline is not None and max(now, next_at) >= connect.deadline
        is_first = self.session is None and not self._has_lost_session  # nothing to connect again
        if final or (is_late and (is_first or (connect is not None and connect.stops_at_deadline))):
            state, effects = S.IDLE, self._stop_attempts(error)
            if self.session is not None and isinstance(error, IdentityError):
                effects += self._end_session(self.session, error)
                if self.candidate is None:
                    self._renew_ticket()
        # Resolve is the last effect, so that the waiting thread finds the client stopped
        return state, effects + (self._resolve(error) if final or is_late else ())

    def _stop_attempts(self, error: AeronSparkError) -> Effects:
        """Make no attempt until the next connect. Until then, calls that send fail with ``error``."""
        gives_up = self.stopped is None and not isinstance(error, EndedError)  # that is the program's own close
        self.stopped = error.with_what(error.what)
        self.stopped.remedy = f"{error.remedy.rstrip('.')}. {CONNECT_AGAIN}" if error.remedy else CONNECT_AGAIN
        refusal: Effects = () if self.session is None else (e.RefuseSending(self.session.session, self.stopped),)
        notice: Effects = (e.NotifyStopped(self.stopped),) if gives_up else ()
        return refusal + notice + (() if self.is_in_use() else (e.ReportUnused(),))

    def _resolve(self, outcome: int | AeronSparkError) -> Effects:
        connect, self._connect = self._connect, None
        return () if connect is None else (e.Resolve(outcome),)

    def _close_attempt(self) -> Effects:
        attempt, self._attempt = self._attempt, None
        return () if attempt is None else attempt.close()

    def _forget_candidate(self) -> Effects:
        candidate, self.candidate = self.candidate, None
        return () if candidate is None else (e.ForgetConnection(candidate.session),)

    def _leave(self, error: AeronSparkError, *, keep_session: bool, stops: bool = True) -> Effects:
        """Detach the session, and end it unless it is kept."""
        effects, session = self._close_attempt(), self.session
        if not keep_session:
            effects += self._forget_candidate()
            self._renew_ticket()
        if session is not None and keep_session:
            effects += self._detach(session) + self._notify_disconnect(session)
        elif session is not None:
            effects += self._end_session(session, error)
        if stops and not self.is_reconnecting:
            effects += self._stop_attempts(error)
        return effects + self._resolve(error)

    def _detach(self, session: SessionRecord) -> Effects:
        link, self._link = self._link, None
        return () if link is None else (e.Detach(session.session), e.CloseLink(link))

    def _end_session(self, session: SessionRecord, error: AeronSparkError) -> Effects:
        effects = (*self._detach(session), e.EndConnection(session.session, error), *self._notify_disconnect(session))
        if isinstance(error, SessionLost):
            effects += (e.Report(session.session, error),)
        self.session, self._has_lost_session = None, not isinstance(error, EndedError)
        return (*effects, e.ForgetConnection(session.session))

    def _notify_disconnect(self, session: SessionRecord) -> Effects:
        session.detached_at = None
        if not session.is_reported_connected:
            return ()
        session.is_reported_connected = False
        return (e.Notify(session.session, "disconnect"),)

    def _renew_ticket(self) -> None:
        self.ticket = self._entropy(TICKET_BYTES)

    def _attempt_timeout(self, attempt: Attempt) -> AeronSparkError:
        """Return the error of a connect whose deadline passed during an attempt."""
        hinted = attempt.handshake.hinted_error
        if hinted is not None:
            return hinted
        if attempt.link is None and isinstance(self.failure, RefusedError) and self.failure.retry is Retry.SOON:
            return self.failure  # more useful than the step that this attempt waits for
        return self._connect_timeout(
            f"it waited for {attempt.describe_wait(str(self._server))}", "Check that the server runs and is reachable."
        )

    def _connect_timeout(self, cause: str, remedy: str = "") -> WaitTimeout:
        connect = self._connect
        assert connect is not None  # its deadline has passed
        assert connect.deadline is not None
        seconds = max(0.0, connect.deadline - connect.started_at)  # the event loop may begin it late
        return WaitTimeout(f"could not connect to {self._server} within {seconds:.3g} s: {cause}", remedy=remedy)


_TIMEOUTS: Final = {
    S.LOOKING_UP: "the look-up in the key store has not ended",
    S.PAUSED: "the next attempt was not due yet",
    S.WITHOUT_DRIVER: "no media driver is running yet",
    S.CLOSING: "the previous connection was not closed yet",
}
