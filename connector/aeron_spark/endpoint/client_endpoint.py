"""The client's endpoint: it connects to one server, and resumes its session after an outage.

``client_states`` has the table of its steps. A step changes fields, calls the objects whose result it needs, and
returns the next state. All other calls (``_later``) follow when the state is set: a thread that such a call wakes finds
the state and the fields changed. No object calls the endpoint before such a call has returned.

A ``candidate`` is a new session whose link is not verified yet; the server's first frame makes it the session. If that
frame does not arrive, the client cannot know whether the server received the client's first frame, and so notified its
program of the session. The next attempt therefore presents the candidate's ticket, and the server's response decides.
A client without a ticket sends a random one. By it the server finds a session whose DONE_ACK the client never received.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from aeron_spark.endpoint.client_attempt import Attempt, Change, ClientSession, PendingConnect, RetrySchedule
from aeron_spark.endpoint.client_states import AWAITED, TRANSITIONS, ClientEvent, ClientState
from aeron_spark.endpoint.connection import CallEnded, Connection, ConnectionCore
from aeron_spark.endpoint.deliveries import SerialExecutor
from aeron_spark.endpoint.endpoint import EndpointCore
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, ListenerEvent, Notice, log_failed_call
from aeron_spark.endpoint.links import ClientPath, Link, to_package_error
from aeron_spark.endpoint.loop import IDLE_WAIT_S, REOPEN_SECONDS, Job, Loop
from aeron_spark.endpoint.owner import PeerInfo
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    IdentityError,
    RefusedError,
    Retry,
    SessionLost,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.facts import Bus
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import ClientOptions
from aeron_spark.protocol.access import PeerStore, ServerKeyVerifier, ServerName
from aeron_spark.protocol.client_handshake import (
    Abandoned,
    Actions,
    ClientHandshake,
    ClientIdentity,
    HandshakeAccepted,
    Ignored,
    Reopen,
    Send,
)
from aeron_spark.protocol.frames import PeerClose
from aeron_spark.protocol.handshake_payloads import TICKET_BYTES, ClientDone, type_digests
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.session import closed_error
from aeron_spark.protocol.sources import may_retry
from aeron_spark.protocol.transitions import internal_error
from aeron_spark.reused_threads import submit
from aeron_spark.transport.api import ClientTransport, DriverLost, Inbox, TransportEvent, UnopenedTransport
from aeron_spark.waiting import fail, resolve

LOG: Final = logging.getLogger("aeron_spark.endpoint")

NAME: Final = "aeron-spark-client"  # of the event loop's thread; those of others begin with it
STORE_TIMEOUT_S: Final = 5.0  # for the key store to store the server's key, when the client closes
STOP_TIMEOUT_S: Final = 1.0  # for the event loop to stop the attempts of an interrupted reconnect()
CONNECT_AGAIN: Final = "client.connect() tries again"

S = ClientState
E = ClientEvent


class ClientEndpoint(EndpointCore):
    """One client of one server. Methods are for the event loop, unless noted.

    ``dial`` opens the transport at the first connect, unless :meth:`open` has opened it, and another one after the loss
    of the media driver. It runs on a reused thread, and the key store on one of the listener pool.
    """

    def __init__(
        self,
        dial: Callable[[], ClientTransport],
        server: ServerName,
        store: PeerStore,
        options: ClientOptions,
        connection_class: type[Connection] = Connection,
        loop: Loop | None = None,
        random: Entropy = secrets.token_bytes,
    ) -> None:
        """Start and open nothing. ``loop``: by default, a new one. ``random(n)`` returns n random bytes."""
        super().__init__(loop or Loop(NAME), lambda: options, Bus(), connection_class)
        self.facts.on(CallEnded, log_failed_call)
        self.server: Final = server
        self._own_options: Final = options
        self.transport: ClientTransport = UnopenedTransport()
        """The transport that is open now."""
        self.on_closed: Callable[[bool], object] = lambda is_loop_ended: None
        """Called at the client's end, with whether the event loop has ended: if not, it may use the transport."""
        self.state = S.IDLE  # other threads read this, and the fields up to is_reconnecting
        self.session: ClientSession | None = None
        """The session that a link carries, or that the client can resume."""
        self.candidate: ClientSession | None = None
        """A new session; the client awaits the first frame of its link."""
        self.ticket = random(TICKET_BYTES)
        """The ticket for the next handshake; the candidate's if the client has a candidate."""
        self.stopped: AeronSparkError | None = None
        """Why the client stopped its attempts; None while it tries or is connected, and before its first connect."""
        self.failure: AeronSparkError | None = None
        """Why the last attempt failed; None while the client is connected."""
        self.is_reconnecting = False
        """Whether the program closes the link to resume the session at once. Until then, senders wait."""
        self.store: Final = store
        self._dial: Final = dial
        self._verifier: Final = ServerKeyVerifier(
            server, pinned=options.server_key, first_use=options.trust_first_use, validate=options.validate
        )
        psk = read_shared_secret(options.shared_secret_file)
        self._identity: Final = ClientIdentity(
            store.identity(), self._verifier.verify, str(server), random, psk, options.timing, options.key_limits
        )
        self._is_in_use: Callable[[], bool] = lambda: True
        self._report_unused: Callable[[], object] = lambda: None
        self._waiting: Future[Connection] = Future()  # of the threads that connect
        self._waiting.cancel()
        self._connect: PendingConnect | None = None
        self._attempt: Attempt | None = None
        self._link: Link | None = None  # carries the session
        self._has_lost_session = False  # without the program's close, and no other session has followed
        self._keeps_session = False  # after the close that is under way
        self._closes_at = 0.0  # the deadline of that close for unsent messages
        self._schedule: Final = RetrySchedule(options.first_pause, options.longest_pause)
        self._is_looking_up = False
        self._has_driver = False  # the first connect opens the transport
        self._opening: Future[ClientTransport] | None = None
        self._open_at = 0.0  # not before this time
        self._storing: Future[None] | None = None  # of the server's key
        self._calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        # Calls the listeners "lost", "reconnect" and "stopped", one at a time and in order
        self._state_listeners: Final = SerialExecutor(self.loop.pool, options.queue_bytes, on_room=lambda: None)

    def open(self, dial: Callable[[], ClientTransport]) -> None:
        """Open the transport in this thread, so that the caller gets the errors of ``dial``; before any connect."""
        self.transport = dial()
        self._step(E.TRANSPORT_OPENED, self.loop.clock())

    # For the client. Thread-safe.

    @property
    def connection(self) -> ConnectionCore | None:
        """The connection of the current session."""
        session = self.session
        return None if session is None else session.connection

    def require_connection(self) -> ConnectionCore:
        """Return the connection of the current session, or raise the error that :attr:`Client.connection` describes."""
        connection, stopped = self.connection, self.stopped
        if connection is not None:
            return connection
        if self.loop.is_closing:
            raise EndedError("the client is closed", remedy="Create another client.")
        if stopped is not None:
            raise stopped.with_what(stopped.what)
        raise ConnectError(
            f"there is no connection with {self.server}", remedy="Call connect, or wait for the connection."
        )

    @property
    def server_key(self) -> bytes:
        """The key that the server has proved; empty before its first proof."""
        return self._verifier.key

    @property
    def is_connect_pending(self) -> bool:
        """Whether a connect of the program has no outcome yet."""
        return self._connect is not None

    @property
    def is_stopped(self) -> bool:
        """Whether the client neither has a link nor tries to connect, and sending raises the error."""
        is_idle = self.state is S.IDLE and not self.is_reconnecting and self._waiting.done()
        return is_idle and ((connection := self.connection) is None or connection.refuses_records)

    def request_connect(self, until: float | None, *, reconnecting: bool = False) -> tuple[Future[Connection], bool]:
        """Have the event loop connect until then; return the future of the connection, and whether it is this call's.

        A call while another one waits returns that call's future. ``reconnecting``: at the deadline, stop the attempts
        even if the client has a session to resume. Raises EndedError once the client is closing.
        """
        loop = self.loop

        def connect() -> None:
            self._step(E.CONNECT, self.loop.clock(), waiting, until, reconnecting)

        with loop.lock:  # close() begins before all of this, or after it
            if loop.is_closing:
                raise EndedError("the client is closed", remedy="Create another client.")
            waiting, is_own = self._waiting, self._waiting.done()
            if is_own:
                waiting = self._waiting = Future()
                loop.jobs.append(Job(connect))
            if not loop.is_running:
                loop.start()
        loop.wake()
        return waiting, is_own

    def late_error(self, seconds: float) -> AeronSparkError:
        """Return the error of a connect that has waited for the attempt of another one: that of the last try."""
        failure = self.failure
        if failure is not None:
            return failure.with_what(failure.what)
        return WaitTimeout(
            f"waited {seconds:.3g} s for a connection with {self.server}",
            remedy="Wait longer: the client goes on to try until it is closed.",
        )

    def reconnect_while(self, is_in_use: Callable[[], bool], otherwise: Callable[[], object]) -> None:
        """Connect again after a loss only while ``is_in_use()``, or for a connect that waits; otherwise, stop.

        The event loop calls ``is_in_use``, and a thread of the pool ``otherwise``, when the client has stopped.
        """
        self._report_unused = otherwise
        self._is_in_use = is_in_use

    def expect_reconnect(self) -> None:
        """Let senders wait while the link is closed: a ``request_connect`` or ``stop_reconnecting`` follows."""

        def expect() -> None:
            self.is_reconnecting = True

        self.loop.run_soon(expect)

    def stop_reconnecting(self, cause: BaseException) -> None:
        """Have the event loop stop its attempts because of ``cause``, and wait until it has, for a moment at most.

        The event loop knows errors of this package already.
        """
        if isinstance(cause, AeronSparkError) or self.loop.is_closing or not self.loop.is_running:
            return
        error = ConnectError(f"reconnect() was interrupted by {type(cause).__name__}", remedy="Call reconnect() again.")
        stopped = self.loop.call(lambda: self._step(E.STOP, self.loop.clock(), error))
        with suppress(AeronSparkError):
            self.loop.wait(stopped, STOP_TIMEOUT_S, "the client's event loop to stop reconnecting")

    def await_stored_key(self) -> None:
        """Wait, for some seconds at most, until the key store has the key of the server."""
        if self._storing is not None:
            with suppress(WaitTimeout):
                self.loop.wait(self._storing, STORE_TIMEOUT_S, "the key store")

    def close_transport(self) -> None:
        """Close the transport, and one that is being opened. Call it after the end of the event loop."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.add_done_callback(_close_opened)
        self.transport.close()

    @property
    def options(self) -> ClientOptions:
        """The options, which do not change."""
        return self._own_options

    # Called by the event loop.

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now. Thread-safe."""
        return self.transport.inbox

    @property
    def connections(self) -> list[ConnectionCore]:
        """The connection of the current session, if there is one. Thread-safe."""
        connection = self.connection
        return [] if connection is None else [connection]

    def _is_idle(self, now: float) -> bool:
        """Whether no deadline is within ``IDLE_WAIT_S``, no connection is being closed, and the driver is not lost."""
        if self.inbox.lost or self.state is S.CLOSING:
            return False
        deadline = self.deadline()
        return deadline is None or deadline > now + IDLE_WAIT_S

    def _handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle the loss of the driver, and events of the path."""
        attempt = self._attempt
        if isinstance(event, DriverLost):
            self._step(E.DRIVER_LOST, now, event.error)
        elif attempt is not None and event.token == attempt.path.token:
            self._take(attempt.event_of(event), now)

    def _work(self, now: float) -> bool:
        """Send waiting packets, and notice changes that no event reports; return whether one waits for room."""
        attempt, is_busy = self._attempt, False
        if attempt is not None:
            self._take(attempt.change(), now)
            is_busy = self._attempt is attempt and attempt.work(now)
        if self.state is S.CLOSING:
            is_busy, connection = True, self.connection
            if connection is not None and connection.sender.is_idle:
                self._step(E.DRAINED, now)
        return is_busy

    def _take(self, change: Change | None, now: float) -> None:
        if change is not None:
            self._step(change[0], now, *change[1])

    def deadline(self) -> float | None:
        """Return the time at which ``run_due`` has work; None if time changes nothing."""
        times = (self._expiry_deadline(), self._connect_deadline(), self._step_deadline())
        return min((time for time in times if time is not None), default=None)

    def run_due(self, now: float) -> None:
        """Handle one deadline that has passed, if any. The next call handles the next one."""

        def is_due(deadline: float | None) -> bool:
            return deadline is not None and now >= deadline

        if self.session is not None and is_due(self._expiry_deadline()):
            self._notify_disconnect(self.session)
            self._call_all()
        if is_due(self._connect_deadline()):
            self._step(E.CONNECT_DUE, now)
        elif is_due(self._step_deadline()):
            self._step(E.STEP_DUE, now)

    def link_verified(self, link: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the server has its keys, and has ``received`` of our records."""
        if self._attempt is not None and self._attempt.link is link:
            self._step(E.LINK_VERIFIED, now, received)

    def link_failed(self, link: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""
        if isinstance(error, TamperedError | DataFormatError):
            # It is reported already. DONE_ACK was the server's, so another attempt may succeed.
            error = ConnectError(
                f"the first frame of the link with {self.server} is not the server's: {error.what}",
                remedy="The client tries again by itself. If this repeats, check the network.",
            )
        if self._attempt is not None and self._attempt.link is link:
            self._step(E.LINK_FAILED, now, error)

    def lost_image_error(self) -> AeronSparkError:
        """Return the error of a link without its image: the server closed the publication, or Aeron gave it up."""
        return TransportError(
            f"{self.server} has closed the link",
            remedy="The client reconnects by itself. If this repeats, see the server's log.",
        )

    def interrupted(self, connection: ConnectionCore, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""
        if self._link is not None and connection is self.connection:
            self._step(E.LINK_FAILED, now, error, expired)

    def peer_closed(self, connection: ConnectionCore, closed: PeerClose, now: float) -> None:
        """Handle the server's CLOSE."""
        if self._link is not None and connection is self.connection:
            self._step(E.PEER_CLOSED, now, closed)

    def session_failed(self, connection: ConnectionCore, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""
        if connection is self.connection:
            self._step(E.SESSION_FAILED, now, error)

    def program_closes(self, connection: ConnectionCore, keep_session: bool, now: float) -> None:
        """Close a connection that the program closes, after its unsent messages; stop the attempts to connect."""
        if connection is self.connection:
            self._step(E.CLOSE, now, keep_session)

    def end_all(self, now: float) -> None:
        """End the session, and the attempts to connect. The client cannot be used again."""
        self._step(E.SHUT_DOWN, now)
        # The loop may have ended before it began a connect.
        fail(self._waiting, EndedError("the client is closed", remedy="Create another client."))

    # Steps.

    def _step(self, event: ClientEvent, now: float, *arguments: object) -> None:
        """Take the step of the table. Raises UsageError, and changes nothing, if it has no row for ``event``."""
        before = self.state
        row = TRANSITIONS.get((before, event))
        if row is None:
            raise internal_error(f"the client does not expect {event.name} in state {before.name}")
        try:
            after: ClientState = getattr(self, f"_on_{row.step}")(now, *arguments)
            if after not in row.to:
                raise internal_error(f"the client may not be {after.name} after {event.name} in {before.name}")
            self.state = after
        finally:
            self._call_all()

    def _later(self, call: Callable[..., object], *arguments: object) -> None:
        """Call an object, or the program, when the present step has changed the state; in order."""
        self._calls.append((call, arguments))

    def _call_all(self) -> None:
        calls, self._calls = self._calls, []
        for call, arguments in calls:
            try:
                call(*arguments)
            except Exception as error:  # the other calls must still close and report their objects
                LOG.exception("client of %s: %s failed", self.server, getattr(call, "__qualname__", call))
                self.loop.failed = error

    def _connect_deadline(self) -> float | None:
        return None if self._connect is None else self._connect.deadline

    def _step_deadline(self) -> float | None:
        match self.state:
            case S.HANDSHAKING | S.OPENING_LINK:
                return self._current_attempt.deadline
            case S.PAUSED:
                return self._schedule.next_attempt
            case S.WITHOUT_DRIVER:
                return self._open_at if self._opening is None else None
            case S.CLOSING:
                return self._closes_at
            case _:
                return None

    def _expiry_deadline(self) -> float | None:
        """Return when to notify the program of "disconnect", unless the session is resumed before."""
        session = self.session
        if session is None or session.detached_at is None:
            return None
        return session.detached_at + self.options.times.expiry_seconds

    # Requests of the program

    def _on_connect(
        self, now: float, outcome: Future[Connection], until: float | None, reconnecting: bool
    ) -> ClientState:
        self.stopped, self.failure, self.is_reconnecting = None, None, False
        self._connect = PendingConnect(outcome, until, now, reconnecting)
        self._schedule.reset()
        if self.session is not None:
            self._later(self.session.connection.sender.refuse, None)
            if self.state is S.CONNECTED:
                self._resolve(self.session.connection)
        return self._start_attempt(now) if self.state in (S.IDLE, S.PAUSED) else self.state

    def _on_close(self, now: float, keep_session: bool) -> ClientState:
        if self.state is S.CONNECTED:
            self._keeps_session, self._closes_at = keep_session, now + self.options.close_timeout
            return S.CLOSING
        if self.state is S.CLOSING:
            self._keeps_session = self._keeps_session and keep_session
            return S.CLOSING
        self._leave(closed_error(), now, keep_session=keep_session)
        return S.IDLE

    def _on_stop(self, _now: float, error: AeronSparkError) -> ClientState:
        self.is_reconnecting = False
        if self.state is S.CLOSING:
            self._resolve(error)
        if self.state in (S.CONNECTED, S.CLOSING):
            return self.state
        if self.stopped is None:
            self._close_attempt()
            self._stop_attempts(error)
            self._resolve(error)
        return S.IDLE

    def _on_shut_down(self, now: float) -> ClientState:
        self._close_attempt()
        self.candidate = None
        if self.session is not None:
            self._end_session(self.session, closed_error(), now)
        self._resolve(closed_error())
        return S.CLOSED

    # Deadlines

    def _on_connect_due(self, now: float) -> ClientState:
        assert self._connect is not None  # its deadline has passed
        timeout = self._connect_timeout(self._connect)
        if self._attempt is not None:
            return self._fail_attempt(timeout, now)
        if self.state is S.CLOSING:
            self._resolve(timeout)
            return S.CLOSING
        return self._retry_or_stop(self.failure or timeout, now, self.state)

    def _on_attempt_due(self, now: float) -> ClientState:
        attempt = self._current_attempt
        if attempt.is_exchanging:
            return self._apply(attempt.handshake.tick(now), now)
        return self._fail_attempt(attempt.setup_timeout, now)

    def _on_pause_over(self, now: float) -> ClientState:
        return self._start_attempt(now) if self._is_wanted else self._end_unused(now)

    def _on_open_due(self, now: float) -> ClientState:
        return self._open_transport(now) if self._is_wanted else self._end_unused(now)

    # The key store and the handshake

    def _on_key_known(self, now: float, key: bytes | None) -> ClientState:
        self._is_looking_up, self._verifier.known = False, key
        resumed = self.session if self.candidate is None else None
        try:
            done = ClientDone(
                tag=self.options.tag or "",
                types=type_digests(self.types),
                ticket=self.ticket,
                received=0 if resumed is None else resumed.connection.session.received,
            )
            handshake = ClientHandshake(self._identity, done)
            path = ClientPath(self.transport)
        except AeronSparkError as error:
            return self._fail_attempt(error, now)
        self._attempt = Attempt(handshake, path, self.server, self.options.times.setup_seconds, now)
        return S.HANDSHAKING

    def _on_look_up_failed(self, now: float, error: AeronSparkError) -> ClientState:
        self._is_looking_up = False
        # Only its user can correct a key file. A program that waits for the connection learns of it at once.
        is_final = self.is_connect_pending and not error.retriable
        return self._fail_attempt(error, now, final=is_final or not self._may_retry(error))

    def _on_late_look_up(self, _now: float, _result: bytes | AeronSparkError | None) -> ClientState:
        self._is_looking_up = False  # the next attempt looks the key up again, because the store may change
        return self.state

    def _on_path_ready(self, now: float) -> ClientState:
        attempt = self._current_attempt
        state = self._apply(attempt.handshake.start(now), now)
        if attempt.path.expects_retry:
            attempt.path.open_next()
        return state

    def _on_packet(self, now: float, data: memoryview) -> ClientState:
        return self._apply(self._current_attempt.handshake.packet(data, now), now)

    def _on_path_lost(self, now: float) -> ClientState:
        return self._apply(self._current_attempt.handshake.path_lost(now), now)

    def _on_rejected(self, now: float, reason: str) -> ClientState:
        return self._apply(self._current_attempt.handshake.hint(reason, now), now)

    def _on_attempt_failed(self, now: float, error: AeronSparkError) -> ClientState:
        return self._fail_attempt(error, now)

    def _apply(self, actions: Actions, now: float) -> ClientState:
        """Execute actions of the handshake, which may have ended."""
        attempt = self._current_attempt
        for action in actions:
            match action:
                case Send(packet):
                    attempt.path.send(packet)
                case Reopen():
                    try:
                        attempt.path.replace_publication()
                    except AeronSparkError as error:
                        return self._fail_attempt(error, now)
                case HandshakeAccepted():
                    return self._accepted(attempt, action, now)
                case Abandoned(error, _, is_authenticated):
                    may_retry = self._may_retry(error, is_authenticated=is_authenticated)
                    return self._fail_attempt(error, now, final=not may_retry)
                case Ignored():
                    pass
        return S.HANDSHAKING

    # From the server's acceptance to its first frame

    def _accepted(self, attempt: Attempt, accepted: HandshakeAccepted, now: float) -> ClientState:
        ack, candidate = accepted.ack, self.candidate
        if ack.resumed and candidate is None and self.session is not None:
            return self._open_link(attempt, self.session, accepted, now)
        # a resumed candidate keeps its number, because the server may have shown it to its program
        number = candidate.connection.id if ack.resumed and candidate is not None else ack.session_in
        changed = self._verifier.trust.remote_key_changed
        peer = self._seen_at(PeerInfo(accepted.server_key, self.options.tag or "", key_changed=changed))
        try:
            connection = self.make(peer, number)
        except Exception as error:  # of the program's connection class
            self._later(self.report, None, error)
            if self.session is None and candidate is None:
                self._renew_ticket()  # by the present one, the next attempt would get the same session at the server
            failure = UsageError(f"the program's connection class failed: {error!r}", remedy="Correct the class.")
            return self._fail_attempt(failure, now, final=True)
        self.candidate = ClientSession(connection)
        return self._open_link(attempt, self.candidate, accepted, now)

    def _open_link(
        self, attempt: Attempt, owner: ClientSession, accepted: HandshakeAccepted, now: float
    ) -> ClientState:
        self.ticket = accepted.ack.ticket
        try:
            link = attempt.open_link(self.transport, self.options, accepted, owner, now)
        except AeronSparkError as error:
            return self._fail_attempt(error, now)
        self.add_link(owner.connection, link)
        return S.OPENING_LINK

    def _on_link_verified(self, now: float, received: int) -> ClientState:
        attempt, self._attempt = self._current_attempt, None
        session, link = attempt.owner, attempt.link
        assert session is not None  # the link was opened for it
        assert link is not None
        if self._verifier.trust.remember:
            self._storing = self.loop.in_background(partial(self._trust, session.connection, self._verifier.key))
        self._later(attempt.path.close)
        if session is self.candidate:
            if self.session is not None:
                lost = SessionLost(
                    f"{self.server} no longer has the session",
                    remedy="Messages that it had not acknowledged are lost.",
                )
                self._end_session(self.session, lost, now)
            self.session, self.candidate = session, None
        self._schedule.reset()
        self._link, self.failure = link, None
        connection = session.connection
        connection.peer = self._seen_at(connection.peer)
        try:
            connection.attach(link, received, now)
        except AeronSparkError as error:
            return self._on_session_failed(now, error)
        self._later(connection.sender.flush)
        self._note_connected(session)
        return S.CONNECTED

    def _note_connected(self, session: ClientSession) -> None:
        is_first, session.is_confirmed = not session.is_confirmed, True
        session.detached_at, session.is_reported_connected = None, True
        for notice in ("init", "connect") if is_first else ("resume",):
            self._notify(session, notice)
        if self._has_lost_session or not is_first:
            self._call_listeners("reconnect", session.connection, not is_first)
        self._has_lost_session = False
        self._resolve(session.connection)

    def _seen_at(self, peer: PeerInfo) -> PeerInfo:
        """Return the server's description with the address at which the newest path has reached it."""
        is_ipc = self.transport.is_ipc
        host, port = ("", 0) if is_ipc else (self.server.host, self.server.port)
        return replace(peer, address=host, port=port, is_ipc=is_ipc)

    # The end of a link or a session

    def _on_link_lost(self, now: float, error: AeronSparkError, silent: bool) -> ClientState:
        return self._interrupted(error, now, S.PAUSED, silent=silent)

    def _interrupted(self, error: AeronSparkError, now: float, next_state: ClientState, *, silent: bool) -> ClientState:
        session = self._current_session
        self._detach(session, now)
        session.detached_at = now
        self._schedule.note_loss(now)
        if silent:
            self._notify_disconnect(session)
        if self._reconnects:
            return next_state
        self._renew_ticket()
        self._end_session(session, error, now)
        self._stop_attempts(error)
        return S.IDLE

    def _on_peer_closed(self, now: float, closed: PeerClose) -> ClientState:
        if self.state is S.CLOSING:
            self._keeps_session = self._keeps_session and closed.keep_session
            return self._on_closing_done(now)
        error, session = closed.error, self._current_session
        if error is None:
            error = TransportError("the server closed the connection", remedy="Connect again.")
        is_soon = isinstance(error, RefusedError) and error.retry is Retry.SOON
        if is_soon and not self._is_in_use():
            return self._end_unused(now, error)
        if not is_soon or not self.options.reconnect:
            self._leave(error, now, keep_session=closed.keep_session)
            return S.IDLE
        self._renew_ticket()
        self._schedule.note_restart(now, int.from_bytes(self._identity.entropy(2), "big") / 0xFFFF)
        self._end_session(session, error, now)
        return S.PAUSED

    def _on_closing_done(self, now: float, *_data: object) -> ClientState:
        """Leave the session; start an attempt if the program called connect meanwhile."""
        connect, self._connect = self._connect, None
        self._leave(closed_error(), now, keep_session=self._keeps_session, stops=connect is None)
        if connect is None:
            return S.IDLE
        self._connect = connect
        return self._start_attempt(now)

    def _on_session_failed(self, now: float, error: AeronSparkError) -> ClientState:
        before = self.state
        self._end_session(self._current_session, error, now)
        if before is S.CLOSING:
            self._keeps_session = False
            return self._on_closing_done(now)
        if self.candidate is None:
            self._close_attempt()
            self._renew_ticket()
        if isinstance(error, TamperedError) or not self._is_wanted:
            self._close_attempt()
            self._stop_attempts(error)
            self._resolve(error)
            return S.IDLE
        if before in (S.HANDSHAKING, S.OPENING_LINK, S.CONNECTED) and self._attempt is None:
            self._schedule.note_loss(now)
            return S.PAUSED
        return before

    # The media driver

    def _on_driver_lost(self, now: float, error: AeronSparkError) -> ClientState:
        self._has_driver, self._open_at, self.failure = False, now, error
        match self.state:
            case S.IDLE:
                return S.IDLE  # the next connect opens the transport
            case S.CLOSING:
                return self._on_closing_done(now)
            case S.CONNECTED:
                state = self._interrupted(error, now, S.WITHOUT_DRIVER, silent=False)
                return self._open_transport(now) if state is S.WITHOUT_DRIVER else state
        if not self._is_wanted:
            return self._end_unused(now)
        self._close_attempt()
        return self._open_transport(now)

    def _on_transport_opened(self, now: float) -> ClientState:
        self._has_driver = True
        if self.state is not S.WITHOUT_DRIVER:
            return self.state
        return self._start_attempt(now) if self._is_wanted else self._end_unused(now)

    def _on_open_failed(self, now: float, error: AeronSparkError) -> ClientState:
        self.failure = error
        if self.state is not S.WITHOUT_DRIVER:
            return self.state
        # A program that waits for the connection learns at once of an error that only its user can correct.
        is_final = self.is_connect_pending and not error.retriable
        return self._retry_or_stop(error, now, S.WITHOUT_DRIVER, final=is_final, next_at=self._open_at)

    def _open_transport(self, now: float) -> ClientState:
        if self._opening is None and now >= self._open_at:
            self._open_at = now + REOPEN_SECONDS
            # The end of the process waits for the pool's thread: Java must not run then.
            self._opening = self.loop.in_background(lambda: submit(self._dial, f"{NAME}-dial").result(), self._opened)
        return S.WITHOUT_DRIVER

    # Parts of the steps

    @property
    def _current_attempt(self) -> Attempt:
        assert self._attempt is not None  # HANDSHAKING and OPENING_LINK have one
        return self._attempt

    @property
    def _current_session(self) -> ClientSession:
        assert self.session is not None  # the caller's state has one, or the endpoint was called because of it
        return self.session

    @property
    def _reconnects(self) -> bool:
        return self.options.reconnect and self._is_in_use()

    @property
    def _is_wanted(self) -> bool:
        """Whether the client may connect: the program waits for that, or uses the client."""
        return self.is_connect_pending or self._reconnects

    def _end_unused(self, now: float, cause: AeronSparkError | None = None) -> ClientState:
        """Stop a client that has lost its link without use, and end its session."""
        reason = cause or self.failure or TransportError(f"the link with {self.server} was lost")
        # Not the server's refusal: a call that begins now can be repeated over another connection.
        error = TransportError(reason.what, remedy=reason.remedy)
        self._close_attempt()
        self.candidate = None
        if self.session is not None:
            self._end_session(self.session, error, now)
        self._renew_ticket()
        self._stop_attempts(error)
        return S.IDLE

    def _start_attempt(self, now: float) -> ClientState:
        if not self._has_driver:
            return self._open_transport(now)
        self._schedule.note_start(now)
        if not self._is_looking_up:  # otherwise the look-up of an earlier attempt is still under way
            self._is_looking_up = True
            self.loop.in_background(lambda: self.store.server_key(self.server), self._looked_up)
        return S.LOOKING_UP

    def _may_retry(self, error: AeronSparkError, *, is_authenticated: bool = False) -> bool:
        return may_retry(error, is_awaited=self.is_connect_pending, is_authenticated=is_authenticated)

    def _fail_attempt(self, error: AeronSparkError, now: float, *, final: bool = False) -> ClientState:
        self._close_attempt()
        self.failure = error
        self._schedule.note_failure(now)
        return self._retry_or_stop(error, now, S.PAUSED, final=final, next_at=self._schedule.next_attempt)

    def _retry_or_stop(
        self, error: AeronSparkError, now: float, retry_state: ClientState, *, final: bool = False, next_at: float = 0.0
    ) -> ClientState:
        """Return ``retry_state``, or stop if ``error`` is final or ``next_at`` is after the connect's deadline."""
        connect, state = self._connect, retry_state
        is_late = connect is not None and connect.deadline is not None and max(now, next_at) >= connect.deadline
        is_first = self.session is None and not self._has_lost_session  # nothing to connect again
        if final or (is_late and (is_first or (connect is not None and connect.stops_at_deadline))):
            state = S.IDLE
            self._stop_attempts(error)
            if self.session is not None and isinstance(error, IdentityError):
                self._end_session(self.session, error, now)
                if self.candidate is None:
                    self._renew_ticket()
        if final or is_late:
            self._resolve(error)
        return state

    def _stop_attempts(self, error: AeronSparkError) -> None:
        """Make no attempt until the next connect. Until then, calls that send fail with ``error``."""
        gives_up = self.stopped is None and not isinstance(error, EndedError)  # that is the program's own close
        self.stopped = error.with_what(error.what)
        self.stopped.remedy = f"{error.remedy.rstrip('.')}. {CONNECT_AGAIN}" if error.remedy else CONNECT_AGAIN
        if self.session is not None:
            self._later(self.session.connection.sender.refuse, self.stopped)
        if gives_up:
            self._call_listeners("stopped", None, self.stopped)
        if not self._is_in_use():
            self._later(self.loop.in_background, self._report_unused)

    def _resolve(self, outcome: ConnectionCore | AeronSparkError) -> None:
        """End the program's connect, if one waits."""
        connect, self._connect = self._connect, None
        if connect is None:
            return
        if isinstance(outcome, AeronSparkError):
            self._later(fail, connect.outcome, outcome)
        else:
            self._later(resolve, connect.outcome, outcome.for_program)

    def _close_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._later(attempt.path.close)
            if attempt.link is not None:
                self._later(self.remove_link, attempt.link)

    def _leave(self, error: AeronSparkError, now: float, *, keep_session: bool, stops: bool = True) -> None:
        """Detach the session, and end it unless it is kept."""
        self._close_attempt()
        session = self.session
        if not keep_session:
            self.candidate = None
            self._renew_ticket()
        if session is not None and keep_session:
            self._detach(session, now)
            self._notify_disconnect(session)
        elif session is not None:
            self._end_session(session, error, now)
        if stops and not self.is_reconnecting:
            self._stop_attempts(error)
        self._resolve(error)

    def _detach(self, session: ClientSession, now: float) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._later(session.connection.detach, now)
            self._later(self.remove_link, link)

    def _end_session(self, session: ClientSession, error: AeronSparkError, now: float) -> None:
        self._detach(session, now)
        self._later(self._end_connection, session.connection, error)
        self._notify_disconnect(session)
        if isinstance(error, SessionLost):
            self._later(self.report, session.connection, error)
        self.session, self._has_lost_session = None, not isinstance(error, EndedError)

    def _renew_ticket(self) -> None:
        self.ticket = self._identity.entropy(TICKET_BYTES)

    def _connect_timeout(self, connect: PendingConnect) -> AeronSparkError:
        """Return the error of a connect whose deadline has passed."""
        attempt, failure = self._attempt, self.failure
        if attempt is None:
            return connect.timeout(self.server, AWAITED[self.state])
        hinted = attempt.handshake.hinted_error
        if hinted is not None:
            return hinted
        if attempt.link is None and isinstance(failure, RefusedError) and failure.retry is Retry.SOON:
            return failure  # more useful than the step that this attempt waits for
        remedy = "Check that the server runs and is reachable."
        return connect.timeout(self.server, f"it waited for {attempt.awaited}", remedy)

    # The program's listeners

    def _notify(self, session: ClientSession, notice: Notice) -> None:
        self._later(self.notify, ConnectionChanged(session.connection, notice))

    def _notify_disconnect(self, session: ClientSession) -> None:
        session.detached_at = None
        if session.is_reported_connected:
            session.is_reported_connected = False
            self._notify(session, "disconnect")

    def _call_listeners(self, event: ListenerEvent, connection: ConnectionCore | None, value: object) -> None:
        call = partial(self.listeners.notify, event, connection, value)
        self._later(self._state_listeners.submit, call)

    def _end_connection(self, connection: ConnectionCore, error: AeronSparkError) -> None:
        """End a connection, and call the listeners "lost" with the messages that the server has not confirmed.

        If the program closed the session, they are called only if there are such messages.
        """
        unconfirmed, listeners = connection.end(error), self.listeners

        def notify() -> None:
            messages = connection.messages_of(unconfirmed)
            if messages or not isinstance(error, EndedError):
                lost = error.with_what(error.what)
                lost.unconfirmed = messages
                listeners.notify("lost", connection, lost)

        if listeners.has("lost"):
            self._state_listeners.submit(notify)

    # The key store, whose calls may be slow, and the transport.

    def _looked_up(self, found: Future[bytes | None]) -> None:
        now = self.loop.clock()
        try:
            key = found.result()
        except AeronSparkError as error:
            self._step(E.LOOK_UP_FAILED, now, error)
        except Exception as error:  # of the program's key store
            failure = UsageError(f"the program's key store failed: {error!r}", remedy="Correct the key store.")
            self._step(E.LOOK_UP_FAILED, now, failure)
        else:
            self._step(E.KEY_KNOWN, now, key)

    def _trust(self, connection: ConnectionCore, key: bytes) -> None:
        """Have the store remember the server. Runs on a thread of the pool."""
        try:
            self.store.trust(self.server, key)
        except Exception as error:  # of key files, or of the program's key store
            self.report(connection, error)

    def _opened(self, answer: Future[ClientTransport]) -> None:
        self._opening = None
        try:
            opened = answer.result()
        except Exception as error:
            self._step(E.OPEN_FAILED, self.loop.clock(), to_package_error(error))
            return
        lost, self.transport = self.transport, opened
        self._step(E.TRANSPORT_OPENED, self.loop.clock())
        lost.close()


def _close_opened(opened: Future[ClientTransport]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()
