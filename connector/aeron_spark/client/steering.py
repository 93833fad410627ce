"""What a client's agent does: begins attempts, takes the duologue they end in, and comes back to the session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from aeron_spark.client.attempt import Attempt
from aeron_spark.client.judge import ServerKeyVerifier
from aeron_spark.client.settings import ClientSettings
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Runtime
from aeron_spark.connection.home import PeerInfo
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.loop import TransportReopening
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    IdentityError,
    RefusedError,
    SessionLost,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.client_handshake import ClientHandshake
from aeron_spark.protocol.connection_machine import closed_here
from aeron_spark.protocol.handshake_payloads import TICKET_BYTES, ClientDone
from aeron_spark.protocol.type_digests import type_digests
from aeron_spark.transport.api import ClientTransport, DriverLost, Inbox, TransportEvent

CLOSED_BY_PEER: Final = "the server closed the connection"
CONNECT_AGAIN: Final = "client.connect() tries again"
WITHOUT_DRIVER: Final = 0.01  # seconds between two looks whether there is a media driver again


class Steering(Runtime):
    """Everything here but ``__init__`` runs on the agent, or after its end.

    A ``candidate`` is the connection of a new session whose first frame is awaited; it becomes the connection then.
    Where that frame does not come, nobody here knows whether the server had ours, and has told of the session there:
    the next attempt presents its ticket, and what the server answers decides. A client without a ticket makes one up,
    by which the server finds a session of which its client never heard.
    """

    def __init__(
        self, dial: Callable[[], ClientTransport], server: ServerName, store: PeerStore, settings: ClientSettings,
        connection_class: type[Connection], *, is_ipc: bool, data_port: int,
    ) -> None:  # fmt: skip
        self._client_settings = settings
        self._dialing = dial()
        super().__init__("aeron-spark-client", settings.link, connection_class)
        self._server = server
        self._store = store
        self._identity = store.identity()
        self._is_ipc = is_ipc
        self._port = 0 if is_ipc else data_port or server.port
        self._reopening = TransportReopening(dial, self._listening)
        self._connection: Connection | None = None
        self._candidate: Connection | None = None
        self._link: LinkEnds | None = None
        self._ticket = secrets.token_bytes(TICKET_BYTES)  # the last one, of the candidate if there is one
        self._attempt: Attempt | None = None
        self._judge = ServerKeyVerifier(store, server, settings, self._listening)
        self._wanted = False  # whether to connect, or to come back
        self._stopped: AeronSparkError | None = None  # why it neither is connected nor tries to be
        self._reconnects = False  # whether a thread of the program leaves the link to resume the session at once
        self._stops_when_late = False  # whether an attempt that is out of time is the last
        self._connected: Future[Connection] = Future()
        self._connected.cancel()  # nobody waits
        self._connect_by: float | None = None
        self._failure: AeronSparkError | None = None  # of the last attempt
        self._put_off = False  # whether that was refused for a while only
        self._next_attempt = self._begun_at = 0.0
        self._pause = settings.first_pause
        self._away_since: float | None = None
        self._told_gone = False
        self._closing: list[tuple[float, Connection, bool]] = []

    def _want(self, by: float | None, *, reconnecting: bool) -> None:
        """Connect, until ``by``; None: until closed. One who left to reconnect does not go on trying after ``by``."""
        self._stopped, self._stops_when_late = None, reconnecting
        if self._connection is not None:
            self._connection.sender.refuse(None)
        if self._connection is not None and self._connection.connected:
            if not self._connected.done():  # it may have come back between the question and this
                self._connected.set_result(self._connection)
            return
        self._connect_by, self._failure = by, None
        self._wanted, self._next_attempt, self._pause = True, 0.0, self._client_settings.first_pause

    def _inbox(self) -> Inbox:
        return self._dialing.inbox

    def _connections_now(self) -> list[Connection]:
        connection = self._connection
        return [] if connection is None else [connection]

    def _other_event(self, event: TransportEvent, now: float) -> None:
        if isinstance(event, DriverLost):
            lost = TransportError(f"the media driver is gone: {event.reason}")
            self._failure = None
            self._reopening.begin(now)
            if self._attempt is not None:
                self._attempt_failed(lost, now)
            if self._connection is not None:
                self._interrupted(self._connection, lost, now)
        elif self._attempt is not None and getattr(event, "token", None) in self._attempt.tokens:
            self._attempt.event(event, now)

    def _other_work(self, now: float) -> bool:
        for due, connection, keep in self._closing[:]:
            if connection.sender.is_idle or now >= due:
                self._closing.remove((due, connection, keep))
                self._leave_now(connection, keep, now)
        if self._attempt is None and self._connect_by is not None and now >= self._connect_by:
            why = "there is no media driver" if self._reopening.wanted else "it was not yet tried again"
            late = WaitTimeout(f"no connection with {self._server} in time: {why}")
            self._last_word(self._failure or late, now)
        if self._reopening.wanted:
            self._redial(now)
            return False
        if self._attempt is not None:
            return self._go_on(self._attempt, now)
        if self._wanted and self._link is None:
            return self._begin(now)
        return bool(self._closing)

    def _other_calm(self) -> bool:
        wanted = self._wanted and self._link is None
        under_way = self._attempt is not None or self._connect_by is not None or self._away_since is not None
        connection = self._connection
        asks = connection is not None and connection.asks
        return not (wanted or under_way or asks or self._closing or self._reopening.wanted)

    def _redial(self, now: float) -> None:
        time.sleep(WITHOUT_DRIVER)  # the inbox of a driver that has gone does not wait
        if not self._wanted and self._connection is None:
            return
        try:
            dialing = self._reopening.step(now)
        except Exception as error:
            self._next_attempt = now + self._pause
            self._last_word(error if isinstance(error, AeronSparkError) else TransportError(str(error)), now)
            return
        if dialing is not None:
            old, self._dialing = self._dialing, dialing
            self._next_attempt = now
            old.close()

    def _begin(self, now: float) -> bool:
        """Begin an attempt when it is time, and once the store has said what is known of the server."""
        if not self._judge.asked and now < self._next_attempt:
            return False
        self._begun_at = now
        try:
            if self._judge.ready():
                self._attempt = self._new_attempt(now)
        except Exception as error:  # whatever it is, the next attempt comes after a pause
            self._attempt_failed(error if isinstance(error, AeronSparkError) else TransportError(str(error)), now)
        return True

    def _new_attempt(self, now: float) -> Attempt:
        owner = self._candidate or self._connection
        machine = ClientHandshake(
            identity=self._identity,
            entropy=secrets.token_bytes,
            verify=self._judge.verify,
            done=ClientDone(
                tag=self._client_settings.tag,
                types=type_digests(self._types),
                ticket=self._ticket,
                received=0 if owner is None else owner.machine.session.received,
            ),
            server=str(self._server),
            psk=self._client_settings.psk,
            timing=self._client_settings.timing,
            limits=self._settings.keys,
        )
        return Attempt(self._dialing, machine, self._settings, str(self._server), now, asked_twice=not self._is_ipc)

    def _go_on(self, attempt: Attempt, now: float) -> bool:
        link, received = attempt.link, 0
        if link is not None:
            if link.token not in self._links and not self._accepted(attempt, link, now):
                return False
            received = self._links[link.token][0].machine.session.received
        soon = attempt.step(now, received)
        if attempt.error is not None:
            self._attempt_failed(attempt.error, now, put_off=attempt.put_off, for_good=attempt.refused_for_good)
        if self._attempt is not None and self._connect_by is not None and now >= self._connect_by:
            self._attempt_failed(attempt.why_not(self._failure if self._put_off else None), now, put_off=True)
        return soon

    def _accepted(self, attempt: Attempt, link: LinkEnds, now: float) -> bool:
        """The server has accepted: its duologue is being opened. Whether it can be."""
        assert attempt.connected is not None  # the attempt has a link by it alone
        ack, awaited, owner = attempt.connected.ack, self._candidate, self._connection
        if not ack.resumed or awaited is not None or owner is None:
            # the server may have told of a session whose first frame we missed: both ends call it by one number
            number = awaited.id if ack.resumed and awaited is not None else ack.session_in
            try:
                owner = self._candidate = self._new_connection(attempt.connected.server_key, number)
            except Exception as error:  # of a connection class of the program's own
                self.report(None, error)
                failed = UsageError(f"the connection could not be made: {error!r}")
                self._attempt_failed(failed, now, for_good=True)
                return False
        self._ticket = ack.ticket
        self._join(owner, link)
        return True

    def _new_connection(self, server_key: bytes, number: int) -> Connection:
        host = "" if self._is_ipc else self._server.host
        who = PeerInfo(
            server_key, self._client_settings.tag, host, self._port, self._is_ipc, self._judge.trust.remote_key_changed
        )
        return self._connection_class(self, who, number)

    def _opened(self, connection: Connection, link: LinkEnds, received: int, now: float) -> None:
        if self._judge.trust.remember:
            self._listening.submit(self._remember, connection)
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave_door()
        first = connection is self._candidate
        if first:
            if self._connection is not None:
                lost = SessionLost(
                    f"{self._server} no longer knows the session", remedy="What was not acknowledged is lost"
                )
                self._finish(self._connection, lost)
            self._connection, self._candidate, self._told_gone = connection, None, False
        self._link = link
        try:
            connection.sender.attach(link, received, now)
        except AeronSparkError as error:
            self._over(connection, error)
            return
        self._pause, self._away_since, self._told_gone = self._client_settings.first_pause, None, False
        self._connect_by = None

        def tell() -> None:
            if first:
                self.tell("init", connection)
            self.tell("connect" if first else "resume", connection)

        connection.in_order(tell)
        connection.sender.flush()
        if not self._connected.done():
            self._connected.set_result(connection)

    def _remember(self, connection: Connection) -> None:
        try:
            self._store.trust(self._server, connection.key)
        except Exception as error:  # of files, or of a store of the program's own
            self.report(connection, error)

    def _unproved(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        # reported already; nobody but the server can have sealed DONE_ACK, so that another attempt may well succeed
        self._drop(link)
        why = f"the duologue with {self._server} began with a frame that is not the server's: {error.what}"
        self._attempt_failed(ConnectError(why), now)

    def _attempt_failed(
        self, error: AeronSparkError, now: float, *, put_off: bool = False, for_good: bool = False
    ) -> None:
        self._give_up_attempt()
        self._failure, self._put_off = error, put_off
        self._next_attempt = now + self._pause
        self._pause = min(2 * self._pause, self._client_settings.longest_pause)
        self._last_word(error, now, for_good=for_good)

    def _give_up_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave_door()
            if attempt.link is not None:
                self._drop(attempt.link)

    def _last_word(self, error: AeronSparkError, now: float, *, for_good: bool = False) -> None:
        """Decide whether to try again after ``error``; not if it is ``for_good``."""
        final, over = for_good or isinstance(error, IdentityError), False
        if not self._connected.done():
            passes = error is self._failure and self._put_off
            final = final or (isinstance(error, RefusedError | TamperedError) and not passes)
            over = self._connect_by is not None and max(now, self._next_attempt) >= self._connect_by
        if final or (over and (self._connection is None or self._stops_when_late)):
            self._stop_trying(error)
            if self._connection is not None and isinstance(error, IdentityError):
                self._over(self._connection, error)
        if final or over:
            self._fail_connect(error)  # last: the thread that waits for it finds the client stopped
        self._connect_by = None if self._connected.done() else self._connect_by

    def _stop_trying(self, error: AeronSparkError) -> None:
        """Connect no more until the program asks for it; what it wants to send meanwhile fails with ``error``."""
        self._wanted = False
        self._stopped = stopped = error.with_what(error.what)
        stopped.remedy = f"{error.remedy.rstrip('.')}. {CONNECT_AGAIN}" if error.remedy else CONNECT_AGAIN
        if self._connection is not None:
            self._connection.sender.refuse(stopped)

    def _stop_unless_connected(self, error: AeronSparkError) -> None:
        """Stop with ``error``; a client that is connected, or has stopped already, is left unchanged."""
        if self._stopped is not None or (self._connection is not None and self._connection.connected):
            return
        self._give_up_attempt()
        self._stop_trying(error)
        self._connect_by = None
        self._fail_connect(error)

    def _fail_connect(self, error: AeronSparkError) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)

    def _interrupted(self, connection: Connection, why: AeronSparkError, now: float, *, silent: bool = False) -> None:
        if connection is not self._connection:
            return
        leaving = [one for one in self._closing if one[1] is connection]
        if leaving:  # the peer was faster
            self._closing = [one for one in self._closing if one[1] is not connection]
            self._leave_now(connection, leaving[0][2], now)
            return
        self._let_go(connection, now)
        if self._away_since is None:
            self._away_since = now
        # at once, but not in a circle with a server that accepts and goes
        self._next_attempt = max(now, self._begun_at + self._client_settings.first_pause)
        if silent:
            self._tell_gone(connection)
        if not self._client_settings.reconnect:
            self._over(connection, why)

    def _image_left(self, connection: Connection, link: LinkEnds, now: float) -> None:
        # its publication was closed, or Aeron gave it up: nothing comes over this duologue any more
        self._path_lost(connection, link, TransportError(f"{self._server} has left the duologue"), now)

    def _tick(self, now: float) -> None:
        super()._tick(now)
        expired = self._away_since is not None and now - self._away_since >= self._settings.times.expiry_seconds
        if expired and self._connection is not None:
            self._tell_gone(self._connection)

    def _over(self, connection: Connection, error: AeronSparkError) -> None:
        if connection is self._connection:
            self._finish(connection, error)
            if not self._client_settings.reconnect or isinstance(error, TamperedError):
                self._stop_trying(error)

    def _finish(self, connection: Connection, error: AeronSparkError) -> None:
        """The connection is over for good. What is on the way to its session is of no use any more."""
        self._let_go(connection, time.monotonic())
        self._connection = None
        if self._candidate is None:
            self._begin_anew()
        connection.end(error)
        self._tell_gone(connection)
        if isinstance(error, SessionLost):
            self.report(connection, error)

    def _begin_anew(self) -> None:
        """Come back to nothing any more."""
        self._give_up_attempt()
        self._candidate, self._ticket = None, secrets.token_bytes(TICKET_BYTES)

    def _left(self, connection: Connection, keep_session: bool) -> None:
        now = time.monotonic()
        if connection.connected:
            self._closing.append((now + self._settings.close_seconds, connection, keep_session))
        else:  # at once: somebody may have asked for the next duologue already
            self._leave_now(connection, keep_session, now)

    def _leave_now(self, connection: Connection, keep_session: bool, now: float) -> None:
        if connection is self._connection:
            self._go(connection, keep_session, closed_here(), now)

    def _was_left(self, connection: Connection, keep_session: bool, now: float) -> None:
        if connection is self._connection:
            self._go(connection, keep_session, TransportError(CLOSED_BY_PEER, remedy="Connect anew"), now)

    def _go(self, connection: Connection, keep_session: bool, why: AeronSparkError, now: float) -> None:
        if keep_session:
            self._let_go(connection, now)
            self._tell_gone(connection)
        else:
            self._candidate = None
            self._finish(connection, why)
        if self._reconnects:
            self._wanted = False  # until :meth:`_want`, which comes at once: what is sent meanwhile waits
        else:
            self._stop_trying(why)

    def _let_go(self, connection: Connection, now: float) -> None:
        connection.sender.detach(now)
        if self._link is not None:
            self._drop(self._link)
            self._link = None

    def _tell_gone(self, connection: Connection) -> None:
        self._away_since = None
        if self._told_gone:
            return
        self._told_gone = True

        def tell() -> None:
            self.tell("disconnect", connection)
            connection.say_goodbye()

        connection.in_order(tell)

    def _end_all(self) -> None:
        self._give_up_attempt()
        if self._connection is not None:
            self._finish(self._connection, closed_here())
        self._fail_connect(closed_here())
