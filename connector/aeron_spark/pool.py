"""The connections of this process with its servers, shared by everything that Spark runs in it.

One rule: an entry is idle when nothing borrows it, no call of it runs and no bulk link (branch) of it is lent. An entry
that was idle for 60 s is closed, whatever the option ``handshake`` says; its next use connects again. A thread watches
the time as long as entries are open. A forked child begins with an empty pool.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aeron_spark.errors import AeronSparkError, RefusedError, Retry, WaitTimeout
from aeron_spark.options import DirectRoute, ServerRoute

if TYPE_CHECKING:
    from aeron_spark.client.opening import Client
    from aeron_spark.connection.bulk_links import BulkLink
    from aeron_spark.protocol.rpc_objects import Proxy
    from aeron_spark.stream_client.session import StreamSession

ANSWER_SECONDS: Final = 60.0  # longest time for a call, an outage or a restart of the server included
TURN_SECONDS: Final = 300.0  # longest wait for a place at a server that is full
TURN_INTERVAL: Final = 0.25  # seconds between two attempts at a server that is full
SHORTEST_SECONDS: Final = 0.1  # seconds for an attempt to connect, however little of the caller's time is left
FREED_PLACES: Final = "Raise the server's limit, or run fewer tasks."
IDLE_SECONDS: Final = 60.0  # an entry that was idle for so long is closed
THREAD: Final = "aeron-spark-connections"
LOG: Final = logging.getLogger("aeron_spark.pool")

Connect = Callable[..., "Client"]  # address, timeout, within, the client's options -> a client that is connected
_Key = tuple[object, ...]  # the server, everything that makes a connection another one, the partition


class ConnectionPool:
    """Thread-safe. ``clock`` gives seconds; without ``watch`` no thread is started, and ``sweep`` is the caller's.

    ``let_go`` gives back what connections share in this process, when no entry is open. It returns the seconds until
    more of it can be given back, or None.
    """

    def __init__(
        self, connect: Connect | None = None, *, clock: Callable[[], float] = time.monotonic,
        idle_seconds: float = IDLE_SECONDS, watch: bool = True, let_go: Callable[[], float | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.connect = connect or _connect
        self._let_go = let_go
        self.clock = clock
        self._idle_seconds = idle_seconds
        self._watch = watch
        self._parents: list[object] = []  # what a forked child keeps so that nothing of its parent's is finalized
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._entries: dict[_Key, PoolEntry] = {}
        self._open: set[PoolEntry] = set()
        self._watching = False
        self._closes = 0  # calls of ``close``

    @contextmanager
    def borrow(
        self, way: DirectRoute | ServerRoute, partition: int | None = None
    ) -> Iterator[dict[str, StreamSession]]:
        """Lend the connections with the servers of ``way``, by name; none where it is direct. Their use connects them.

        With ``handshake=partition`` they are those of this ``partition`` alone.
        """
        if isinstance(way, DirectRoute):
            yield {}
            return
        own = partition if way.handshake == "partition" else None
        with self._changed:
            entries = [self._entry(way, server.name, server.address, server.key, own) for server in way.servers]
            for entry in entries:
                entry.borrowers += 1
        try:
            yield {entry.name: entry.session for entry in entries}
        finally:
            with self._changed:
                for entry in entries:
                    entry.borrowers -= 1
                    entry.returned = self.clock()

    def sessions(self, way: ServerRoute) -> dict[str, StreamSession]:
        """Return this process's connections with the servers of ``way``, by name, for as long as the caller likes.

        They are closed when they are idle, and each call connects again.
        """
        with self._changed:
            entries = [self._entry(way, server.name, server.address, server.key, None) for server in way.servers]
        return {entry.name: entry.session for entry in entries}

    def sweep(self, now: float) -> float | None:
        """Close the entries, and bulk links of others, that were idle for long enough.

        Return the seconds until the next sweep, or None if no entry is open and nothing is left of any.
        """
        with self._changed:
            due = [entry for entry in self._open if not entry.is_busy and now - entry.idle_since >= self._idle_seconds]
        self._close_idle(due, now - self._idle_seconds)
        with self._changed:
            in_use = list(self._open)
        for entry in in_use:
            _close_quietly(f"bulk links with {entry.address}", entry.session.close_idle)
        with self._changed:
            wait = min((self._wait(entry, now) for entry in self._open), default=None)
        return self._rest_let_go() if wait is None else wait

    def _rest_let_go(self) -> float | None:
        try:
            return self._let_go()
        except Exception:
            LOG.exception("closing what connections share failed")
            return None

    def _wait(self, entry: PoolEntry, now: float) -> float:
        remaining = 0.0 if entry.is_busy else entry.idle_since + self._idle_seconds - now
        return remaining if remaining > 0 else self._idle_seconds / 10

    def make_room(self, address: str) -> None:
        """Close the entries of this server that are idle now: it has no place for another connection."""
        with self._changed:
            idle = [entry for entry in self._open if entry.address == address]
        self._close_idle(idle, self.clock())

    def close(self) -> None:
        """Close every connection, in use or not, and end the thread; later uses connect again."""
        with self._changed:
            entries = set(self._entries.values()) | self._open
            self._entries.clear()
            self._open.clear()
            self._closes += 1
            self._changed.notify_all()
        for entry in entries:
            entry.close()

    def after_fork(self) -> None:
        """Begin with nothing, in a forked child: what the parent has open stays the parent's."""
        self._parents += [self._entries, self._open]
        for entry in {*self._entries.values(), *self._open}:
            entry.after_fork()
        self._begin()

    def opened(self, entry: PoolEntry) -> None:
        """Watch an entry that has connected."""
        with self._changed:
            self._entries.setdefault(entry.key, entry)  # it may have been swept meanwhile, and still be used
            self._open.add(entry)
            if self._watching or not self._watch:
                self._changed.notify_all()
                return
            self._watching = True
        try:
            threading.Thread(target=self._watch_time, name=THREAD, daemon=True).start()
        except BaseException:
            self._watch_ended()
            raise

    def _entry(
        self, way: ServerRoute, name: str, address: str, server_key: str | None, partition: int | None
    ) -> PoolEntry:
        options: dict[str, Any] = dict(way.client) | {"serverKey": server_key}
        if way.identity is not None:
            options["identity"] = way.identity
        if way.aeron_dir is not None:
            options["aeronDir"] = way.aeron_dir
        key = (address, tuple(sorted(options.items())), way.connect_timeout, partition)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = PoolEntry(self, key, name, address, options, way.connect_timeout)
        return found

    def _close_idle(self, entries: list[PoolEntry], since: float) -> None:
        for entry in entries:
            with self._changed:
                client = entry.take_idle(since)
                if client is None:
                    continue
                self._open.discard(entry)
                if self._entries.get(entry.key) is entry:
                    del self._entries[entry.key]
            entry.close_client(client)

    def _watch_time(self) -> None:
        try:
            while self._watch_once():
                pass
        except BaseException:
            self._watch_ended()
            raise

    def _watch_once(self) -> bool:
        """Sweep, and wait until it is time to sweep again; False where nothing is left, or the pool was closed."""
        closes = self._closes
        wait = self.sweep(self.clock())
        with self._changed:
            if wait is not None and (self._open or closes == self._closes):
                self._changed.wait(wait)
            if self._open or (wait is not None and closes == self._closes):
                return True
            self._watching = False
            return False

    def _watch_ended(self) -> None:
        """Let the next entry that is opened begin another thread."""
        with self._changed:
            self._watching = False


