"""What a client asks of a server's stream service: calls, repeated after an outage, and bulk links for rows."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from aeron_spark.connection.bulk_links import BulkLink
from aeron_spark.errors import (
    AeronSparkError,
    ConnectError,
    EndedError,
    RefusedError,
    RemoteError,
    SessionLost,
    TransportError,
    WaitTimeout,
)
from aeron_spark.protocol.rpc_objects import Proxy
from aeron_spark.waiting import Deadline
from aeron_spark.wire import stream_rpc
from aeron_spark.wire.stream_rpc import Request, Response

IDLE_SECONDS: Final = 60.0  # a bulk link that was idle for so long is closed
# The connection or its session was lost before the answer came: the request can be sent again on another one.
LOSSES: Final = (ConnectError, EndedError, SessionLost, TransportError)
RETRY_INTERVAL_S: Final = 0.25  # between two attempts at a server that refuses for now
SHORTEST_TIMEOUT_S: Final = 0.1  # of one attempt, however little of a deadline is left

A = TypeVar("A", bound=Response)


class SessionClient(Protocol):
    """The client, as far as a stream session needs it."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    def connect(self, timeout: float | None = None) -> Any:
        """Be connected, or raise."""

    def remote(self, target: str | int) -> Proxy:
        """Return a proxy of an object of the server."""

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a bulk link."""


class StreamSession:
    """The stream service of one server, as a client uses it. Thread-safe.

    ``timeout_s`` is how long a call may take, an outage included. ``clock`` gives monotonic seconds and ``sleep`` waits
    for some; everything that writes or reads through this object measures its time with them. ``running`` counts calls
    that run and bulk links that are borrowed; ``last_used`` is when the last of them ended, by ``clock``.

    ``reach`` connects, before a call, a client that was not connected or was closed: within the seconds that the caller
    gave, or, where it gave none (None), within the client's own time.
    """

    def __init__(
        self, client: SessionClient, timeout_s: float, *, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        reach: Callable[[float | None], SessionClient] | None = None,
    ) -> None:  # fmt: skip
        self.client = client
        self._reach = reach
        self.timeout_s = timeout_s
        self.clock = clock
        self.sleep = sleep
        self.running = 0
        self.last_used = clock()
        self.opened = 0  # bulk links, since the start
        self._lock = threading.Lock()
        self._idle: dict[object, list[tuple[float, BulkLink]]] = {}
        self._requests = itertools.count(1)
        self._parents: list[object] = []  # see after_fork

    def deadline(self, seconds: float, what: str, *, remedy: str = "") -> Deadline:
        """Return a deadline by this object's clock."""
        return Deadline(seconds, what, remedy=remedy, clock=self.clock, sleep=self.sleep)

    def call(self, request: Request[A], *, timeout: float | None = None) -> A:
        """Return the server's answer; the request is repeated until there is one, or the time is over.

        ``timeout`` is in seconds, the session's own unless given. Raises the error that the server answered, and where
        no answer came, why.
        """
        with self._using():
            return stream_rpc.decode_response(request, self._call(request, timeout))

    def _call(self, request: Request[Any], timeout: float | None) -> bytes:
        encoded = stream_rpc.encode_request(request)
        name = type(request).__name__
        deadline = self.deadline(self.timeout_s if timeout is None else timeout, f"the server's answer to {name}")
        while True:
            try:
                client, left = self._reached(timeout, deadline)
                return _answer_within(left, client, encoded, name)
            except RemoteError as error:
                raise (error.raised or error) from None
            except LOSSES as error:
                self._reconnect_after(error, deadline)

    def _reached(self, timeout: float | None, deadline: Deadline) -> tuple[SessionClient, float]:
        """Return the client, connected within ``timeout`` if it is given, and the time that is left for a call."""
        left = max(SHORTEST_TIMEOUT_S, deadline.remaining())
        if self._reach is None:
            return self.client, left
        if timeout is None:  # a place at a server that is full may take longer than the call
            return self._reach(None), left
        return self._reach(left), max(SHORTEST_TIMEOUT_S, deadline.remaining())

    def _reconnect_after(self, error: AeronSparkError, deadline: Deadline) -> None:
        """Connect after a loss of the connection or its session; raise ``error`` when the time is over."""
        if self.client.closed or deadline.remaining() <= 0:
            raise error
        deadline.idle(error.what)
        while True:
            try:
                self.client.connect(max(SHORTEST_TIMEOUT_S, deadline.remaining()))
            except WaitTimeout as timeout:
                raise ConnectError(f"{error.what}; {timeout.what}", remedy=error.remedy) from None
            except RefusedError as refusal:
                self._pause_after(refusal, refusal, deadline)
            else:
                return

    def _pause_after(self, error: AeronSparkError, raised: AeronSparkError, deadline: Deadline) -> None:
        """Wait for a moment, or raise ``raised`` where ``error`` is not retriable, or not before the deadline."""
        if not error.retriable or deadline.remaining() <= RETRY_INTERVAL_S:
            raise raised from None
        self.sleep(RETRY_INTERVAL_S)

    def request_number(self) -> int:
        """Return a number for the messages of a read or a stage on a bulk link."""
        return next(self._requests)

    @contextmanager
    def bulk_link(self, key: object, timeout: float | None = None) -> Iterator[BulkLink]:
        """Lend a bulk link: the one that was last used for ``key``, or a new one. It is closed if its user fails.

        ``timeout`` is how many seconds opening one may take.
        """
        with self._using():
            link = self._take(key, timeout)
            try:
                yield link
            except GeneratorExit:
                self._put(key, link)
                raise
            except BaseException:
                link.close()
                raise
            self._put(key, link)

    def close(self) -> None:
        """Close the bulk links that are not borrowed."""
        with self._lock:
            idle = [link for found in self._idle.values() for _, link in found]
            self._idle.clear()
        for link in idle:
            link.close()

    def close_idle(self) -> None:
        """Close the bulk links that were idle for ``IDLE_SECONDS``."""
        with self._lock:
            old = self._expired(self.clock() - IDLE_SECONDS)
        for link in old:
            link.close()

    def send(self, request: Request[Any]) -> None:
        """Send a request once, without waiting for its answer; an error is ignored."""
        with self._using(), suppress(AeronSparkError):
            client = self.client if self._reach is None else self._reach(self.timeout_s)
            client.remote(stream_rpc.SERVICE).oneway[stream_rpc.METHOD](stream_rpc.encode_request(request))

    def after_fork(self) -> None:
        """Forget the bulk links, which are the parent's, in a forked child."""
        self._parents.append(self._idle)
        self._lock = threading.Lock()
        self._idle = {}
        self.running = 0

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
                self.last_used = self.clock()

    def _take(self, key: object, timeout: float | None) -> BulkLink:
        with self._lock:
            old = self._expired(self.clock() - IDLE_SECONDS)
            found = self._idle.get(key, [])
            kept = next((link for _, link in reversed(found) if not link.closed), None)
            if kept is not None:
                self._idle[key] = [one for one in found if one[1] is not kept]
        for one in old:
            one.close()
        return self._opened(timeout) if kept is None else kept

    def _opened(self, timeout: float | None) -> BulkLink:
        deadline = self.deadline(self.timeout_s if timeout is None else timeout, "a bulk link of the connection")
        while True:
            try:
                client, left = self._reached(timeout, deadline)
                link = client.bulk_link(left)
            except RemoteError as error:
                with self._lock:
                    idle = self._expired(self.clock())
                for one in idle:
                    one.close()
                if idle:  # the server may have no place for another link beside these
                    deadline.idle(error.what)
                else:
                    self._pause_after(error, error.raised or error, deadline)
            except LOSSES as error:
                self._reconnect_after(error, deadline)
            else:
                self.opened += 1
                return link

    def _put(self, key: object, link: BulkLink) -> None:
        if link.closed:
            return
        with self._lock:
            self._idle.setdefault(key, []).append((self.clock(), link))

    def _expired(self, before: float) -> list[BulkLink]:
        """Take out the bulk links that were idle since then; the lock is held."""
        old = []
        for key, found in list(self._idle.items()):
            old += [link for since, link in found if since <= before]
            kept = [one for one in found if one[0] > before]
            if kept:
                self._idle[key] = kept
            else:
                del self._idle[key]
        return old


def _answer_within(seconds: float, client: SessionClient, request: bytes, name: str) -> bytes:
    try:
        answer: bytes = client.remote(stream_rpc.SERVICE).with_timeout(seconds)[stream_rpc.METHOD](request)
    except WaitTimeout as error:  # all requests are calls of one method: its name says nothing to a user
        raise error.with_what(f"request {name} was not answered: {error.what}") from None
    return answer
