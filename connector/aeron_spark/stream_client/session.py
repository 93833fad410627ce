"""A client's use of one server's stream service: requests, repeated after an outage, and borrowed bulk links."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from aeron_spark.endpoint.bulk_links import BulkLink
from aeron_spark.endpoint.connection import Connection, rpc_of
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
from aeron_spark.protocol.rpc_messages import Call
from aeron_spark.waiting import Deadline
from aeron_spark.wire import stream_requests
from aeron_spark.wire.stream_requests import Request, Response

IDLE_TIMEOUT_S: Final = 15.0  # after which an idle bulk link is closed; it costs as much as an idle connection
KEPT_LINKS: Final = 8  # idle bulk links that stay open for so long
SURPLUS_TIMEOUT_S: Final = 2.0  # of further ones: a hundred writers that begin at once need a hundred, but only once
# The connection or its session was lost before the response arrived: the request can be repeated on another one.
LOSSES: Final = (ConnectError, EndedError, SessionLost, TransportError)
DRAINING: Final = "draining"  # the reason of a server that is about to end
RETRY_INTERVAL_S: Final = 0.25  # between two attempts at a server whose refusal is retriable
MIN_TIMEOUT_S: Final = 0.1  # of one attempt, even if less time remains before the deadline

A = TypeVar("A", bound=Response)


class SessionClient(Protocol):
    """The part of a client that a stream session uses."""

    @property
    def closed(self) -> bool:
        """Whether the program closed the client."""

    @property
    def connected(self) -> bool:
        """Whether a link carries the connection now."""

    def connect(self, timeout: float | None = None) -> Any:
        """Return when the client is connected, or raise the reason."""

    @property
    def connection(self) -> Connection:
        """The connection with the server. Raises ConnectError while there is none."""

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a bulk link."""


