"""The parts of an endpoint that its connections share: links, pools, message types, objects and listeners."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from aeron_spark.endpoint.bulk_links import FOREIGN_IMAGE, BulkLinks
from aeron_spark.endpoint.connection import Connection, ConnectionCore, ConnectionOwner
from aeron_spark.endpoint.deliveries import SerialExecutor
from aeron_spark.endpoint.endpoint_listeners import ConnectionChanged, EndpointListeners
from aeron_spark.endpoint.holds import ConnectionHolds
from aeron_spark.endpoint.links import Link
from aeron_spark.endpoint.loop import Loop
from aeron_spark.endpoint.owner import PeerInfo
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


class RuntimeEndpoint(Protocol):
    """The client's or the server's part of an endpoint, which a runtime calls on the event loop.

    Other threads call only the properties. ``end_all`` runs after the event loop.
    """

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""

    @property
    def connections(self) -> list[ConnectionCore]:
        """The connections whose peer has proved its key and that are not closed."""

    @property
    def is_idle(self) -> bool:
        """Whether the endpoint waits for events only, and has no deadline within the next ticks."""

    def handle_event(self, event: TransportEvent, now: float) -> None:
        """Handle an event that belongs to no link."""

    def work(self, now: float) -> bool:
        """Do the work of one turn of the event loop; return whether more work is about to become possible."""

    def run_due(self, now: float) -> None:
        """Do the work whose deadline has passed. Called at each tick."""

    def link_verified(self, link: Link, received: int, now: float) -> None:
        """Handle the first frame of a link: the peer has its keys, and has ``received`` of our records."""

    def link_failed(self, link: Link, error: AeronSparkError, now: float) -> None:
        """Handle the failure of an unverified link."""

    def lost_image_error(self) -> AeronSparkError | None:
        """Return the error with which a link fails that has lost its image; None: it lasts until its expiry."""

    def interrupted(self, connection: ConnectionCore, error: AeronSparkError, now: float, *, expired: bool) -> None:
        """Handle the loss of the verified link of a connection; ``expired``: it was silent for its expiry time."""

    def peer_closed(self, connection: ConnectionCore, closed: PeerClose, now: float) -> None:
        """Handle the peer's CLOSE."""

    def session_failed(self, connection: ConnectionCore, error: AeronSparkError, now: float) -> None:
        """End a connection whose session cannot continue."""

    def close_connection(self, connection: ConnectionCore, keep_session: bool, now: float) -> None:
        """Close a connection that the program closes."""

    def end_all(self, now: float) -> None:
        """End every connection."""