class PoolEntry:
    """One server as this process reaches it: the client of a ``StreamSession``. A use connects where that is needed.

    A server that refuses for now is tried again, for ``TURN_SECONDS`` at most, or for the seconds that the caller has.
    The other callers wait meanwhile, within their own seconds.
    """

    def __init__(
        self, pool: ConnectionPool, key: _Key, name: str, address: str, options: Mapping[str, Any], seconds: float
    ) -> None:
        from aeron_spark.stream_client.session import StreamSession

        self.key = key
        self.name = name
        self.address = address
        self.session: StreamSession = StreamSession(self, ANSWER_SECONDS, clock=pool.clock, reach=self._connected)
        self.borrowers = 0  # under the pool's lock, as what follows
        self.returned = pool.clock()
        self._pool = pool
        self._options = options
        self._seconds = seconds
        self._connecting = threading.Lock()
        self._client: Client | None = None
        self._reached = False
        self._parents: list[object] = []

    @property
    def is_busy(self) -> bool:
        """Whether something borrows it, a call runs or a bulk link is lent."""
        return self.borrowers > 0 or self.session.running > 0

    @property
    def idle_since(self) -> float:
        """When it was used last, by the pool's clock."""
        return max(self.returned, self.session.last_used)

    @property
    def closed(self) -> bool:
        """Whether calling again is of no use: the server was never reached."""
        return not self._reached

    def connect(self, timeout: float | None = None) -> Any:
        """Be connected within ``timeout`` seconds, or raise."""
        return self._connected(timeout).connect(timeout)

    def remote(self, target: str | int) -> Proxy:
        """Return an object of the server's."""
        return self._connected(None).remote(target)

    def bulk_link(self, timeout: float | None = None) -> BulkLink:
        """Open a bulk link of the connection."""
        return self._connected(timeout).bulk_link(timeout)

    def take_idle(self, since: float) -> Client | None:
        """Take the client away if the entry was idle since then; None otherwise, or while it connects."""
        if not self._connecting.acquire(blocking=False):
            return None
        try:
            # a call counts before it asks for the client: one that begins now gets a new client
            if self.is_busy or self.idle_since > since:
                return None
            client, self._client = self._client, None
            return client
        finally:
            self._connecting.release()

    def close(self) -> None:
        """End the connection, in use or not; the next use makes another."""
        client = self._client
        if client is not None:
            self.close_client(client)

    def close_client(self, client: Client) -> None:
        """Close a client of this entry, and the bulk links of it that are not lent."""
        _close_quietly(f"bulk links with {self.address}", self.session.close)
        _close_quietly(f"a connection with {self.address}", client.close)

    def after_fork(self) -> None:
        """Forget the client, which is the parent's."""
        self._parents.append(self._client)
        self._connecting = threading.Lock()
        self._client = None
        self.session.after_fork()

    def _connected(self, seconds: float | None) -> Client:
        """Return the client, connected within ``seconds``; None: within the time for a place and a connection.

        Raises WaitTimeout, also where another thread takes longer to connect.
        """
        longest = TURN_SECONDS + self._seconds if seconds is None else seconds
        end = self._pool.clock() + longest
        if not self._connecting.acquire(timeout=longest):
            raise WaitTimeout(
                f"waited {longest:g} s for another thread of this process to connect to {self.address}",
                remedy="Is the server there, reachable, and not full? Try again, or give it more time.",
            )
        try:
            client = self._client
            if client is None or client.closed:
                client = self._client = self._new_client(None if seconds is None else end)
                self._reached = True
                self._pool.opened(self)
            return client
        finally:
            self._connecting.release()

    def _new_client(self, end: float | None) -> Client:
        """Connect by ``end`` of the pool's clock, the caller's time; None: wait for a place for ``TURN_SECONDS``."""
        begun = self._pool.clock()
        turn = TURN_SECONDS if end is None else min(TURN_SECONDS, end - begun)
        while True:
            within = None if end is None else max(SHORTEST_SECONDS, end - self._pool.clock())
            try:
                return self._pool.connect(self.address, timeout=self._seconds, within=within, **self._options)
            except RefusedError as error:
                if not error.retriable:
                    raise
                if self._pool.clock() >= begun + turn:
                    raise _without_a_place(error, self.address, turn) from None
                if error.retry is Retry.WHEN_FREED:
                    self._pool.make_room(self.address)
            time.sleep(min(TURN_INTERVAL, max(0.0, begun + turn - self._pool.clock())))


