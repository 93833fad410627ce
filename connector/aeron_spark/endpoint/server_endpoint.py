"""A server's endpoint: its transport, the handshakes of its clients, their sessions and links.

Rules:
* The event loop calls the endpoint, with the time; any thread may call what is named thread-safe. The endpoint has no
  thread and no lock. Only what is named thread-safe uses the clock of the loop.
* An object that the endpoint calls does not call the endpoint before that call has returned. A later result arrives as
  a later call, or is found by ``_work``.
* A step changes fields first, then calls objects, and notifies last. ``close``, ``detach`` and ``reject`` do not raise.
  ``respond``, ``open_link``, ``attach`` and ``make`` may raise, and the step handles it.
* Every permit, id, ticket, path and link has exactly one owner at any time (``tests.invariants``):

      PendingHandshake     its path, a permit of the pending handshakes, and a link that opens
      SessionLink          its ids, a ticket, and a new permit for a session that has released its own
      ServerSession        its permit of the connections, its ticket, and the link that carries it

A session is new until the first frame on its first link arrives. While a client resumes a session, its handshake and
its new link exist beside the session's present link. The first frame on the new link replaces it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from aeron_spark.endpoint.access import ClientAccess, Decision, LogSpace, link_bytes
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.endpoint import EndpointCore
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, Ending
from aeron_spark.endpoint.links import Link, ServerPath
from aeron_spark.endpoint.loop import REOPEN_SECONDS, Loop
from aeron_spark.endpoint.server_sessions import (
    DRIVER_LOST,
    AuthenticatedClient,
    Closing,
    DriverBack,
    GrantChanged,
    PendingHandshake,
    Pools,
    ServerSession,
    SessionLink,
)
from aeron_spark.endpoint.usage import Rates
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    EndedError,
    InUseError,
    RefusedError,
    TransportError,
    UsageError,
)
from aeron_spark.facts import Bus
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol import server_handshake as actions
from aeron_spark.protocol.access import Candidate
from aeron_spark.protocol.frames import PeerClose
from aeron_spark.protocol.grants import Grant
from aeron_spark.protocol.handshake_packets import Cookies
from aeron_spark.protocol.handshake_payloads import ServerHello, schema_refusal, type_digests
from aeron_spark.protocol.limits import Admission, Permit
from aeron_spark.protocol.noise import Entropy
from aeron_spark.protocol.server_handshake import SHUTTING_DOWN, ServerHandshake, ServerIdentity, State
from aeron_spark.protocol.sources import Refusal, UdpSource, parse_source, refusal_of, undecided
from aeron_spark.protocol.tickets import Offer, TicketStore
from aeron_spark.protocol.transitions import assert_never
from aeron_spark.transport.addresses import HostPort
from aeron_spark.transport.api import (
    SEE_DRIVER,
    ChannelPair,
    ChannelSettings,
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    LinkIds,
    MessageArrived,
    SenderUnavailable,
    ServerAddress,
    ServerTransport,
    SubscriptionFailed,
    TransportEvent,
)

BAD_SOURCE: Final = "aeron-spark/1 FAILED message Bad source address"
NO_LINK: Final = "Connection error! The link could not be opened"
SESSION_ENDED: Final = Refusal("server-error", "The session ended during the handshake")
DRAIN_SECONDS: Final = 2.0  # longest wait until Aeron has taken the last packet of a handshake
DRAIN_TIMEOUT_S: Final = 0.2  # for one connection to take its unsent messages when the server closes

Listening = tuple[ServerTransport, dict[int, ServerAddress]]
"""A transport that listens, and its addresses by token."""


class ServerEndpoint(EndpointCore):
    """One server, for all its clients; the module's docstring has the rules."""

    def __init__(
        self,
        loop: Loop,
        open_transport: Callable[[], ServerTransport],
        access: ClientAccess,
        options: LiveOptions,
        facts: Bus,
        connection_class: type[Connection] = Connection,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        """Start without clients. Below, ``now`` is in monotonic seconds.

        ``listen`` calls ``open_transport``; after a loss of the media driver it runs on the listener pool.
        """
        super().__init__(loop, lambda: options.value, facts, connection_class)
        at_start = options.value
        self.access: Final = access
        self.identity: Final = ServerIdentity(
            access.keys,
            ServerHello(max_message=at_start.max_message),
            Cookies(entropy),
            entropy,
            read_shared_secret(at_start.shared_secret_file),
            at_start.timing,
            at_start.key_limits,
        )
        self.addresses: dict[int, ServerAddress] = {}
        """The addresses at which the server listens now, by token."""
        self.pools: Final = Pools(entropy, at_start.session_id_range, at_start.mdc_ports, at_start.id_reuse_delay)
        """The ids of links and bulk links. A bulk link releases its own."""
        self._admission: Final = Admission(lambda: options.value.admission)
        self._tickets: Final[TicketStore[ServerSession]] = TicketStore(
            entropy,
            at_start.times.retention_seconds,
            max_sessions=lambda: options.value.max_sessions,
            max_connections_per_key=lambda: options.value.max_connections_per_key,
            confirm_seconds=at_start.timing.authenticating_s + at_start.times.setup_seconds,
        )
        self.live: Final = options
        self._services: Final[list[Callable[[ConnectionCore], None]]] = []
        self.log_space: LogSpace | None = None
        """The room of the media driver's logs; None: no limit."""
        self._open_transport: Final = open_transport
        self._transport: ServerTransport | None = None
        self._wanted: tuple[Sequence[ServerAddress], Sequence[ServerAddress]] = (), ()
        self._opening: Future[Listening] | None = None  # in place of a transport whose driver was lost
        self._reopens_at: float | None = None  # after such a loss: the next attempt
        self._reopening_error = ""  # the text of the last error, which is reported once
        self._handshakes: Final[dict[int, PendingHandshake]] = {}  # by image
        self._paths: Final[dict[ServerPath, PendingHandshake]] = {}  # open ones; most senders of a flood have none
        self._unverified: Final[dict[Link, SessionLink]] = {}  # links that await their first frame
        self._sessions: Final[dict[ConnectionCore, ServerSession]] = {}
        self._closings: Final[dict[ServerSession, Closing]] = {}  # sessions whose unsent messages are sent
        self._refused: Final[Counter[str]] = Counter()  # handshakes by code
        self._is_closing = False
        self._deadline: float | None = None
        self._has_deadline = False  # false after each step that may change it: each tick asks for it
        self._drain_mark = 0
        self.holds.rates_of = self._rates_of

    def add_service(self, serve: Callable[[ConnectionCore], None]) -> None:
        """Have ``serve`` offer a service on each new connection. Call it before ``start``."""
        self._services.append(serve)

    def start(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress] = ()) -> None:
        """Listen at all of ``addresses``, or at none. Works once; after an error it can be called again.

        Of the ``optional`` addresses, the server leaves out those that another program uses.

        Raises InUseError if another program uses one of the addresses, TransportError if the server cannot listen at
        one of them for another reason, UsageError if the server listens already or is closed.
        """
        self.require_startable(addresses)
        self.listen(addresses, optional)
        self.loop.start()

    def require_startable(self, addresses: Sequence[ServerAddress]) -> None:
        """Raise UsageError if the server listens already or is closed, or if ``addresses`` is empty."""
        if self.loop.is_closing or self.is_listening:
            what = "is closed" if self.loop.is_closing else "listens already"
            raise UsageError(f"the server {what}", remedy="Create another server.")
        if not addresses:
            raise UsageError("the server has no address to listen at", remedy="Give it an address.")

    def listen(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress] = ()) -> None:
        """Open a transport and listen at all of ``addresses``. Call it before the event loop starts.

        Leaves out those of ``optional`` that another program uses. Raises InUseError or TransportError as
        ``ServerTransport.listen``, and closes the transport then.
        """
        self._transport, self.addresses = self._open(addresses, optional)
        self._wanted = tuple(addresses), tuple(optional)

    # Thread-safe

    @property
    def is_listening(self) -> bool:
        """Whether ``listen`` was called and has not failed."""
        return bool(self._wanted[0])

    @property
    def connections(self) -> list[ConnectionCore]:
        """The connections whose client was verified and that are not closed."""
        return [session.connection for session in list(self._sessions.values()) if not session.is_new]

    @property
    def has_clients(self) -> bool:
        """Whether the server has a connection or a handshake."""
        return bool(self._handshakes or self.connections)

    @property
    def transport(self) -> ServerTransport:
        """The transport that is open now. Raises UsageError before ``listen``."""
        if self._transport is None:
            raise UsageError("the server does not listen yet", remedy="Start the server first.")
        return self._transport

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""
        return self.transport.inbox

    @property
    def has_driver(self) -> bool:
        """Whether the media driver is not lost, as far as the event loop knows."""
        return self._reopens_at is None

    @property
    def options(self) -> ServerOptions:
        """The present options."""
        return self.live.value

    @property
    def public_key(self) -> bytes:
        """The server's public key, by which clients know it."""
        return self.identity.keys.public

    @property
    def address_texts(self) -> tuple[str, ...]:
        """The addresses at which the server listens now: ``host:port:control``, or ``ipc:``."""
        return tuple(
            "ipc:" if address.media == "ipc" else f"{HostPort(address.host, address.data_port)}:{address.control_port}"
            for address in self.addresses.values()
        )

    @property
    def connected(self) -> list[ConnectionCore]:
        """The connections whose link is connected."""
        return [connection for connection in self.connections if connection.connected]

    @property
    def statistics(self) -> dict[str, int]:
        """Counts of used resources, and of refusals by code."""
        of_connections: Counter[str] = Counter()
        for connection in self.connections:
            of_connections.update(connection.usage)
        return {
            "connections": len(self.connected),
            "bulk_links": len(self.bulk_links),
            **self.own_statistics,
            **of_connections,
            "tampered": self.tampered,
        }

    @property
    def own_statistics(self) -> dict[str, int]:
        """The statistics without those of connections and bulk links."""
        return {
            "dropped": 0 if self._transport is None else self._transport.inbox.dropped,
            "sessions": len(self._sessions),
            "handshakes": len(self._handshakes),
            "admitted": self._admission.connections,
            "pending": self._admission.pending,
            "addresses": self._admission.addresses,
            **self.pools.in_use,
            **{f"refused-{code}": number for code, number in dict(self._refused).items()},
        }

    def apply_grants(self) -> None:
        """Apply the present grants and bans to all connections: end those whose client is not admitted any more.

        Raises what the key store raises.
        """
        for connection in self.connections:
            with suppress(EndedError):  # it ends meanwhile
                self._apply_grant(connection)

    def _apply_grant(self, connection: ConnectionCore) -> None:
        address = ip_address(connection.peer.address) if connection.peer.address else None
        decision = self.access.current(Candidate(address, connection.peer.tag, connection.peer.key))
        if isinstance(decision, Refusal):
            error = RefusedError(decision.text, remedy=decision.advice.remedy, reason=decision.code)
            self.facts.emit(GrantChanged(connection, error))
            self.disconnect(connection, keep_session=False, error=error)
        elif decision != connection.grant:
            connection.grant = decision
            self.facts.emit(GrantChanged(connection))

    def _rates_of(self, connection: ConnectionCore) -> Rates:
        """Return the limits of the client's key: its own, or else those of all keys."""
        options, own = self.options, connection.grant.limits
        return Rates(
            options.bytes_in if own.bytes_in is None else own.bytes_in,
            options.bytes_out if own.bytes_out is None else own.bytes_out,
            options.messages_in if own.messages_in is None else own.messages_in,
        )

    def begin_drain(self) -> None:
        """Refuse new clients, also those that resume. Calls and messages of the connections continue."""
        self._drain_mark = self.worker_pool.mark()
        self.loop.run_soon(self._refuse_handshakes)

    @property
    def unfinished_calls(self) -> int:
        """The number of calls that were received before ``begin_drain``, and that wait or run."""
        return self.worker_pool.unfinished(self._drain_mark)

    def close(self, error: AeronSparkError | None = None) -> None:
        """Send the unsent messages and CLOSE to every client, and end. Unacknowledged messages are lost.

        ``error`` is the reason for the clients. With a reason that passes soon, they connect again. Does nothing if the
        server is closed or being closed. Not for the event loop.
        """
        loop = self.loop
        if not loop.begin_closing():
            return
        begin, close_s = loop.clock(), self.options.close_timeout
        connections = self.connected
        for connection in connections:  # they drain at the same time; a stuck one delays the others a little
            connection.sender.drain(min(begin + close_s / 2, loop.clock() + DRAIN_TIMEOUT_S))
        for connection in connections:
            self.disconnect(connection, keep_session=False, error=error)
        loop.run_soon(lambda: self.shut_down(loop.clock()))
        loop.wait_until(lambda: not (loop.is_running and self.has_clients), max(0.0, begin + close_s - loop.clock()))
        self.stop()
        self.close_transport()

    # For bulk links

    def image_of(self, connection: ConnectionCore) -> int:
        """Return the number of the client's image. Raises EndedError, or TransportError while it is not connected."""
        session = self._sessions.get(connection)
        if session is None:
            raise EndedError(f"{connection.label} is closed", remedy="Connect again.")
        link = session.link
        image = None if link is None or link.link is None else link.link.image
        if image is None:
            raise TransportError(f"{connection.label} is not connected", remedy="Try again after it has resumed.")
        return image

    def take_log_space(self, key: bytes, channel_settings: ChannelSettings) -> RefusedError | None:
        """Count the logs of another link with a client of this key, or return why it may not be opened."""
        if self.log_space is None:
            return None
        bulk_links = self.bulk_links
        own = [one for one in self.connections if one.peer.key == key]
        by_connection = bulk_links.counts()
        opening = sum(one.link is not None and one.link.pair is not None for one in self._paths.values())
        links = [*self._unverified.values(), *(one.link for one in self._sessions.values() if one.link is not None)]
        unconnected = sum(one.link is not None and one.link.image is None for one in links)
        return self.log_space.take(
            link_bytes(channel_settings),
            opening=opening + bulk_links.opening + unconnected,
            own=len(own) + sum(by_connection[id(one)] for one in own),
        )

    # Events

    def _handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event that belongs to no link."""
        match event:
            case ImageAvailable() if event.token in self.addresses:
                self._image_available(event, now)
            case MessageArrived():
                pending = self._handshakes.get(event.image)
                if pending is not None:
                    self._advance(pending, pending.handshake.packet(event.payload, now), now)
            case ImageUnavailable():
                pending = self._handshakes.get(event.image)
                if pending is not None:
                    self._lose_path(pending, now)
            case DriverLost():
                self._reopens_at = now
                self._close_paths_and_links(now)
                remedy = "The server connects again when a media driver runs."
                lost = TransportError(f"the media driver was lost: {event.reason}", remedy=remedy, reason=DRIVER_LOST)
                self.report(None, lost)
            case SubscriptionFailed() if event.token in self.addresses:
                address = self.addresses.pop(event.token)
                error = TransportError(
                    f"listening on {address} stopped: {event.reason}",
                    remedy="Check the network interface, then restart the server.",
                )
                self.report(None, error)
            case _:
                pass

    def _work(self, now: float) -> bool:
        """Continue what no event reports; return whether more is about to become possible."""
        if self._reopens_at is not None:
            if self._opening is None and now >= self._reopens_at:
                self._reopens_at = now + REOPEN_SECONDS
                self._opening = self.loop.in_background(lambda: self._open(*self._wanted), self._opened)
            return False
        is_waiting = [self._work_handshake(pending, path, now) for path, pending in list(self._paths.items())]
        for session, closing in list(self._closings.items()):
            if session.connection.sender.is_idle:
                self._close_session(session, closing.keep_session, now)
        return any(is_waiting) or bool(self._closings)

    def run_due(self, now: float) -> None:
        """Handle all deadlines that have passed."""
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return
        self._has_deadline = False
        for pending in list(self._handshakes.values()):
            if pending.drain_until is None:
                self._advance(pending, pending.handshake.tick(now), now)
            elif now >= pending.drain_until:
                self._close_path(pending)
        for link in list(self._unverified.values()):
            if link.deadline is not None and now >= link.deadline:
                self._abandon(link, now)
        for session, closing in list(self._closings.items()):
            if now >= closing.deadline:
                self._close_session(session, closing.keep_session, now)
        expiry = self.options.times.expiry_seconds
        for session in list(self._sessions.values()):
            if session.detached_at is not None and now >= session.detached_at + expiry:
                self._notify_disconnect(session)
        self._end_expired(self._tickets.expire(now), now)

    def deadline(self) -> float | None:
        """Return the time of the next deadline; None if time changes nothing."""
        if not self._has_deadline:
            expiry = self.options.times.expiry_seconds
            times = [pending.deadline for pending in self._handshakes.values()]
            times += [link.deadline for link in self._unverified.values()]
            times += [closing.deadline for closing in self._closings.values()]
            times += [one.detached_at + expiry for one in self._sessions.values() if one.detached_at is not None]
            times.append(self._tickets.deadline())
            self._deadline = min((time for time in times if time is not None), default=None)
            self._has_deadline = True
        return self._deadline

    def _is_idle(self, now: float) -> bool:
        """Whether no handshake, no first frame and no end of a session is awaited, and the driver is not lost."""
        if self._handshakes or self._unverified or self._closings or self._reopens_at is not None:
            return False
        return not any(one.detached_at is not None for one in self._sessions.values())

    def _refuse_handshakes(self) -> None:
        self._admission.closed = SHUTTING_DOWN

    def shut_down(self, now: float) -> None:
        """Refuse every handshake from now on, and end every session without a link."""
        self._is_closing = True
        for pending in list(self._handshakes.values()):
            self._advance(pending, pending.handshake.close(now), now)
        for link in list(self._unverified.values()):
            self._abandon(link, now)
        for session in [one for one in self._sessions.values() if one.link is None]:
            self._end(session, Ending.CLOSED_BY_SERVER, now)
        self.access.close()

    def end_all(self, now: float) -> None:
        """End every handshake and session, after the end of the event loop."""
        self.shut_down(now)
        self._close_paths_and_links(now)
        for session in list(self._sessions.values()):
            self._end(session, Ending.CLOSED_BY_SERVER, now)

    def close_transport(self) -> None:
        """Close the transport, and one that is being opened to replace it. Call it after the end of the event loop."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.add_done_callback(_close_opened)
        if self._transport is not None:
            self._transport.close()

    # Handshakes

    def _image_available(self, image: ImageAvailable, now: float) -> None:
        try:
            source = parse_source(image.source)
        except DataFormatError as error:
            self._reject(image.image, BAD_SOURCE)
            self.report(None, error)
            return
        address = source.address if isinstance(source, UdpSource) else None
        handshake = ServerHandshake(self.identity, None if address is None else str(address), now)
        pending = PendingHandshake(image, self.addresses[image.token], source, handshake, now)
        self._handshakes[image.image], self._has_deadline = pending, False
        if self._is_closing:
            self._advance(pending, handshake.close(now), now)
        elif address is not None and (refusal := self.access.address_refusal(address)) is not None:
            self._advance(pending, handshake.refuse(refusal, now), now)
        elif image.late:
            self._advance(pending, handshake.hello_missed(now), now)

    def _work_handshake(self, pending: PendingHandshake, path: ServerPath, now: float) -> bool:
        """Continue a handshake after a decision, or when Aeron is ready; return whether a packet waits for room."""
        decision, pending.decision = pending.decision, None
        if decision is not None:
            self._decided(pending, decision, now)
        link = pending.link
        if link is not None and link.pair is not None:
            self._work_opening(pending, link, link.pair, now)
        if pending.handshake.state is State.OPENING_PATH and path.look(now):
            handshake = pending.handshake
            self._advance(pending, handshake.path_ready(now) if path.is_ready else handshake.path_lost(now), now)
        is_waiting = path.flush()
        if pending.drain_until is not None and path.is_drained:
            self._close_path(pending)
        return is_waiting

    def _lose_path(self, pending: PendingHandshake, now: float) -> None:
        self._advance(pending, pending.handshake.path_lost(now), now)

    def _refuse(self, pending: PendingHandshake, refusal: Refusal, now: float) -> None:
        self._advance(pending, pending.handshake.refuse(refusal, now), now)

    def _advance(self, pending: PendingHandshake, performed: actions.Actions, now: float) -> None:
        self._has_deadline = False
        for action in performed:
            match action:
                case actions.Reject(reason):
                    self._reject(pending.image.image, reason)
                case actions.Admit():
                    self._admit(pending, now)
                case actions.OpenPath():
                    self._open_path(pending, now)
                case actions.Send(packet):
                    if pending.path is not None:
                        pending.path.send(packet)
                case actions.Authenticate():
                    pending.authenticate = action
                    self._decide(pending, action)
                case actions.ClientAccepted():
                    self._await_first_frame(pending, action, now)
                    self._finish(pending, now)
                case actions.Release(_, refusal):
                    self._finish(pending, now, refusal)
                case actions.Ignored():
                    pass
                case _:
                    assert_never(action)

    def _open_path(self, pending: PendingHandshake, now: float) -> None:
        try:
            path = pending.path = ServerPath(self.transport.respond(pending.image.image), now)
        except AeronSparkError:  # the sender has left
            self._lose_path(pending, now)
        else:
            self._paths[path] = pending

    def _admit(self, pending: PendingHandshake, now: float) -> None:
        permit = self._admission.begin_handshake(pending.source, now)
        if isinstance(permit, Refusal):
            self._refuse(pending, permit, now)
        else:
            pending.permit = permit
            self._advance(pending, pending.handshake.admitted(now), now)

    def _decide(self, pending: PendingHandshake, client: actions.Authenticate) -> None:
        """Let another thread decide on a client; ``work`` takes the decision."""

        def take(decision: Decision) -> None:
            pending.decision = decision

        address = pending.source.address if isinstance(pending.source, UdpSource) else None
        candidate = Candidate(address, client.done.tag, client.client_key)
        self.access.decide_soon(candidate, lambda decision: self.loop.run_soon(lambda: take(decision)))

    def _decided(self, pending: PendingHandshake, decision: Decision, now: float) -> None:
        if pending.handshake.state is not State.AUTHENTICATING:
            return  # it has ended meanwhile
        self._has_deadline = False
        accepted = decision if isinstance(decision, Refusal) else self._accept(pending, decision, now)
        if isinstance(accepted, Refusal):
            self._refuse(pending, accepted, now)
            return
        pending.link = accepted
        try:
            refusal = self.take_log_space(accepted.client.key, self.options.channel)
            if refusal is not None:
                raise refusal
            accepted.pair = self.transport.open_link(pending.image.image, accepted.ids, self.options.channel)
        except SenderUnavailable:  # the client gave up: not an error of the server
            self._lose_path(pending, now)
        except Exception as error:  # refuse this client only
            self._refuse(pending, refusal_of(error, NO_LINK), now)

    def _work_opening(self, pending: PendingHandshake, link: SessionLink, pair: ChannelPair, now: float) -> None:
        publication = pair.publication
        if publication.closed:
            why = f"a link could not be opened: {publication.failure or 'the media driver closed it'}"
            self._refuse(pending, refusal_of(TransportError(why, remedy=SEE_DRIVER), NO_LINK), now)
        elif self.inbox.ready(pair.token) and publication.ready:
            try:
                ack = pending.done_ack(link, self.options, type_digests(self.types))
                performed = pending.handshake.accept(ack, now)
            except AeronSparkError as error:
                self._refuse(pending, undecided(error, NO_LINK), now)
            else:
                self._advance(pending, performed, now)

    def _await_first_frame(self, pending: PendingHandshake, accepted: actions.ClientAccepted, now: float) -> None:
        link, pending.link = pending.link, None
        assert link is not None  # the handshake accepts when it is open
        assert link.pair is not None
        options = self.options
        link.deadline = now + options.times.setup_seconds
        link.link = Link(
            link.pair,
            accepted.encryptor,
            accepted.decryptor,
            options.times,
            options.channel.max_message,
            now,
            source_address=link.client.peer.address,
        )
        self._unverified[link.link] = link
        self.add_link(link.session.connection, link.link)

    def _finish(self, pending: PendingHandshake, now: float, refusal: Refusal | None = None) -> None:
        """Release everything of a handshake except its path, which stays until Aeron has taken the last packet."""
        if refusal is not None:
            self._refused[refusal.code] += 1
        if pending.permit is not None:
            pending.permit.release()
        link, pending.link = pending.link, None
        pending.drain_until = now + DRAIN_SECONDS
        if link is not None:
            self._release(link, now)
        if pending.path is None or pending.path.is_drained:
            self._close_path(pending)
        self.facts.emit(pending.ended(refusal, now))
        if refusal is not None and refusal.cause is not None:
            self.report(None, refusal.cause)

    def _close_path(self, pending: PendingHandshake) -> None:
        """Close the path of a handshake that has ended, unless it is closed already."""
        self._has_deadline = False
        if self._handshakes.pop(pending.image.image, None) is not None and pending.path is not None:
            del self._paths[pending.path]
            pending.path.close()

    def _reject(self, image: int, reason: str) -> None:
        try:
            self.inbox.reject(image, reason)
        except AeronSparkError as error:
            self.report(None, error)

    # Resources for a client that has proved its key

    def _accept(self, pending: PendingHandshake, grant: Grant, now: float) -> SessionLink | Refusal:
        """Take ids for a link, and a session with permit, ticket and connection. A refusal takes nothing."""
        assert pending.authenticate is not None  # the decision was on this client
        key, done = pending.authenticate.client_key, pending.authenticate.done
        refusal = schema_refusal(self.types, done.types)
        if refusal is not None:
            return refusal
        client = AuthenticatedClient(key, done.tag, pending.source, grant)
        offer = None if done.ticket is None else self._find_session(done.ticket, key, now)
        ids = self.pools.take(now)
        if isinstance(ids, Refusal):
            return ids
        if offer is None:
            accepted = self._begin_session(client, ids, done.ticket, now)
        else:
            accepted = self._resume_session(client, ids, offer, now)
        if isinstance(accepted, Refusal):
            self.pools.release(ids, now)
        return accepted

    def _find_session(self, ticket: bytes, key: bytes, now: float) -> Offer[ServerSession] | None:
        """Return the session of a ticket and its next ticket. Close links of its earlier, unfinished attempts.

        If the first frame of the session never arrived, end the session and return None, so that the client gets a new
        one: the client may not know the session, and no listener was notified of it.
        """
        offer = self._tickets.present(ticket, key, now)
        if offer is None:
            return None
        if offer.session.is_new:
            self._end(offer.session, Ending.NEVER_CONNECTED, now)
            return None
        self._abandon_links_of(offer.session, now)
        return offer

    def _resume_session(
        self, client: AuthenticatedClient, ids: LinkIds, offer: Offer[ServerSession], now: float
    ) -> SessionLink | Refusal:
        permit = None if offer.session.permit.is_taken else self._admission.connect(client.source, now)
        if isinstance(permit, Refusal):
            return permit
        return SessionLink(offer.session, client, ids, offer.ticket, permit, is_resumed=True)

    def _begin_session(
        self, client: AuthenticatedClient, ids: LinkIds, presented: bytes | None, now: float
    ) -> SessionLink | Refusal:
        permit = self._admission.connect(client.source, now)
        if isinstance(permit, Refusal):
            return permit
        session = ServerSession(permit)
        opened = self._tickets.open(client.key, session, now, presented, client.grant.limits.connections)
        if isinstance(opened, Refusal):
            permit.release()
            return opened
        offer, expired = opened
        session.ticket = offer.ticket
        self._end_expired(expired, now)
        try:
            session.connection = self.make(client.peer, ids.session_in)
            for serve in self._services:
                serve(session.connection)
        except Exception as error:  # of the program's connection class
            self._tickets.drop(session.ticket)
            permit.release()
            return undecided(error)
        session.connection.grant = client.grant
        self._sessions[session.connection] = session
        return SessionLink(session, client, ids, session.ticket)

    def _abandon(self, link: SessionLink, now: float) -> None:
        """Close a link whose first frame did not arrive, unless it is closed already."""
        if link.link is not None and self._unverified.pop(link.link, None) is not None:
            self._release(link, now)

    def _abandon_links_of(self, session: ServerSession, now: float) -> None:
        for link in [one for one in self._unverified.values() if one.session is session]:
            self._abandon(link, now)

    def _release(self, link: SessionLink, now: float) -> None:
        """Release the resources of a client that does not connect. Only a new session ends with them."""
        if link.permit is not None:
            link.permit.release()
        if link.session.is_new:
            self._end(link.session, Ending.NEVER_CONNECTED, now)
        self._close_link(link, now)

    def _close_link(self, link: SessionLink, now: float) -> None:
        self._has_deadline = False
        self.pools.release(link.ids, now)
        if link.link is not None:
            self.remove_link(link.link)
        elif link.pair is not None:
            self.inbox.close_subscription(link.pair.token)
            link.pair.publication.close()

    # Links

    def link_verified(self, verified: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the client has its keys, and has ``received`` of our records."""
        link = self._unverified.get(verified)
        if link is None:
            return
        session = link.session
        permit: Permit | Refusal = link.permit or session.permit
        if isinstance(permit, Permit) and not permit.is_taken:  # the session has released it since the handshake
            permit = self._admission.connect(link.client.source, now)
        if isinstance(permit, Refusal):
            self._abandon(link, now)
        elif self._tickets.confirm(link.ticket):
            del self._unverified[verified]
            if permit is not session.permit:
                session.permit.release()
                session.permit, link.permit = permit, None
            self._attach(session, link, verified, received, now)
        else:  # newer tickets of this session have replaced it
            self._abandon(link, now)
            if permit is not session.permit:
                permit.release()

    def _attach(self, session: ServerSession, link: SessionLink, verified: Link, received: int, now: float) -> None:
        """Let a verified link carry its session."""
        connection, self._has_deadline = session.connection, False
        self._release_link(session, now)
        session.link, session.ticket = link, link.ticket
        session.detached_at = None
        connection.peer, connection.grant = link.client.peer, link.client.grant
        verified.prepare_open(connection.session.received)
        try:
            connection.attach(verified, received, now)
        except AeronSparkError as error:
            verified.retry(now)  # from OPEN the client learns that the two ends differ
            self._end(session, error, now)
            return
        changes = [ConnectionChanged(connection, "resume")]
        if session.last_notice is None:
            changes = [ConnectionChanged(connection, "init"), ConnectionChanged(connection, "connect")]
        session.last_notice = "connect"
        self.notify(*changes)
        connection.sender.flush()  # OPEN too, now that this end is connected and its listeners are scheduled

    def link_failed(self, failed: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""
        link = self._unverified.get(failed)
        if link is not None:
            self._abandon(link, now)

    def lost_image_error(self) -> None:
        """Return None: a link without its image lasts until its expiry."""

    def _release_link(self, session: ServerSession, now: float) -> None:
        link, session.link = session.link, None
        if link is not None:
            session.connection.detach(now)
            self._close_link(link, now)

    def _close_paths_and_links(self, now: float) -> None:
        """Close every path and every link; their sessions are detached."""
        for pending in list(self._handshakes.values()):
            self._lose_path(pending, now)
            self._close_path(pending)
        for link in list(self._unverified.values()):
            self._abandon(link, now)
        for session in [one for one in self._sessions.values() if one.link is not None]:
            self._detach(session, now, notify=False)

    # Sessions

    def interrupted(self, connection: ConnectionCore, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""
        session = self._sessions.get(connection)
        if session is not None and session.link is not None:
            self._detach(session, now, notify=expired)

    def peer_closed(self, connection: ConnectionCore, closed: PeerClose, now: float) -> None:
        """Handle the client's CLOSE."""
        session = self._sessions.get(connection)
        if session is None:
            return
        if closed.keep_session and not session.is_new:
            self._detach(session, now, notify=True)
        else:
            self._end(session, Ending.CLOSED_BY_CLIENT, now)

    def session_failed(self, connection: ConnectionCore, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""
        session = self._sessions.get(connection)
        if session is not None:
            self._end(session, error, now)

    def program_closes(self, connection: ConnectionCore, keep_session: bool, now: float) -> None:
        """Close a session after its unsent messages were sent, or after the option ``closeTimeout``."""
        session = self._sessions.get(connection)
        if session is None:
            return
        if session.link is None:
            self._close_session(session, keep_session, now)
            return
        closing = self._closings.get(session)
        if closing is None or not keep_session:
            deadline = now + self.options.close_timeout if closing is None else closing.deadline
            self._closings[session] = Closing(deadline, keep_session)
            self._has_deadline = False

    def _close_session(self, session: ServerSession, keep_session: bool, now: float) -> None:
        self._closings.pop(session, None)
        if keep_session and not session.is_new:  # the client of a new session may not have its ticket yet
            self._detach(session, now, notify=True)
        else:
            self._end(session, Ending.CLOSED_BY_SERVER, now)

    def _detach(self, session: ServerSession, now: float, *, notify: bool) -> None:
        """Detach a session from its link. ``notify``: notify listeners now instead of after the expiry."""
        closing = self._closings.get(session)
        if closing is not None:
            self._close_session(session, closing.keep_session, now)
            return
        session.detached_at, self._has_deadline = now, False
        self._tickets.detach(session.ticket, now)
        self._release_link(session, now)
        if notify:
            self._notify_disconnect(session)

    def _notify_disconnect(self, session: ServerSession, cause: Ending | AeronSparkError | None = None) -> None:
        """Release the permit of a session without a link, and notify its listeners once."""
        session.detached_at = None
        session.permit.release()
        if session.last_notice == "connect":
            session.last_notice = "disconnect"
            self.notify(ConnectionChanged(session.connection, "disconnect", cause))

    def _end_expired(self, sessions: list[ServerSession], now: float) -> None:
        for session in sessions:
            if not session.has_ended:  # ending one session may end another of the list
                self._end(session, Ending.NOT_RESUMED, now)

    def _end(self, session: ServerSession, cause: Ending | AeronSparkError, now: float) -> None:
        """End a session permanently, and release its resources and those of its handshakes and links."""
        connection, session.has_ended, self._has_deadline = session.connection, True, False
        del self._sessions[connection]
        self._closings.pop(session, None)
        self._tickets.drop(session.ticket)
        session.permit.release()
        self._abandon_links_of(session, now)
        for pending in list(self._paths.values()):
            if pending.link is not None and pending.link.session is session:
                self._refuse(pending, SESSION_ENDED, now)
        self._release_link(session, now)
        connection.end(cause.error_of(connection.label) if isinstance(cause, Ending) else cause)
        self._notify_disconnect(session, connection.close_error or cause)

    # The transport

    def _open(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress]) -> Listening:
        transport, found = self._open_transport(), {}
        channel, secret = self.options.channel, self.identity.cookies.secret
        try:
            for address in addresses:
                found[transport.listen(address, channel, secret)] = address
            for address in optional:
                with suppress(InUseError):
                    found[transport.listen(address, channel, secret)] = address
        except BaseException:
            transport.close()
            raise
        return transport, found

    def _opened(self, opening: Future[Listening]) -> None:
        """Use the transport in place of the lost one; after an error, ``work`` tries again."""
        self._opening = None
        try:
            opened, addresses = opening.result()
        except Exception as error:
            if str(error) != self._reopening_error:
                self._reopening_error = str(error)
                self.report(None, error)
            return
        lost, self._transport, self.addresses = self.transport, opened, addresses
        self._reopens_at, self._reopening_error = None, ""
        lost.close()
        self.facts.emit(DriverBack())


def _close_opened(opening: Future[Listening]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].close()