class StreamSession:
    """The client's counterpart of one server's stream service. Thread-safe.

    ``timeout_s`` bounds a call, outages included. ``clock`` gives monotonic seconds and ``sleep`` waits; readers and
    writers that use this session measure time with them. ``running`` counts the calls that run and the bulk links that
    are borrowed; ``last_used`` is the time at which the last of them ended, by ``clock``.

    ``ensure_connected`` returns the connected client for a call, and connects it if needed. Its argument is the
    caller's timeout in seconds; None: the client's own timeouts apply.

    ``message_limits`` has the longest message of each stream in bytes, as the server has said it. A limit goes when
    staging rows fails: the stream may have been created again under this name.
    """

    def __init__(
        self,
        client: SessionClient,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        ensure_connected: Callable[[float | None], SessionClient] | None = None,
    ) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self.clock = clock
        self.sleep = sleep
        self.running = 0
        self.last_used = clock()
        self.opened = 0  # bulk links, in total
        self.message_limits: dict[str, int] = {}  # no use of it has more than one step, so that it needs no lock
        self._ensure_connected = ensure_connected
        self._lock = threading.Lock()
        self._idle: list[BulkLink] = []  # the one that was used last is last
        self._requests = itertools.count(1)
        self._parents: list[object] = []  # keeps the parent's links from being finalized, see after_fork

    def deadline(self, seconds: float, what: str) -> Deadline:
        """Return a deadline by this session's clock."""
        return Deadline(seconds, what, clock=self.clock, sleep=self.sleep)

    def call(self, request: Request[A], *, timeout: float | None = None) -> A:
        """Send a request and return its response; after a loss of the connection, connect and repeat the request.

        It is also repeated while the server refuses it because it is about to end: the server may be restarted.
        ``timeout`` is in seconds, by default the session's. Raises the error with which the server responds, and the
        reason if no response arrives in time.
        """
        name = type(request).__name__
        deadline = self.deadline(self.timeout_s if timeout is None else timeout, f"the server's answer to {name}")
        repeated = False
        with self._using():
            while True:
                answer, call, again = self._call(request, timeout, deadline)
                repeated = repeated or again
                try:
                    return stream_requests.decode_response(request, answer, call)
                except AeronSparkError as error:
                    error.repeated = repeated
                    if not isinstance(error, RefusedError) or error.reason != DRAINING:
                        raise
                    self._pause_after(error, error, deadline)

    def _call(self, request: Request[Any], timeout: float | None, deadline: Deadline) -> tuple[bytes, str, bool]:
        """Return the encoded response, the name of the call in the server's log, and whether it was repeated."""
        call = Call(stream_requests.SERVICE, stream_requests.METHOD, (stream_requests.encode_request(request),))
        name = type(request).__name__
        repeated = may_be_sent = False
        while True:
            try:
                client, remaining_s = self._connected_client(timeout, deadline)
                repeated, may_be_sent = may_be_sent, may_be_sent or client.connected
                return (*_call_once(client, call, name, remaining_s), repeated)
            except RemoteError as error:
                raise (error.raised or error) from None
            except LOSSES as error:
                self._reconnect_after(error, deadline)

    def _connected_client(self, timeout: float | None, deadline: Deadline) -> tuple[SessionClient, float]:
        """Return the client, connected within ``timeout`` if it is given, and the seconds that remain for a call."""
        remaining_s = max(MIN_TIMEOUT_S, deadline.remaining())
        if self._ensure_connected is None:
            return self.client, remaining_s
        if timeout is None:  # to be admitted by a full server may take longer than the call
            return self._ensure_connected(None), remaining_s
        return self._ensure_connected(remaining_s), max(MIN_TIMEOUT_S, deadline.remaining())

    def _reconnect_after(self, error: AeronSparkError, deadline: Deadline) -> None:
        """Connect after a loss of the connection or its session; raise ``error`` if the deadline has passed."""
        if self.client.closed or deadline.remaining() <= 0:
            raise error
        deadline.idle(error.what)
        while True:
            try:
                self.client.connect(max(MIN_TIMEOUT_S, deadline.remaining()))
            except WaitTimeout as timeout:
                raise ConnectError(f"{error.what}; {timeout.what}", remedy=error.remedy) from None
            except RefusedError as refusal:
                self._pause_after(refusal, refusal, deadline)
            else:
                return

    def _pause_after(self, error: AeronSparkError, raised: AeronSparkError, deadline: Deadline) -> None:
        """Sleep before the next attempt; raise ``raised`` if ``error`` is not retriable or the deadline is too near."""
        if not error.retriable or deadline.remaining() <= RETRY_INTERVAL_S:
            raise raised from None
        self.sleep(RETRY_INTERVAL_S)

    def request_number(self) -> int:
        """Return a new number for the messages of a read or a stage on a bulk link."""
        return next(self._requests)

    @contextmanager
    def bulk_link(self, timeout: float | None = None) -> Iterator[BulkLink]:
        """Borrow a bulk link: the idle one that was used last, or a new one. An error in the block closes it.

        ``timeout`` bounds the opening of a link, in seconds.
        """
        with self._using():
            link = self._take(timeout)
            try:
                yield link
            except GeneratorExit:
                self._return(link)
                raise
            except BaseException:
                link.close()
                raise
            self._return(link)

    def close(self) -> None:
        """Close the bulk links that are not borrowed."""
        with self._lock:
            closing, self._idle = self._idle, []
        for link in closing:
            link.close()

    def send(self, request: Request[Any]) -> None:
        """Send a request once without waiting for its response; errors are ignored."""
        with self._using(), suppress(AeronSparkError):
            client = self.client if self._ensure_connected is None else self._ensure_connected(self.timeout_s)
            service = client.connection.remote(stream_requests.SERVICE)
            service.oneway[stream_requests.METHOD](stream_requests.encode_request(request))

    def after_fork(self) -> None:
        """In a forked child: forget the bulk links, which belong to the parent."""
        self._parents.append(self._idle)
        self._lock = threading.Lock()
        self._idle = []
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

    def _take(self, timeout: float | None) -> BulkLink:
        with self._lock:
            while self._idle:
                link = self._idle.pop()
                if link.keep_open():
                    return link
        return self._open_link(timeout)

    def _open_link(self, timeout: float | None) -> BulkLink:
        deadline = self.deadline(self.timeout_s if timeout is None else timeout, "a bulk link of the connection")
        while True:
            try:
                client, remaining_s = self._connected_client(timeout, deadline)
                link = client.bulk_link(remaining_s)
            except RemoteError as error:
                self._pause_after(error, error.raised or error, deadline)
            except LOSSES as error:
                self._reconnect_after(error, deadline)
            else:
                self.opened += 1
                return link

    def _return(self, link: BulkLink) -> None:
        with self._lock:
            self._idle = [one for one in self._idle if not one.closed]
            link.close_after(IDLE_TIMEOUT_S if len(self._idle) < KEPT_LINKS else SURPLUS_TIMEOUT_S)
            self._idle.append(link)


def _call_once(client: SessionClient, call: Call, name: str, timeout_s: float) -> tuple[bytes, str]:
    try:
        return rpc_of(client.connection).request(call, timeout_s)
    except WaitTimeout as error:  # all requests call one method, whose name does not help a user
        raise error.with_what(f"request {name} was not answered: {error.what}") from None