def _without_a_place(error: RefusedError, address: str, seconds: float) -> AeronSparkError:
    """Return the error of a use that waited ``seconds`` for a place at a server."""
    if seconds < TURN_SECONDS:  # the caller had less time: it may repeat the call
        return WaitTimeout(
            f"waited {seconds:g} s for a place at the server {address}: {error.what}", remedy=FREED_PLACES,
            reason=error.reason,
        )  # fmt: skip
    return RefusedError(f"{error.what}, for {seconds:g} s", remedy=FREED_PLACES, reason=error.reason)


def _connect(address: str, *, timeout: float, within: float | None, **options: Any) -> Client:
    """Connect to a server that answers in ``timeout`` seconds; ``within``: the caller's time, if it gave one.

    Without it this machine's media driver may start as slowly as it likes: ``timeout`` is the server's alone.
    """
    from aeron_spark import node
    from aeron_spark.client.opening import connect

    if within is not None:
        return connect(address, timeout=min(timeout, within), **options)
    with node.ensure(options.get("aeronDir")):
        return connect(address, timeout=timeout, **options)


def _let_go() -> float | None:
    from aeron_spark.aeron.client import close_unused

    return close_unused()


def _close_quietly(what: str, close: Callable[[], object]) -> None:
    """Close; an error is logged, because what else is idle has to be closed all the same."""
    try:
        close()
    except AeronSparkError as error:  # its server is gone, or its driver: it is closed all the same
        LOG.debug("closing %s: %s", what, error)
    except Exception:
        LOG.exception("closing %s failed", what)


POOL: Final = ConnectionPool(let_go=_let_go)
os.register_at_fork(after_in_child=POOL.after_fork)
