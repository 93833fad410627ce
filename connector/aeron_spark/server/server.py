"""A server of the secure endpoint: listens, lets in who may, and talks to each alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint import Runtime
from aeron_spark.connection.home import PeerInfo
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.loop import TransportReopening
from aeron_spark.errors import AeronSparkError, EndedError, SessionLost, TransportError, UsageError
from aeron_spark.protocol.access import Grant, PeerStore
from aeron_spark.protocol.connection_machine import closed_here
from aeron_spark.protocol.rpc_messages import Target
from aeron_spark.protocol.rpc_objects import FIRST_SERVICE
from aeron_spark.server.bulk_link_service import BulkLinkHandler, BulkLinkTarget
from aeron_spark.server.guests import ServerSession
from aeron_spark.server.opened import Opened
from aeron_spark.server.reception import Reception
from aeron_spark.server.settings import ServerSettings
from aeron_spark.transport.api import (
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    MessageArrived,
    ServerAddress,
    ServerTransport,
    SubscriptionFailed,
    TransportEvent,
)

CLOSED_BY_PEER: Final = "the other side closed the connection"
STUCK_SECONDS: Final = 0.2  # for one connection to take what it was sent, when the server closes
WITHOUT_DRIVER: Final = 0.01  # seconds between two looks whether there is one again


class ServerCore(Runtime):
    """The server over any transport; :class:`aeron_spark.Server` brings Aeron, keys and settings together."""

    def __init__(
        self,
        open_transport: Callable[[], ServerTransport],
        store: PeerStore,
        settings: ServerSettings | None = None,
        connection_class: type[Connection] = Connection,
    ) -> None:
        self._server_settings = settings or ServerSettings()
        self._open_transport = open_transport
        self._transport = listening = open_transport()
        super().__init__("aeron-spark-server", self._server_settings.link, connection_class)
        self._wanted: tuple[ServerAddress, ...] = ()
        self._reopening = TransportReopening(self._listen_again, self._listening)
        self._said_why = ""
        self._sessions = 0  # as of the last tick
        self._guests: dict[Connection, ServerSession] = {}
        self._closing: list[tuple[float, ServerSession, bool]] = []
        self._reception = Reception(
            listening, store, self._server_settings, self.types, self._make, self._join, self._drop, self.report
        )
        branching = BulkLinkHandler(self._reception, self.bulk_links, self.on_agent, self._image_of)
        self.bulk_links.gone = branching.gone
        self._desks: list[BulkLinkTarget] = [branching]

    @property
    def public_key(self) -> bytes:
        """What clients know this server by."""
        return self._reception.public_key

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are connected now."""
        return tuple(connection for connection in self._connections_now() if connection.connected)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.connections)

    def start(self, places: Sequence[ServerAddress]) -> None:
        """Listen at all of ``places``, or at none. Works once.

        Raises InUseError where another program has one of the addresses, TransportError where the server cannot listen
        at one of them for another reason, UsageError where the server listens already or was closed.
        """
        if self._closing_begun or self._wanted:
            what = "is closed" if self._closing_begun else "listens already"
            raise UsageError(f"the server {what}", remedy="Make another one")
        if not places:
            raise UsageError("the server has no address to listen at", remedy="Give it one")
        self._wanted = tuple(places)
        opened = self._listen(self._transport)
        self._reception.places = opened.places
        self._agent.start()

    def _listen(self, transport: ServerTransport) -> Opened:
        opened = Opened(transport)
        try:
            for place in self._wanted:
                opened.places[transport.listen(place, self._settings.channel_settings)] = place
        except BaseException:
            transport.close()
            raise
        return opened

    def _listen_again(self) -> Opened:
        return self._listen(self._open_transport())

    @property
    def statistics(self) -> dict[str, int]:
        """What is in use, and what was refused by code."""
        held: dict[str, int] = {}
        for connection in self._connections_now():
            for name, count in connection.held.items():
                held[name] = held.get(name, 0) + count
        return {
            "connections": len(self.connections),
            "sessions": self._sessions,
            "dropped": self._transport.inbox.dropped,
            "branches": len(self.bulk_links),
            **self._reception.statistics,
            **held,
            "tampered": self.tampered,
        }

    def grant_of(self, connection: Connection) -> Grant | None:
        """What a client may do; None for everything. Raises UsageError where it has gone."""
        return self._guest_of(connection).grant

    def close(self) -> None:
        """Tell every client, send what was sent, and end; what clients had not acknowledged is lost."""
        if not self._begin_closing():
            return
        begun = time.monotonic()
        end, half = begun + self._settings.close_seconds, begun + self._settings.close_seconds / 2
        connections = self.connections
        for connection in connections:  # they drain at the same time, but for those that are stuck
            connection.sender.drain(min(half, time.monotonic() + STUCK_SECONDS))
        for connection in connections:
            self._leave(connection, keep_session=False)
        self._later(self._shut)
        while self._agent.alive and (self._guests or self._reception.doormen) and time.monotonic() < end:
            time.sleep(0.002)
        self._stop()
        self._reopening.close()
        self._transport.close()

    def permitted(self, connection: Connection, target: Target, method: str) -> bool:
        guest = self._guests.get(connection)
        if guest is None:
            return False
        # our own services judge for themselves; grants are about the program's objects
        own = isinstance(target, int) and target >= FIRST_SERVICE
        return own or guest.grant is None or guest.grant.may_call(f"{target}.{method}")

    def _shut(self) -> None:
        now = time.monotonic()
        self._reception.close(now)
        for guest in [one for one in self._guests.values() if one.link is None]:
            self._end(guest, closed_here(), now)

    def _end_all(self) -> None:
        now = time.monotonic()
        self._reception.close(now)
        self._lose(closed_here(), now)
        for guest in list(self._guests.values()):
            self._end(guest, closed_here(), now)
        self._sessions = len(self._reception.tickets)

    def _lose(self, why: AeronSparkError, now: float) -> None:
        """Nothing that was opened is there any more."""
        self._reception.lose(now)
        for guest in [one for one in self._guests.values() if one.link is not None]:
            self._interrupted(guest.connection, why, now)

    def _inbox(self) -> Inbox:
        return self._transport.inbox

    def _connections_now(self) -> list[Connection]:
        return list(self._guests)

    def _make(self, who: PeerInfo, number: int) -> Connection:
        connection = self._connection_class(self, who, number)
        for desk in self._desks:
            desk.serve(connection)
        return connection

    def _guest_of(self, connection: Connection) -> ServerSession:
        guest = self._guests.get(connection)
        if guest is None:
            raise EndedError(f"{connection.label} is closed", remedy="Connect again")
        return guest

    def _image_of(self, connection: Connection) -> int:
        link = self._guest_of(connection).link
        if link is None or link.image is None:
            raise TransportError(f"{connection.label} is away", remedy="Try again when it is back")
        return link.image

    def _other_event(self, event: TransportEvent, now: float) -> None:
        match event:
            case ImageAvailable() if event.token in self._reception.places:
                self._reception.joined(event.token, event.image, event.source, now, late=event.late)
            case MessageArrived() if event.image in self._reception.doormen:
                self._reception.doormen[event.image].packet(event.payload, now)
            case ImageUnavailable() if event.image in self._reception.doormen:
                self._reception.doormen[event.image].image_left(now)
            case DriverLost():
                lost = TransportError(f"the media driver is gone: {event.reason}", remedy="It is being looked for")
                self.report(None, lost)
                self._lose(lost, now)
                self._reopening.begin(now)
            case SubscriptionFailed() if event.token in self._reception.places:
                place = self._reception.places.pop(event.token)
                self.report(None, TransportError(f"nobody is heard at {place} any more: {event.reason}"))
            case _:
                pass

    def _other_work(self, now: float) -> bool:
        if self._reopening.wanted:
            self._listen_on(now)
            return False
        soon = self._reception.step(now)
        for due, guest, keep in self._closing[:]:
            if guest.connection.sender.is_idle or now >= due:
                self._closing.remove((due, guest, keep))
                self._leave_now(guest, keep, now)
        return soon or bool(self._closing)

    def _other_calm(self) -> bool:
        if self._reception.busy or self._closing or self._reopening.wanted:
            return False
        return not any(one.away_since is not None or one.connection.asks for one in self._guests.values())

    def _listen_on(self, now: float) -> None:
        time.sleep(WITHOUT_DRIVER)
        try:
            opened = self._reopening.step(now)
        except Exception as error:
            if str(error) != self._said_why:
                self._said_why = str(error)
                self.report(None, error)
            return
        if opened is not None:
            old, self._transport = self._transport, opened.transport
            self._reception.listening, self._reception.places = opened.transport, opened.places
            self._said_why = ""
            old.close()

    def _tick(self, now: float) -> None:
        super()._tick(now)
        self._sessions = len(self._reception.tickets)
        self._reception.tick(now)
        for guest in list(self._guests.values()):
            if guest.away_since is not None and now - guest.away_since >= self._settings.times.expiry_seconds:
                self._tell_gone(guest)
        for guest in [*self._reception.tickets.expire(now), *self._reception.expired]:
            lost = SessionLost(f"{guest.connection.label} did not come back in time", remedy="Connect anew")
            self._end(guest, lost, now)
        self._reception.expired.clear()

    def _opened(self, connection: Connection, link: LinkEnds, received: int, now: float) -> None:
        arriving = self._reception.came(link.token, now)
        if arriving is None:
            return
        guest = arriving.guest
        self._let_go_of_link(guest, now)
        guest.link, guest.ids, guest.ticket = link, arriving.ids, arriving.ticket
        self._guests[connection] = guest
        connection.who = arriving.who
        if arriving.permit is not None:
            guest.permit.release()
            guest.permit = arriving.permit
        link.say_open(connection.machine.session.received, now)
        try:
            connection.sender.attach(link, received, now)
        except AeronSparkError as error:
            self._end(guest, error, now)
            return
        guest.away_since = None
        first, guest.told_connected, guest.told_disconnected = not guest.told_connected, True, False
        connection.in_order(lambda: self._tell_here(connection, first))
        connection.sender.flush()
        self.request_flush(connection)

    def _tell_here(self, connection: Connection, first: bool) -> None:
        if first:
            self.tell("init", connection)
        self.tell("connect" if first else "resume", connection)

    def _unproved(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        self._reception.give_up(link.token, now)

    def _interrupted(self, connection: Connection, why: AeronSparkError, now: float, *, silent: bool = False) -> None:
        guest = self._guests.get(connection)
        if guest is None:
            return
        leaving = [one for one in self._closing if one[1] is guest]
        if leaving:  # the peer was faster
            self._closing = [one for one in self._closing if one[1] is not guest]
            self._leave_now(guest, leaving[0][2], now)
            return
        self._let_go_of_link(guest, now)
        self._reception.tickets.detach(guest.ticket, now)
        guest.away_since = now
        if silent:
            self._tell_gone(guest)

    def _over(self, connection: Connection, error: AeronSparkError) -> None:
        guest = self._guests.get(connection)
        if guest is not None:
            self._end(guest, error, time.monotonic())

    def _left(self, connection: Connection, keep_session: bool) -> None:
        guest = self._guests.get(connection)
        now = time.monotonic()
        if guest is not None and guest.link is not None:
            self._closing.append((now + self._settings.close_seconds, guest, keep_session))
        elif guest is not None:
            self._leave_now(guest, keep_session, now)

    def _leave_now(self, guest: ServerSession, keep_session: bool, now: float) -> None:
        if keep_session:
            self._interrupted(guest.connection, closed_here(), now, silent=True)
        else:
            self._end(guest, closed_here(), now)

    def _was_left(self, connection: Connection, keep_session: bool, now: float) -> None:
        guest = self._guests.get(connection)
        if guest is None:
            return
        if keep_session:
            self._interrupted(connection, TransportError(CLOSED_BY_PEER), now, silent=True)
        else:
            self._end(guest, TransportError(CLOSED_BY_PEER), now)

    def _end(self, guest: ServerSession, error: AeronSparkError, now: float) -> None:
        """The connection is over for good: everything it held is given back."""
        self._guests.pop(guest.connection, None)
        self._let_go_of_link(guest, now)
        self._reception.tickets.drop(guest.ticket)
        guest.permit.release()
        guest.connection.end(error)
        self._tell_gone(guest)

    def _tell_gone(self, guest: ServerSession) -> None:
        guest.away_since = None
        guest.permit.release()  # it may come back, if there is a place then
        if guest.told_connected and not guest.told_disconnected:
            guest.told_disconnected = True
            connection = guest.connection

            def tell() -> None:
                self.tell("disconnect", connection)
                connection.say_goodbye()

            connection.in_order(tell)

    def _let_go_of_link(self, guest: ServerSession, now: float) -> None:
        guest.connection.sender.detach(now)
        if guest.link is not None:
            self._drop(guest.link)
            guest.link = None
        if guest.ids is not None:
            self._reception.pools.release(guest.ids, now)
            guest.ids = None
