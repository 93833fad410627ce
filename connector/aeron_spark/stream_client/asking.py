"""StreamSession a server about its streams, again after an outage, and the branches over which rows come and go."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

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
from aeron_spark.stream_client.service import STREAMS
from aeron_spark.waiting import Deadline

IDLE_SECONDS: Final = 60.0  # a branch that nobody used for so long is closed
# Of an outage, where this side raises them; what a server says is another matter.
PASSING: Final = (ConnectError, EndedError, SessionLost, TransportError)
PAUSE: Final = 0.25  # seconds between two attempts at a server that refuses for now
SHORTEST_SECONDS: Final = 0.1  # for one attempt, however little of a deadline is left


class Host(Protocol):
    """The client, as far as streams need it."""

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""

    def connect(self, timeout: float | None = None) -> Any:
        """Be connected, or raise."""

    def remote(self, target: str | int) -> Proxy:
        """An object of the server's."""

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a branch."""


class StreamSession:
    """What one connection asks. Thread-safe. ``seconds`` is how long a question may take, an outage included.

    ``clock`` gives monotonic seconds and ``sleep`` waits for some; everything that writes or reads through this object
    measures its time with them. ``running`` counts calls that run and bulk links that are lent; ``last_used`` is when
    the last of them ended, by ``clock``.

    ``reach`` connects, before a call, a host that was not connected or was closed: within the seconds that the caller
    gave, or, where it gave none (None), within the host's own time.
    """

    def __init__(
        self, host: Host, seconds: float, *, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep, reach: Callable[[float | None], Host] | None = None,
    ) -> None:  # fmt: skip
        self.host = host
        self._reach = reach
        self.seconds = seconds
        self.clock = clock
        self.sleep = sleep
        self.running = 0
        self.last_used = clock()
        self.opened = 0  # branches, since the start
        self._lock = threading.Lock()
        self._idle: dict[object, list[tuple[float, BulkLink]]] = {}
        self._requests = itertools.count(1)
        self._parents: list[object] = []  # see after_fork

    def deadline(self, seconds: float, what: str, *, remedy: str = "") -> Deadline:
        """Return a deadline by this object's clock."""
        return Deadline(seconds, what, remedy=remedy, clock=self.clock, sleep=self.sleep)

    def ask(self, method: str, *given: Any, seconds: float | None = None) -> Any:
        """Call a method of the service; every one may be called again. Raises what the server raised."""
        with self._using():
            return self._ask(method, given, seconds)

    def _ask(self, method: str, given: tuple[Any, ...], seconds: float | None) -> Any:
        deadline = self.deadline(self.seconds if seconds is None else seconds, f"the server's answer to {method}")
        while True:
            try:
                host, left = self._reached(seconds, deadline)
                return getattr(host.remote(STREAMS).with_timeout(left), method)(*given)
            except RemoteError as error:
                raise (error.raised or error) from None
            except PASSING as error:
                if self.host.closed or deadline.remaining() <= 0:
                    raise
                deadline.idle(error.what)
                self._come_back(deadline, error)

    def _reached(self, seconds: float | None, deadline: Deadline) -> tuple[Host, float]:
        """Return the host, connected within ``seconds`` if they are given, and the time that is left for a call."""
        left = max(SHORTEST_SECONDS, deadline.remaining())
        if self._reach is None:
            return self.host, left
        if seconds is None:  # a place at a server that is full may take longer than the call
            return self._reach(None), left
        return self._reach(left), max(SHORTEST_SECONDS, deadline.remaining())

    def _come_back(self, deadline: Deadline, why: AeronSparkError) -> None:
        while True:
            try:
                self.host.connect(max(SHORTEST_SECONDS, deadline.remaining()))
            except WaitTimeout as error:
                raise ConnectError(f"{why.what}; {error.what}", remedy=why.remedy) from None
            except RefusedError as error:
                self._pause_after(error, error, deadline)
            else:
                return

    def _pause_after(self, error: AeronSparkError, raised: AeronSparkError, deadline: Deadline) -> None:
        """Wait for a moment, or raise ``raised`` where ``error`` does not pass, or not before the deadline."""
        if not error.retriable or deadline.remaining() <= PAUSE:
            raise raised from None
        self.sleep(PAUSE)

    def request(self) -> int:
        """Return a number for what is asked on a branch."""
        return next(self._requests)

    @contextmanager
    def bulk_link(self, key: object, seconds: float | None = None) -> Iterator[BulkLink]:
        """Lend a branch: the one that was last used for ``key``, or another. It is closed where its user failed.

        ``seconds`` is how long opening one may take.
        """
        with self._using():
            bulk_link = self._take(key, seconds)
            try:
                yield bulk_link
            except GeneratorExit:
                self._put(key, bulk_link)
                raise
            except BaseException:
                bulk_link.close()
                raise
            self._put(key, bulk_link)

    def close(self) -> None:
        """Close the branches that nobody uses."""
        with self._lock:
            idle = [bulk_link for found in self._idle.values() for _, bulk_link in found]
            self._idle.clear()
        for bulk_link in idle:
            bulk_link.close()

    def close_idle(self) -> None:
        """Close the branches that nobody used for ``IDLE_SECONDS``."""
        with self._lock:
            old = self._expired(self.clock() - IDLE_SECONDS)
        for bulk_link in old:
            bulk_link.close()

    def tell(self, method: str, *given: Any) -> None:
        """Call a method, and do not wait for it; whatever becomes of it is nobody's concern."""
        with self._using(), suppress(AeronSparkError):
            host = self.host if self._reach is None else self._reach(self.seconds)
            getattr(host.remote(STREAMS).oneway, method)(*given)

    def after_fork(self) -> None:
        """Forget the branches, which are the parent's, in a forked child."""
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

    def _take(self, key: object, seconds: float | None) -> BulkLink:
        with self._lock:
            old = self._expired(self.clock() - IDLE_SECONDS)
            found = self._idle.get(key, [])
            kept = next((bulk_link for _, bulk_link in reversed(found) if not bulk_link.closed), None)
            if kept is not None:
                self._idle[key] = [one for one in found if one[1] is not kept]
        for one in old:
            one.close()
        return self._opened(seconds) if kept is None else kept

    def _opened(self, seconds: float | None) -> BulkLink:
        deadline = self.deadline(self.seconds if seconds is None else seconds, "a branch of the connection")
        while True:
            try:
                host, left = self._reached(seconds, deadline)
                bulk_link = host.bulk_link(left)
            except RemoteError as error:
                with self._lock:
                    idle = self._expired(self.clock())
                for one in idle:
                    one.close()
                if idle:  # these may be what there is no place beside
                    deadline.idle(error.what)
                else:
                    self._pause_after(error, error.raised or error, deadline)
            except PASSING as error:
                if self.host.closed or deadline.remaining() <= 0:
                    raise
                deadline.idle(error.what)
                self._come_back(deadline, error)
            else:
                self.opened += 1
                return bulk_link

    def _put(self, key: object, bulk_link: BulkLink) -> None:
        if bulk_link.closed:
            return
        with self._lock:
            self._idle.setdefault(key, []).append((self.clock(), bulk_link))

    def _expired(self, before: float) -> list[BulkLink]:
        """Take out the branches that nobody used since then; the lock is held."""
        old = []
        for key, found in list(self._idle.items()):
            old += [bulk_link for since, bulk_link in found if since <= before]
            kept = [one for one in found if one[0] > before]
            if kept:
                self._idle[key] = kept
            else:
                del self._idle[key]
        return old