class Runtime(ConnectionOwner):
    """The tables of one endpoint. It calls one ``RuntimeEndpoint``, and is the owner of its connections.

    Call :meth:`bind` first.
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
        self._connection_class: Final = connection_class
        self.listeners: Final = EndpointListeners(facts)
        self.pools: Final = [self.worker_pool]
        """The pools whose ``tick`` the event loop calls. Add others before the start."""
        self.bulk_links: Final = BulkLinks(loop)
        self.traffic: Final = EndpointTraffic()
        """The bytes of all links."""
        self.bulk_links.traffic = self.traffic
        self.holds: Final = ConnectionHolds(self.memory, self.bulk_links, self._end_largest, facts)
        self.tampered = 0
        """Frames that failed their authentication, of all connections."""
        self._endpoint: RuntimeEndpoint
        self._ended: Final[Future[None]] = Future()
        self._error_executor = SerialExecutor(loop.pool, options().queue_bytes, lambda: None)
        # connections that received a frame since the last tick, or are due
        self._touched: set[ConnectionCore] = set()
        self._next_full_scan = 0.0
        loop.bind(self)

    def bind(self, endpoint: RuntimeEndpoint) -> None:
        """Give the runtime its endpoint. Call it once, before any other method."""
        self._endpoint = endpoint

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
        self._endpoint.end_all(self.loop.clock())
        self.loop.end()
        self._touched.clear()
        self.worker_pool.shutdown()
        resolve(self._ended, None)

    # For connections, bulk links and the endpoint. Thread-safe.

    @property
    def inbox(self) -> Inbox:
        """The inbox of the transport that is open now."""
        return self._endpoint.inbox

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
        self.loop.run_soon(lambda: self._endpoint.close_connection(connection, keep_session, self.loop.clock()))

    # For the endpoint, on the event loop.

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
            self._endpoint.handle_event(event, now)

    def _send_close(self, connection: ConnectionCore, keep_session: bool, error: AeronSparkError | None = None) -> None:
        if connection.connected:
            connection.sender.push_unsequenced(RecordKind.CLOSE, encode_close(keep_session, error))

    def _end_largest(self, connection: ConnectionCore, error: RefusedError) -> None:
        self.report(connection, error)
        self.disconnect(connection, keep_session=False, error=error)

    def work(self, now: float) -> bool:
        """Continue the opening of bulk links, then do the work of the endpoint."""
        is_opening = self.bulk_links.work(now)
        return self._endpoint.work(now) or is_opening

    def is_idle(self, now: float) -> bool:
        """Whether no connection and no pool needs a tick within IDLE_WAIT_S."""
        return self._endpoint.is_idle and not self._touched and not any(pool.has_waiting for pool in self.pools)

    def tick(self, now: float) -> None:
        """Check the connections, and do what is due."""
        # Acknowledgements are due within two ticks, and only after received frames. Everything else has more time.
        is_full_scan = now >= self._next_full_scan
        if is_full_scan:
            self._next_full_scan = now + FULL_SCAN_INTERVAL_S
            self.bulk_links.tick(now)
            self.holds.review(self._endpoint.connections, now)
        touched, self._touched = self._touched, set()
        for connection in self._endpoint.connections if is_full_scan else touched:
            try:
                silent_s = connection.tick(now)
                if silent_s is not None:
                    error = TransportError(
                        f"{connection.label} was silent for {silent_s:g} s",
                        remedy="Check the network and the peer. The client reconnects by itself.",
                    )
                    self._endpoint.interrupted(connection, error, now, expired=True)
                elif connection.is_due(self._next_full_scan):
                    self._touched.add(connection)
            except AeronSparkError as error:
                self._endpoint.session_failed(connection, error, now)
        for pool in self.pools:
            pool.tick()
        self._endpoint.run_due(now)


class _CarriedLink:
    """Handles the events of the link of a connection."""

    def __init__(self, runtime: Runtime, connection: ConnectionCore, link: Link) -> None:
        self._runtime: Final = runtime
        self._endpoint: Final = runtime._endpoint
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
                    self._runtime.inbox.reject(event.image, FOREIGN_IMAGE)
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
        runtime, connection, link = self._runtime, self.connection, self._link
        runtime._touched.add(connection)
        try:
            if not link.is_verified:
                received = link.verify(payload)
                self._endpoint.link_verified(link, received, now)
                return
            closed = connection.receive(link, payload, now)
            if closed is not None:
                self._endpoint.peer_closed(connection, closed, now)
        except (TamperedError, DataFormatError) as error:
            runtime.tampered += 1
            if link.is_verified:
                self._count_tampered(error, now)
            else:
                runtime.report(connection, error)
                self._endpoint.link_failed(link, error, now)

    def _count_tampered(self, error: AeronSparkError, now: float) -> None:
        """Replace the link after an altered frame; end the connection after too many of them within some seconds."""
        runtime, connection = self._runtime, self.connection
        since = now - runtime.options.tampered_time
        connection.tampered = [*(at for at in connection.tampered if at > since), now]
        runtime.report(connection, error)
        if len(connection.tampered) >= runtime.options.max_tampered:
            runtime._send_close(connection, keep_session=False)
            self._endpoint.session_failed(connection, error, now)
        else:
            self._endpoint.interrupted(connection, error, now, expired=False)

    def _lose(self, error: AeronSparkError, now: float) -> None:
        if self._link.is_verified:
            self._endpoint.interrupted(self.connection, error, now, expired=False)
        else:
            self._endpoint.link_failed(self._link, error, now)
