"""What a client and a server have in common: an agent, connections with their links, listeners, and an orderly end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final

from aeron_spark.connection.bulk_links import BulkLinks
from aeron_spark.connection.connection import Connection
from aeron_spark.connection.endpoint_listeners import EndpointListeners
from aeron_spark.connection.inbound import SerialExecutor
from aeron_spark.connection.link import LinkEnds
from aeron_spark.connection.loop import EventLoop
from aeron_spark.connection.settings import LinkSettings
from aeron_spark.errors import AeronSparkError, DataFormatError, TamperedError, TransportError, UsageError
from aeron_spark.process_cache import ProcessLock
from aeron_spark.protocol.access import same_owner
from aeron_spark.protocol.connection_machine import CLOSE_ALL, KEEP_SESSION, closed_error
from aeron_spark.protocol.frames import RecordKind
from aeron_spark.protocol.message_types import Types
from aeron_spark.protocol.rpc_dispatch import ErrorCodes
from aeron_spark.protocol.rpc_messages import Target
from aeron_spark.protocol.rpc_objects import GlobalObjects
from aeron_spark.transport.api import (
    DriverLost,
    ImageAvailable,
    ImageUnavailable,
    Inbox,
    MessageArrived,
    SubscriptionFailed,
    TransportEvent,
)

LOG: Final = logging.getLogger("aeron_spark.endpoint")

NOT_YOURS: Final = "aeron-spark/1 FAILED not-permitted This duologue is another client's"
FULL_SCAN_INTERVAL_S: Final = 0.045  # seconds between two looks at connections from which nothing came: some five ticks
# msgspec builds what it knows of a class at its first use; a second thread in the midst of that crashes the process
_BUILDING_TYPES: Final = ProcessLock()
LISTENER_THREADS: Final = 4096  # at most one for each connection that has something to deliver; made when needed


class Runtime(EndpointListeners):
    """Base of ``Server`` and ``Client``. A program uses those; everything with ``_`` is theirs."""

    def __init__(self, name: str, settings: LinkSettings, connection_class: type[Connection] = Connection) -> None:
        super().__init__()
        self._settings = settings
        self._connection_class = connection_class
        self._types = Types()
        self._objects = GlobalObjects()
        self._errors = ErrorCodes()
        self._listening = ThreadPoolExecutor(LISTENER_THREADS, thread_name_prefix=f"{name}-listener")
        self._working = ThreadPoolExecutor(settings.workers, thread_name_prefix=f"{name}-worker")
        self._links: dict[int, tuple[Connection, LinkEnds]] = {}  # by token; the agent's alone
        self.bulk_links = BulkLinks(self)
        self._attended: set[Connection] = set()
        self._attending = threading.Lock()
        self._jobs: list[Callable[[], None]] = []  # for the agent, from other threads
        self._agent = EventLoop(name, self._inbox, self._handle, self._work, self._tick, self._calm)
        self._closing_begun = False
        self._closed = threading.Event()
        self._error_executor = SerialExecutor(self._listening, settings.queue_bytes, lambda: None)  # of no connection
        self._fresh: set[Connection] = set()  # from which something came since the last tick
        self._everybody_at = 0.0  # when all of them are looked at next
        self.tampered = 0  # frames that nobody can have sent, of all connections

    def register(self, name: str, value: object, methods: Iterable[str]) -> None:
        """Let peers call the listed methods of ``value`` as ``remote(name)``."""
        self._objects.register(name, value, methods)

    def factory(self, name: str, make: Callable[..., object], methods: Iterable[str]) -> None:
        """Let peers have objects made by ``make``, and call the listed methods of these."""
        self._objects.factory(name, make, methods)

    def expose(self, cls: type, methods: Iterable[str]) -> None:
        """Send objects of this class as references; the receiver may call the listed methods of them."""
        self._objects.expose(cls, methods)

    def register_type(self, cls: type, type_id: int) -> None:
        """Send and understand messages of ``cls``, a msgspec.Struct or dataclass; both sides use the same id."""
        with _BUILDING_TYPES:
            self._types.register(cls, type_id)

    def register_error(self, cls: type[Exception], code: str = "") -> None:
        """Tell callers of exceptions of ``cls`` by this code, its name unless given."""
        self._errors.register(cls, code)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until it is closed; False after ``timeout`` seconds. Not for listeners, which it would wait for."""
        if self._agent.here:
            raise UsageError("the polling thread cannot wait for its own end", remedy="Wait in another thread")
        return self._closed.wait(timeout)

    def report(self, connection: Connection | None, error: BaseException) -> None:
        """Tell whoever listens for errors; never on the polling thread."""
        if not self._agent.here:
            super().report(connection, error)
        elif connection is not None:
            connection.in_order(lambda: super(Runtime, self).report(connection, error))
        else:
            self._error_executor.submit(lambda: super(Runtime, self).report(None, error))

    # What follows is ``Home``, for connections.

    @property
    def settings(self) -> LinkSettings:
        """What connections are told."""
        return self._settings

    @property
    def types(self) -> Types:
        """The message types."""
        return self._types

    @property
    def objects(self) -> GlobalObjects:
        """What every peer may call."""
        return self._objects

    @property
    def errors(self) -> ErrorCodes:
        """What peers are told of exceptions."""
        return self._errors

    @property
    def listening(self) -> Executor:
        """Where listeners run."""
        return self._listening

    @property
    def working(self) -> Executor:
        """Where remote calls run."""
        return self._working

    def permitted(self, connection: Connection, target: Target, method: str) -> bool:
        """Whether this peer may call this."""
        return True

    def request_flush(self, connection: Connection) -> None:
        """Offer again, soon, what Aeron did not take."""
        with self._attending:
            self._attended.add(connection)
        if not self._agent.here:
            self._inbox().wake()

    def pause(self, token: int) -> None:
        """Take no more messages from there."""
        self._inbox().pause(token)

    def resume(self, token: int) -> None:
        """Take them again."""
        self._inbox().resume(token)

    def leave(self, connection: Connection, keep_session: bool) -> None:
        """Close a connection from our side."""
        if connection.closed:
            return
        if connection.connected and not self._agent.here:
            connection.sender.drain(time.monotonic() + self._settings.close_seconds)
        self._leave(connection, keep_session)

    def _leave(self, connection: Connection, keep_session: bool) -> None:
        """Say that we go; what was not sent by now is not sent any more."""
        self._say_close(connection, keep_session)
        self._later(lambda: self._left(connection, keep_session))

    def _say_close(self, connection: Connection, keep_session: bool) -> None:
        if connection.connected:
            connection.sender.push_unsequenced(RecordKind.CLOSE, bytes([KEEP_SESSION if keep_session else CLOSE_ALL]))

    def _begin_closing(self) -> bool:
        """Whether this is the first who closes the endpoint."""
        with self._attending:
            first, self._closing_begun = not self._closing_begun, True
        return first

    # What follows is ``Rooms``, for branches.

    def inbox_now(self) -> Inbox:
        """Where everything arrives."""
        return self._inbox()

    def later(self, job: Callable[[], None]) -> None:
        """Run ``job`` on the agent."""
        self._later(job)

    def on_agent(self, job: Callable[[], Any]) -> Future[Any]:
        """Run ``job`` on the agent, and give what it returns or raises."""
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(job())
            except BaseException as error:
                done.set_exception(error)

        self._later(run)
        return done

    # What follows is for subclasses.

    def _inbox(self) -> Inbox:
        raise NotImplementedError

    def _other_event(self, event: TransportEvent, now: float) -> None:
        raise NotImplementedError

    def _other_work(self, now: float) -> bool:
        raise NotImplementedError

    def _other_calm(self) -> bool:
        """Whether nothing is under way but what an event tells of, or what is looked at a few times a second."""
        raise NotImplementedError

    def _opened(self, connection: Connection, link: LinkEnds, received: int, now: float) -> None:
        """The first frame of a duologue came: the peer has the keys, and ``received`` of our records."""
        raise NotImplementedError

    def _unproved(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        """The first frame of a duologue is not the peer's."""
        raise NotImplementedError

    def _interrupted(self, connection: Connection, why: AeronSparkError, now: float, *, silent: bool = False) -> None:
        """The connection's duologue is gone; it may come back. ``silent``: it was for longer than the expiry."""
        raise NotImplementedError

    def _left(self, connection: Connection, keep_session: bool) -> None:
        """Our side has closed the connection."""
        raise NotImplementedError

    def _was_left(self, connection: Connection, keep_session: bool, now: float) -> None:
        """The peer has closed it."""
        raise NotImplementedError

    def _over(self, connection: Connection, error: AeronSparkError) -> None:
        """The session is lost."""
        raise NotImplementedError

    def _connections_now(self) -> list[Connection]:
        raise NotImplementedError

    def _later(self, job: Callable[[], None]) -> None:
        """Run ``job`` on the agent."""
        with self._attending:
            self._jobs.append(job)
        self._inbox().wake()

    def _join(self, connection: Connection, link: LinkEnds) -> None:
        self._links[link.token] = (connection, link)

    def _drop(self, link: LinkEnds) -> None:
        """Close both ways of a duologue."""
        found = self._links.pop(link.token, None)
        self._inbox().close_subscription(link.token)
        if found is None:
            link.close()
        else:
            found[0].sender.close_link(link)

    def _end_all(self) -> None:
        """The agent has ended: end every connection that is left."""
        raise NotImplementedError

    def _stop(self) -> None:
        """End the agent, every connection, then the other threads."""
        self._agent.stop()
        self.bulk_links.fail_all(closed_error())
        self._end_all()
        self._working.shutdown(wait=False, cancel_futures=True)
        self._listening.shutdown(wait=False)
        self._closed.set()

    def _handle(self, event: TransportEvent, now: float) -> None:
        found = self._links.get(getattr(event, "token", -1))
        if found is None:
            if isinstance(event, DriverLost):
                self.bulk_links.fail_all(TransportError(f"the media driver is gone: {event.reason}"))
            if not self.bulk_links.event(event, now):
                self._other_event(event, now)
            return
        connection, link = found
        match event:
            case MessageArrived():
                if event.image == link.image:
                    self._frame(connection, link, event.payload, now)
            case ImageAvailable():
                # the ids are for one sender: whoever comes later, or from elsewhere, is somebody else
                if link.image is None and same_owner(event.source, link.owner):
                    link.image = event.image
                else:
                    self._inbox().reject(event.image, NOT_YOURS)
            case ImageUnavailable():
                if event.image == link.image:
                    link.image = None
                    self._image_left(connection, link, now)
            case SubscriptionFailed():
                self._path_lost(connection, link, TransportError(f"{connection.label}: {event.reason}"), now)
            case _:
                self._other_event(event, now)

    def _path_lost(self, connection: Connection, link: LinkEnds, error: AeronSparkError, now: float) -> None:
        if link.proved:
            self._interrupted(connection, error, now)
        else:
            self._unproved(connection, link, error, now)

    def _image_left(self, connection: Connection, link: LinkEnds, now: float) -> None:
        """The peer's way to us has gone. The expiry says what that means, unless a subclass knows better."""

    def _frame(self, connection: Connection, link: LinkEnds, payload: memoryview, now: float) -> None:
        self._fresh.add(connection)
        try:
            if not link.proved:
                self._first(connection, link, payload, now)
                return
            closed = connection.receive(link, payload, now)
            if closed is not None:
                self._was_left(connection, closed.keep_session, now)
        except (TamperedError, DataFormatError) as error:
            if link.proved:
                self._suspicious(connection, error, now)
            else:
                self.tampered += 1
                self.report(connection, error)
                self._unproved(connection, link, error, now)

    def _first(self, connection: Connection, link: LinkEnds, payload: memoryview, now: float) -> None:
        """Take the frame that proves the keys: an OPEN, and nothing before it."""
        received = link.first(payload)
        link.proved = True
        self._opened(connection, link, received, now)

    def _suspicious(self, connection: Connection, error: AeronSparkError, now: float) -> None:
        """Somebody tampers with the duologue: make it anew; too often within some time: end the connection."""
        self.tampered += 1
        since = now - self._settings.tampered_seconds
        connection.tampered = [*(at for at in connection.tampered if at > since), now]
        self.report(connection, error)
        if len(connection.tampered) >= self._settings.tampered_most:
            self._say_close(connection, keep_session=False)
            self._over(connection, error)
        else:
            self._interrupted(connection, error, now)

    def _work(self, now: float) -> bool:
        with self._attending:
            attended, self._attended = self._attended, set()
            jobs, self._jobs = self._jobs, []
        for work in (*jobs, *(connection.sender.flush for connection in attended)):
            try:
                work()
            except Exception as error:  # of one connection: the others go on
                LOG.exception("the endpoint's agent met an error")
                self._agent.failed = error
        opening = self.bulk_links.work(now)
        return bool(self._other_work(now)) or bool(self._attended) or opening

    def _calm(self) -> bool:
        return not self._fresh and self._other_calm()

    def _tick(self, now: float) -> None:
        # acknowledgements are due within two of them, and only where something came; the rest has more time
        everybody = now >= self._everybody_at
        if everybody:
            self._everybody_at = now + FULL_SCAN_INTERVAL_S
            self.bulk_links.tick(now)
        fresh, self._fresh = self._fresh, set()
        for connection in self._connections_now() if everybody else fresh:
            try:
                if connection.tick(now):
                    seconds = self._settings.times.expiry_seconds
                    error = TransportError(f"{connection.label} was silent for {seconds:g} s")
                    self._interrupted(connection, error, now, silent=True)
                elif connection.is_due(self._everybody_at):
                    self._fresh.add(connection)
            except AeronSparkError as error:
                self._over(connection, error)
