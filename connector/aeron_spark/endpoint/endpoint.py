"""The core of an endpoint, for the modules of the package, and the interface that ``Client`` and ``Server`` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from aeron_spark.endpoint.bulk_links import FOREIGN_IMAGE, BulkLinks
from aeron_spark.endpoint.connection import Connection, ConnectionCore
from aeron_spark.endpoint.deliveries import SerialExecutor
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, EndpointListeners
from aeron_spark.endpoint.fair_pool import FairPool
from aeron_spark.endpoint.holds import ConnectionHolds
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import ConnectionOwner, PeerInfo
from aeron_spark.endpoint.usage import EndpointTraffic
from aeron_spark.errors import (
    AeronSparkError,
    DataFormatError,
    RefusedError,
    TamperedError,
    TransportError,
    UsageError,
    WaitTimeout,
)
from aeron_spark.facts import Bus
from aeron_spark.options import EndpointOptions
from aeron_spark.process import ProcessLock, bind_to_process
from aeron_spark.protocol.frames import PeerClose, RecordKind, encode_close
from aeron_spark.protocol.session import closed_error
from aeron_spark.protocol.sources import is_from_address
from aeron_spark.transport.api import (
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    MessageArrived,
    PublicationRejected,
    SubscriptionFailed,
    TransportEvent,
)
from aeron_spark.waiting import resolve

FULL_SCAN_INTERVAL_S: Final = 0.045  # between two checks of connections without received frames: about five ticks

# msgspec analyses a class at its first use. A second thread that uses the class meanwhile crashes the process.
_BUILDING_TYPES: Final = ProcessLock()


class EndpointCore(ConnectionOwner):
    """The endpoint of a client or a server, for the modules of the package: what both have in common.

    A subclass has the transport, the handshakes, the links and the sessions. Its methods are for the event loop;
    other threads call only its properties.
    """

    def __init__(
        self,
        loop: Loop,
        options: Callable[[], EndpointOptions],
        facts: Bus,
        connection_class: type[Connection] = Connection,
    ) -> None:
        """``options`` returns the present options. Programs see connections as objects of ``connection_class``."""
        super().__init__(loop, options, facts)
        loop.endpoint = self
        self._connection_class: Final = connection_class
        self.listeners: Final = EndpointListeners(facts)
        self.fair_pools: tuple[FairPool, ...] = (self.worker_pool,)
        """The pools whose ``tick`` the event loop calls. Add others before the start."""
        self.bulk_links: Final = BulkLinks(loop)
        self.traffic: Final = EndpointTraffic()
        """The bytes of all links."""
        self.bulk_links.traffic = self.traffic
        self.holds: Final = ConnectionHolds(self.memory, self.bulk_links, self._end_largest, facts)
        self.tampered = 0
        """Frames that failed their authentication, of all connections."""
        self._ended: Final[Future[None]] = Future()
        self._error_executor = SerialExecutor(loop.pool, options().queue_bytes, lambda: None)
        # connections that received a frame since the last tick, or are due
        self._touched: set[ConnectionCore] = set()
        self._next_full_scan = 0.0

    # The program's side. Thread-safe.

    @property
    def closed(self) -> bool:
        """Whether the endpoint has ended."""
        return self._ended.done()

    def wait_closed(self, timeout_s: float | None) -> bool:
        """Wait until the endpoint has ended; return False after ``timeout_s`` seconds.

        Raises UsageError on the event loop.
        """
        if self.loop.is_current_thread:
            raise UsageError("the event loop cannot wait for its own end", remedy="Wait in another thread.")
        try:
            self.loop.wait(self._ended, timeout_s, "the endpoint to end")
        except WaitTimeout:
            return False
        return True

    def stop(self) -> None:
        """Stop the event loop, end every connection, then stop the other threads."""
        self.loop.stop()
        self.bulk_links.fail_all(closed_error())
        self.end_all(self.loop.clock())
        self.loop.end()
        self._touched.clear()
        self.worker_pool.shutdown()
        resolve(self._ended, None)

    # For connections, bulk links and the subclass. Thread-safe.

    def report(self, connection: ConnectionCore | None, error: BaseException) -> None:
        """Call the error listeners, but never on the event loop: there, a thread of the listeners' pool does it."""
        if not self.loop.is_current_thread:
            self.listeners.report(connection, error)
        elif connection is not None:
            connection.run_in_order(lambda: self.listeners.report(connection, error))
        else:
            self._error_executor.submit(lambda: self.listeners.report(None, error))

    def notify(self, *changes: ConnectionChanged) -> None:
        """Call the listeners of changes of one connection, after those of all its earlier messages."""

        def call() -> None:
            for change in changes:
                self.facts.emit(change)
                self.listeners.notify(change.notice, change.connection)
                if change.notice == "disconnect":
                    change.connection.notify_disconnect()

        changes[0].connection.run_in_order(call)

    def close_connection(self, connection: ConnectionCore, keep_session: bool) -> None:
        """Close a connection: send its unsent messages, for some seconds at most, then send CLOSE."""
        if connection.closed:
            return
        if connection.connected and not self.loop.is_current_thread:
            connection.sender.drain(self.loop.clock() + self.options.close_timeout)
        self.disconnect(connection, keep_session)

    def disconnect(self, connection: ConnectionCore, keep_session: bool, error: AeronSparkError | None = None) -> None:
        """Send CLOSE and have the endpoint close the connection. Unsent messages are not sent any more.

        ``error`` is the reason for the peer.
        """
        connection.close_error = connection.close_error or error
        self._send_close(connection, keep_session, error)
        self.loop.run_soon(lambda: self.program_closes(connection, keep_session, self.loop.clock()))

    # For the subclass, on the event loop.

    def make(self, peer: PeerInfo, number: int) -> ConnectionCore:
        """Make the connection with a peer. Raises what the program's connection class raises."""
        return ConnectionCore(self, peer, number, self._connection_class)

    def add_link(self, connection: ConnectionCore, link: Link) -> None:
        """Give the frames of a link to a connection."""
        self.loop.own(link.token, _CarriedLink(self, connection, link))
        connection.traffic.add(link)
        self.traffic.add(link, "message")

    def remove_link(self, link: Link) -> None:
        """Close both directions of a link."""
        carried = self.loop.disown(link.token)
        self.inbox.close_subscription(link.token)
        if isinstance(carried, _CarriedLink):
            carried.connection.sender.close_link(link)
            carried.connection.traffic.remove(link)
            self.traffic.remove(link)
        else:
            link.close()

    # For the event loop.

    def handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event that belongs to no link, or the loss of the media driver."""
        try:
            if isinstance(event, DriverLost):
                self.bulk_links.fail_all(event.error)
        finally:  # the inbox reports the loss once, and without it the endpoint would wait for ever
            self._handle_event(event, now)

    def _send_close(self, connection: ConnectionCore, keep_session: bool, error: AeronSparkError | None = None) -> None:
        if connection.connected:
            connection.sender.push_unsequenced(RecordKind.CLOSE, encode_close(keep_session, error))

    def _end_largest(self, connection: ConnectionCore, error: RefusedError) -> None:
        self.report(connection, error)
        self.disconnect(connection, keep_session=False, error=error)

    def work(self, now: float) -> bool:
        """Do the work of one turn; return whether more work is about to become possible."""
        is_opening = self.bulk_links.work(now)
        return self._work(now) or is_opening

    def is_idle(self, now: float) -> bool:
        """Whether the endpoint waits for events only, and has no deadline within IDLE_WAIT_S."""
        return self._is_idle(now) and not self._touched and not any(pool.has_waiting for pool in self.fair_pools)

    def tick(self, now: float) -> None:
        """Check the connections, and do what is due."""
        # Acknowledgements are due within two ticks, and only after received frames. Everything else has more time.
        is_full_scan = now >= self._next_full_scan
        if is_full_scan:
            self._next_full_scan = now + FULL_SCAN_INTERVAL_S
            self.bulk_links.tick(now)
            self.holds.review(self.connections, now)
        touched, self._touched = self._touched, set()
        for connection in self.connections if is_full_scan else touched:
            try:
                silent_s = connection.tick(now)
                if silent_s is not None:
                    error = TransportError(
                        f"{connection.label} was silent for {silent_s:g} s",
                        remedy="Check the network and the peer. The client reconnects by itself.",
                    )
                    self.interrupted(connection, error, now, expired=True)
                elif connection.is_due(self._next_full_scan):
                    self._touched.add(connection)
            except AeronSparkError as error:
                self.session_failed(connection, error, now)
        for pool in self.fair_pools:
            pool.tick()
        self.run_due(now)

    # Client and server implement these differently. Only the event loop calls the methods.

    @property
    @abstractmethod
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""

    @property
    @abstractmethod
    def connections(self) -> list[ConnectionCore]:
        """The connections whose peer has proved its key and that are not closed."""

    @abstractmethod
    def _is_idle(self, now: float) -> bool:
        """Whether no handshake, link or session has a deadline within IDLE_WAIT_S or is about to end."""

    @abstractmethod
    def _handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event that belongs to no link."""

    @abstractmethod
    def _work(self, now: float) -> bool:
        """Continue what no event reports; return whether more is about to become possible."""

    @abstractmethod
    def run_due(self, now: float) -> None:
        """Do the work whose deadline has passed. Called at each tick."""

    @abstractmethod
    def link_verified(self, link: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the peer has its keys, and has ``received`` of our records."""

    @abstractmethod
    def link_failed(self, link: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""

    @abstractmethod
    def lost_image_error(self) -> AeronSparkError | None:
        """Return the error with which a link fails that has lost its image; None: it lasts until its expiry."""

    @abstractmethod
    def interrupted(self, connection: ConnectionCore, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""

    @abstractmethod
    def peer_closed(self, connection: ConnectionCore, closed: PeerClose, now: float) -> None:
        """Handle the peer's CLOSE."""

    @abstractmethod
    def program_closes(self, connection: ConnectionCore, keep_session: bool, now: float) -> None:
        """Close a connection that the program closes, after its unsent messages."""

    @abstractmethod
    def session_failed(self, connection: ConnectionCore, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""

    @abstractmethod
    def end_all(self, now: float) -> None:
        """End every connection, after the end of the event loop."""


class _CarriedLink:
    """Handles the events of the link of a connection."""

    def __init__(self, endpoint: EndpointCore, connection: ConnectionCore, link: Link) -> None:
        self._endpoint: Final = endpoint
        self.connection: Final = connection
        self._link: Final = link

    def on_event(self, event: TransportEvent, now: float) -> None:
        """Give frames to the connection, and changes of the link to the endpoint."""
        link = self._link
        match event:
            case MessageArrived():
                if event.image == link.image:
                    self._receive_frame(event.payload, now)
            case ImageAvailable():
                # The ids of a link are for one peer: a second image, or one from another address, is not that peer's.
                if link.image is None and is_from_address(event.source, link.source_address):
                    link.image = event.image
                else:
                    self._endpoint.inbox.reject(event.image, FOREIGN_IMAGE)
            case ImageUnavailable():
                if event.image == link.image:
                    link.image = None
                    error = self._endpoint.lost_image_error()
                    if error is not None:
                        self._lose(error, now)
            case SubscriptionFailed() | PublicationRejected():
                self._lose(event.error_of(f"the link of {self.connection.label}"), now)
            case _:
                self._endpoint.handle_event(event, now)

    def _receive_frame(self, payload: memoryview, now: float) -> None:
        endpoint, connection, link = self._endpoint, self.connection, self._link
        endpoint._touched.add(connection)
        try:
            if not link.is_verified:
                received = link.verify(payload)
                endpoint.link_verified(link, received, now)
                return
            closed = connection.receive(link, payload, now)
            if closed is not None:
                endpoint.peer_closed(connection, closed, now)
        except (TamperedError, DataFormatError) as error:
            endpoint.tampered += 1
            if link.is_verified:
                self._count_tampered(error, now)
            else:
                endpoint.report(connection, error)
                endpoint.link_failed(link, error, now)

    def _count_tampered(self, error: AeronSparkError, now: float) -> None:
        """Replace the link after an altered frame; end the connection after too many of them within some seconds."""
        endpoint, connection = self._endpoint, self.connection
        since = now - endpoint.options.tampered_time
        connection.tampered = [*(at for at in connection.tampered if at > since), now]
        endpoint.report(connection, error)
        if len(connection.tampered) >= endpoint.options.max_tampered:
            endpoint._send_close(connection, keep_session=False)
            endpoint.session_failed(connection, error, now)
        else:
            endpoint.interrupted(connection, error, now, expired=False)

    def _lose(self, error: AeronSparkError, now: float) -> None:
        if self._link.is_verified:
            self._endpoint.interrupted(self.connection, error, now, expired=False)
        else:
            self._endpoint.link_failed(self._link, error, now)


E = TypeVar("E", bound=EndpointCore)
F = TypeVar("F", bound=Callable[..., object])


class Endpoint(Generic[E]):
    """Base of ``Client`` and ``Server``: the methods that both offer to programs. Thread-safe.

    The methods ``on_...`` add a listener and can be used as decorators. A listener's exception is reported to the
    error listeners.
    """

    def __init__(self, endpoint: E) -> None:
        self._endpoint: Final = endpoint
        bind_to_process(self)

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let peers call the listed methods of ``value`` as ``remote(name)``."""
        self._endpoint.objects.register(name, value, methods)

    def factory(self, name: str, make: Callable[..., object], methods: Iterable[str]) -> None:
        """Let peers create objects with ``make``, and call the listed methods of these objects."""
        self._endpoint.objects.factory(name, make, methods)

    def expose(self, cls: type, methods: Iterable[str]) -> None:
        """Send objects of this class as references; the receiver may call the listed methods of them."""
        self._endpoint.objects.expose(cls, methods)

    def register_type(self, cls: type, type_id: int) -> None:
        """Send and receive messages of ``cls``, a msgspec.Struct or dataclass. Both ends use the same id."""
        with _BUILDING_TYPES:
            self._endpoint.types.register(cls, type_id)

    def register_error(self, cls: type[Exception], code: str = "") -> None:
        """Send exceptions of ``cls`` to callers under this code; by default, the name of the class."""
        self._endpoint.error_codes.register(cls, code)

    def on_init(self, listener: F) -> F:
        """Call ``listener(connection)`` when the peer is authenticated, before any message is delivered."""
        return self._endpoint.listeners.add("init", listener)

    def on_connect(self, listener: F) -> F:
        """Call ``listener(connection)`` when it can be used: once for a session, not when it resumes."""
        return self._endpoint.listeners.add("connect", listener)

    def on_resume(self, listener: F) -> F:
        """Call ``listener(connection)`` when it has resumed its session after an outage."""
        return self._endpoint.listeners.add("resume", listener)

    def on_disconnect(self, listener: F) -> F:
        """Call ``listener(connection)`` when it is closed, or silent for longer than the expiry.

        The endpoint calls it once, and again only after a resume.
        """
        return self._endpoint.listeners.add("disconnect", listener)

    def on_error(self, listener: F) -> F:
        """Call ``listener(connection or None, error)`` for each error. Without a listener, errors are logged."""
        return self._endpoint.listeners.add("error", listener)

    @property
    def tampered(self) -> int:
        """Received frames that failed their authentication."""
        return self._endpoint.tampered

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._endpoint.closed

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until it is closed; return False after ``timeout`` seconds. Do not call it from a listener."""
        return self._endpoint.wait_closed(timeout)
