"""Runs a server's machine on the event loop: feeds it events, and executes the effects that it returns.

The runner has tables from the machine's numbers to objects: paths, links and connections. Frames of a link do not pass
through the machine: the runtime gives them to the connection.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint_listeners import ConnectionChanged
from aeron_spark.connection.links import Link
from aeron_spark.connection.loop import TransportReopening
from aeron_spark.connection.owner import PeerInfo
from aeron_spark.connection.runner import ConnectionRunner
from aeron_spark.connection.runtime import Runtime
from aeron_spark.errors import AeronSparkError, EndedError, InUseError, RefusedError, TransportError, UsageError
from aeron_spark.keys.key_files import read_shared_secret
from aeron_spark.options import LiveOptions, ServerOptions
from aeron_spark.protocol import server_effects as effects
from aeron_spark.protocol import server_events as events
from aeron_spark.protocol.access import Candidate, PeerStore
from aeron_spark.protocol.connection_machine import PeerClosed
from aeron_spark.protocol.grants import Grant, KeyLimits
from aeron_spark.protocol.ids import PooledIds
from aeron_spark.protocol.rpc_messages import FIRST_SERVICE, Target
from aeron_spark.protocol.server_effects import AuthenticatedClient, Ending, ServerEffect, ServerEffects
from aeron_spark.protocol.server_events import Decision, ServerEvent
from aeron_spark.protocol.server_handshake import SHUTTING_DOWN
from aeron_spark.protocol.server_machine import ServerMachine
from aeron_spark.protocol.sources import Refusal, UdpSource
from aeron_spark.protocol.transfers import Purpose
from aeron_spark.protocol.transitions import assert_never
from aeron_spark.server.ban_file import StoredBans
from aeron_spark.server.clients import ClientAccess
from aeron_spark.server.handshake_paths import HandshakePaths
from aeron_spark.server.log_space import LogSpace, link_bytes
from aeron_spark.server.server_facts import DriverBack
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

NO_KEY_LIMITS: Final = KeyLimits()
DRIVER_LOST_WAIT_S: Final = 0.01  # in a turn of the event loop after the loss of the driver, whose inbox does not wait


class ConnectionService(Protocol):
    """A service that the server offers on each of its connections."""

    def serve(self, connection: ConnectionRunner) -> None:
        """Offer the service to the client of a new connection."""


@dataclass(frozen=True, slots=True)
class _OpeningLink:
    """A link that the media driver is opening."""

    pair: ChannelPair
    session: int


@dataclass(slots=True)
class _VerifiedConnection:
    """A connection whose client was verified; ``link`` carries it now."""

    runner: ConnectionRunner
    session: int
    grant: Grant
    link: int | None


@dataclass(frozen=True, slots=True)
class _OpenTransport:
    """A transport that listens, with its addresses by token."""

    transport: ServerTransport
    addresses: dict[int, ServerAddress]

    def close(self) -> None:
        self.transport.close()


class ServerRunner:
    """Implements ``EndpointRunner`` for a server. Methods run on the event loop unless they are named thread-safe."""

    def __init__(
        self, runtime: Runtime, open_transport: Callable[[], ServerTransport], store: PeerStore,
        options: LiveOptions, connection_class: type[Connection], bans: StoredBans, log_space: LogSpace | None,
    ) -> None:  # fmt: skip
        """``log_space`` has the room of the media driver's logs; None: no limit.

        ``listen`` calls ``open_transport``; after a loss of the media driver it runs on the listener pool.
        """
        psk = read_shared_secret(options.value.shared_secret_file)
        keys, types = store.identity(), runtime.types
        self.public_key: Final = keys.public
        self._live: Final = options
        self.addresses: dict[int, ServerAddress] = {}
        """The addresses at which the server listens now, by token."""
        self.services: Final[list[ConnectionService]] = []
        """Services of each new connection. Complete before the event loop starts."""
        self._machine: Final = ServerMachine(
            keys, lambda: options.value, types, secrets.token_bytes, psk, bans.address_refusal
        )
        self.access: Final = ClientAccess(store, options, bans)
        self._log_space: Final = log_space
        self._open_transport: Final = open_transport
        self._transport: ServerTransport | None = None
        self._runtime: Final = runtime
        self._connection_class: Final = connection_class
        self._wanted: tuple[Sequence[ServerAddress], Sequence[ServerAddress]] = (), ()
        self._reopening: Final = TransportReopening(lambda: self._open(*self._wanted), runtime.listener_pool)
        self._reopening_error = ""  # the text of the last error, which is reported once
        self._machine_calls: Final[deque[Callable[[], ServerEffects]]] = deque()  # to be made
        self._is_executing = False
        self._paths: Final = HandshakePaths(self._feed)
        self._opening: Final[dict[int, _OpeningLink]] = {}
        self._links: Final[dict[int, Link]] = {}
        self._numbers: Final[dict[Link, int]] = {}
        self._connections: Final[dict[int, ConnectionRunner]] = {}  # by session
        self._verified: Final[dict[Connection, _VerifiedConnection]] = {}  # by the connection of the program
        self._draining: Final[set[int]] = set()  # sessions
        self._endings: Final[dict[int, Ending | AeronSparkError]] = {}  # by session: why it has ended

    def listen(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress] = ()) -> None:
        """Open a transport and listen at all of ``addresses``. Call it before the event loop starts.

        Leaves out those of ``optional`` that another program uses. Raises InUseError or TransportError as
        ``ServerTransport.listen``, and closes the transport then.
        """
        opened = self._open(addresses, optional)
        self._wanted = tuple(addresses), tuple(optional)
        self._transport, self.addresses = opened.transport, opened.addresses

    @property
    def is_listening(self) -> bool:
        """Whether ``listen`` was called and has not failed. Thread-safe."""
        return bool(self._wanted[0])

    @property
    def connections(self) -> list[ConnectionRunner]:
        """The connections whose client was verified and that are not closed. Thread-safe."""
        return [verified.runner for verified in list(self._verified.values())]

    @property
    def has_clients(self) -> bool:
        """Whether the server has a connection or a handshake. Thread-safe."""
        return bool(self._verified or self._machine.handshakes)

    @property
    def transport(self) -> ServerTransport:
        """The transport that is open now. Raises UsageError before ``listen``. Thread-safe."""
        if self._transport is None:
            raise UsageError("the server does not listen yet", remedy="Start the server first.")
        return self._transport

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now. Thread-safe."""
        return self.transport.inbox

    @property
    def has_driver(self) -> bool:
        """Whether the media driver is not lost, as far as the event loop knows. Thread-safe."""
        return not self._reopening.wanted

    @property
    def is_idle(self) -> bool:
        """Whether no handshake runs, no link opens or drains, and the media driver is not lost."""
        return self._machine.is_idle and not self._reopening.wanted

    def statistics(self) -> dict[str, int]:
        """Return counts of used resources, and of refusals by code. Thread-safe."""
        dropped = 0 if self._transport is None else self._transport.inbox.dropped
        return {"dropped": dropped, **self._machine.statistics()}

    def grant_of(self, connection: Connection) -> Grant:
        """Return the grant of the client of a program's connection. Raises EndedError if it is closed. Thread-safe."""
        return self._verified_of(connection).grant

    def limits_of(self, connection: ConnectionRunner) -> KeyLimits:
        """Return the limits of a client's key; none for a closed connection. Thread-safe."""
        verified = self._verified.get(connection.for_program)
        return NO_KEY_LIMITS if verified is None else verified.grant.limits

    def is_permitted(self, connection: ConnectionRunner, target: Target, method: str) -> bool:
        """Whether the client of a connection may call this method. Thread-safe.

        Grants apply to the program's objects. The server's own services check grants themselves.
        """
        try:
            grant = self.grant_of(connection.for_program)
        except EndedError:
            return False
        is_service = isinstance(target, int) and target >= FIRST_SERVICE
        return is_service or grant.may_call(f"{target}.{method}")

    def refusal(self, connection: ConnectionRunner, purpose: Purpose) -> RefusedError | None:
        """Why the client of a connection may not send messages or files; None: it may. Thread-safe."""
        try:
            grant = self.grant_of(connection.for_program)
        except EndedError:
            return None  # the connection has ended, and drops what arrives
        is_file = purpose is Purpose.FILE
        if purpose not in (Purpose.FILE, Purpose.MESSAGE) or (
            grant.may_send_files() if is_file else grant.may_pass_messages("send")
        ):
            return None
        return RefusedError(
            f"your key may not send {'files' if is_file else 'messages'}",
            remedy=f"Ask the server's operator to grant {'files' if is_file else 'messages'}=send in its clients file.",
            reason="not-permitted",
        )

    def set_grant(self, connection: ConnectionRunner, grant: Grant) -> None:
        """Change the grant of a client. Raises EndedError for a closed connection. Thread-safe."""
        self._verified_of(connection.for_program).grant = grant

    @property
    def options(self) -> ServerOptions:
        """The present options."""
        return self._live.value

    def image_of(self, connection: ConnectionRunner) -> int:
        """Return the number of the client's image. Raises EndedError, or TransportError while it is not connected."""
        number = self._verified_of(connection.for_program).link
        image = None if number is None else self._links[number].image
        if image is None:
            raise TransportError(f"{connection.label} is not connected", remedy="Try again after it has resumed.")
        return image

    def take_bulk_ids(self, now: float) -> LinkIds | Refusal:
        """Allot the ids of a bulk link."""
        ids = self._machine.resources.take_bulk_ids(now)
        return ids if isinstance(ids, Refusal) else _link_ids(ids)

    def release_bulk_ids(self, ids: LinkIds, now: float) -> None:
        """Return the ids of a bulk link to the pool."""
        pooled = PooledIds(ids.session_in, ids.stream_in, ids.session_out, ids.stream_out, ids.mdc_port)
        self._machine.resources.release_bulk_ids(pooled, now)

    def take_log_space(self, key: bytes, channel_settings: ChannelSettings) -> RefusedError | None:
        """Count the logs of another link with a client of this key, or return why it may not be opened."""
        if self._log_space is None:
            return None
        bulk_links = self._runtime.bulk_links
        own = [one.runner for one in self._verified.values() if one.runner.peer.key == key]
        by_connection = bulk_links.counts()
        return self._log_space.take(
            link_bytes(channel_settings),
            opening=len(self._opening) + bulk_links.opening + sum(one.image is None for one in self._links.values()),
            own=len(own) + sum(by_connection[id(one)] for one in own),
        )

    # Events

    def handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event that belongs to no link."""
        match event:
            case ImageAvailable(token, image, _, source, late) if token in self.addresses:
                address = self.addresses[token]
                self._feed(events.ImageAvailable(image, source, address.data_port, address.control_port, late), now)
            case MessageArrived():
                self._feed(events.Packet(event.image, event.payload), now)
            case ImageUnavailable():
                self._feed(events.ImageUnavailable(event.image), now)
            case DriverLost():
                self._feed(events.DriverLost(event.reason), now)
            case SubscriptionFailed() if event.token in self.addresses:
                address = self.addresses.pop(event.token)
                error = TransportError(
                    f"listening on {address} stopped: {event.reason}",
                    remedy="Check the network interface, then restart the server.",
                )
                self._runtime.report(None, error)
            case _:
                pass

    def work(self, now: float) -> bool:
        """Feed the machine with changes that no event reports; return whether another one is about to come."""
        if self._reopening.wanted:
            self._reopen(now)
            return False
        is_waiting = self._paths.work(now)
        for number, opening in list(self._opening.items()):
            self._work_opening(number, opening, now)
        for session in list(self._draining):
            if self._connections[session].sender.is_idle:
                self._feed(events.SessionDrained(session), now)
        return is_waiting or bool(self._draining)

    def run_due(self, now: float) -> None:
        """Call the machine when its deadline has passed."""
        deadline = self._machine.deadline()
        if deadline is not None and now >= deadline:
            self._run_machine(lambda: self._machine.tick(now), now)

    def link_verified(self, link: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the client has its keys, and has ``received`` of our records."""
        self._feed(events.LinkVerified(self._numbers[link], received), now)

    def link_failed(self, link: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""
        self._feed(events.LinkFailed(self._numbers[link], error), now)

    def lost_image_error(self) -> None:
        """Return None: a link without its image lasts until its expiry."""

    def interrupted(self, connection: ConnectionRunner, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""
        verified = self._verified.get(connection.for_program)
        if verified is not None and verified.link is not None:
            lost = events.LinkExpired(verified.link) if expired else events.LinkFailed(verified.link, error)
            self._feed(lost, now)

    def peer_closed(self, connection: ConnectionRunner, closed: PeerClosed, now: float) -> None:
        """Handle the client's CLOSE."""
        verified = self._verified.get(connection.for_program)
        if verified is not None:
            self._feed(events.PeerClosed(verified.session, closed.keep_session), now)

    def session_failed(self, connection: ConnectionRunner, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""
        verified = self._verified.get(connection.for_program)
        if verified is not None:
            self._feed(events.SessionFailed(verified.session, error), now)

    def close_connection(self, connection: ConnectionRunner, keep_session: bool, now: float) -> None:
        """Close a connection that the program closes, after its last frame was sent."""
        verified = self._verified.get(connection.for_program)
        if verified is not None:
            session = verified.session
            self._run_machine(lambda: self._machine.close_connection(session, keep_session=keep_session, now=now), now)

    def refuse_handshakes(self) -> None:
        """Refuse every further handshake, because the server is about to end. Connections continue."""
        self._machine.resources.admission.closed = SHUTTING_DOWN

    def shut_down(self, now: float) -> None:
        """Refuse every handshake, and end every session without a link."""
        self._run_machine(lambda: self._machine.shut_down(now), now)
        self.access.close()

    def end_all(self, now: float) -> None:
        """End every handshake and session, after the end of the event loop."""
        self._run_machine(lambda: self._machine.end_all(now), now)
        self.access.close()

    def close(self) -> None:
        """Close the transport, and one that is being opened to replace it."""
        self._reopening.close()
        if self._transport is not None:
            self._transport.close()

    # Effects

    def _feed(self, event: ServerEvent, now: float) -> None:
        self._run_machine(lambda: self._machine.handle(event, now), now)

    def _run_machine(self, machine_call: Callable[[], ServerEffects], now: float) -> None:
        """Call the machine and execute its effects, after the effects of earlier calls.

        If an effect fails, the other ones are executed all the same: the machine counts on them.
        """
        self._machine_calls.append(machine_call)
        if self._is_executing:
            return
        self._is_executing = True
        failure: Exception | None = None
        try:
            while self._machine_calls:
                for effect in self._machine_calls.popleft()():
                    try:
                        self._execute(effect, now)
                    except Exception as error:
                        failure = failure or error
        finally:
            self._is_executing = False
        if failure is not None:
            raise failure

    def _execute(self, effect: ServerEffect, now: float) -> None:
        match effect:
            case effects.RejectImage(image, reason):
                self.transport.inbox.reject(image, reason)
            case effects.OpenPath(path, image):
                self._paths.open(path, lambda: self.transport.respond(image), now)
            case effects.Transmit(path, packet):
                self._paths.transmit(path, packet)
            case effects.DrainPath(path):
                self._paths.drain(path, now)
            case effects.ClosePath(path):
                self._paths.close(path)
            case effects.Decide():
                self._decide(effect)
            case effects.MakeConnection():
                self._make_connection(effect, now)
            case effects.OpenLink():
                self._open_link(effect, now)
            case effects.ExpectFirstFrame():
                self._expect_first_frame(effect, now)
            case effects.Attach():
                self._attach(effect, now)
            case effects.Detach(session):
                self._detach(session, now)
            case effects.CloseLink(number):
                self._close_link(number)
            case effects.DrainSession(session):
                self._draining.add(session)
            case effects.EndConnection(session, cause):
                connection = self._connections[session]
                self._verified.pop(connection.for_program, None)
                self._endings[session] = connection.close_error or cause
                connection.end(cause.error_of(connection.label) if isinstance(cause, Ending) else cause)
            case effects.Notify(session, notice):
                connection = self._connections[session]
                init = [ConnectionChanged(connection, "init")] if notice == "connect" else []
                self._runtime.notify(*init, ConnectionChanged(connection, notice, self._endings.get(session)))
            case effects.ForgetConnection(session):
                del self._connections[session]
                self._endings.pop(session, None)
            case effects.HandshakeEnded():
                self._runtime.facts.emit(effect)
                if effect.refusal is not None and effect.refusal.cause is not None:
                    self._runtime.report(None, effect.refusal.cause)
            case effects.Report(error):
                self._runtime.report(None, error)
            case effects.ReopenTransport():
                self._reopening.begin(now)
            case _:
                assert_never(effect)

    def _decide(self, effect: effects.Decide) -> None:
        path, address = effect.path, effect.source.address if isinstance(effect.source, UdpSource) else None

        def answer(decision: Decision) -> None:
            self._runtime.run_on_loop(lambda: self._feed(events.Decided(path, decision), time.monotonic()))

        self.access.decide_soon(Candidate(address, effect.done.tag, effect.key), answer)

    def _make_connection(self, effect: effects.MakeConnection, now: float) -> None:
        try:
            connection = ConnectionRunner(
                self._runtime, _peer_info(effect.client), effect.number, self._connection_class
            )
            for service in self.services:
                service.serve(connection)
        except Exception as error:  # of the program's connection class
            self._feed(events.ConnectionFailed(effect.session, error), now)
            return
        self._connections[effect.session] = connection
        self._feed(events.ConnectionMade(effect.session), now)

    def _open_link(self, effect: effects.OpenLink, now: float) -> None:
        channel_settings = self.options.channel
        refusal = self.take_log_space(self._connections[effect.session].peer.key, channel_settings)
        if refusal is not None:
            self._feed(events.LinkFailed(effect.link, refusal), now)
            return
        try:
            pair = self.transport.open_link(effect.image, _link_ids(effect.ids), channel_settings)
        except SenderUnavailable:  # the client gave up: not an error of the server
            self._feed(events.ImageUnavailable(effect.image), now)
        except Exception as error:  # refuse this client only
            self._feed(events.LinkFailed(effect.link, error), now)
        else:
            self._opening[effect.link] = _OpeningLink(pair, effect.session)

    def _work_opening(self, number: int, opening: _OpeningLink, now: float) -> None:
        publication = opening.pair.publication
        if publication.closed:
            why = f"a link could not be opened: {publication.failure or 'the media driver closed it'}"
            self._feed(events.LinkFailed(number, TransportError(why, remedy=SEE_DRIVER)), now)
        elif self.transport.inbox.ready(opening.pair.token) and publication.ready:
            self._feed(events.LinkReady(number, self._connections[opening.session].machine.session.received), now)

    def _expect_first_frame(self, effect: effects.ExpectFirstFrame, now: float) -> None:
        pair, options = self._opening.pop(effect.link).pair, self.options
        link = Link(
            pair, effect.encryptor, effect.decryptor, options.times, options.channel.max_message, now,
            source_address=_peer_info(effect.client).address,
        )  # fmt: skip
        self._links[effect.link], self._numbers[link] = link, effect.link
        self._runtime.add_link(self._connections[effect.session], link)

    def _close_link(self, number: int) -> None:
        opening, link = self._opening.pop(number, None), self._links.pop(number, None)
        if opening is not None:
            self.transport.inbox.close_subscription(opening.pair.token)
            opening.pair.publication.close()
        if link is not None:
            del self._numbers[link]
            self._runtime.remove_link(link)

    def _attach(self, effect: effects.Attach, now: float) -> None:
        connection, link = self._connections[effect.session], self._links[effect.link]
        self._verified[connection.for_program] = _VerifiedConnection(
            connection, effect.session, effect.client.grant, effect.link
        )
        connection.peer = _peer_info(effect.client)
        link.prepare_open(connection.machine.session.received)
        try:
            connection.sender.attach(link, effect.received, now)
        except AeronSparkError as error:
            link.retry(now)  # from OPEN the client learns that the two ends differ
            self._feed(events.SessionFailed(effect.session, error), now)
            return
        self._feed(events.LinkAttached(effect.link), now)
        connection.sender.flush()  # OPEN too, now that this end is connected and its listeners are scheduled

    def _detach(self, session: int, now: float) -> None:
        connection = self._connections[session]
        self._draining.discard(session)
        self._verified[connection.for_program].link = None
        connection.sender.detach(now)

    # The transport

    def _open(self, addresses: Sequence[ServerAddress], optional: Sequence[ServerAddress]) -> _OpenTransport:
        transport = self._open_transport()
        opened = _OpenTransport(transport, {})
        channel, secret = self.options.channel, self._machine.identity.cookies.secret
        try:
            for address in addresses:
                opened.addresses[transport.listen(address, channel, secret)] = address
            for address in optional:
                with suppress(InUseError):
                    opened.addresses[transport.listen(address, channel, secret)] = address
        except BaseException:
            transport.close()
            raise
        return opened

    def _reopen(self, now: float) -> None:
        time.sleep(DRIVER_LOST_WAIT_S)
        try:
            opened = self._reopening.step(now)
        except Exception as error:
            if str(error) != self._reopening_error:
                self._reopening_error = str(error)
                self._runtime.report(None, error)
            return
        if opened is not None:
            lost, self._transport, self.addresses = self.transport, opened.transport, opened.addresses
            self._reopening_error = ""
            lost.close()
            self._runtime.facts.emit(DriverBack())

    def _verified_of(self, connection: Connection) -> _VerifiedConnection:
        verified = self._verified.get(connection)
        if verified is None:
            raise EndedError(f"{connection.label} is closed", remedy="Connect again.")
        return verified


def _peer_info(client: AuthenticatedClient) -> PeerInfo:
    source = client.source
    if isinstance(source, UdpSource):
        return PeerInfo(client.key, client.tag, str(source.address), source.port)
    return PeerInfo(client.key, client.tag, is_ipc=True)


def _link_ids(ids: PooledIds) -> LinkIds:
    return LinkIds(ids.session_in, ids.stream_in, ids.session_out, ids.stream_out, ids.mdc_port)
