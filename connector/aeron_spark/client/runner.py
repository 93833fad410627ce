"""Runs a client's machine on the event loop: feeds it events, and executes the effects that it returns."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from aeron_spark.client.handshake_path import HandshakePath, not_opened, to_package_error
from aeron_spark.client.state_listeners import StateListeners
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint_listeners import ConnectionChanged, log_failed_call
from aeron_spark.connection.links import Link
from aeron_spark.connection.loop import IDLE_WAIT_S, REOPEN_SECONDS, Job, Loop
from aeron_spark.connection.owner import PeerInfo
from aeron_spark.connection.runner import CallEnded, ConnectionRunner
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    DataFormatError,
    EndedError,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.facts import Bus
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import ClientOptions
from aeron_spark.protocol import client_events as e
from aeron_spark.protocol.access import PeerStore, ServerName
from aeron_spark.protocol.client_events import ClientEffect, ClientEvent, ClientState, Effects
from aeron_spark.protocol.client_machine import ClientMachine
from aeron_spark.protocol.frames import PeerClose
from aeron_spark.protocol.handshake_payloads import type_digests
from aeron_spark.protocol.transitions import assert_never
from aeron_spark.reused_threads import submit
from aeron_spark.transport.api import ClientTransport, DriverLost, Inbox, LinkIds, TransportEvent, UnopenedTransport

LOG: Final = logging.getLogger("aeron_spark.endpoint")

T = TypeVar("T")

NAME: Final = "aeron-spark-client"  # of the event loop's thread; those of others begin with it
STORE_TIMEOUT_S: Final = 5.0  # for the key store to store the server's key, when the client closes
STOP_TIMEOUT_S: Final = 1.0  # for the event loop to stop the attempts of an interrupted reconnect()


class _OpenLink:
    """A link with its number and its connection."""

    def __init__(self, number: int, ends: Link, connection: ConnectionRunner) -> None:
        self.number = number
        self.ends = ends
        self.connection = connection
        self.has_offered_open = False


class ClientRunner:
    """Implements ``EndpointRunner`` for a client. Methods run on the event loop, or after its end, unless noted.

    ``dial`` opens the transport at the first connect, unless :meth:`open` has opened it, and another one after the loss
    of the media driver. It runs on a reused thread, and the key store on one of the listener pool.
    """

    def __init__(
        self, dial: Callable[[], ClientTransport], server: ServerName, store: PeerStore,
        options: ClientOptions, connection_class: type[Connection] = Connection, *,
        data_port: int = 0, loop: Loop | None = None,
    ) -> None:  # fmt: skip
        """Make the runner; nothing is opened. ``data_port`` is the server's, for a server name without one.

        ``loop`` is that of the client; by default, a new one.
        """
        self.options: Final = options
        facts = Bus()
        facts.on(CallEnded, log_failed_call)
        self.runtime: Final = Runtime(loop or Loop(NAME), lambda: options, facts)
        self.loop: Final = self.runtime.loop
        self.server: Final = server
        self.store: Final = store
        psk = read_shared_secret(options.shared_secret_file)
        self.machine: Final = ClientMachine(
            server, options, store.identity(), secrets.token_bytes, psk, reopen_seconds=REOPEN_SECONDS
        )
        """Other threads read its properties only."""
        self.transport: ClientTransport = UnopenedTransport()
        """The transport that is open now."""
        self._state_listeners: Final = StateListeners(self.runtime)
        self._dial: Final = dial
        self._connection_class: Final = connection_class
        self._port: Final = data_port or server.port
        self._by_session: dict[int, ConnectionRunner] = {}
        self._path: HandshakePath | None = None
        self._link: _OpenLink | None = None
        self._opening: Future[ClientTransport] | None = None
        self._storing: Future[None] | None = None  # of the server's key
        self._report_unused: Callable[[], object] = lambda: None
        self._waiting: Future[Connection] = Future()  # of the threads that connect
        self._waiting.cancel()
        self.on_closed: Callable[[bool], object] = _ignore
        """Called at the end, with whether the event loop has ended: if not, it may still use the transport."""
        self.runtime.bind(self)

    def open(self, dial: Callable[[], ClientTransport]) -> None:
        """Open the transport in this thread, so that the caller gets the errors of ``dial``; before any connect."""
        self.transport = dial()
        self._handle_event(e.TransportOpened(), self.loop.clock())

    # For the client. Thread-safe.

    @property
    def connection(self) -> ConnectionRunner | None:
        """The connection of the current session."""
        session = self.machine.session
        return None if session is None else self._by_session.get(session.session)

    def require_connection(self) -> ConnectionRunner:
        """Return the connection of the current session, or raise the error that :attr:`Client.connection` describes."""
        connection, stopped = self.connection, self.machine.stopped
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
    def is_stopped(self) -> bool:
        """Whether the client neither has a link nor tries to connect, and sending raises the error."""
        is_idle = self.machine.state is ClientState.IDLE and not self.machine.is_reconnecting and self._waiting.done()
        return is_idle and ((connection := self.connection) is None or connection.refuses_records)

    def request_connect(self, until: float | None, *, reconnecting: bool = False) -> tuple[Future[Connection], bool]:
        """Have the event loop connect until then; return the future of the connection, and whether it is this call's.

        A call while another one waits returns that call's future. Raises EndedError once the client is closing.
        """

        def connect() -> None:
            now = self.loop.clock()
            self._execute(self.machine.connect(until, now, reconnecting=reconnecting), now)

        loop = self.loop
        with loop.lock:  # close() begins before all of this, or after it
            if loop.is_closing:
                raise EndedError("the client is closed", remedy="Create another client.")
            waiting = self._waiting
            is_own = waiting.done()
            if is_own:
                waiting = self._waiting = Future()
                loop.jobs.append(Job(connect))
            if not loop.is_running:
                loop.start()
        loop.wake()
        return waiting, is_own

    def late_error(self, seconds: float) -> AeronSparkError:
        """Return the error of a connect that has waited for the attempt of another one: that of the last try."""
        failure = self.machine.failure
        if failure is not None:
            return failure.with_what(failure.what)
        return WaitTimeout(
            f"waited {seconds:.3g} s for a connection with {self.server}",
            remedy="Wait longer: the client goes on to try until it is closed.",
        )

    def reconnect_while(self, is_in_use: Callable[[], bool], otherwise: Callable[[], object]) -> None:
        """Connect again after a loss only while ``is_in_use()``; see :func:`connect_for_pool`."""
        self._report_unused = otherwise
        self.machine.reconnect_while(is_in_use)

    def expect_reconnect(self) -> None:
        """Let senders wait while the link is closed: a ``request_connect`` or ``stop_reconnecting`` follows."""
        self.loop.run_soon(self.machine.expect_reconnect)

    def stop_reconnecting(self, cause: BaseException) -> None:
        """Have the event loop stop its attempts because of ``cause``, and wait until it has, for a moment at most.

        The event loop knows errors of this package already.
        """
        if isinstance(cause, AeronSparkError) or self.loop.is_closing or not self.loop.is_running:
            return
        error = ConnectError(f"reconnect() was interrupted by {type(cause).__name__}", remedy="Call reconnect() again.")

        def stop() -> None:
            now = self.loop.clock()
            self._execute(self.machine.stop(error, now), now)

        stopped = self.loop.call(stop)
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

    # The machine.

    def _handle_event(self, event: ClientEvent, now: float) -> None:
        self._execute(self.machine.handle(event, now), now)

    def _execute(self, effects: Effects, now: float) -> None:
        pending = deque(effects)
        while pending:
            effect, answer = pending.popleft(), None
            try:
                answer = self._perform(effect, now)
            except Exception as error:  # the other effects must still close and report their objects
                LOG.exception("client of %s: %s failed", self.server, type(effect).__name__)
                self.loop.failed = error
            if answer is not None:
                pending.extend(self.machine.handle(answer, now))

    def _perform(self, effect: ClientEffect, now: float) -> ClientEvent | None:
        """Execute one effect; return its answer if that is known at once."""
        match effect:
            case e.LookUpKey():
                self.loop.in_background(lambda: self.store.server_key(self.server), self._looked_up)
            case e.RememberKey(session, key):
                self._storing = self.loop.in_background(partial(self._remember, self._by_session[session], key))
            case e.OpenPath():
                return self._open_path(effect)
            case e.OpenPublication() | e.ClosePublication() | e.ClosePath() | e.Transmit():
                self._change_path(effect)
            case e.MakeConnection():
                return self._make_connection(effect)
            case e.ForgetConnection(session):
                del self._by_session[session]
            case e.OpenLink():
                return self._open_link(effect, now)
            case e.CloseLink(link):
                self._close_link(link)
            case e.Attach():
                return self._attach(effect, now)
            case e.Detach(session):
                self._by_session[session].detach(now)
            case e.RefuseSending(session, error):
                self._by_session[session].sender.refuse(error)
            case e.EndConnection(session, error):
                connection = self._by_session[session]
                self._state_listeners.lost(connection, error, connection.end(error))
            case e.Notify():
                self.runtime.notify(ConnectionChanged(self._by_session[effect.session], effect.about))
            case e.NotifyReconnect(session, resumed):
                self._state_listeners.reconnected(self._by_session[session], resumed=resumed)
            case e.NotifyStopped(error):
                self._state_listeners.stopped(error)
            case e.Report(session, error):
                self.runtime.report(self._by_session[session], error)
            case e.Resolve(outcome):
                self._resolve(outcome)
            case e.OpenTransport():
                # The end of the process waits for the pool's thread: Java must not run then.
                self._opening = self.loop.in_background(
                    lambda: submit(self._dial, f"{NAME}-dial").result(), self._opened
                )
            case e.ReportUnused():
                self.loop.in_background(self._report_unused)
            case _:
                assert_never(effect)
        return None

    # Paths.

    def _open_path(self, effect: e.OpenPath) -> ClientEvent | None:
        try:
            self._path = HandshakePath(effect, self.transport, str(self.server))
        except Exception as error:  # the machine tries again after a pause
            return e.PathFailed(effect.path, to_package_error(error))
        return None

    def _change_path(self, effect: e.OpenPublication | e.ClosePublication | e.ClosePath | e.Transmit) -> None:
        path = self._path
        if path is None or path.number != effect.path:
            return  # the path could not be opened
        if isinstance(effect, e.ClosePath):
            self._path = None
            path.close()
        else:
            path.change(effect)

    def _work_path(self, path: HandshakePath, now: float) -> bool:
        """Feed the machine with changes of publications, and send waiting packets; return whether one has no room."""
        for change in path.changes():
            self._handle_event(change, now)
            if self._path is not path:
                return False
        return path.send()

    # Connections and links.

    def _make_connection(self, effect: e.MakeConnection) -> ClientEvent:
        peer = self._on_path(PeerInfo(effect.server_key, self.options.tag or "", key_changed=effect.key_changed))
        try:
            self._by_session[effect.session] = ConnectionRunner(
                self.runtime, peer, effect.number, self._connection_class
            )
        except Exception as error:  # of the program's connection class
            self.runtime.report(None, error)
            failure = UsageError(f"the program's connection class failed: {error!r}", remedy="Correct the class.")
            return e.ConnectionFailed(effect.session, failure)
        return e.ConnectionMade(effect.session)

    def _open_link(self, effect: e.OpenLink, now: float) -> ClientEvent | None:
        ack, channel_settings = effect.ack, self.options.channel
        ids = LinkIds(
            ack.session_in, ack.stream_in, ack.session_out, ack.stream_out,
            ack.control_port if ack.reply_channel == "mdc" else None,
        )  # fmt: skip
        try:
            pair = self.transport.open_link(ids, channel_settings.for_link(ack.max_message))
        except Exception as error:
            return e.LinkFailed(effect.link, to_package_error(error))
        max_message = min(channel_settings.max_message, ack.max_message)
        ends = Link(pair, effect.encryptor, effect.decryptor, self.options.times, max_message, now)
        connection = self._by_session[effect.session]
        self._link = _OpenLink(effect.link, ends, connection)
        self.runtime.add_link(connection, ends)
        return None

    def _close_link(self, number: int) -> None:
        link = self._link
        if link is not None and link.number == number:
            self._link = None
            self.runtime.remove_link(link.ends)

    def _work_link(self, link: _OpenLink, now: float) -> bool:
        """Send our first frame on a connected link; return whether it waits for room."""
        ends = link.ends
        if ends.is_verified:
            return False
        if ends.pair.publication.failure:
            error = not_opened(f"a link with {self.server}", ends.pair.publication.failure)
            self._handle_event(e.LinkFailed(link.number, error), now)
            return False
        if link.has_offered_open:
            ends.retry(now)
        elif ends.connected:  # not before: see BulkLink.opening
            link.has_offered_open = True
            ends.send_open(link.connection.session.received, now)
        return ends.is_blocked

    def _attach(self, effect: e.Attach, now: float) -> ClientEvent:
        connection, link = self._by_session[effect.session], self._link
        assert link is not None  # its first frame was just verified
        connection.peer = self._on_path(connection.peer)
        try:
            connection.attach(link.ends, effect.received, now)
        except AeronSparkError as error:
            return e.SessionFailed(effect.session, error)
        connection.sender.flush()
        return e.Attached(effect.session)

    def _on_path(self, peer: PeerInfo) -> PeerInfo:
        """Return the server's description with the address at which the newest path has reached it."""
        is_ipc = self.transport.is_ipc
        host, port = ("", 0) if is_ipc else (self.server.host, self._port)
        return replace(peer, address=host, port=port, is_ipc=is_ipc)

    def _resolve(self, outcome: int | AeronSparkError) -> None:
        waiting = self._waiting
        if waiting.done():  # the program has cancelled the future
            return
        if isinstance(outcome, AeronSparkError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(self._by_session[outcome].for_program)

    # The key store, whose calls may be slow, and the transport.

    def _looked_up(self, answer: Future[bytes | None]) -> None:
        event: ClientEvent
        try:
            received = 0 if self.connection is None else self.connection.session.received
            event = e.KeyKnown(answer.result(), received, type_digests(self.runtime.types))
        except AeronSparkError as error:
            event = e.LookUpFailed(error)
        except Exception as error:  # of the program's key store
            failure = UsageError(f"the program's key store failed: {error!r}", remedy="Correct the key store.")
            event = e.LookUpFailed(failure)
        self._handle_event(event, self.loop.clock())

    def _remember(self, connection: ConnectionRunner, key: bytes) -> None:
        """Have the store remember the server. Runs on a thread of the pool."""
        try:
            self.store.trust(self.server, key)
        except Exception as error:  # of key files, or of the program's key store
            self.runtime.report(connection, error)

    def _opened(self, answer: Future[ClientTransport]) -> None:
        self._opening = None
        try:
            opened = answer.result()
        except Exception as error:
            self._handle_event(e.OpenFailed(to_package_error(error)), self.loop.clock())
            return
        lost, self.transport = self.transport, opened
        self._handle_event(e.TransportOpened(), self.loop.clock())
        lost.close()

    # EndpointRunner.

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now. Thread-safe."""
        return self.transport.inbox

    @property
    def connections(self) -> list[ConnectionRunner]:
        """The connection of the current session, if there is one. Thread-safe."""
        connection = self.connection
        return [] if connection is None else [connection]

    @property
    def is_idle(self) -> bool:
        """Whether the machine has no deadline within ``IDLE_WAIT_S`` and is not closing, and the driver is not lost."""
        if self.inbox.lost or self.machine.state is ClientState.CLOSING:
            return False
        deadline = self.machine.deadline()
        return deadline is None or deadline > self.loop.clock() + IDLE_WAIT_S

    def handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle the loss of the driver, and events of the path."""
        path = self._path
        if isinstance(event, DriverLost):
            self._handle_event(e.DriverLost(event.error), now)
        elif path is not None and getattr(event, "token", None) == path.token:
            found = path.event_of(event)
            if found is not None:
                self._handle_event(found, now)

    def work(self, now: float) -> bool:
        """Send waiting packets, and feed the machine with changes of publications and with its deadline."""
        is_busy = self._path is not None and self._work_path(self._path, now)
        if self._link is not None:
            is_busy = self._work_link(self._link, now) or is_busy
        if self.machine.state is ClientState.CLOSING:
            is_busy, link, connection = True, self._link, self.connection
            if link is not None and connection is not None and connection.sender.is_idle:
                self._handle_event(e.Drained(link.number), now)
        return is_busy

    def run_due(self, now: float) -> None:
        """Call the machine when its deadline has passed."""
        deadline = self.machine.deadline()
        if deadline is not None and now >= deadline:
            self._execute(self.machine.tick(now), now)

    def link_verified(self, link: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the server has its keys, and has ``received`` of our records."""
        number = self._number_of(link)
        if number is not None:
            self._handle_event(e.LinkVerified(number, received), now)

    def link_failed(self, link: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""
        if isinstance(error, TamperedError | DataFormatError):
            # The runtime has reported it. DONE_ACK was the server's, so another attempt may succeed.
            error = ConnectError(
                f"the first frame of the link with {self.server} is not the server's: {error.what}",
                remedy="The client tries again by itself. If this repeats, check the network.",
            )
        number = self._number_of(link)
        if number is not None:
            self._handle_event(e.LinkFailed(number, error), now)

    def lost_image_error(self) -> AeronSparkError:
        """Return the error of a link without its image: the server closed the publication, or Aeron gave it up."""
        return TransportError(
            f"{self.server} has closed the link",
            remedy="The client reconnects by itself. If this repeats, see the server's log.",
        )

    def interrupted(self, connection: ConnectionRunner, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""
        if self._link is not None and connection is self.connection:
            self._handle_event(e.LinkFailed(self._link.number, error, expired), now)

    def peer_closed(self, connection: ConnectionRunner, closed: PeerClose, now: float) -> None:
        """Handle the server's CLOSE."""
        if self._link is not None and connection is self.connection:
            self._handle_event(e.PeerClosed(self._link.number, closed.keep_session, closed.error), now)

    def session_failed(self, connection: ConnectionRunner, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""
        session = self.machine.session
        if session is not None and connection is self.connection:
            self._handle_event(e.SessionFailed(session.session, error), now)

    def close_connection(self, connection: ConnectionRunner, keep_session: bool, now: float) -> None:
        """Close a connection that the program closes."""
        if connection is self.connection:
            self._execute(self.machine.close(keep_session=keep_session, now=now), now)

    def end_all(self, now: float) -> None:
        """End the session, and the attempts to connect."""
        self._execute(self.machine.shut_down(now), now)
        # The loop may have ended before it passed a connect to the machine.
        self._resolve(EndedError("the client is closed", remedy="Create another client."))

    def _number_of(self, link: Link) -> int | None:
        return self._link.number if self._link is not None and self._link.ends is link else None


def _ignore(is_loop_ended: bool) -> None:
    pass


def _close_opened(opened: Future[ClientTransport]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()
